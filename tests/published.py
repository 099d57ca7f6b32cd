"""What others publish, made by tests: tar and Debian archives, and a server on 127.0.0.1 that serves a folder."""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def member(
    name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644, size: int = 0
) -> tarfile.TarInfo:
    """The header of one member of a tar file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, mode, size
    return info


def make_tar(
    files: Mapping[str, bytes], *, executable: Sequence[str] = (), extra: Sequence[tarfile.TarInfo] = ()
) -> bytes:
    """A plain tar file of ``files``, and of ``extra`` headers without contents at its end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            archive.addfile(member(name, mode=0o755 if name in executable else 0o644, size=len(data)), io.BytesIO(data))
        for info in extra:
            archive.addfile(info)
    return buffer.getvalue()


def make_deb(data: bytes, *, name: str = "data.tar.xz", version: bytes = b"2.0\n") -> bytes:
    """A Debian package around a data archive that is compressed already."""
    out = b"!<arch>\n"
    control = lzma.compress(make_tar({"./control": b"Package: test\n"}))
    for part, content in (("debian-binary", version), ("control.tar.xz", control), (name, data)):
        out += f"{part:<16}{0:<12}{0:<6}{0:<6}{0o100644:<8o}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


@dataclass
class LoopbackSite:
    """The state of the server; tests change it while it runs.

    ``ranges``: whether parts are served. ``breaks``: how many of the next answers to files that end with
    ``breaking`` stop after half of their body. ``listing``: status of the index page, 200 lists the folder.
    """

    root: Path
    url: str = ""
    ranges: bool = True
    breaks: int = 0
    breaking: str = ""
    listing: int = 200
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    def paths(self) -> list[str]:
        """The paths that were asked for, in order."""
        return [path for path, _ in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: LoopbackSite

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.site.requests.append((self.path, asked))
        target = self.site.root / self.path.strip("/")
        if target.is_dir():
            links = "".join(f'<a href="{path.name}">{path.name}</a>\n' for path in sorted(target.iterdir()))
            self._answer(self.site.listing, links.encode())
        elif target.is_file():
            self._file(target.read_bytes(), asked)
        else:
            self._answer(404, b"no such file")

    def _file(self, data: bytes, asked: str | None) -> None:
        if asked is None or not self.site.ranges:
            self._answer(200, data)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last), len(data) - 1)
        self._answer(206, data[start : stop + 1], {"Content-Range": f"bytes {start}-{stop}/{len(data)}"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.site.breaks and self.path.endswith(self.site.breaking):
            self.site.breaks -= 1
            body = body[: len(body) // 2]
            self.close_connection = True
        with suppress(ConnectionError):  # the client has seen enough
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up when they have seen enough; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serve_folder(root: Path) -> Iterator[LoopbackSite]:
    """Serve ``root`` for the time of the block."""
    site = LoopbackSite(root=root)
    handler = type("Handler", (_Handler,), {"site": site})
    server = _Server(("127.0.0.1", 0), handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
