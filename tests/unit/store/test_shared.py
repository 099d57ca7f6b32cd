"""What several machines share: a directory, a web server, a bucket; read, written, gone, and lying."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine_actions import action, plan_of, run, statuses
from kernel_builder.engine.cache import ActionCache
from kernel_builder.errors import UsageError
from kernel_builder.events import Notice, Recorder
from kernel_builder.store.shared import MODE, PLACE, open_shared


class Shelf(ThreadingHTTPServer):
    """Keeps what is put, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept: dict[str, bytes] = {}
        self.asked = 0
        self.broken = False


class _Handler(BaseHTTPRequestHandler):
    server: Shelf

    def do_GET(self) -> None:
        self.server.asked += 1
        data = self.server.kept.get(self.path)
        code = 503 if self.server.broken else 404 if data is None else 200
        self._answer(code, data or b"")

    def do_PUT(self) -> None:
        self.server.asked += 1
        self.server.kept[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(503 if self.server.broken else 200, b"")

    def _answer(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def shelf() -> Iterator[Shelf]:
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def variables(place: str, server: Shelf, folder: Path, mode: str) -> dict[str, str]:
    endpoint = f"http://127.0.0.1:{server.server_port}"
    known = {"server": f"{endpoint}/cache", "bucket": "s3://bucket/cache", "directory": str(folder / "shared")}
    keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    return {PLACE: known[place], MODE: mode, **keys}


def built(root: Path, cache: Path, environ: dict[str, str], recorder: Recorder | None = None) -> dict[str, str]:
    """What becomes of one action of a fresh checkout, with a cache of its own before the shared one."""
    shared = open_shared(environ, recorder or Recorder(), offline=False)
    root.mkdir()
    return statuses(run(plan_of(root, action("x", "echo made > x.out")), cache=ActionCache(cache, remote=shared)))


@pytest.mark.parametrize("place", ["server", "bucket", "directory"])
def test_one_machine_makes_and_another_takes(tmp_path: Path, place: str) -> None:
    with shelf() as server:
        reading, writing = (variables(place, server, tmp_path, mode) for mode in ("", "write"))
        assert built(tmp_path / "a", tmp_path / "cache-a", reading) == {"x": "done"}
        assert built(tmp_path / "b", tmp_path / "cache-b", reading) == {"x": "done"}  # reading writes nothing
        assert built(tmp_path / "c", tmp_path / "cache-c", writing) == {"x": "done"}
        assert built(tmp_path / "d", tmp_path / "cache-d", reading) == {"x": "from the cache"}
        assert (tmp_path / "d" / ".kernel-builder" / "x.out").read_text() == "made\n"
        if place != "directory":
            assert any(path.endswith(".json") for path in server.kept)
            server.kept = {path: b"[]" if "entries" in path else b"evil" for path in server.kept}
            assert built(tmp_path / "e", tmp_path / "cache-e", reading) == {"x": "done"}


def test_a_server_that_fails_is_left_alone_and_the_build_goes_on(tmp_path: Path) -> None:
    with shelf() as server:
        server.broken = True
        recorder = Recorder()
        shared = open_shared(variables("server", server, tmp_path, "write"), recorder, offline=False)
        assert shared is not None
        for _ in range(20):
            assert not shared.get("entries/aa/b.json", io.BytesIO())
        before = server.asked
        shared.put("entries/aa/b.json", tmp_path / "no")
        assert server.asked == before
        (notice,) = (event for event in recorder.events if isinstance(event, Notice))
        assert "no longer uses it" in notice.message


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({PLACE: "ftp://host/x"}, "ftp"),
        ({PLACE: "/x", MODE: "both"}, "both"),
    ],
)
def test_what_names_no_place_is_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        open_shared(environ, Recorder(), offline=False)
    assert refused.value.hint


def test_credentials_are_not_shown() -> None:
    with pytest.raises(UsageError) as refused:
        open_shared({PLACE: "ftp://me:secret@host/x"}, Recorder(), offline=False)
    assert "secret" not in refused.value.message


def test_nothing_is_named_and_nothing_is_connected_to() -> None:
    assert open_shared({}, Recorder(), offline=False) is None
    assert open_shared({PLACE: "https://host.invalid/x"}, Recorder(), offline=True) is None
