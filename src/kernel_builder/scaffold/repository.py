"""Make a new project a git repository: its builds are named after their commit (contract 3.2)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path


def start_repository(root: Path, files: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Run ``git init`` in ``root`` and stage ``files``; nothing is committed. git runs with ``environ``.

    Returns whether that was done. It is not, and that is no failure, where git is missing or refuses, and
    where ``root`` already is in a repository: a project in a larger repository is its owner's to add.
    """
    try:
        inside = _git(root, environ, "rev-parse", "--is-inside-work-tree").returncode == 0
        return (
            not inside
            and _git(root, environ, "init", "--quiet").returncode == 0
            and _git(root, environ, "add", "--", *files).returncode == 0
        )
    except OSError:
        return False


def _git(root: Path, environ: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "-C", str(root), *arguments],
        check=False,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
