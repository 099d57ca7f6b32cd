"""Make a new project a git repository: its builds are named after their commit (contract 3.2)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_builder.git import GitError, GitMissingError, run_git


def start_repository(root: Path, files: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Run ``git init`` in ``root`` and stage ``files``; nothing is committed. git runs with ``environ``.

    Returns whether that was done. It is not, and that is no failure, where git is missing or refuses, and
    where ``root`` already is in a repository: a project in a larger repository is its owner's to add. What is left of
    a repository is left alone as well: git would go on with its configuration.
    """
    if os.path.lexists(root / ".git"):
        return False
    try:
        if _is_inside(root, environ):
            return False
        run_git(root, environ, "init", "--quiet")
        run_git(root, environ, "add", "--", *files)
    except GitError:
        return False
    return True


def _is_inside(root: Path, environ: Mapping[str, str]) -> bool:
    try:
        run_git(root, environ, "rev-parse", "--is-inside-work-tree")
    except GitMissingError:
        raise
    except GitError:
        return False
    return True
