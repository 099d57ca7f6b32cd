"""A package index on 127.0.0.1 for tests: serves wheels that the test makes, and fails in the ways it is told to."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

from kernel_builder.store.settings import IndexSettings


def make_wheel(
    name: str,
    version: str,
    files: Mapping[str, bytes],
    *,
    executable: tuple[str, ...] = (),
    lie_about: str | None = None,
    level: int = 6,
) -> bytes:
    """A wheel with RECORD. ``lie_about`` names a file whose digest in RECORD is wrong."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    contents = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()}
    if f"{info}/METADATA" in files:
        contents[f"{info}/METADATA"] = files[f"{info}/METADATA"]
    rows = []
    for path, data in contents.items():
        digest = hashlib.sha256(b"something else" if path == lie_about else data).digest()
        rows.append(f"{path},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(data)}")
    rows.append(f"{info}/RECORD,,")
    contents[f"{info}/RECORD"] = ("\n".join(rows) + "\n").encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path in executable else 0o100644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


@dataclass
class LoopbackIndex:
    """The state of the server. Tests change it while it runs.

    ``faults`` holds, per file name or project, what the next requests get, one each (``"*"`` at the end: all that
    follow): ``reset`` and ``short`` (after half of the body), ``error`` (500), ``forbidden``, ``slow``,
    ``redirect`` (to ``elsewhere``, or to another path), ``shifted`` (another part than asked for), ``longer`` (more
    bytes than the part has), ``altered`` (a byte is another), ``garbled`` (every byte is), ``ok``.
    """

    url: str = ""
    ranges: bool = True
    html: bool = False
    password: str | None = None
    elsewhere: str = ""
    authorizations: list[str | None] = field(default_factory=list)
    pages: dict[str, dict[str, bytes]] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    wrong_sha256: set[str] = field(default_factory=set)
    faults: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0

    def settings(self) -> IndexSettings:
        """How a client reaches it."""
        return IndexSettings(url=self.url, origin="test", credentials=None)

    def add(self, filename: str, data: bytes) -> None:
        """Publish a wheel."""
        project = filename.partition("-")[0].replace("_", "-")
        self.pages.setdefault(project, {})[filename] = data

    def fault(self, name: str) -> str:
        """What the next request for ``name`` gets."""
        queue = self.faults.get(name, [])
        if not queue:
            return "ok"
        return queue[0].rstrip("*") if queue[0].endswith("*") else queue.pop(0)


def _spoilt(body: bytes, fault: str) -> bytes:
    if fault == "altered":
        return body[:-1] + bytes([body[-1] ^ 1])
    if fault == "garbled":
        return bytes(byte ^ 0x55 for byte in body)
    return body + b"more" if fault == "longer" else body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: LoopbackIndex

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        index = self.index
        index.requests.append((self.path, self.headers.get("Range")))
        index.authorizations.append(self.headers.get("Authorization"))
        parts = self.path.strip("/").split("/")
        if index.password is not None:
            expected = "Basic " + base64.b64encode(f"user:{index.password}".encode()).decode()
            if self.headers.get("Authorization") != expected:
                self._answer(401, b"who are you?")
                return
        if parts[0] == "simple":
            self._page(parts[1])
        else:
            self._file(unquote(parts[-1]))

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.index.sent += len(body)

    def _page(self, project: str) -> None:
        index = self.index
        fault = index.fault(project)
        if fault == "error":
            self._answer(503, b"busy")
            return
        if fault == "nonsense":
            self._answer(200, b"\x00\x01", {"Content-Type": "application/octet-stream"})
            return
        files = index.pages.get(project)
        if files is None:
            self._answer(404, b"no such project")
            return
        if index.html:
            links = "".join(f'<a href="/files/{quote(name)}">{name}</a>\n' for name in files)
            self._answer(200, f"<!DOCTYPE html><body>{links}</body>".encode(), {"Content-Type": "text/html"})
            return
        listing = [
            {
                "filename": name,
                "url": f"/files/{name}",
                "hashes": {"sha256": "0" * 64 if name in index.wrong_sha256 else hashlib.sha256(data).hexdigest()},
                "size": len(data),
                "yanked": name in index.yanked,
            }
            for name, data in files.items()
        ]
        page = {"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": listing}
        kind = "application/vnd.pypi.simple.v1+json"
        self._answer(200, json.dumps(page).encode(), {"Content-Type": kind})

    def _file(self, name: str) -> None:
        index = self.index
        data = next((files[name] for files in index.pages.values() if name in files), None)
        fault = index.fault(name)
        if data is None:
            self._answer(404, b"no such file")
            return
        if fault in {"error", "forbidden"}:
            self._answer({"error": 500, "forbidden": 403}[fault], b"no")
            return
        if fault == "redirect":
            self._answer(302, b"", {"Location": f"{index.elsewhere}/elsewhere/{name}"})
            return
        if fault == "slow":
            time.sleep(1.5)
        wanted = self.headers.get("Range")
        if wanted and index.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
            if fault == "shifted":
                begin, end = begin + 1, end + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(data)}")
            body = data[begin : end + 1]
        else:
            self.send_response(200)
            body = data
        body = _spoilt(body, fault)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in {"reset", "short"}:
            body = body[: len(body) // 2]
        self.wfile.write(body)
        index.sent += len(body)
        if fault == "reset":
            self.wfile.flush()
            self.connection.shutdown(1)
        if fault in {"reset", "short"}:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that hangs up early is what partial reading does


@contextmanager
def serve() -> Iterator[LoopbackIndex]:
    """A running index; it stops when the block ends."""
    index = LoopbackIndex()
    handler = type("Handler", (_Handler,), {"index": index})
    server = _Server(("127.0.0.1", 0), handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
