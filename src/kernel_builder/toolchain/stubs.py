"""Link stubs: shared objects that hold nothing but names, to link against instead of a library.

A stub has the soname and the exported symbols of the real library, so the linker resolves the same names, binds the
same versions and writes the same ``DT_NEEDED``. It is assembled and linked by the host's own tools, which understand
every target that the compiler does.
"""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_builder.binary.elf import Symbol
from kernel_builder.errors import MachineError, ToolchainError
from kernel_builder.toolchain.model import HostCompiler

_TYPES = {"func": "function", "ifunc": "function", "object": "object", "tls": "tls_object", "notype": "notype"}
_SECTIONS = {
    "function": ".text",
    "notype": ".text",
    "object": ".bss",
    "tls_object": '.section .tbss,"awT",@nobits',
}


def _assembly(symbols: list[Symbol]) -> str:
    """Assembler text that defines every symbol with its type and size. Needs no instruction of any processor."""
    lines: list[str] = []
    by_section: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        by_section.setdefault(_TYPES[symbol.kind], []).append(symbol)
    for kind in sorted(by_section):
        section = _SECTIONS[kind]
        lines.append(section if section.startswith(".section") else f"{section}")
        for symbol in by_section[kind]:
            name = f'"{symbol.name}"'
            lines.append(f".{'weak' if symbol.binding == 'weak' else 'globl'} {name}")
            # '%' is the type prefix that every target's assembler accepts ('@' starts a comment on Arm).
            lines.append(f".type {name}, %{kind}")
            size = max(symbol.size, 1) if kind in {"object", "tls_object"} else 0
            lines.append(f".size {name}, {size}")
            lines.append(f"{name}:")
            if size:
                lines.append(f".zero {size}")
    lines.append('.section .note.GNU-stack,"",%progbits')
    return "\n".join(lines) + "\n"


def _version_script(symbols: list[Symbol]) -> str:
    """A version script that puts each symbol under its version node. Nodes stand in sorted order, unchained."""
    by_version: dict[str, list[str]] = {}
    for symbol in symbols:
        if symbol.version is not None:
            by_version.setdefault(symbol.version, []).append(symbol.name)
    return "".join(
        f"{version} {{ global:\n" + "".join(f'  "{name}";\n' for name in names) + "};\n"
        for version, names in sorted(by_version.items())
    )


def write_stub(
    path: Path, *, soname: str, symbols: Iterable[Symbol], host: HostCompiler, environ: Mapping[str, str]
) -> None:
    """Write the stub of library ``soname`` with ``symbols`` to ``path``; parents must exist.

    Each name may come once. Symbols with a version are put under it as the default version. Raises
    :class:`ToolchainError` with the tool's words when assembling or linking fails, :class:`MachineError` for a disk
    that is full.
    """
    ordered = sorted(symbols, key=lambda symbol: symbol.name)
    with tempfile.TemporaryDirectory(prefix="kernel-builder-stub-") as scratch:
        source = Path(scratch) / "stub.s"
        source.write_text(_assembly(ordered), encoding="utf-8", errors="surrogateescape")
        command = [str(host.cxx), "-shared", "-nostdlib", "-fPIC", "-x", "assembler", str(source), "-x", "none"]
        command += ["-o", str(path), f"-Wl,-soname,{soname}", "-Wl,--build-id=none", "-Wl,--hash-style=gnu"]
        script = _version_script(ordered)
        if script:
            script_file = Path(scratch) / "stub.map"
            script_file.write_text(script, encoding="utf-8", errors="surrogateescape")
            command += ["-Xlinker", f"--version-script={script_file}"]  # -Wl, would split the path at a comma
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environ, stdin=subprocess.DEVNULL
        )
    if completed.returncode != 0 and os.strerror(errno.ENOSPC) in completed.stderr:
        raise MachineError(f"no space left for the link stub of {soname}", hint=f"free some space in {path.parent}")
    if completed.returncode != 0:
        raise ToolchainError(
            f"{host.cxx} could not make the link stub of {soname}:\n{completed.stderr.strip()[-2000:]}",
            hint="the compiler needs a working assembler and linker (binutils)",
        )
