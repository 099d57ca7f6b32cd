"""What arrived before a transfer was cut off is not fetched again, and is trusted no more than what arrives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_builder.errors import NetworkError
from kernel_builder.store.parts import KeptParts

DATA = random.Random(1).randbytes(3_000_000)  # noqa: S311  (the same bytes every time)


class Source:
    """A file that counts what is read of it, and breaks after ``limit`` bytes."""

    def __init__(self, limit: int | None = None) -> None:
        self.size = len(DATA)
        self.read_bytes = 0
        self._limit = limit

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop:
            if self._limit is not None and self.read_bytes >= self._limit:
                raise NetworkError("the connection broke")
            end = min(stop, start + 100_000)
            self.read_bytes += end - start
            yield DATA[start:end]
            start = end


def everything(parts: KeptParts, start: int = 0, stop: int = len(DATA)) -> bytes:
    return b"".join(parts.read(start, stop))


def test_a_second_attempt_fetches_only_the_rest(tmp_path: Path) -> None:
    first = Source(limit=1_700_000)
    with pytest.raises(NetworkError):
        everything(KeptParts(first, tmp_path / "f.parts"))
    second = Source()
    again = KeptParts(second, tmp_path / "f.parts")
    assert again.kept == 1_700_000
    assert everything(again) == DATA
    assert second.read_bytes == len(DATA) - 1_700_000
    third = Source()
    assert everything(KeptParts(third, tmp_path / "f.parts")) == DATA
    assert third.read_bytes == 0


def test_parts_in_any_order_make_the_whole(tmp_path: Path) -> None:
    source = Source()
    parts = KeptParts(source, tmp_path / "f.parts")
    spans = [(2_000_000, 2_500_000), (10, 20), (0, 1_000_000), (900_000, 2_100_000), (0, len(DATA))]
    for start, stop in spans:
        assert everything(parts, start, stop) == DATA[start:stop]
    assert source.read_bytes == len(DATA)


def test_a_part_that_the_disk_did_not_keep_is_fetched_again(tmp_path: Path) -> None:
    everything(KeptParts(Source(), tmp_path / "f.parts"))
    with (tmp_path / "f.parts").open("r+b") as file:
        file.seek(1_500_000)
        file.write(b"\0" * 4096)
    source = Source()
    assert everything(KeptParts(source, tmp_path / "f.parts")) == DATA
    assert 0 < source.read_bytes <= 1_200_000


@pytest.mark.parametrize("text", ["", "12 34\n", "5 4 1\n", "0 99999999 7\n", "a b c\n", "\xff"])
def test_a_list_that_makes_no_sense_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.parts").write_bytes(DATA[:100])
    (tmp_path / "f.list").write_text(text, encoding="latin-1")
    parts = KeptParts(Source(), tmp_path / "f.parts")
    assert parts.kept == 0
    assert everything(parts) == DATA


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    source = Source()
    assert everything(KeptParts(source, tmp_path / "no" / "such" / "folder.parts")) == DATA
