"""What the index can do wrong, on a loopback server: each fault ends in the right message, and soon."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve
from packaging.specifiers import SpecifierSet

from kernel_builder.errors import IntegrityError, NetworkError
from kernel_builder.events import Notice, Recorder
from kernel_builder.store.index import IndexFile, SimpleIndex, choose_wheel
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import NotFoundError, Transport

NAME = "demo-1.0-py3-none-any.whl"
FILES = {f"demo/{i:03}.h": f"// {i}\n".encode() * 50 + bytes(range(256)) * 40 for i in range(50)}
FILES["demo/large.bin"] = b"".join(i.to_bytes(4, "little") for i in range(200_000))


@pytest.fixture
def server() -> Iterator[LoopbackIndex]:
    with serve() as index:
        index.add(NAME, make_wheel("demo", "1.0", FILES))
        yield index


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def client(server: LoopbackIndex, recorder: Recorder, *, read_seconds: float = 5.0) -> SimpleIndex:
    settings = server.settings()
    return SimpleIndex(settings, recorder, Transport(settings, read_seconds=read_seconds, backoff=0.01))


def the_file(index: SimpleIndex) -> IndexFile:
    return choose_wheel(index.files("demo"), project="demo", allowed=SpecifierSet("==1.*"), machine="x86_64").file


def fetch(index: SimpleIndex, into: Path) -> None:
    scratch = into / "scratch"
    scratch.mkdir()
    wheel = index.open(the_file(index), scratch, lambda _: None)
    wheel.extract(wheel.select(["demo/**"]), into)
    for name, data in FILES.items():
        assert (into / name).read_bytes() == data


def test_a_healthy_index_serves_parts(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    index = client(server, recorder)
    scratch = tmp_path / "s"
    scratch.mkdir()
    wheel = index.open(the_file(index), scratch, lambda _: None)
    assert wheel.read("demo/001.h") == FILES["demo/001.h"]
    assert all(span for path, span in server.requests if "/files/" in path)
    assert index.bytes_received < len(server.pages["demo"][NAME])
    assert recorder.events == []


def test_bytes_are_counted_as_the_server_sent_them(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    index = client(server, recorder)
    fetch(index, tmp_path)
    assert index.bytes_received == server.sent
    assert index.transport.requests == len(server.requests)


def test_html_pages_without_sizes_and_digests_serve_as_well(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path
) -> None:
    server.html = True
    index = client(server, recorder)
    found = the_file(index)
    assert (found.size, found.sha256) == (None, None)
    fetch(index, tmp_path)


def test_nothing_listening_is_told_at_once(recorder: Recorder) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    settings = IndexSettings(url=f"http://127.0.0.1:{port}/simple", origin="test")
    index = SimpleIndex(settings, recorder)
    begin = time.monotonic()
    with pytest.raises(NetworkError) as caught:
        index.files("demo")
    assert time.monotonic() - begin < 2
    assert "Connection refused" in caught.value.message
    assert index.transport.requests == 1


def test_a_host_that_does_not_exist_is_told_at_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    index = SimpleIndex(IndexSettings(url="http://no-such-host.invalid/simple", origin="test"), recorder)
    begin = time.monotonic()
    with pytest.raises(NetworkError, match="no connection"):
        index.files("demo")
    assert time.monotonic() - begin < 10
    assert index.transport.requests == 1


def test_an_unknown_project_is_not_asked_for_twice(server: LoopbackIndex, recorder: Recorder) -> None:
    index = client(server, recorder)
    with pytest.raises(NotFoundError, match="has no project 'nothing'") as caught:
        index.files("nothing")
    assert len(server.requests) == 1
    assert caught.value.hint is not None
    assert "test" in caught.value.hint


def test_a_page_that_is_no_index_page_is_told(server: LoopbackIndex, recorder: Recorder) -> None:
    server.faults["demo"] = ["nonsense"]
    with pytest.raises(NetworkError, match="does not respond like a package index"):
        client(server, recorder).files("demo")


def test_a_busy_server_is_asked_again(server: LoopbackIndex, recorder: Recorder) -> None:
    server.faults["demo"] = ["error", "error"]
    assert len(client(server, recorder).files("demo")) == 1
    server.faults["demo"] = ["error*"]
    server.requests.clear()
    with pytest.raises(NetworkError, match=r"responded with 503.*3 times in a row"):
        client(server, recorder).files("demo")
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", ["reset", "short"])
def test_a_broken_transfer_goes_on_where_it_stopped(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path, fault: str
) -> None:
    index = client(server, recorder)
    the_file(index)
    server.faults[NAME] = ["ok", fault]
    fetch(index, tmp_path)
    assert server.faults[NAME] == []
    starts = [int(span.removeprefix("bytes=").partition("-")[0]) for _, span in server.requests if span]
    assert len(starts) == len(set(starts))
    assert len(starts) == 3
    assert index.bytes_received < 1.1 * len(server.pages["demo"][NAME])


@pytest.mark.parametrize("fault", ["reset*", "short*"])
def test_a_transfer_that_always_breaks_is_given_up(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path, fault: str
) -> None:
    server.faults[NAME] = [fault]
    with pytest.raises(NetworkError, match="3 times in a row"):
        fetch(client(server, recorder), tmp_path)
    assert len([path for path, _ in server.requests if "/files/" in path]) == 3


def test_a_refusal_in_the_middle_is_final(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.faults[NAME] = ["ok", "forbidden*"]
    with pytest.raises(NetworkError, match="responded with 403") as caught:
        fetch(client(server, recorder), tmp_path)
    assert caught.value.hint is not None
    assert len([path for path, _ in server.requests if "/files/" in path]) == 2


def test_a_redirect_is_followed(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.faults[NAME] = ["redirect", "ok", "redirect", "ok"]
    fetch(client(server, recorder), tmp_path)
    assert any(path.startswith("/elsewhere/") for path, _ in server.requests)


def test_a_silent_server_is_given_up_after_two_retries(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path
) -> None:
    server.faults[NAME] = ["slow*"]
    with pytest.raises(NetworkError, match="no data received"):
        fetch(client(server, recorder, read_seconds=0.2), tmp_path)


def test_a_slow_server_is_waited_for(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.faults[NAME] = ["slow"]
    fetch(client(server, recorder, read_seconds=5), tmp_path)


def test_another_part_than_asked_for_is_not_taken(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.faults[NAME] = ["shifted"]
    with pytest.raises(IntegrityError, match="a different range than requested"):
        fetch(client(server, recorder), tmp_path)


def test_without_range_support_the_whole_file_is_fetched_with_a_warning(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path
) -> None:
    server.ranges = False
    fetch(client(server, recorder), tmp_path)
    (notice,) = recorder.events
    assert isinstance(notice, Notice)
    assert notice.warning
    assert NAME in notice.message


def test_a_whole_file_with_another_digest_is_refused(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.ranges = False
    server.wrong_sha256.add(NAME)
    with pytest.raises(IntegrityError, match=r"SHA-256 of .* does not match the one in the index"):
        fetch(client(server, recorder), tmp_path)


def test_contents_that_record_does_not_promise_are_refused(
    server: LoopbackIndex, recorder: Recorder, tmp_path: Path
) -> None:
    server.add(NAME, make_wheel("demo", "1.0", FILES, lie_about="demo/003.h"))
    with pytest.raises(IntegrityError, match=r"demo/003\.h cannot be trusted"):
        fetch(client(server, recorder), tmp_path)


def test_credentials_reach_the_index_and_no_message(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.password = "hunter2"  # noqa: S105
    settings = replace(server.settings(), credentials=("user", "hunter2"))
    fetch(SimpleIndex(settings, recorder), tmp_path)
    wrong = replace(server.settings(), credentials=("user", "wrong-secret"))
    with pytest.raises(NetworkError, match="responded with 401") as caught:
        SimpleIndex(wrong, recorder).files("demo")
    assert "secret" not in f"{caught.value.message} {caught.value.hint} {wrong!r}"


def test_credentials_are_not_sent_to_another_host(recorder: Recorder, tmp_path: Path) -> None:
    with serve() as index, serve() as files:
        data = make_wheel("demo", "1.0", FILES)
        index.add(NAME, data)
        files.add(NAME, data)
        files.password = "hunter2"  # noqa: S105  (would be satisfied if the header came along)
        settings = replace(index.settings(), credentials=("user", "hunter2"))
        client = SimpleIndex(settings, recorder)
        elsewhere = replace(the_file(client), url=files.url.replace("/simple", f"/files/{NAME}"))
        with pytest.raises(NetworkError, match="401"):
            client.open(elsewhere, tmp_path, lambda _: None)


def test_a_redirect_to_another_host_takes_no_credentials_along(recorder: Recorder, tmp_path: Path) -> None:
    with serve() as index, serve() as files:
        data = make_wheel("demo", "1.0", FILES)
        index.add(NAME, data)
        files.add(NAME, data)
        index.password = "hunter2"  # noqa: S105
        index.elsewhere = files.url.removesuffix("/simple")
        index.faults[NAME] = ["redirect*"]
        fetch(SimpleIndex(replace(index.settings(), credentials=("user", "hunter2")), recorder), tmp_path)
        assert files.requests
        assert files.authorizations == [None] * len(files.requests)
        assert None not in index.authorizations


def test_more_bytes_than_asked_for_are_refused(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    server.faults[NAME] = ["ok", "longer*"]
    with pytest.raises(IntegrityError, match="more bytes than requested"):
        fetch(client(server, recorder), tmp_path)


def test_a_byte_that_changed_on_the_way_is_found(server: LoopbackIndex, recorder: Recorder, tmp_path: Path) -> None:
    index = client(server, recorder)
    scratch = tmp_path / "s"
    scratch.mkdir()
    wheel = index.open(the_file(index), scratch, lambda _: None)
    member = wheel.members["demo/large.bin"]
    data = bytearray(server.pages["demo"][NAME])
    data[member.offset + member.compressed // 2] ^= 1
    server.add(NAME, bytes(data))
    with pytest.raises(IntegrityError, match=r"demo/large\.bin"):
        wheel.extract([member], tmp_path)


def test_a_missing_certificate_file_is_named(recorder: Recorder, tmp_path: Path) -> None:
    settings = IndexSettings(url="https://127.0.0.1:1/simple", origin="t", certificates=tmp_path / "no.pem")
    with pytest.raises(NetworkError, match=r"no\.pem does not exist"):
        SimpleIndex(settings, recorder)
