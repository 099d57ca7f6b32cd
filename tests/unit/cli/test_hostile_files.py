"""Files that anybody may have written end in a message, never in a traceback, and are never read into memory whole."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.cli import run

VARIANT = "torch213-cxx11-cpu-x86_64-linux"
JSON = {
    "brackets": b"[" * 1_000_000,
    "objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "number": b'{"version": ' + b"9" * 100_000 + b"}",
    "nan": b'{"version": NaN, "name": Infinity}',
    "mark": b"\xef\xbb\xbf{}",
    "utf-16": "{}".encode("utf-16"),
    "not utf-8": b'{"name": "\xff"}',
    "twice": b'{"version": 1, "version": 2}',
    "surrogate": b'{"name": "\\ud800", "id": "\\ud800"}',
    "zeros": b"\0" * 100,
    "list": b"[1]",
}
TOML = {
    "brackets": b"a = " + b"[" * 100_000 + b"]" * 100_000,
    "tables": b"a = " + b"{a=" * 50_000 + b"1" + b"}" * 50_000,
    "dots": b"a" + b".a" * 20_000 + b" = 1\n",
    "number": b"a = " + b"9" * 100_000 + b"\n",
    "zeros": b"\0" * 100,
    "not utf-8": b'a = "\xff"\n',
    "utf-16": "[general]".encode("utf-16"),
    "date": b"a = 9999-99-99\n",
}
PROJECT = b"""\
[general]
name = "kk"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[general.hub]
repo-id = "me/kk"

[torch]
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNEL_BUILDER_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("KERNEL_BUILDER_OFFLINE", "1")
    root = tmp_path / "project"
    for package in (root / "torch-ext" / "kk", root / "build" / VARIANT):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("__all__ = []\n", encoding="ascii")
    (root / "build.toml").write_bytes(PROJECT)
    metadata = {"name": "kk", "id": "_kk_cpu_1234567", "version": 1, "license": "MIT", "python-depends": []}
    (root / "build" / VARIANT / "metadata.json").write_text(json.dumps({**metadata, "backend": {"type": "cpu"}}))
    return root


def ends_well(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    code = run(list(words))
    told = "".join(capfd.readouterr())
    assert code in range(7), told
    assert "Traceback" not in told
    assert "bug in kernel-builder" not in told
    return told


@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_metadata(root: Path, capfd: pytest.CaptureFixture[str], content: bytes) -> None:
    (root / "build" / VARIANT / "metadata.json").write_bytes(content)
    where = str(root)
    for words in (
        ("check", where, "--format", "json"),
        ("check-builds", where),
        ("hash", where),
        ("card", where),
        ("attest", where, "--output", "-"),
        ("api-diff", where, "--against", where),
        ("upload", where, "--dry-run"),
    ):
        ends_well(capfd, *words)


@pytest.mark.parametrize("file", ["build.toml", "kernel-builder.toml", "kernel-builder.lock"])
@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_toml(root: Path, capfd: pytest.CaptureFixture[str], content: bytes, file: str) -> None:
    (root / file).write_bytes(content)
    for command in ("check-config", "check", "list-variants"):
        ends_well(capfd, command, str(root))
    ends_well(capfd, "lock", str(root), "--check")
    ends_well(capfd, "update-build", str(root), "--check")


@pytest.mark.parametrize("command", ["hash", "attest", "check"])
def test_a_file_larger_than_the_hub_takes_is_not_read(
    root: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    with (root / "build" / VARIANT / "weights.bin").open("wb") as file:
        file.truncate(64 << 30)
    told = ends_well(capfd, command, str(root))
    assert "has 69 GB, but the Hub takes at most 50 GB" in told or "is 69 GB in size" in told


def test_a_large_file_of_the_package_is_read_in_pieces(root: Path) -> None:
    """With 1 GiB of address space a file of 1 GiB cannot be read at once."""
    (root / "build.toml").write_bytes(PROJECT.replace(b"[torch]", b'[torch-noarch]\npyext = ["py", "bin"]'))
    with (root / "torch-ext" / "kk" / "weights.bin").open("wb") as file:
        file.truncate(1 << 30)
    done = subprocess.run(
        [sys.executable, "-m", "kernel_builder", "build", str(root), "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert done.returncode == 0, done.stderr
