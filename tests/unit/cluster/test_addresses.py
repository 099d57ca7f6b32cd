"""Addresses of schedulers, and what is said of those that are none before anything is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_builder.cluster.open import address_of
from kernel_builder.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("head.cluster:1", "tcp://head.cluster:1"),
        ("[::1]:8786", "tcp://[::1]:8786"),
        ("tls://10.0.0.1:8786", "tls://10.0.0.1:8786"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize(
    "text", ["", "here", ":8786", "host:", "host:0", "host:65536", "::1:80", "http://host:80", "a b:1"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a scheduler"):
        address_of(text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--scheduler", "here"), "'here' is not the address of a scheduler"),
        (("--scheduler", "127.0.0.1:1", "--sandbox"), "--sandbox confines compilers on this machine"),
        (("--scheduler", "127.0.0.1:1", "--try-sandbox"), "--sandbox confines compilers on this machine"),
    ],
)
def test_builds_refuse_before_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
    assert run(["build", str(tmp_path), *options], {"PATH": "/usr/bin:/bin"}) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []
