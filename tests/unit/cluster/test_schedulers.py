"""What answers at an address and is no scheduler ends in one message, within seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")

from kernel_builder.cluster.open import check_scheduler, connection_arguments
from kernel_builder.errors import NetworkError, UsageError
from kernel_builder.events import Recorder
from kernel_builder.store.cache import Store
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.making import make
from kernel_builder.workflow.run import Run


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server on loopback that does that with each connection; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                answer(connection)

        kept: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        for connection in kept:
            connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: connection.sendall(b"HTTP/1.0 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n" * 20),
        lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
        lambda connection: connection.close(),
        lambda _: None,
        lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46"),  # TLS: an alert
    ],
    ids=["http", "ssh", "closes", "silent", "tls"],
)
def test_what_is_no_scheduler_is_told(answer: Callable[[socket.socket], object]) -> None:
    with answering(answer) as address, pytest.raises(NetworkError) as caught:
        check_scheduler(address, address.removeprefix("tcp://"), 2)
    assert caught.value.message.startswith(f"no scheduler responds at {address.removeprefix('tcp://')}: ")
    assert "tls://" in (caught.value.hint or "")


def test_tls_without_certificates_is_told_before_anything_connects() -> None:
    import dask

    with pytest.raises(UsageError, match="needs certificates, and dask's settings name none"):
        check_scheduler("tls://127.0.0.1:1", "tls://127.0.0.1:1", 2)
    files = {"ca-file": "/nowhere/ca.pem", "client.cert": "/nowhere/own.pem", "client.key": "/nowhere/own.key"}
    settings = {f"distributed.comm.tls.{name}": file for name, file in files.items()}
    with dask.config.set(settings), pytest.raises(UsageError, match="settings of TLS cannot be used"):
        connection_arguments("tls://127.0.0.1:1")
    assert connection_arguments("tcp://127.0.0.1:1") is not None


def test_the_scheduler_is_asked_before_anything_is_prepared(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    run = Run(environ={}, offline=True, reporter=Recorder(), store=Store(tmp_path / "store"))
    with pytest.raises(NetworkError, match=f"no scheduler responds at {address}"):
        make(BuildRequest(root=tmp_path / "not there", scheduler=address), run)
    assert not (tmp_path / "store").exists()
