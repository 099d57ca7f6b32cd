"""What a kernel's code gets to see while it is loaded: an environment without secrets, an empty home, and, where
bubblewrap works, no network and nothing of the user's files.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from kernel_builder.bubblewrap import PROGRAM, SYSTEM, shown
from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError
from kernel_builder.load.process import run_child, scratch

SWITCH = "KERNEL_BUILDER_SANDBOX"
"""The variable that turns the sandbox off, for machines whose drivers it hides."""

_TRIAL_SECONDS = 20

# What programs, the C library, Python and torch's own libraries are told by variables. Those of a backend are in its
# row of the table.
_KEPT = (
    "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "CC", "CXX",
    "GLIBC_TUNABLES", "MALLOC_*", "*SAN_OPTIONS", "QEMU_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*",
    "DNNL_*", "ONEDNN_*", "ATEN_*", "TORCH_*", "PYTORCH_*", "TRITON_*",
)  # fmt: skip
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|(^|_|API)KEYS?(_|$)", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*@")

_CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_RUNTIME_DIR": ".run",
    "HF_HOME": ".cache/huggingface",
    "KERNELS_CACHE": ".cache/kernels",
    "TORCH_HOME": ".cache/torch",
    "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": ".cache/inductor",
    "TRITON_CACHE_DIR": ".cache/triton",
    "TRITON_HOME": ".",
    "TMPDIR": ".tmp",
}
"""Where programs write, as directories in the home: none of them is left at the user's own."""

# /etc has passwords and keys, so only what programs need is shown.
_SETTINGS = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "nsswitch.conf",
        "passwd", "OpenCL", "nv_tegra_release",
    )
)  # fmt: skip
_FACTS = ("/sys", "/run/opengl-driver")


def clean_environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variables of ``environ`` that loading a kernel needs, with everything personal in ``home``.

    What is not known to be needed is left out, and so is whatever looks like a secret.
    """
    kept = (*_KEPT, *(pattern for backend in Backend for pattern in backend.runtime.environment))
    cleaned = {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in kept)
        and not _SECRET_NAME.search(name)
        and not _SECRET_VALUE.search(value)
    }
    own = {variable: str(home / place) for variable, place in _CACHES.items()}
    # Without a network the client would try for long; what a kernel needs it has to bring.
    return {**cleaned, "HOME": str(home), **own, "HF_HUB_OFFLINE": "1"}


def make_home(home: Path) -> None:
    """Make the directories that :func:`clean_environment` names."""
    for place in _CACHES.values():
        (home / place).mkdir(mode=0o700, parents=True, exist_ok=True)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """How children are confined: by ``program``, with ``visible`` paths besides the system and ``hidden`` ones within
    it. Without a program they are not; ``why_not`` says why.
    """

    program: Path | None = None
    why_not: str = "nobody looked for it"
    visible: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()

    @property
    def label(self) -> str:
        """For people: what a kernel's code can do."""
        if self.program is None:
            return f"loaded without a sandbox: {self.why_not}"
        return "loaded in a sandbox: no network, none of your files"

    def command(self, argv: Sequence[str], *, home: Path, readable: Iterable[Path]) -> list[str]:
        """The command that runs ``argv`` in the sandbox, where ``home`` can be written and ``readable`` be read.

        Without a sandbox it is ``argv``.
        """
        if self.program is None:
            return list(argv)
        visible = {path for path in (*self.visible, *readable) if path.exists()}
        hidden = {path for path in (*self.hidden, *self._around(readable)) if _is_within_system(path)} - visible
        mounts = [*((path, ("--ro-bind",)) for path in visible), *((path, ("--tmpfs",)) for path in hidden)]
        arguments: list[str] = []
        for path, (option,) in sorted(mounts, key=lambda mount: mount[0].parts):  # outer ones first
            arguments += [option, *([str(path)] * (2 if option == "--ro-bind" else 1))]
        return [
            str(self.program), "--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL",
            *shown((*SYSTEM, *_SETTINGS, *_FACTS)), "--proc", "/proc", "--dev", "/dev", *_devices(), "--tmpfs", "/tmp",  # noqa: S108
            *arguments, "--bind", str(home), str(home), "--remount-ro", "/", "--chdir", str(home), "--", *argv,
        ]  # fmt: skip

    @staticmethod
    def _around(readable: Iterable[Path]) -> Iterator[Path]:
        """The project that a variant in ``build/`` belongs to."""
        for path in readable:
            if len(path.parents) > 1:
                yield path.parents[1]


def _is_within_system(path: Path) -> bool:
    """Whether the system's directories show ``path``, which is not one of them itself."""
    return any(path.is_relative_to(top) and path != Path(top) for top in (*SYSTEM, *_SETTINGS))


def _devices() -> Iterator[str]:
    """The devices that backends run on. Others stay away: among them are disks."""
    patterns = {pattern for backend in Backend for pattern in backend.runtime.devices}
    for path in sorted({found for pattern in patterns for found in Path("/dev").glob(pattern)}):
        yield from ("--dev-bind", str(path), str(path))


def find_sandbox(python: Sequence[str], visible: Iterable[Path], environ: Mapping[str, str]) -> Sandbox:
    """The sandbox that ``python`` (a command) runs in, tried once by a process; ``visible`` are paths that it needs.

    Raises :class:`UsageError` when :data:`SWITCH` has a value that means nothing.
    """
    wanted = environ.get(SWITCH, "")
    if wanted not in {"", "on", "off"}:
        raise UsageError(f"{SWITCH}={wanted} is not a valid value", hint=f"set {SWITCH} to on or off")
    if wanted == "off":
        return Sandbox(why_not=f"{SWITCH} is off")
    program = shutil.which(PROGRAM, path=environ.get("PATH", ""))
    if program is None:
        return Sandbox(why_not=f"{PROGRAM} (bubblewrap) is not installed")
    sandbox = Sandbox(
        program=Path(program),
        visible=tuple(dict.fromkeys(path for path in visible if not _holds_everything(path, environ))),
        hidden=tuple(Path(environ[name]) for name in ("HOME", "PWD") if environ.get(name, "").startswith("/")),
    )
    why_not = _trial(sandbox, tuple(python), frozenset(environ.items()))
    return sandbox if why_not is None else Sandbox(why_not=f"{program} does not work here: {why_not}")


@cache
def _trial(sandbox: Sandbox, python: tuple[str, ...], variables: frozenset[tuple[str, str]]) -> str | None:
    """Why ``python`` does not run in ``sandbox``; ``None``: it does."""
    with scratch() as home:
        make_home(home)
        command = sandbox.command([*python, "-I", "-S", "-c", ""], home=home, readable=())
        ended = run_child(command, environ=clean_environment(dict(variables), home), cwd=home, seconds=_TRIAL_SECONDS)
    if ended.code == 0:
        return None
    words = ended.stderr.strip().splitlines()
    return words[-1] if words else f"it exited with {ended.code}"


def _holds_everything(path: Path, environ: Mapping[str, str]) -> bool:
    """Whether the user's home is in ``path``, or is it."""
    home = environ.get("HOME", "")
    return path == Path("/") or (home.startswith("/") and Path(home).is_relative_to(path))
