"""What an upload changes on the Hub: computed from what is here and what is there, before anything is sent. Pure.

Reference: interoperability contract 6.4. A file that the branch holds already is not sent again. Variants that are not
uploaded stay as they are on a branch that exists; on a branch that is made, nothing is left of other builds.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kernel_builder.artifact.digest import METADATA, SIGNATURE

MAIN = "main"
README = "README.md"
BUILD = "build"
BENCHMARKS = "benchmarks"
BENCHMARK_FILES = "benchmark*.py"

COMMIT_OPERATIONS = 1000
"""Files in one commit, at most (contract 6.4, step 7)."""

COMMIT_BYTES = 64 << 20
"""Bytes of small files in one commit, at most: their content is part of the request."""

SMALL = 10 << 20
"""The Hub keeps larger files beside the repository, so that they are no part of a commit's request."""

_STORED_APART = (".so", ".pyd", ".dll", ".dylib", ".a", ".bin", ".pth", ".safetensors")


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A file to publish as ``path``. It is at ``source``, or is ``content`` itself.

    ``sha256`` and ``blob`` (git's name; ``None`` for files above :data:`SMALL`, which are never kept as git blobs) are
    of the content as it was checked; ``stamp`` tells whether ``source`` was touched since.
    """

    path: str
    size: int
    sha256: str
    blob: str | None
    source: Path | None = None
    content: bytes | None = field(default=None, repr=False)
    stamp: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file of a revision on the Hub. ``sha256`` is there for files that are stored apart."""

    path: str
    size: int
    blob: str
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A revision on the Hub: its commit and (a part of) its files."""

    commit: str
    files: Mapping[str, RemoteFile]


class ChangeKind(StrEnum):
    """What happens to a path."""

    ADD = "add"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """One path that changes. ``size`` is in bytes: of the new content, of a deleted file its old size."""

    action: ChangeKind
    path: str
    size: int
    file: LocalFile | None = None

    @property
    def sent(self) -> int:
        """Bytes of content that this change sends."""
        return 0 if self.file is None else self.size


@dataclass(frozen=True, kw_only=True)
class BranchPlan:
    """All changes to one branch, sorted by path, and what already exists there.

    ``base`` is the commit that they are made on; ``None`` when the repository does not exist yet. ``made_from`` names
    the branch that a new one starts from. ``staging`` names the branch that commits go to until the last one is
    there, when the new branch takes all of it at once.
    """

    name: str
    base: str | None
    changes: tuple[FileChange, ...]
    batches: tuple[tuple[FileChange, ...], ...]
    unchanged: int = 0
    made_from: str | None = None
    staging: str | None = None
    continues: bool = False

    @property
    def is_new(self) -> bool:
        """Whether the branch is made."""
        return self.made_from is not None

    @property
    def sent(self) -> int:
        """Bytes of content to send."""
        return sum(change.sent for change in self.changes)

    def count(self, action: ChangeKind) -> int:
        """Number of changes of one kind."""
        return sum(change.action is action for change in self.changes)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do at all."""
        return not self.changes and not self.is_new


@dataclass(frozen=True, kw_only=True)
class UploadPlan:
    """The whole upload, branch by branch in the order in which they are changed."""

    repo_id: str
    repo_type: str
    creates_repository: bool
    private: bool
    branches: tuple[BranchPlan, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the Hub holds everything already."""
        return not self.creates_repository and all(branch.is_empty for branch in self.branches)

    @property
    def sent(self) -> int:
        """Bytes of content to send."""
        return sum(branch.sent for branch in self.branches)

    def to_json(self) -> dict[str, object]:
        """The plan as plain data."""
        return {
            "repo_id": self.repo_id,
            "repo_type": self.repo_type,
            "creates_repository": self.creates_repository,
            "private": self.private,
            "bytes": self.sent,
            "branches": [
                {
                    "branch": branch.name,
                    "made_from": branch.made_from,
                    "base": branch.base,
                    "commits": len(branch.batches),
                    "bytes": branch.sent,
                    "unchanged": branch.unchanged,
                    "changes": [
                        {"action": change.action.value, "path": change.path, "size": change.size}
                        for change in branch.changes
                    ],
                }
                for branch in self.branches
            ],
        }


def staging_branch(branch: str) -> str:
    """Where commits wait for the last of them before ``branch`` is made. No version branch is named like this."""
    return f"kernel-builder-upload-{branch.replace('/', '-')}"


def is_same(local: LocalFile, remote: RemoteFile) -> bool:
    """Whether the Hub holds this content at this path."""
    if remote.sha256 is not None:
        return (local.sha256, local.size) == (remote.sha256, remote.size)
    return local.blob == remote.blob


def plan_branch(
    name: str,
    local: Sequence[LocalFile],
    remote: Snapshot | None,
    *,
    stale: Iterable[str] = (),
    made_from: str | None = None,
    staged: bool = False,
    may_stage: bool = True,
    commit_operations: int = COMMIT_OPERATIONS,
) -> BranchPlan:
    """The changes that bring ``local`` to a branch whose files are ``remote``, and delete ``stale``.

    ``staged`` says that ``remote`` is the staging branch of an upload that was cut off; ``may_stage`` whether there may
    be one.
    """
    there = remote.files if remote is not None else {}
    changes: list[FileChange] = []
    for file in local:
        old = there.get(file.path)
        if old is None:
            changes.append(FileChange(action=ChangeKind.ADD, path=file.path, size=file.size, file=file))
        elif not is_same(file, old):
            changes.append(FileChange(action=ChangeKind.REPLACE, path=file.path, size=file.size, file=file))
    kept = {file.path for file in local}
    changes += [
        FileChange(action=ChangeKind.DELETE, path=path, size=there[path].size)
        for path in set(stale) - kept
        if path in there
    ]
    changes.sort(key=lambda change: change.path.encode())
    batches = split(changes, commit_operations)
    needs_staging = made_from is not None and may_stage and (staged or len(batches) > 1)
    return BranchPlan(
        name=name,
        base=remote.commit if remote is not None else None,
        changes=tuple(changes),
        batches=batches,
        unchanged=len(local) - sum(change.file is not None for change in changes),
        made_from=made_from,
        staging=staging_branch(name) if needs_staging else None,
        continues=staged,
    )


def stale_files(
    remote: Snapshot,
    *,
    variants: Iterable[str],
    local: Iterable[LocalFile],
    is_new: bool,
    has_benchmarks: bool,
) -> tuple[set[str], set[str]]:
    """Files of a version branch that an upload of ``variants`` outdates, and the signatures that it makes void.

    On a new branch everything else below ``build/`` and ``benchmarks/`` goes, too: it came from the branch that it was
    made from. A signature stays as long as the ``metadata.json`` that it signs.
    """
    uploaded = set(variants)
    ours = {file.path: file for file in local}
    stale: set[str] = set()
    void: set[str] = set()
    for path, file in remote.files.items():
        parts = path.split("/")
        if path in ours:
            continue
        if parts[0] == BUILD and len(parts) > 2 and parts[1] in uploaded:
            if parts[2:] != [SIGNATURE]:
                stale.add(path)
                continue
            signed = f"{BUILD}/{parts[1]}/{METADATA}"
            if signed not in remote.files or signed not in ours or not is_same(ours[signed], remote.files[signed]):
                stale.add(path)
                void.add(file.path)
        elif (parts[0] == BUILD and len(parts) > 1 and is_new) or (
            parts[0] == BENCHMARKS
            and len(parts) > 1
            and has_benchmarks
            and (is_new or (len(parts) == 2 and fnmatch.fnmatchcase(parts[1], BENCHMARK_FILES)))
        ):
            stale.add(path)
    return stale, void


def split(changes: Sequence[FileChange], operations: int = COMMIT_OPERATIONS) -> tuple[tuple[FileChange, ...], ...]:
    """Commits, each of at most ``operations`` files and :data:`COMMIT_BYTES` bytes of small ones.

    A variant stays in one commit wherever it fits into one, so that no revision holds half of it. Of a variant that
    does not fit, ``metadata.json`` and deletions come last.
    """
    units: dict[tuple[str, ...], list[FileChange]] = {}
    for change in changes:
        parts = change.path.split("/")
        units.setdefault(tuple(parts[:2]) if parts[0] == BUILD else ("",), []).append(change)
    batches: list[list[FileChange]] = []
    room = weight = 0
    for unit in units.values():
        unit_weight = sum(map(_inline, unit))
        if len(unit) <= room and unit_weight <= weight:
            batches[-1] += unit
            room, weight = room - len(unit), weight - unit_weight
            continue
        room = weight = 0
        for change in sorted(unit, key=_order):
            if room < 1 or (_inline(change) > weight and weight < COMMIT_BYTES):
                batches.append([])
                room, weight = operations, COMMIT_BYTES
            batches[-1].append(change)
            room, weight = room - 1, weight - _inline(change)
    return tuple(tuple(batch) for batch in batches)


def _order(change: FileChange) -> tuple[bool, bool, bytes]:
    last = change.path.rsplit("/", 1)[-1] in {METADATA, SIGNATURE}
    return last, change.action is ChangeKind.DELETE, change.path.encode()


def _inline(change: FileChange) -> int:
    """Bytes of a change that are part of the commit's request, as far as that can be foreseen."""
    return 0 if change.size > SMALL or change.path.endswith(_STORED_APART) else change.sent
