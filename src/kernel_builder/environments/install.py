"""Makes a virtual environment and installs into it: with uv where it is there, else with venv and pip."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import KernelBuilderError, NetworkError, ToolchainError
from kernel_builder.store.settings import redact

_URL = re.compile(r"https?://\S+")
_SHOWN = 12
_FETCHING = re.compile(r"^\s*Downloading (?P<what>\S.*\b\d[\d.]* ?[MG]i?B\)?)\s*$")
# What pip and uv say where no index has a version: the next requirement is tried. With a constraint on a package, pip
# calls it a conflict.
_NONE = re.compile(
    r"No matching distribution found|Could not find a version that satisfies|No solution found when resolving"
    r"|ResolutionImpossible|conflicting dependencies",
    re.IGNORECASE,
)
# What pip says besides: where it looked, and advice on requirements that kernel-builder wrote.
_BESIDES = re.compile(
    r"^(?:WARNING: )?(?:Looking in (?:indexes|links)|Location '.*' is ignored)"
    r"|^To fix this you could try to|^\d\. (?:loosen the range|remove package versions)"
)

# What they say where a server does not answer, and of each attempt, which nobody needs to read five times.
_SILENT = re.compile(
    r"Failed to establish a new connection|Max retries exceeded|Name or service not known|error sending request"
    r"|Temporary failure in name resolution|Network is unreachable|(?:Connect|Read|Connection)\s*Time(?:d ?)?out"
    r"|connection timed out|dns error|Connection refused|ConnectionResetError|Connection broken",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"^WARNING: Retrying\b")
_REASON = re.compile(r"(\[Errno -?\d+\] [^'\"<>)]+|Read timed out|connect timeout=[\d.]+)")


class NothingFitsError(ToolchainError):
    """No configured index has what is asked for."""


@dataclass(frozen=True, kw_only=True)
class Installer:
    """Makes environments of ``python``. ``uv`` is its program, ``None``: venv and pip do it. ``environ`` holds all
    variables, ``heard`` is told of large downloads.
    """

    python: Path
    uv: Path | None
    environ: Mapping[str, str]
    heard: Callable[[str], None]

    @property
    def name(self) -> str:
        """For people."""
        return "venv and pip" if self.uv is None else "uv"

    def create(self, place: Path) -> None:
        """Make an empty environment in ``place``. Raises :class:`ToolchainError`, and :class:`NetworkError` where no
        index answers.
        """
        command: list[str | Path]
        if self.uv is not None:
            command = [
                self.uv,
                "venv",
                "--quiet",
                "--no-project",
                "--no-config",
                "--seed",
                "--python",
                self.python,
                place,
            ]
            hint = "read what uv says above; without uv on PATH, venv and pip are used"
        else:
            command = [self.python, "-I", "-m", "venv", place]
            hint = "install Python's venv module (Debian, Ubuntu: apt-get install python3-venv), or install uv"
        self._run(command, f"cannot create a virtual environment with {self.python}", hint)

    def install(self, place: Path, requirements: Sequence[str]) -> None:
        """Install ``requirements`` there. Raises :class:`NothingFitsError` where no index has them,
        :class:`NetworkError` where one does not answer, else :class:`ToolchainError`.
        """
        python = place / "bin" / "python"
        command: list[str | Path]
        if self.uv is not None:
            command = [self.uv, "pip", "install", "--compile-bytecode", "--python", python]
        else:
            command = [python, "-m", "pip", "install", "--progress-bar", "off"]
        self._run(
            [*command, *requirements],
            f"cannot install {' '.join(requirements)}",
            "check the package index with 'kernel-builder doctor'; kernel-builder.toml can name others",
        )

    def _run(self, command: Sequence[str | Path], problem: str, hint: str) -> None:
        lines: list[str] = []
        # A session of its own: whatever it started ends with it. One stream: what belongs together stays so. Ended by
        # force, it would leave its temporary files behind.
        with (
            tempfile.TemporaryDirectory(prefix="kernel-builder-", ignore_cleanup_errors=True) as scratch,
            subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**self.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", "TMPDIR": scratch},
                start_new_session=True,
            ) as process,
        ):
            try:
                for line in process.stdout or ():
                    lines.append(line.rstrip())
                    fetching = _FETCHING.match(line)
                    if fetching is not None:
                        self.heard(f"fetching {fetching['what']}")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode != 0:
            raise _failure(problem, hint, lines)


def _failure(problem: str, hint: str, lines: Sequence[str]) -> KernelBuilderError:
    """What became of a command that failed, from what it wrote."""
    text = "\n".join(lines)
    is_silent = _SILENT.search(text) is not None
    said = [line for line in lines if line.strip() and not _ATTEMPT.match(line) and not _BESIDES.match(line)]
    if is_silent:
        # Where no index answers, none has anything: that follows.
        said = [line for line in said if not _NONE.search(line)]
        said += dict.fromkeys(match[1].strip() for line in lines if (match := _REASON.search(line)) is not None)
    words = "".join(f"\n  {_URL.sub(lambda match: redact(match[0]), line)}" for line in said[-_SHOWN:])
    if is_silent:
        return NetworkError(
            f"{problem}: a package index does not respond:{words}",
            hint=(
                "check the network and the index that pip or uv is configured for, or test with a Python that has "
                "everything: kernel-builder test --python FILE"
            ),
        )
    kind = NothingFitsError if _NONE.search(text) else ToolchainError
    return kind(f"{problem}:{words}", hint=hint)


def find_installer(
    environ: Mapping[str, str],
    heard: Callable[[str], None],
    *,
    variables: Mapping[bool, Mapping[str, str]],
) -> Installer:
    """What makes environments here, of the Python that runs this. ``variables`` are those for uv (``True``) and for
    pip.
    """
    found = shutil.which("uv", path=environ.get("PATH", ""))
    uv = Path(found) if found else None
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"}
    own = {name: value for name, value in environ.items() if name not in dropped}
    base = Path(getattr(sys, "_base_executable", sys.executable))
    return Installer(python=base, uv=uv, environ={**own, **variables[uv is not None]}, heard=heard)
