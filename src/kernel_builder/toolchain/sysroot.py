"""An old C library to link against, made of the host's own (DESIGN.md F6 and F7).

The host's ``libc.so.6`` and its siblings hold every version of every symbol that was ever published. For each of them
a stub library is generated that offers, per symbol, only the newest version that the floor already had. Linked against
the stubs, whatever existed then binds to its old version, and anything newer is an undefined symbol. The few newer
names that static libstdc++ itself asks for come from an archive of shims (``templates/floor``).

The C++ runtime is linked as F7 found to be the only right way: libstdc++ static and hidden, ``libgcc_s`` shared.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_builder.binary.elf import ElfError, Symbol, read_elf
from kernel_builder.binary.glibc import TABLE, apart_in
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.toolchain.answers import Answers
from kernel_builder.toolchain.host import compiler_file
from kernel_builder.toolchain.model import HostCompiler, Sysroot
from kernel_builder.toolchain.stubs import write_stub
from kernel_builder.versions import Version

GLIBC_FLOOR = "2.27"
"""The oldest glibc that a kernel must run on (kernel requirements, 'Native Python module')."""

_LIMITS: dict[str, tuple[int, ...]] = {
    "GLIBC_": tuple(int(part) for part in GLIBC_FLOOR.split(".")),
    # libgcc_s of the same age: what manylinux_2_28, the nearest policy, allows.
    "GCC_": (7, 0, 0),
}

_C_LIBRARY = "libc.so.6"
_REQUIRED = (_C_LIBRARY, "libm.so.6", "libgcc_s.so.1")
_OPTIONAL = ("libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_SHIMS = Path(__file__).parent.parent / "templates" / "floor"
_OPENMP = _SHIMS.parent / "openmp" / "omp.h"
_SHIM_FLAGS = ("-O2", "-fPIC", "-fno-builtin", "-ffunction-sections", "-fdata-sections", "-fno-stack-protector", "-w")


def _number(version: str) -> tuple[int, ...] | None:
    """``GLIBC_2.2.5`` -> ``(2, 2, 5)`` if the floor knows that family; ``None`` for private and foreign versions."""
    for prefix in _LIMITS:
        text = version.removeprefix(prefix)
        if text != version and all(part.isdigit() for part in text.split(".")):
            return tuple(int(part) for part in text.split("."))
    return None


def _is_allowed(version: str, number: tuple[int, ...]) -> bool:
    return next(number <= limit for prefix, limit in _LIMITS.items() if version.startswith(prefix))


def select_floor(symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
    """For each name the newest version that the floor has, as the default version; names that it lacks are left out."""
    newest: dict[str, tuple[tuple[int, ...], Symbol]] = {}
    for symbol in symbols:
        number = _number(symbol.version) if symbol.version is not None else None
        if symbol.version is None or number is None or not _is_allowed(symbol.version, number):
            continue
        if symbol.name not in newest or newest[symbol.name][0] < number:
            newest[symbol.name] = number, replace(symbol, default=True)
    return tuple(newest[name][1] for name in sorted(newest))


def as_at_floor(libraries: Mapping[str, Sequence[Symbol]], machine: str) -> Mapping[str, Sequence[Symbol]]:
    """The symbols of ``libraries`` (by soname), each in the library that had it at the floor: what glibc 2.34 moved
    into ``libc.so.6`` is in libpthread and its like again. Libraries without symbols are left out.
    """
    apart = apart_in(machine, Version.parse(GLIBC_FLOOR))
    placed: dict[str, dict[str, Symbol]] = {}
    for soname, symbols in libraries.items():
        for symbol in symbols:
            where = apart.get(symbol.name, soname) if soname == _C_LIBRARY else soname
            placed.setdefault(where, {})[symbol.name] = symbol
    return {soname: tuple(found.values()) for soname, found in sorted(placed.items())}


def host_libraries(host: HostCompiler, environ: Mapping[str, str], answers: Answers | None = None) -> dict[str, Path]:
    """soname -> file of the host's C library, its siblings and libgcc_s."""
    loader = _LOADERS.get(host.machine)
    if loader is None:
        raise ToolchainError(
            f"{host.cxx} compiles for {host.target}, but kernels are built for {' and '.join(_LOADERS)}",
            hint="set CXX to a compiler for one of them",
        )
    found = {name: compiler_file(host, name, environ, answers) for name in (*_REQUIRED, loader)}
    for name in _OPTIONAL:
        try:
            found[name] = compiler_file(host, name, environ, answers)
        except ToolchainError:
            continue  # glibc 2.34 and later may come without the files that were merged into libc.so.6
    return found


def sysroot_digest(host: HostCompiler, environ: Mapping[str, str], answers: Answers | None = None) -> str:
    """A digest of everything that the sysroot is made of: host libraries, shims and the compiler's version."""
    digest = hashlib.sha256(f"{GLIBC_FLOOR} {host} {host.target} {_SHIM_FLAGS}".encode())
    digest.update(TABLE.read_bytes())
    for name, path in sorted(host_libraries(host, environ, answers).items()):
        digest.update(f"{name} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in (*sorted(_SHIMS.glob("*.[ch]")), _OPENMP):
        digest.update(f"{path.name} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def provide_sysroot(
    store: Store, host: HostCompiler, environ: Mapping[str, str], answers: Answers | None = None
) -> Sysroot:
    """The sysroot of this host out of ``store``, made now if it is not there; what ``answers`` know is not asked again.
    Raises as :func:`write_sysroot` does.
    """

    def build(into: Path) -> Sequence[Artefact]:
        write_sysroot(into, host, environ)
        return ()

    key = StoreKey.of(f"glibc-{GLIBC_FLOOR}-{host.target}", inputs=sysroot_digest(host, environ, answers))
    return sysroot_at(store.ensure(key, build))


def sysroot_at(directory: Path) -> Sysroot:
    """The value for a sysroot that :func:`write_sysroot` wrote, or will write, to ``directory``."""
    libraries = directory / "lib"
    found = sorted(path.name for path in libraries.iterdir()) if libraries.is_dir() else []
    return Sysroot(
        libraries=libraries,
        shim=directory / "libfloor.a",
        floor=GLIBC_FLOOR,
        others=tuple(name for name in found if name not in _REQUIRED),
        openmp=directory / "include",
    )


def write_sysroot(directory: Path, host: HostCompiler, environ: Mapping[str, str]) -> None:
    """Write stub libraries and the archive of shims into ``directory``, which exists.

    Raises :class:`ToolchainError` when the host's libraries or tools cannot be used.
    """
    sysroot = sysroot_at(directory)
    sysroot.libraries.mkdir()
    selected: dict[str, tuple[Symbol, ...]] = {}
    for soname, path in sorted(host_libraries(host, environ).items()):
        try:
            selected[soname] = select_floor(read_elf(path.read_bytes()).exports)
        except ElfError as error:
            raise ToolchainError(f"cannot read {path} as a shared library: {error}") from error
        if not selected[soname] and soname in _REQUIRED:
            raise ToolchainError(
                f"{path} has no symbol that glibc {GLIBC_FLOOR} had",
                hint="kernels are built on glibc systems; musl (Alpine) is not supported",
            )
    for soname, symbols in as_at_floor(selected, host.machine).items():
        write_stub(sysroot.libraries / soname, soname=soname, symbols=symbols, host=host, environ=environ)
    _write_shims(sysroot.shim, host, environ)
    (directory / "include").mkdir()
    shutil.copyfile(_OPENMP, directory / "include" / _OPENMP.name)


def _write_shims(archive: Path, host: HostCompiler, environ: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="kernel-builder-floor-") as scratch:
        objects: list[str] = []
        for source in sorted(_SHIMS.glob("*.c")):
            target = Path(scratch) / f"{source.stem}.o"
            _run(
                [str(host.cxx), "-x", "c", "-c", *_SHIM_FLAGS, str(source), "-o", str(target)],
                "compile the shims",
                environ,
            )
            objects.append(str(target))
        # 'D': no times and owners, so that the archive is the same on every run.
        _run([archiver(host, environ), "rcsD", str(archive), *objects], "archive the shims", environ)


def archiver(host: HostCompiler, environ: Mapping[str, str]) -> str:
    """The ``ar`` that belongs to the compiler."""
    completed = subprocess.run(
        [host.cxx, "-print-prog-name=ar"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
        stdin=subprocess.DEVNULL,
    )
    return completed.stdout.strip() or "ar"


def _run(command: list[str], purpose: str, environ: Mapping[str, str]) -> None:
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environ, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise ToolchainError(
            f"{command[0]} is needed to {purpose}, but it is not installed", hint="install binutils"
        ) from error
    if completed.returncode != 0:
        raise ToolchainError(f"could not {purpose}:\n{completed.stderr.strip()[-2000:]}")
