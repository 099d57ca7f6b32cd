"""Every error that this package raises on purpose, and the exit code that each one gives the command.

There is one root, :class:`KernelBuilderError`. Its message says what happened and where; its hint says what to do.
The command line prints both and exits with ``exit_code``; any other exception is a bug in kernel-builder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes of ``kernel-builder``; they are part of its interface."""

    OK = 0
    FAILED = 1
    """A build, check or load failed: a compile error, a finding, a kernel that does not load."""
    USAGE = 2
    """The command line is wrong."""
    CONFIG = 3
    """``build.toml`` has mistakes."""
    TOOLCHAIN = 4
    """A part of a toolchain is missing or unusable."""
    NETWORK = 5
    """A package index or another server could not be used."""
    SYSTEM = 6
    """A problem with this machine: disk full, permission denied, a lock that another process holds."""
    INCOMPLETE = 7
    """Only a part of what you asked for is available, and was fetched (``toolchain fetch --available``)."""
    INTERNAL = 70
    """A bug in kernel-builder (``EX_SOFTWARE``)."""
    INTERRUPTED = 130
    """Ctrl-C (128 + SIGINT)."""


class Level(StrEnum):
    """How bad a diagnostic is. Only errors stop a command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One mistake in a file that the user wrote.

    ``line`` and ``column`` count from 1; ``None`` where the mistake is something that is not there.
    ``key`` is the dotted path of the key (``kernel.relu.cuda-flags``). ``message`` says what was found and what is
    allowed, ``hint`` what to write instead.
    """

    severity: Level
    message: str
    file: Path | None = None
    line: int | None = None
    column: int | None = None
    key: str | None = None
    hint: str | None = None

    def location(self) -> str:
        """``file:line:column``, as far as it is known; the form that editors and terminals make a link of."""
        parts = [str(self.file)] if self.file is not None else []
        if self.line is not None:
            parts.append(str(self.line))
            if self.column is not None:
                parts.append(str(self.column))
        return ":".join(parts)

    def render(self) -> str:
        """Lines of plain text: ``file:line:column: error: key: message`` and an indented hint."""
        where = self.location()
        head = f"{where}: " if where else ""
        key = f"{self.key}: " if self.key else ""
        text = f"{head}{self.severity.value}: {key}{self.message}"
        return "\n    ".join((text, *self.hint.split("\n"))) if self.hint else text


class KernelBuilderError(Exception):
    """Root of all expected failures. ``message`` is for people; ``hint`` says what to do about it."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def to_json(self) -> dict[str, object]:
        """What a program that asked for JSON gets when there is no result."""
        return {
            "ok": False,
            "error": self.message,
            "hint": self.hint,
            "exit-code": int(self.exit_code),
            "diagnostics": [],
        }


class UsageError(KernelBuilderError):
    """The command line asks for something that does not exist or does not go together."""

    exit_code = ExitCode.USAGE


class ConfigError(KernelBuilderError):
    """``build.toml`` (or the tree it describes) has mistakes: all of them, in file order."""

    exit_code = ExitCode.CONFIG

    def __init__(self, message: str, *, diagnostics: Sequence[Diagnostic] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.diagnostics = tuple(diagnostics)

    def to_json(self) -> dict[str, object]:
        """As of every error, with the diagnostics as lines."""
        return {**super().to_json(), "diagnostics": [diagnostic.render() for diagnostic in self.diagnostics]}


class ToolchainError(KernelBuilderError):
    """A compiler, a header set or a link library that a variant needs is not available."""

    exit_code = ExitCode.TOOLCHAIN


class NetworkError(KernelBuilderError):
    """A server refused, vanished or answered nonsense. URLs in the message carry no credentials."""

    exit_code = ExitCode.NETWORK


class IntegrityError(NetworkError):
    """What arrived, or what lies in the store, is not what its index or RECORD promised."""


class BuildError(KernelBuilderError):
    """Compiling, linking or loading a variant failed."""

    exit_code = ExitCode.FAILED


class MachineError(KernelBuilderError):
    """A problem of this machine: the disk is full, permission was denied, another build holds a lock."""

    exit_code = ExitCode.SYSTEM
