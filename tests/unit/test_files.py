"""Files are replaced as a whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from kernel_builder.config.settings import SettingsFile
from kernel_builder.errors import ConfigError
from kernel_builder.files import parse_json, read_small, replacing, write_text
from kernel_builder.interface.modules import PublicPackage


def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def half(path: Path) -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise KeyError

    for name in ("a", "b"):
        with pytest.raises(KeyError):
            half(tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_permissions_are_kept_and_a_new_file_gets_ordinary_ones(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o640)
    mask = os.umask(0o022)
    try:
        write_text(tmp_path / "a", "new")
        write_text(tmp_path / "b", "new")
    finally:
        os.umask(mask)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [0o640, 0o644]


def test_a_link_is_followed_unless_nothing_may_be_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("old")
    (tmp_path / "link").symlink_to("elsewhere")
    write_text(tmp_path / "link", "new")
    assert ((tmp_path / "elsewhere").read_text(), (tmp_path / "link").is_symlink()) == ("new", True)
    with replacing(tmp_path / "link", follow_links=False) as file:
        file.write(b"own")
    assert ((tmp_path / "elsewhere").read_text(), (tmp_path / "link").is_symlink()) == ("new", False)
    assert (tmp_path / "link").read_text() == "own"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_text(tmp_path / "pipe", "words")
    reader.join()
    assert read == ["words"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1}'.encode("utf-16"), "it is UTF-16 or UTF-32; save it as UTF-8"),
        ('{"a": 1}'.encode("utf-16-le"), "it is UTF-16 or UTF-32"),
        ('{"a": 1}'.encode("utf-16-be"), "it is UTF-16 or UTF-32"),
        ('{"a": 1}'.encode("utf-32"), "it is UTF-16 or UTF-32"),
        ('{"a": 1}'.encode("utf-8-sig"), "it begins with a byte-order mark"),
        ('\ufeff{"a": 1}', "it begins with a byte-order mark"),
        ('{\n"a": "\u00e9"}'.encode("latin-1"), "the byte 0xe9 in line 2 is not UTF-8"),
        ("[NaN]", "NaN is not a number in JSON"),
        ("[-Infinity]", "-Infinity is not a number in JSON"),
        ("[1e999]", "the number 1e999 is too large"),
        (f"[{'9' * 5000}]", "a number has 5000 digits, which is too many"),
        (f"[{'9' * 5000}.5]", "the number in it is too large"),
        ("[" * 100_000, "it is nested too deeply"),
        ("{", "Expecting property name"),
    ],
)
def test_json_is_as_its_standard_says(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        parse_json(text)
    assert "sys." not in str(raised.value)


def test_what_is_json() -> None:
    text = '{"a": [1, -2.5e3, null, true, "\u00e9"], "b": ' + "9" * 300 + "}"
    assert parse_json(text) == parse_json(text.encode()) == {"a": [1, -2500.0, None, True, "\u00e9"], "b": 10**300 - 1}


def test_a_file_that_people_write_is_small(tmp_path: Path) -> None:
    """A hole of nearly a terabyte is not read, in none of the files that are."""
    file = tmp_path / "kernel-builder.toml"
    with file.open("wb") as made:
        made.truncate(900 * 10**9)
    with pytest.raises(OSError, match="larger than 16 MiB"):
        read_small(file)
    with pytest.raises(ConfigError, match="larger than 1 MiB") as raised:
        SettingsFile.open(file)
    assert raised.value.hint == "is it a different file with that name?"
    file.rename(tmp_path / "__init__.py")
    assert PublicPackage(tmp_path).module("__init__") is None
    (tmp_path / "a").write_bytes(b"12")
    assert read_small(tmp_path / "a", 2) == b"12"


def test_a_file_that_cannot_be_written_is_named_and_not_the_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file/new") as caught:
        write_text(tmp_path / "file" / "new.txt", "")
    assert caught.value.filename == str(tmp_path / "file" / "new.txt")


def test_a_full_disk_names_the_file_that_there_was_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if full.exists():
        with pytest.raises(OSError, match="No space left") as told, replacing(full) as file:
            file.write(b"x" * 100_000)
        assert told.value.filename == str(full)

    def no_room(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    path = tmp_path / "metadata.json"
    with pytest.raises(OSError, match="No space left") as told:
        write_text(path, "{}")
    assert told.value.filename == str(path)
    assert not list(tmp_path.iterdir())
