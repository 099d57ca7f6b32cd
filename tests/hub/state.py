"""Repositories of the test Hub: content-addressed objects and revisions on disk, as git would number them.

A commit holds a whole snapshot: path -> blob. Blobs, trees and commits are named by git's own SHA-1, large files by
SHA-256 as in git LFS, and a large file's blob is its pointer. One JSON file per repository keeps its refs.
"""

from __future__ import annotations

import codecs
import fnmatch
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space", "kernels": "kernel"}
LARGE = 10 << 20
"""Files above this size are always stored as large files."""

ATTRIBUTES = "".join(
    f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n"
    for suffix in (
        "7z",
        "arrow",
        "bin",
        "bz2",
        "gz",
        "npy",
        "npz",
        "onnx",
        "parquet",
        "pt",
        "pth",
        "safetensors",
        "xz",
        "zip",
    )
)
"""``.gitattributes`` of a new repository."""


class RefusedError(Exception):
    """An answer that is an error: status, the Hub's error code and the message."""

    def __init__(self, status: int, code: str | None, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user. ``organisations`` maps names to roles (``read``, ``write``, ``admin``).

    ``publisher`` says whether the account may publish kernels in its own namespace and in its organisations.
    """

    name: str
    token: str
    organisations: Mapping[str, str] = field(default_factory=dict)
    publisher: bool = True
    role: str = "write"

    def may_write(self, namespace: str) -> bool:
        """Whether it may change repositories of ``namespace``."""
        return self.role != "read" and (
            namespace == self.name or self.organisations.get(namespace) in {"write", "admin"}
        )


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file of a snapshot. ``sha256`` is set for large files only; ``oid`` is git's name of the blob."""

    oid: str
    size: int
    sha256: str | None = None
    pointer_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Commit:
    """A revision: ``files`` is everything in it."""

    oid: str
    parents: tuple[str, ...]
    title: str
    message: str
    author: str
    date: str
    files: dict[str, Blob]


@dataclass
class Repository:
    """One repository. ``refs`` maps full names (``refs/heads/main``, ``refs/pr/1``) to commits."""

    kind: str
    name: str
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    pull_requests: list[dict[str, object]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """Its owner."""
        return self.name.split("/")[0]

    def branches(self) -> dict[str, str]:
        """Branch name -> commit."""
        return {
            name.removeprefix("refs/heads/"): oid for name, oid in self.refs.items() if name.startswith("refs/heads/")
        }


def git_name(kind: str, data: bytes) -> str:
    """git's SHA-1 name of an object."""
    return hashlib.sha1(f"{kind} {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def pointer(sha256: str, size: int) -> bytes:
    """The text that git stores in the place of a large file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def tree_names(files: Mapping[str, Blob]) -> dict[str, str]:
    """Directory -> git's name of its tree, for every directory of a snapshot; ``""`` is the root."""
    children: dict[str, dict[str, tuple[str, str]]] = {"": {}}
    for path, blob in files.items():
        parent, _, name = path.rpartition("/")
        children.setdefault(parent, {})[name] = ("100644", blob.oid)
        while parent:
            above, _, here = parent.rpartition("/")
            children.setdefault(above, {}).setdefault(here, ("40000", ""))
            parent = above
    names: dict[str, str] = {}
    for directory in sorted(children, key=lambda text: (-text.count("/") if text else 1, text)):
        entries = []
        for name, (mode, oid) in children[directory].items():
            inner = f"{directory}/{name}" if directory else name
            entries.append((name + ("/" if mode == "40000" else ""), mode, name, oid or names[inner]))
        data = b"".join(
            f"{mode} {name}".encode() + b"\0" + bytes.fromhex(oid) for _, mode, name, oid in sorted(entries)
        )
        names[directory] = git_name("tree", data)
    return names


def _is_text(sample: bytes) -> bool:
    """Whether the beginning of a file is text: UTF-8 without NUL; its last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return b"\0" not in sample


class State:
    """Everything the Hub knows, under ``root``. All methods may be called from several threads."""

    def __init__(self, root: Path, *, accounts: Iterable[Account] = (), trusted: Iterable[str] = ()) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.accounts = {account.token: account for account in accounts}
        self.trusted = set(trusted)
        self._commits: dict[str, Commit] = {}
        self._clock = datetime(2026, 1, 1, tzinfo=UTC)
        for name in ("blobs", "large", "commits", "repositories", "incoming"):
            (root / name).mkdir(parents=True, exist_ok=True)

    # Objects

    def put_blob(self, data: bytes) -> Blob:
        """Store a regular file."""
        oid = git_name("blob", data)
        path = self.root / "blobs" / oid
        if not path.exists():
            path.write_bytes(data)
        return Blob(oid=oid, size=len(data))

    def large_path(self, sha256: str) -> Path:
        """Where a large file is, if it is."""
        return self.root / "large" / sha256

    def large_blob(self, sha256: str, size: int | None) -> Blob:
        """The blob of a large file that has arrived. Raises :class:`RefusedError` when it has not."""
        path = self.large_path(sha256)
        if not re.fullmatch(r"[0-9a-f]{64}", sha256) or not path.exists():
            raise RefusedError(400, None, f"lfsFile: the object {sha256} was not uploaded")
        found = path.stat().st_size
        if size is not None and size != found:
            raise RefusedError(400, None, f"lfsFile: the object {sha256} has {found} bytes, not {size}")
        text = pointer(sha256, found)
        self.put_blob(text)
        return Blob(oid=git_name("blob", text), size=found, sha256=sha256, pointer_size=len(text))

    def content(self, blob: Blob) -> Path:
        """The file that holds a blob's content (of a large file: the file itself)."""
        return self.large_path(blob.sha256) if blob.sha256 else self.root / "blobs" / blob.oid

    # Repositories

    def _file(self, kind: str, name: str) -> Path:
        return self.root / "repositories" / f"{kind}--{name.replace('/', '--')}.json"

    def repository(self, kind: str, name: str) -> Repository | None:
        """A repository, or ``None``."""
        file = self._file(kind, name)
        with self.lock:
            if not file.exists():
                return None
            return Repository(**json.loads(file.read_text(encoding="utf-8")))

    def save(self, repository: Repository) -> None:
        """Write a repository's refs, whole or not at all."""
        file = self._file(repository.kind, repository.name)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(repository), indent=1), encoding="utf-8")
        new.replace(file)

    def create(self, kind: str, name: str, *, private: bool = False) -> Repository:
        """Make a repository with its first commit."""
        with self.lock:
            if self.repository(kind, name) is not None:
                raise RefusedError(409, None, f"You already created this {kind} repo: {name}")
            repository = Repository(kind=kind, name=name, private=private)
            files = {".gitattributes": self.put_blob(ATTRIBUTES.encode())}
            first = self.commit((), files, title="initial commit", message="", author="system")
            repository.refs["refs/heads/main"] = first.oid
            self.save(repository)
            return repository

    def delete(self, kind: str, name: str) -> None:
        """Remove a repository."""
        with self.lock:
            self._file(kind, name).unlink(missing_ok=True)

    # Revisions

    def commit(
        self, parents: tuple[str, ...], files: dict[str, Blob], *, title: str, message: str, author: str
    ) -> Commit:
        """Store a revision."""
        with self.lock:
            self._clock += timedelta(seconds=1)
            date = self._clock
        lines = [f"tree {tree_names(files)['']}", *(f"parent {oid}" for oid in parents)]
        stamp = f"{author} <{author}@users.invalid> {int(date.timestamp())} +0000"
        text = "\n".join([*lines, f"author {stamp}", f"committer {stamp}", "", title, "", message])
        commit = Commit(
            oid=git_name("commit", text.encode()),
            parents=parents,
            title=title,
            message=message,
            author=author,
            date=date.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            files=dict(sorted(files.items())),
        )
        (self.root / "commits" / commit.oid).write_text(json.dumps(asdict(commit)), encoding="utf-8")
        self._commits[commit.oid] = commit
        return commit

    def read(self, oid: str) -> Commit:
        """A stored revision."""
        found = self._commits.get(oid)
        if found is None:
            document = json.loads((self.root / "commits" / oid).read_text(encoding="utf-8"))
            document["files"] = {path: Blob(**blob) for path, blob in document["files"].items()}
            document["parents"] = tuple(document["parents"])
            found = self._commits[oid] = Commit(**document)
        return found

    def resolve(self, repository: Repository, revision: str) -> Commit:
        """The commit that a branch, a full ref or an id names. Raises :class:`RefusedError`."""
        for name in (revision, f"refs/heads/{revision}"):
            if name in repository.refs:
                return self.read(repository.refs[name])
        if re.fullmatch(r"[0-9a-f]{40}", revision) and self._has(repository, revision):
            return self.read(revision)
        raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _has(self, repository: Repository, oid: str) -> bool:
        return any(commit.oid == oid for head in repository.refs.values() for commit in self.history(head))

    def history(self, oid: str) -> list[Commit]:
        """A commit and its ancestors, newest first."""
        found: dict[str, Commit] = {}
        waiting = [oid]
        while waiting:
            here = waiting.pop(0)
            if here not in found:
                found[here] = self.read(here)
                waiting.extend(found[here].parents)
        return list(found.values())

    # Rules of a repository

    def is_large(self, files: Mapping[str, Blob], path: str, size: int, sample: bytes) -> bool:
        """Whether a file is to be sent as a large file: by ``.gitattributes``, its size, or bytes that are no text."""
        name = path.rsplit("/", 1)[-1]
        large = size > LARGE or not _is_text(sample)
        attributes = files.get(".gitattributes")
        text = self.content(attributes).read_text(encoding="utf-8") if attributes else ""
        for line in text.splitlines():
            pattern, *words = line.split() or [""]
            subject = path if "/" in pattern else name
            if pattern and not pattern.startswith("#") and fnmatch.fnmatchcase(subject, pattern):
                if "filter=lfs" in words:
                    large = True
                elif "-filter" in words or "!filter" in words:
                    large = size > LARGE
        return large

    def is_ignored(self, files: Mapping[str, Blob], path: str, text: str | None) -> bool:
        """Whether ``.gitignore`` (the given text, or the snapshot's) keeps ``path`` out."""
        if text is None:
            rules = files.get(".gitignore")
            if rules is None:
                return False
            text = self.content(rules).read_text(encoding="utf-8")
        ignored = False
        parts = path.split("/")
        for line in text.splitlines():
            rule = line.strip()
            if not rule or rule.startswith("#"):
                continue
            keep = rule.startswith("!")
            rule = rule.lstrip("!")
            directory = rule.endswith("/")
            rule = rule.rstrip("/")
            anchored = "/" in rule
            rule = rule.lstrip("/")
            last = len(parts) - (1 if directory else 0)
            hits = (
                (fnmatch.fnmatchcase("/".join(parts[: end + 1]), rule) for end in range(last))
                if anchored
                else (fnmatch.fnmatchcase(part, rule) for part in parts[:last])
            )
            if any(hits):
                ignored = not keep
        return ignored
