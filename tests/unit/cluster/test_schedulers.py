"""What answers at an address and is no scheduler ends in one message, within seconds."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
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
    with (
        dask.config.set(settings),
        pytest.raises(UsageError, match=r"TLS cannot be used: there is no /nowhere/ca\.pem"),
    ):
        connection_arguments("tls://127.0.0.1:1")
    assert connection_arguments("tcp://127.0.0.1:1") is not None


def certified(folder: Path) -> dict[str, str]:
    """dask's settings for a certificate of an authority's of its own, by what comes after ``distributed.comm.tls``."""
    folder.mkdir()
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for command in (
        ("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=kernels"),
        ("req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=member"),
        ("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "own.pem"),
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    own = {f"{who}.{what}": str(folder / f"own.{ending}") for who in ("scheduler", "client") for what, ending in _PARTS}
    return {"ca-file": str(folder / "ca.pem"), **own}


_PARTS = (("cert", "pem"), ("key", "key"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates, and is not here")
def test_who_has_a_certificate_of_the_authority_is_let_in(tmp_path: Path) -> None:
    import dask

    member, stranger = certified(tmp_path / "member"), certified(tmp_path / "stranger")
    told = {
        f"DASK_DISTRIBUTED__COMM__TLS__{name.replace('.', '__').replace('-', '_').upper()}": file
        for name, file in member.items()
    }
    where = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--protocol", "tls", "--host", "127.0.0.1"]
    command += ["--port", "0", "--no-dashboard", "--scheduler-file", str(where)]
    with subprocess.Popen(command, env={**os.environ, **told}, stderr=subprocess.DEVNULL, cwd=tmp_path) as scheduler:
        try:
            end = time.monotonic() + 60
            while not where.exists() or not where.read_text(encoding="utf-8"):
                assert time.monotonic() < end
                time.sleep(0.05)
            address = json.loads(where.read_text(encoding="utf-8"))["address"]
            with dask.config.set({f"distributed.comm.tls.{name}": file for name, file in member.items()}):
                check_scheduler(address, address, 20)
            settings = {f"distributed.comm.tls.{name}": file for name, file in stranger.items()}
            with dask.config.set(settings), pytest.raises(NetworkError, match="no scheduler responds at tls://"):
                check_scheduler(address, address, 20)
        finally:
            scheduler.terminate()


def test_settings_of_a_block_take_none_of_dask_s_along(tmp_path: Path) -> None:
    """In a process that has not imported dask before."""
    program = """\
from kernel_builder.cluster.open import dask_settings
with dask_settings():
    pass
import dask
print(dask.config.get("distributed.comm.require-encryption"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_scheduler_is_asked_before_anything_is_prepared(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    run = Run(environ={}, offline=True, reporter=Recorder(), store=Store(tmp_path / "store"))
    with pytest.raises(NetworkError, match=f"no scheduler responds at {address}"):
        make(BuildRequest(root=tmp_path / "not there", scheduler=address), run)
    assert not (tmp_path / "store").exists()
