"""``--offline``: no connection is opened, whoever asks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.events import Silent
from kernel_builder.store.download import Site
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.offline import VARIABLE, OfflineError, asks_for_offline
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport

SETTINGS = IndexSettings(url="http://user:secret@127.0.0.1:9/simple", origin="test", credentials=("user", "secret"))


def test_nothing_opens_a_socket_before_it_is_known_whether_that_is_allowed() -> None:
    watch = (
        "import socket, sys\n"
        "def refuse(*arguments, **named):\n"
        "    raise SystemExit('a socket was opened')\n"
        "ipv6 = socket.has_ipv6\n"
        "socket.socket.__init__ = refuse\n"
        "import kernel_builder.workflow.build\n"
        "from kernel_builder.store.settings import IndexSettings\n"
        "assert 'urllib3' not in sys.modules\n"
        "IndexSettings(url=None, origin='test').address\n"
        "import urllib3.util.connection\n"
        "assert socket.has_ipv6 == urllib3.util.connection.HAS_IPV6 == ipv6\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", watch], env=environment, check=True)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Everything that was connected to, or looked up."""
    found: list[object] = []

    def connect(_self: socket.socket, address: object) -> None:
        found.append(address)
        raise OSError("connections are watched")

    def look_up(host: object, *_arguments: object, **_named: object) -> None:
        found.append(host)
        raise OSError("names are watched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return found


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("yes", True), ("0", False), ("false", False), ("", False)]
)
def test_the_variable_says_it(value: str, expected: bool) -> None:
    assert asks_for_offline({VARIABLE: value}) is expected
    assert not asks_for_offline({})


def test_nothing_is_connected_to_and_the_message_names_what_and_how(connections: list[object], tmp_path: Path) -> None:
    transport = Transport(SETTINGS, offline=True)
    index = SimpleIndex(SETTINGS, Silent(), offline=True)
    site = Site("http://user:secret@127.0.0.1:9/archives", transport)
    attempts: list[Callable[[], object]] = [
        lambda: index.files("torch"),
        lambda: transport.range_size("http://user:secret@127.0.0.1:9/f?token=secret"),
        lambda: transport.download("http://127.0.0.1:9/f", tmp_path / "f", on_bytes=lambda _: None),
        lambda: list(transport.stream("http://127.0.0.1:9/f", 0, 9, size=9, on_bytes=lambda _: None)),
        lambda: index.transport_without_credentials().range_size("http://127.0.0.1:9/f"),
        lambda: site.read("index.json", limit=100),
    ]
    for attempt in attempts:
        with pytest.raises(OfflineError, match="--offline forbids using the network") as caught:
            attempt()
        assert "secret" not in f"{caught.value.message} {caught.value.hint}"
        assert "kernel-builder toolchain fetch" in str(caught.value.hint)
    assert connections == []
    assert transport.requests == index.transport.requests == 0


def test_the_watch_sees_connections(connections: list[object]) -> None:
    with pytest.raises(Exception, match=r"127\.0\.0\.1"):
        Transport(SETTINGS, backoff=0.0).range_size("http://127.0.0.1:9/f")
    assert connections
