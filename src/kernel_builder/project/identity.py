"""Who a kernel is: the commit it was built from, and the unique part of its op namespace.

Reference: interoperability contract 3.2 and 4.3. A clean checkout is named by its commit. A tree with local changes,
or without git, is named by its content as well, so that two different trees never share a namespace (sharp edge 10).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.git import GitError, GitTooSlowError, filters_of, paths_in, run_git
from kernel_builder.project.inputs import BuildInputs
from kernel_builder.project.tree import OUTPUT_DIRECTORY, WORK_DIRECTORY

_COMMIT_DIGITS = 7
_DIGEST_DIGITS = 8
_LONE_DIGEST_DIGITS = 12
_SUBMODULE = "160000"
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*"
    rb"oid sha256:(?P<sha256>[0-9a-f]{64})\nsize (?P<size>[0-9]{1,18})\n"
)
"""What git has in the place of a file that git LFS stores. Reference: git LFS specification, "The Pointer"."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """``unique`` is the last part of every ops id of this tree.

    ``commit`` is the full commit, ``None`` without one; ``dirty`` whether the tree differs from it; ``reason`` says
    for people why the name is not simply the commit's. ``sources`` is the digest of all that a build reads, ``files``
    are those of each file. ``tracked`` are the files of the tree that git has. ``lasts``: while nothing changes, the
    name is the same.
    """

    unique: str
    commit: str | None
    dirty: bool
    reason: str | None = None
    sources: str = ""
    files: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    tracked: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    lasts: bool = True

    def ops_id(self, project: Project, backend: Backend) -> str:
        """``_<python name>_<backend>_<unique>``: metadata id, extension module name and op namespace at once."""
        return f"_{project.python_name}_{backend.value}_{self.unique}"


def _head(root: Path, environ: Mapping[str, str]) -> str:
    try:
        run_git(root, environ, "rev-parse", "--git-dir")
    except GitError as error:
        if "not a git repository" in str(error):
            raise GitError("it is not in a git repository") from error
        raise
    try:
        return run_git(root, environ, "rev-parse", "--verify", "--quiet", "HEAD").decode("ascii").strip()
    except GitError as error:
        raise GitError("its git repository has no commit yet") from error


@dataclass(frozen=True, kw_only=True)
class _Tree:
    """What git knows of a tree. ``changed`` says for people how it differs from its commit; ``tracked`` are files that
    git has.
    """

    changed: str | None
    tracked: frozenset[str]


def _look(root: Path, environ: Mapping[str, str], *excluded: str) -> _Tree:
    """What git knows of the tree in ``root``, submodules included, but for the directories ``excluded``."""
    changed = _changed(root, environ, *excluded)
    entries = paths_in(run_git(root, environ, "ls-files", "-z", "--cached", "--stage", "--", "."))
    modes = {path: facts.partition(" ")[0] for facts, _, path in (entry.partition("\t") for entry in entries)}
    tracked = set(modes)
    for path in sorted(path for path, mode in modes.items() if mode == _SUBMODULE):
        # git would look into it with filters that its own configuration names.
        if not (root / path / ".git").exists():
            continue
        within = _look(root / path, environ)
        if changed is None and within.changed is not None:
            changed = f"{path}/{within.changed}"
        tracked.update(f"{path}/{name}" for name in within.tracked)
    return _Tree(changed=changed, tracked=frozenset(tracked))


def _changed(root: Path, environ: Mapping[str, str], *excluded: str) -> str | None:
    """Which tracked file below ``root`` differs from the commit, for people. What a submodule contains is not looked
    at. The content of a file is what it is: no filter cleans it but the one of git LFS, which is done here.
    """
    filters = filters_of(root, environ)
    words = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=dirty", "--no-renames")
    pathspecs = (".", *(f":(exclude){name}" for name in excluded))
    found = paths_in(run_git(root, environ, *words, "--", *pathspecs, without=filters))
    if not found:
        return None
    prefix = run_git(root, environ, "rev-parse", "--show-prefix").decode("utf-8", "surrogateescape").rstrip("\n")
    for entry in found:
        state, path = entry[:2], entry[3:].removeprefix(prefix)
        if state != " M" or not _is_stored_apart(root, path, environ):
            return f"{path} has uncommitted changes"
    return None


def _is_stored_apart(root: Path, path: str, environ: Mapping[str, str]) -> bool:
    """Whether git has a pointer of git LFS in the place of a file, and the file is what that points to."""
    try:
        pointer = _POINTER.fullmatch(run_git(root, environ, "cat-file", "blob", f":./{path}"))
        if pointer is None or (root / path).stat().st_size != int(pointer["size"]):
            return False
        with (root / path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().encode() == pointer["sha256"]
    except (GitError, OSError):
        return False


def _differences(tree: _Tree, inputs: BuildInputs) -> str | None:
    """What makes ``tree`` differ from its commit, for people; ``None`` when it is clean.

    Tracked files below the project count, whatever they are for; untracked ones only when a build reads them, whether
    git ignores them or not. Build outputs never count.
    """
    if tree.changed is not None:
        return tree.changed
    for path in inputs.all:
        if path not in tree.tracked:
            return f"{path} is not in git"
        target = inputs.behind.get(path)
        if target is not None and target not in tree.tracked:
            return f"{target}, to which {path} links, is not in git"
    return None


def identify(project: Project, inputs: BuildInputs, *, environ: Mapping[str, str], mark: str = "") -> Identity:
    """Name the tree of ``project``, of which a build reads ``inputs``. git runs with ``environ``.

    ``mark`` is added to the name of builds that can be loaded beside a variant of the same tree, which must not share
    its namespace. Never fails for want of git: then the name is made of the content alone.
    """
    identity = replace(_identify(project, inputs, environ), files=inputs.entries)
    return replace(identity, unique=f"{identity.unique}_{mark}") if mark else identity


def _identify(project: Project, inputs: BuildInputs, environ: Mapping[str, str]) -> Identity:
    digest = inputs.digest
    try:
        commit = _head(project.root, environ)
        tree = _look(project.root, environ, OUTPUT_DIRECTORY, WORK_DIRECTORY)
    except GitError as error:
        return Identity(
            unique=digest[:_LONE_DIGEST_DIGITS],
            commit=None,
            dirty=False,
            reason=f"the kernel's op namespace is named after its contents because {error}",
            sources=digest,
            lasts=not isinstance(error, GitTooSlowError),
        )
    difference = _differences(tree, inputs)
    short = commit[:_COMMIT_DIGITS]
    if difference is None:
        return Identity(unique=short, commit=commit, dirty=False, sources=digest, tracked=tree.tracked)
    return Identity(
        unique=f"{short}_dirty_{digest[:_DIGEST_DIGITS]}",
        commit=commit,
        dirty=True,
        reason=f"the kernel is marked dirty because {difference}",
        sources=digest,
        tracked=tree.tracked,
    )
