"""The two servers of the test Hub, and the Python object that tests hold.

Paths, fields, headers and codes follow what the public ``huggingface_hub`` client sends and reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypedDict

from hub.faults import Fault, Faults
from hub.state import KINDS, Account, Blob, Commit, RefusedError, Repository, State, tree_names
from hub.traffic import Traffic

_CHUNK = 1 << 20
_NOTHING = bytes(_CHUNK)
_PREFIX = {"model": "", "dataset": "datasets/", "space": "spaces/", "kernel": "kernels/"}


@dataclass
class Hub:
    """A running test Hub. Tests change the plain attributes while it runs.

    ``page_size`` is the number of entries in a page of a tree listing; files above ``part_size`` bytes are sent in
    parts of that size. ``before_commit`` is called once, in the middle of the next commit request before it is judged:
    the place for what somebody else does meanwhile. ``slow`` is how many seconds storage takes for each MiB.
    """

    state: State
    traffic: Traffic
    faults: Faults
    url: str = ""
    storage_url: str = ""
    page_size: int = 1000
    part_size: int = 64 << 20
    before_commit: Callable[[], None] | None = None
    slow: float = 0

    def environment(self, token: str | None, home: Path) -> dict[str, str]:
        """What makes the public clients use this Hub, with a cache and settings of their own below ``home``."""
        values = {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0",
            "NO_PROXY": "127.0.0.1",
        }
        return values | ({"HF_TOKEN": token} if token else {})

    def fault(self, match: str, **how: object) -> None:
        """Make the next requests that match fail; see :class:`Fault`."""
        self.faults.add(Fault(match=match, **how))  # type: ignore[arg-type]

    def files(self, name: str, revision: str, kind: str = "kernel") -> dict[str, bytes]:
        """Everything in a revision: path -> content. Large files are cut at 1 MiB."""
        repository = self.state.repository(kind, name)
        assert repository is not None, f"there is no {kind} {name}"
        found = {}
        for path, blob in self.state.resolve(repository, revision).files.items():
            with self.state.content(blob).open("rb") as file:
                found[path] = file.read(1 << 20)
        return found

    def heads(self, name: str, kind: str = "kernel") -> dict[str, str]:
        """Branch -> commit."""
        repository = self.state.repository(kind, name)
        return repository.branches() if repository else {}

    def write(
        self, name: str, branch: str, files: Mapping[str, bytes | None], *, kind: str = "kernel", title: str = "by hand"
    ) -> str:
        """Commit to a branch as somebody else would; ``None`` deletes. Repository and branch are made if missing."""
        with self.state.lock:
            repository = self.state.repository(kind, name) or self.state.create(kind, name)
            ref = f"refs/heads/{branch}"
            parent = self.state.read(repository.refs.get(ref, repository.refs["refs/heads/main"]))
            changed = dict(parent.files)
            for path, data in files.items():
                if data is None:
                    changed.pop(path, None)
                else:
                    changed[path] = self.state.put_blob(data)
            commit = self.state.commit((parent.oid,), changed, title=title, message="", author="somebody")
            repository.refs[ref] = commit.oid
            self.state.save(repository)
            return commit.oid


class Line(TypedDict):
    """A line of a commit's request."""

    key: str
    value: dict[str, object]


class _Cut(Exception):  # noqa: N818  (not an error: the connection ends here)
    """The connection is closed without an answer."""


class _Handler(BaseHTTPRequestHandler):
    """What both servers share: reading bodies with faults, answering, the log."""

    protocol_version = "HTTP/1.1"
    hub: Hub
    role = ""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _reset(self) -> None:
        self.number = 0
        self.received = 0
        self.sent = 0
        self.status = 0
        self.contents: dict[str, int] = {}
        self.fault: Fault | None = None
        self.account: Account | None = None

    def _serve(self) -> None:
        self._reset()
        address = urllib.parse.urlsplit(self.path)
        self.route = urllib.parse.unquote(address.path)
        self.segments = [urllib.parse.unquote(part) for part in address.path.strip("/").split("/")]
        self.query = {key: values[-1] for key, values in urllib.parse.parse_qs(address.query).items()}
        self.fault = self.hub.faults.take(f"{self.command} {self.route}")
        self.number = self.hub.traffic.begin()
        try:
            if self.fault is not None and self.hub.faults.wait(self.fault):
                raise _Cut  # noqa: TRY301  (as deep inside as where an answer is cut)
            if self.fault is not None and self.fault.status is not None:
                self._drain()
                text = self.fault.message or f"fault {self.fault.status}"
                self._refuse(RefusedError(self.fault.status, self.fault.code, text))
            else:
                self.answer()
        except RefusedError as error:
            self._drain()
            self._refuse(error)
        except (_Cut, BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self._abort()
        finally:
            self.hub.traffic.add(
                server=self.role,
                method=self.command,
                path=self.path,
                status=self.status,
                received=self.received,
                sent=self.sent,
                user=self.account.name if self.account else None,
                paths=self.contents,
                fault=self.fault.name if self.fault else None,
            )

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  (the base looks for these names)

    def answer(self) -> None:
        """Answer the request, or raise :class:`RefusedError`."""
        raise NotImplementedError

    def _abort(self) -> None:
        """Reset the connection, so that the client notices at once."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def _left(self) -> int:
        return int(self.headers.get("Content-Length") or 0) - self.received

    def _blocks(self) -> Iterator[bytes]:
        """The body in blocks. Cuts the connection where a fault says so."""
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            yield from self._chunks()
            return
        limit = self.fault.cut_after if self.fault else None
        while self._left() > 0:
            wanted = min(_CHUNK, self._left())
            if limit is not None:
                wanted = min(wanted, limit - self.received)
                if wanted <= 0:
                    raise _Cut
            block = self.rfile.read(wanted)
            if not block:
                raise _Cut
            self.received += len(block)
            yield block

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            block = self.rfile.read(size)
            self.rfile.readline()
            self.received += len(block)
            if not size:
                return
            yield block

    def _body(self) -> bytes:
        return b"".join(self._blocks())

    def _json(self) -> dict[str, object]:
        value = json.loads(self._body() or b"{}")
        return value if isinstance(value, dict) else {}

    def _drain(self) -> None:
        """Read what is left of the body, so that the answer reaches the client."""
        if self.headers.get("Transfer-Encoding") or (self.fault is not None and self.fault.cut_after is not None):
            return
        while self._left() > 0:
            block = self.rfile.read(min(_CHUNK, self._left()))
            if not block:
                return
            self.received += len(block)

    def _send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        if self.fault is not None and self.fault.cut_answer:
            raise _Cut
        self.status = status
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", f"test-{self.number}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            self.sent += len(body)

    def _say(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _refuse(self, error: RefusedError) -> None:
        headers = {"X-Error-Message": error.message.replace("\n", " ")}
        if error.code:
            headers["X-Error-Code"] = error.code
        if self.fault is not None:
            headers |= self.fault.headers
        self._say({"error": error.message}, error.status, headers)

    def _send_file(self, file: Path, headers: Mapping[str, str]) -> None:
        """A file, or the part of it that ``Range`` asks for."""
        size = file.stat().st_size
        start, end, status = 0, size, 200
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        extra = {"Accept-Ranges": "bytes", **headers}
        if match and any(match.groups()):
            if match[1]:
                start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
            else:
                start = max(size - int(match[2]), 0)
            if start >= end:
                self._send(416, headers={"Content-Range": f"bytes */{size}"})
                return
            status = 206
            extra["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._send(status, headers={**extra, "Content-Length": str(end - start)})
        if self.command == "HEAD":
            return
        with file.open("rb") as source:
            source.seek(start)
            while start < end:
                block = source.read(min(_CHUNK, end - start))
                self.wfile.write(block)
                self.sent += len(block)
                start += len(block)


class _StorageHandler(_Handler):
    """Where large files are sent to and come from: an origin of its own that knows no tokens, only signed addresses."""

    role = "storage"

    def answer(self) -> None:
        action, name = self.segments[0], self.segments[1]
        state = self.hub.state
        if self.headers.get("Authorization"):
            raise RefusedError(400, None, "a signed address takes no Authorization")
        if action == "large" and self.command in {"GET", "HEAD"}:
            self._send_file(state.large_path(name), {"ETag": f'"{name}"', "Content-Type": "application/octet-stream"})
        elif action == "incoming" and self.command == "PUT":
            self._receive(name, self.segments[2] if len(self.segments) > 2 else None)
        else:
            raise RefusedError(404, None, f"no such action: {self.command} {action}")

    def _receive(self, sha256: str, part: str | None) -> None:
        state = self.hub.state
        digest = hashlib.sha256()
        target = state.root / "incoming" / f"{sha256}.{part or 'whole'}.{threading.get_ident()}"
        try:
            with target.open("wb") as file:
                for block in self._blocks():
                    time.sleep(self.hub.slow)
                    if part is None:  # parts are verified when they are joined
                        digest.update(block)
                    if block == _NOTHING[: len(block)]:
                        file.seek(len(block), os.SEEK_CUR)  # holes stay holes
                    else:
                        file.write(block)
                file.truncate(self.received)
            self.contents = {self.query.get("path", sha256): self.received}
            if part is not None:
                target.replace(state.root / "incoming" / f"{sha256}.part{int(part):05d}")
                self._send(200, headers={"ETag": f'"{sha256[:24]}-{int(part)}"'})
            elif digest.hexdigest() != sha256:
                raise RefusedError(400, None, "the content is not what its name says")
            else:
                target.replace(state.large_path(sha256))
                self._send(200, headers={"ETag": f'"{sha256[:32]}"'})
        finally:
            self.contents = {self.query.get("path", sha256): self.received}
            target.unlink(missing_ok=True)


class _HubHandler(_Handler):
    """The Hub itself."""

    role = "hub"

    def answer(self) -> None:
        self.account = self._who()
        segments = self.segments
        if segments[:1] == ["_test"]:
            self._control()
        elif segments[:1] == ["api"]:
            self._api(segments[1:])
        elif self.route.endswith(".git/info/lfs/objects/batch") and self.command == "POST":
            self._batch()
        elif segments[:1] == ["_large"] and self.command == "POST":
            self._large_action()
        elif "resolve" in segments and self.command in {"GET", "HEAD"}:
            self._resolve()
        else:
            raise RefusedError(404, None, f"Sorry, we can't find the page {self.route}")

    def _who(self) -> Account | None:
        words = self.headers.get("Authorization", "").split()
        if not words:
            return None
        account = self.hub.state.accounts.get(words[-1])
        if account is None:
            raise RefusedError(401, None, "Invalid credentials in Authorization header")
        return account

    def _api(self, segments: list[str]) -> None:
        match (self.command, segments):
            case ("GET", ["whoami-v2"]):
                self._whoami()
            case ("GET", ["organizations", name, "overview"]):
                self._organisation(name)
            case ("POST", ["repos", "create"]):
                self._create()
            case ("DELETE", ["repos", "delete"]):
                self._delete()
            case ("POST", ["validate-yaml"]):
                self._validate_yaml()
            case (_, [kinds, namespace, name, *rest]) if kinds in KINDS:
                self._repository_api(self._readable(KINDS[kinds], f"{namespace}/{name}"), rest)
            case _:
                raise RefusedError(404, None, f"no such endpoint: {self.command} {self.route}")

    # Accounts

    def _whoami(self) -> None:
        if self.account is None:
            raise RefusedError(401, None, "Invalid username or password.")
        self._say(
            {
                "type": "user",
                "name": self.account.name,
                "fullname": self.account.name,
                "orgs": [
                    {"name": name, "roleInOrg": role, "type": "org"}
                    for name, role in self.account.organisations.items()
                ],
                "auth": {"type": "access_token", "accessToken": {"displayName": "test", "role": self.account.role}},
            }
        )

    def _organisation(self, name: str) -> None:
        state = self.hub.state
        known = {org for account in state.accounts.values() for org in account.organisations} | state.trusted
        if name not in known:
            raise RefusedError(404, None, "This organization does not exist")
        self._say(
            {
                "avatarUrl": "",
                "name": name,
                "fullname": name,
                "isVerified": False,
                "numUsers": 1,
                "trustedKernelPublisher": name in state.trusted,
            }
        )

    # Repositories

    def _readable(self, kind: str, name: str) -> Repository:
        repository = self.hub.state.repository(kind, name)
        if repository is not None and (
            not repository.private
            or (
                self.account is not None
                and (self.account.name == repository.namespace or repository.namespace in self.account.organisations)
            )
        ):
            return repository
        # Whether a private repository exists is nobody's business, so both cases look alike.
        if self.account is None:
            raise RefusedError(401, "RepoNotFound", "Repository not found")
        raise RefusedError(404, "RepoNotFound", "Repository not found")

    def _must_write(self, namespace: str) -> None:
        if self.account is None:
            raise RefusedError(401, None, "Invalid username or password.")
        if not self.account.may_write(namespace):
            raise RefusedError(403, None, "Forbidden: pass `create_pr=1` as a query parameter to create a Pull Request")

    def _create(self) -> None:
        body = self._json()
        if self.account is None:
            raise RefusedError(401, None, "Invalid username or password.")
        kind, name = str(body.get("type", "model")), str(body["name"])
        namespace = str(body.get("organization") or self.account.name)
        if not self.account.may_write(namespace):
            raise RefusedError(
                403, None, f'You don\'t have the rights to create a {kind} under the namespace "{namespace}"'
            )
        if kind == "kernel" and not self.account.publisher:
            raise RefusedError(403, None, "You are not allowed to create kernel repositories")
        private = bool(body.get("private")) or body.get("visibility") == "private"
        if self.hub.state.repository(kind, f"{namespace}/{name}") is not None:
            url = f"{self.hub.url}/{_PREFIX[kind]}{namespace}/{name}"
            self._say(
                {"error": f"You already created this {kind} repo", "url": url},
                409,
                {"X-Error-Message": f"You already created this {kind} repo"},
            )
            return
        repository = self.hub.state.create(kind, f"{namespace}/{name}", private=private)
        self._say(
            {
                "url": f"{self.hub.url}/{_PREFIX[kind]}{repository.name}",
                "name": repository.name,
                "id": repository.name,
                "private": private,
            }
        )

    def _delete(self) -> None:
        body = self._json()
        namespace = str(body.get("organization") or (self.account.name if self.account else ""))
        self._must_write(namespace)
        repository = self._readable(str(body.get("type", "model")), f"{namespace}/{body['name']}")
        self.hub.state.delete(repository.kind, repository.name)
        self._say({"success": True})

    def _validate_yaml(self) -> None:
        content = str(self._json()["content"])
        warnings = [] if content.startswith("---\n") else [{"message": "empty or missing yaml metadata in repo card"}]
        if content.startswith("---\n") and "\n---" not in content[4:]:
            self._say({"errors": [{"message": "Invalid YAML front matter"}], "warnings": []}, 400)
            return
        self._say({"errors": [], "warnings": warnings})

    def _repository_api(self, repository: Repository, rest: list[str]) -> None:
        match (self.command, rest):
            case ("GET", []):
                self._info(repository, "main")
            case ("GET", ["revision", revision]):
                self._info(repository, revision)
            case ("GET", ["refs"]):
                self._refs(repository)
            case ("POST", ["branch", branch]):
                self._branch(repository, branch)
            case ("DELETE", ["branch", branch]):
                self._delete_branch(repository, branch)
            case ("GET", ["tree", revision, *path]):
                self._tree(repository, revision, "/".join(path))
            case ("POST", ["paths-info", revision]):
                self._paths(repository, revision)
            case ("GET", ["commits", revision]):
                self._commits(repository, revision)
            case ("POST", ["preupload", revision]):
                self._preupload(repository, revision)
            case ("POST", ["commit", revision]):
                self._commit(repository, revision)
            case ("GET", ["discussions", number]):
                self._discussion(repository, int(number))
            case _:
                raise RefusedError(404, None, f"no such endpoint: {self.command} {self.route}")

    def _info(self, repository: Repository, revision: str) -> None:
        commit = self.hub.state.resolve(repository, revision)
        self._say(
            {
                "_id": hashlib.sha256(repository.name.encode()).hexdigest()[:24],
                "id": repository.name,
                "author": repository.namespace,
                "private": repository.private,
                "gated": False,
                "disabled": False,
                "sha": commit.oid,
                "lastModified": commit.date,
                "downloads": 0,
                "likes": 0,
                "siblings": [{"rfilename": path} for path in commit.files],
            }
        )

    def _refs(self, repository: Repository) -> None:
        def ref(name: str, full: str, oid: str) -> dict[str, str]:
            return {"name": name, "ref": full, "targetCommit": oid}

        answer: dict[str, object] = {
            "branches": [ref(name, f"refs/heads/{name}", oid) for name, oid in repository.branches().items()],
            "converts": [],
            "tags": [],
        }
        if self.query.get("include_prs"):
            answer["pullRequests"] = [
                ref(name.removeprefix("refs/"), name, oid)
                for name, oid in repository.refs.items()
                if name.startswith("refs/pr/")
            ]
        self._say(answer)

    def _branch(self, repository: Repository, branch: str) -> None:
        body = self._json()
        self._must_write(repository.namespace)
        state = self.hub.state
        with state.lock:
            repository = self._readable(repository.kind, repository.name)
            if f"refs/heads/{branch}" in repository.refs:
                raise RefusedError(409, None, f"Reference already exists: refs/heads/{branch}")
            if not re.fullmatch(r"[\w][\w.\-/]*", branch) or ".." in branch:
                raise RefusedError(400, None, f"Invalid reference name: {branch}")
            start = state.resolve(repository, str(body.get("startingPoint") or "main"))
            repository.refs[f"refs/heads/{branch}"] = start.oid
            state.save(repository)
        self._say({}, 201)

    def _delete_branch(self, repository: Repository, branch: str) -> None:
        self._must_write(repository.namespace)
        state = self.hub.state
        with state.lock:
            repository = self._readable(repository.kind, repository.name)
            if branch == "main":
                raise RefusedError(403, None, "Cannot delete main branch")
            if repository.refs.pop(f"refs/heads/{branch}", None) is None:
                raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {branch}")
            state.save(repository)
        self._say({})

    # Listing

    @staticmethod
    def _file_entry(path: str, blob: Blob) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "oid": blob.oid, "size": blob.size, "path": path}
        if blob.sha256 is not None:
            entry["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": blob.pointer_size}
        return entry

    def _entries(self, commit: Commit, path: str, *, recursive: bool) -> list[dict[str, object]]:
        trees = tree_names(commit.files)
        if path and path not in trees:
            raise RefusedError(404, "EntryNotFound", f"{path} does not exist on this revision")
        inside = f"{path}/" if path else ""
        found: dict[str, dict[str, object]] = {}
        for name, blob in commit.files.items():
            if not name.startswith(inside):
                continue
            below = name[len(inside) :].split("/")
            for depth in range(1, len(below) if recursive else min(len(below), 2)):
                directory = inside + "/".join(below[:depth])
                found[directory] = {"type": "directory", "oid": trees[directory], "size": 0, "path": directory}
            if recursive or len(below) == 1:
                found[name] = self._file_entry(name, blob)
        return [found[name] for name in sorted(found)]

    def _tree(self, repository: Repository, revision: str, path: str) -> None:
        commit = self.hub.state.resolve(repository, revision)
        entries = self._entries(commit, path, recursive=self.query.get("recursive", "").lower() in {"true", "1"})
        limit = min(int(self.query.get("limit", self.hub.page_size)), self.hub.page_size)
        start = int(base64.urlsafe_b64decode(self.query["cursor"])) if "cursor" in self.query else 0
        headers = {}
        if start + limit < len(entries):
            cursor = base64.urlsafe_b64encode(str(start + limit).encode()).decode()
            query = urllib.parse.urlencode({**self.query, "cursor": cursor})
            address = urllib.parse.urlsplit(self.path).path
            headers["Link"] = f'<{self.hub.url}{address}?{query}>; rel="next"'
        self._say(entries[start : start + limit], headers=headers)

    def _paths(self, repository: Repository, revision: str) -> None:
        commit = self.hub.state.resolve(repository, revision)
        body = self._body()
        if "json" in self.headers.get("Content-Type", ""):
            wanted = [str(path) for path in json.loads(body)["paths"]]
        else:
            wanted = urllib.parse.parse_qs(body.decode()).get("paths", [])
        trees = tree_names(commit.files)
        found: list[dict[str, object]] = []
        for path in wanted:
            if path in commit.files:
                found.append(self._file_entry(path, commit.files[path]))
            elif path in trees and path:
                found.append({"type": "directory", "oid": trees[path], "size": 0, "path": path})
        self._say(found)

    def _commits(self, repository: Repository, revision: str) -> None:
        head = self.hub.state.resolve(repository, revision)
        self._say(
            [
                {
                    "id": commit.oid,
                    "title": commit.title,
                    "message": commit.message,
                    "date": commit.date,
                    "authors": [{"user": commit.author}],
                }
                for commit in self.hub.state.history(head.oid)
            ]
        )

    # Uploads

    def _preupload(self, repository: Repository, revision: str) -> None:
        body = self._json()
        if not self.query.get("create_pr"):
            self._must_write(repository.namespace)
        state = self.hub.state
        files = state.resolve(repository, revision).files
        rules = body.get("gitIgnore")
        answer = []
        wanted = body["files"]
        assert isinstance(wanted, list)
        for file in wanted:
            path = str(file["path"])
            large = state.is_large(files, path, int(file["size"]), base64.b64decode(file["sample"]))
            here = files.get(path)
            answer.append(
                {
                    "path": path,
                    "uploadMode": "lfs" if large else "regular",
                    "shouldIgnore": state.is_ignored(files, path, rules if isinstance(rules, str) else None),
                    "oid": (here.sha256 or here.oid) if here else None,
                }
            )
        self._say({"files": answer})

    def _batch(self) -> None:
        body = self._json()
        name = self.route.strip("/").removesuffix(".git/info/lfs/objects/batch")
        first, _, rest = name.partition("/")
        kind, name = (KINDS[first], rest) if first in KINDS and "/" in rest else ("model", name)
        repository = self._readable(kind, name)
        if self.account is None:
            raise RefusedError(401, None, "Invalid username or password.")
        state = self.hub.state
        objects = []
        wanted = body["objects"]
        assert isinstance(wanted, list)
        for item in wanted:
            oid, size = str(item["oid"]), int(item["size"])
            entry: dict[str, object] = {"oid": oid, "size": size}
            if not state.large_path(oid).exists():
                entry["actions"] = self._upload_actions(oid, size, repository)
            objects.append(entry)
        answer = {"transfer": "basic", "objects": objects}
        self._send(200, json.dumps(answer).encode(), {"Content-Type": "application/vnd.git-lfs+json"})

    def _upload_actions(self, oid: str, size: int, repository: Repository) -> dict[str, object]:
        token = self.headers.get("Authorization", "")
        verify = {"href": f"{self.hub.url}/_large/verify", "header": {"Authorization": token}}
        part = self.hub.part_size
        if size <= part:
            return {"upload": {"href": f"{self.hub.storage_url}/incoming/{oid}"}, "verify": verify}
        count = -(-size // part)
        header = {"chunk_size": str(part)} | {
            f"{number:05d}": f"{self.hub.storage_url}/incoming/{oid}/{number}" for number in range(1, count + 1)
        }
        complete = f"{self.hub.url}/_large/complete/{oid}?size={size}&parts={count}&repo={repository.name}"
        return {"upload": {"href": complete, "header": header}, "verify": verify}

    def _large_action(self) -> None:
        state = self.hub.state
        body = self._json()
        oid = str(body["oid"])
        if self.segments[1] == "verify":
            path = state.large_path(oid)
            if not path.exists() or path.stat().st_size != body["size"]:
                raise RefusedError(404, None, f"the object {oid} did not arrive")
            self._say({})
            return
        parts = [
            state.root / "incoming" / f"{oid}.part{number:05d}" for number in range(1, int(self.query["parts"]) + 1)
        ]
        given = body["parts"]
        assert isinstance(given, list)
        if len(given) != len(parts) or not all(part.exists() for part in parts):
            raise RefusedError(400, None, "parts are missing")
        self._join(parts, oid, int(self.query["size"]))
        self._say({})

    def _join(self, parts: list[Path], oid: str, size: int) -> None:
        digest = hashlib.sha256()
        whole = self.hub.state.root / "incoming" / f"{oid}.joined"
        with whole.open("wb") as target:
            for part in parts:
                with part.open("rb") as source:
                    while block := source.read(_CHUNK):
                        digest.update(block)
                        if block == _NOTHING[: len(block)]:
                            target.seek(len(block), os.SEEK_CUR)
                        else:
                            target.write(block)
            target.truncate(size)
        if digest.hexdigest() != oid or whole.stat().st_size != size:
            whole.unlink()
            raise RefusedError(400, None, "the content is not what its name says")
        whole.replace(self.hub.state.large_path(oid))
        for part in parts:
            part.unlink()

    def _is_proposer(self, repository: Repository, revision: str) -> bool:
        """Whether the request comes from who opened the pull request that ``revision`` names."""
        number = revision.removeprefix("refs/pr/")
        if number == revision or not number.isdigit() or not 0 < int(number) <= len(repository.pull_requests):
            return False
        return self.account is not None and repository.pull_requests[int(number) - 1]["author"] == self.account.name

    def _commit(self, repository: Repository, revision: str) -> None:
        lines = [json.loads(line) for line in self._body().splitlines() if line.strip()]
        as_pull_request = bool(self.query.get("create_pr"))
        if as_pull_request:
            if self.account is None:
                raise RefusedError(401, None, "Invalid username or password.")
        elif not self._is_proposer(repository, revision):
            self._must_write(repository.namespace)
        if not lines or lines[0]["key"] != "header":
            raise RefusedError(400, None, "the first line is no header")
        header = lines[0]["value"]
        meanwhile, self.hub.before_commit = self.hub.before_commit, None
        if meanwhile is not None:
            meanwhile()
        state = self.hub.state
        with state.lock:
            repository = self._readable(repository.kind, repository.name)
            ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
            if ref not in repository.refs:
                raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            parent = state.read(repository.refs[ref])
            expected = header.get("parentCommit")
            if expected is not None and expected != parent.oid:
                if not as_pull_request:
                    raise RefusedError(412, None, "A commit has happened since. Please refresh and try again.")
                parent = state.resolve(repository, expected)
            files = self._changed(dict(parent.files), lines[1:])
            commit = state.commit(
                (parent.oid,),
                files,
                title=header["summary"],
                message=header.get("description", ""),
                author=self.account.name if self.account else "",
            )
            answer: dict[str, object] = {
                "success": True,
                "commitOid": commit.oid,
                "commitUrl": f"{self.hub.url}/{_PREFIX[repository.kind]}{repository.name}/commit/{commit.oid}",
                "hookOutput": "",
            }
            if as_pull_request:
                number = len(repository.pull_requests) + 1
                ref = f"refs/pr/{number}"
                author = self.account.name if self.account else ""
                repository.pull_requests.append(
                    {"num": number, "title": header["summary"], "base": revision, "author": author}
                )
                answer["pullRequestUrl"] = (
                    f"{self.hub.url}/{_PREFIX[repository.kind]}{repository.name}/discussions/{number}"
                )
            repository.refs[ref] = commit.oid
            state.save(repository)
        self._say(answer)

    def _changed(self, files: dict[str, Blob], lines: list[Line]) -> dict[str, Blob]:
        """``files`` after the operations of a commit."""
        state = self.hub.state
        for line in lines:
            value, path = line["value"], str(line["value"]["path"])
            if not path or path.startswith("/") or ".." in path.split("/") or ".git" in path.split("/"):
                raise RefusedError(400, None, f"Invalid path: {path}")
            match line["key"]:
                case "file":
                    data = base64.b64decode(str(value["content"]), validate=True)
                    self.contents[path] = len(data)
                    if len(data) > 10 << 20:
                        raise RefusedError(400, None, f"{path}: files above 10 MiB must be stored as large files")
                    files[path] = state.put_blob(data)
                case "lfsFile":
                    size = value.get("size")
                    files[path] = state.large_blob(str(value["oid"]), int(str(size)) if size is not None else None)
                case "deletedFile":
                    if path not in files:
                        raise RefusedError(404, "EntryNotFound", f"A file with this name doesn't exist: {path}")
                    del files[path]
                case "deletedFolder":
                    inside = f"{path.rstrip('/')}/"
                    gone = [name for name in files if name.startswith(inside)]
                    if not gone:
                        raise RefusedError(404, "EntryNotFound", f"A folder with this name doesn't exist: {path}")
                    for name in gone:
                        del files[name]
                case other:
                    raise RefusedError(400, None, f"unknown operation {other!r}")
        return files

    def _discussion(self, repository: Repository, number: int) -> None:
        if not 0 < number <= len(repository.pull_requests):
            raise RefusedError(404, None, "This discussion does not exist")
        request = repository.pull_requests[number - 1]
        self._say(
            {**request, "status": "open", "isPullRequest": True, "events": [], "author": {"name": request["author"]}}
        )

    # Downloads

    def _resolve(self) -> None:
        place = self.segments.index("resolve")
        owner, revision, path = self.segments[:place], self.segments[place + 1], "/".join(self.segments[place + 2 :])
        kind = KINDS[owner.pop(0)] if len(owner) == 3 and owner[0] in KINDS else "model"
        repository = self._readable(kind, "/".join(owner))
        commit = self.hub.state.resolve(repository, revision)
        blob = commit.files.get(path)
        headers = {"X-Repo-Commit": commit.oid}
        if blob is None:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        self.contents = {path: 0}
        if blob.sha256 is not None:
            headers |= {
                "Location": f"{self.hub.storage_url}/large/{blob.sha256}",
                "X-Linked-Size": str(blob.size),
                "X-Linked-ETag": f'"{blob.sha256}"',
                "ETag": f'"{blob.oid}"',
            }
            self._send(302, headers=headers)
            return
        headers["ETag"] = f'"{blob.oid}"'
        self._send_file(self.hub.state.content(blob), {**headers, "Content-Type": "text/plain; charset=utf-8"})

    # The test's own

    def _control(self) -> None:
        """For a Hub in a process of its own: ``POST /_test/faults`` and ``GET /_test/log``."""
        if self.command == "POST" and self.segments[1:] == ["faults"]:
            self.hub.fault(**self._json())  # type: ignore[arg-type]
            self._say({})
        elif self.command == "GET" and self.segments[1:] == ["log"]:
            self._say([vars(entry) for entry in self.hub.traffic.since(within=True)])
        else:
            raise RefusedError(404, None, "no such control")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is no news; anything else is a mistake of the Hub's own and must be seen."""
        import sys
        import traceback

        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


def _start(handler: type[_Handler], hub: Hub, port: int = 0) -> _Server:
    server = _Server(("127.0.0.1", port), type("Handler", (handler,), {"hub": hub}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


@contextmanager
def serve(state: State, *, port: int = 0, keep: bool = True) -> Iterator[Hub]:
    """Run the Hub while the block runs. ``keep=False`` removes its state afterwards."""
    hub = Hub(state=state, traffic=Traffic(state.root / "requests.jsonl"), faults=Faults())
    servers = [_start(_HubHandler, hub, port), _start(_StorageHandler, hub)]
    hub.url, hub.storage_url = (f"http://127.0.0.1:{server.server_port}" for server in servers)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        if not keep:
            shutil.rmtree(state.root, ignore_errors=True)
