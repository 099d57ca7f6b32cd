"""Who a kernel is: the commit it was built from, and the unique part of its op namespace.

Reference: interoperability contract 3.2 and 4.3. A clean checkout is named by its commit. A tree with local changes,
or without git, is named by its content as well, so that two different trees never share a namespace (sharp edge 10).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Backend, Project
from kernel_builder.project.tree import OUTPUT_DIRECTORY, WORK_DIRECTORY, BuildInputs, build_inputs

_COMMIT_DIGITS = 7
_DIGEST_DIGITS = 8
_LONE_DIGEST_DIGITS = 12
_GIT_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Identity:
    """``unique`` is the last part of every ops id of this tree.

    ``commit`` is the full commit, ``None`` without one; ``dirty`` whether the tree differs from it; ``reason`` says
    for people why the name is not simply the commit's.
    """

    unique: str
    commit: str | None
    dirty: bool
    reason: str | None = None

    def ops_id(self, project: Project, backend: Backend) -> str:
        """``_<python name>_<backend>_<unique>``: metadata id, extension module name and op namespace at once."""
        return f"_{project.python_name}_{backend.value}_{self.unique}"


def source_digest(project: Project, inputs: tuple[str, ...]) -> str:
    """Hex SHA-256 over the names and contents of ``inputs``, which are relative to the project root."""
    digest = hashlib.sha256(b"kernel-builder sources 1\n")
    for path in inputs:
        content = hashlib.sha256((project.root / path).read_bytes()).hexdigest()
        name = os.fsencode(path)
        digest.update(f"{len(name)} ".encode() + name + f" {content}\n".encode())
    return digest.hexdigest()


class _GitFailedError(Exception):
    """git cannot answer; the text says why, for people."""


def _git(root: Path, environ: Mapping[str, str], *arguments: str) -> str:
    # In a hook, git's own variables name another repository than the one that the kernel lies in.
    environment = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    environment |= {name: value for name, value in environ.items() if name.startswith(("GIT_CONFIG", "GIT_CEILING"))}
    try:
        completed = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            check=False,
            env=environment,
            timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise _GitFailedError("git is not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise _GitFailedError(f"git did not answer in {_GIT_SECONDS} s") from error
    if completed.returncode != 0:
        words = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _GitFailedError(words[0].removeprefix("fatal: ") if words else "git failed")
    return completed.stdout.decode("utf-8", "surrogateescape")


def _head(root: Path, environ: Mapping[str, str]) -> str:
    try:
        _git(root, environ, "rev-parse", "--git-dir")
    except _GitFailedError as error:
        if "not a git repository" in str(error):
            raise _GitFailedError("it is in no git repository") from error
        raise
    try:
        return _git(root, environ, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    except _GitFailedError as error:
        raise _GitFailedError("its git repository has no commit yet") from error


def _differences(root: Path, inputs: BuildInputs, environ: Mapping[str, str]) -> str | None:
    """What makes the tree differ from its commit, for people; ``None`` when it is clean.

    Tracked files below the project count, whatever they are for; untracked ones only when a build reads them, or may
    read them and git does not ignore them. Build outputs never count.
    """
    excluded = [f":(exclude){name}" for name in (OUTPUT_DIRECTORY, WORK_DIRECTORY)]
    changed = _git(root, environ, "status", "--porcelain=v1", "-z", "--untracked-files=no", "--", ".", *excluded)
    if changed:
        first = changed.split("\0", 1)[0][3:]
        return f"{first} has changes that are not committed"
    tracked = set(_git(root, environ, "ls-files", "-z", "--cached", "--recurse-submodules", "--", ".").split("\0"))
    others = set(_git(root, environ, "ls-files", "-z", "--others", "--exclude-standard", "--", ".").split("\0"))
    for path in inputs.all:
        if path not in tracked and (path in inputs.declared or path in others):
            return f"{path} is not in git"
    return None


def identify(project: Project, output: Path | None = None, *, environ: Mapping[str, str]) -> Identity:
    """Name the tree of ``project``, whose variants go to ``output`` (``None``: ``build``). git runs with ``environ``.

    Never fails for want of git: then the name is made of the content alone.
    """
    inputs = build_inputs(project, output)
    try:
        commit = _head(project.root, environ)
        difference = _differences(project.root, inputs, environ)
    except _GitFailedError as error:
        digest = source_digest(project, inputs.all)
        return Identity(
            unique=digest[:_LONE_DIGEST_DIGITS],
            commit=None,
            dirty=False,
            reason=f"the kernel is named by its content, because {error}",
        )
    short = commit[:_COMMIT_DIGITS]
    if difference is None:
        return Identity(unique=short, commit=commit, dirty=False)
    digest = source_digest(project, inputs.all)
    return Identity(
        unique=f"{short}_dirty_{digest[:_DIGEST_DIGITS]}",
        commit=commit,
        dirty=True,
        reason=f"the kernel is marked dirty, because {difference}",
    )
