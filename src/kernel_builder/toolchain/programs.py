"""Asking a program something: a compiler for its version, a package manager for what it has."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS = 20


def ask(
    command: Sequence[str | Path], environ: Mapping[str, str], *, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end with the variables ``environ``, in English and without a standard input.

    Raises ``OSError`` when it cannot be run, ``subprocess.SubprocessError`` when it fails or takes longer than
    ``seconds``.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        env={**environ, "LC_ALL": "C"},
    )


def answer_of(command: Sequence[str | Path], environ: Mapping[str, str]) -> str | None:
    """What a program prints; ``None`` when it cannot be run, fails or takes too long."""
    try:
        return ask(command, environ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
