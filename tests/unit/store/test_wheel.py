"""Partial reading of wheels: what is fetched, what is refused."""

from __future__ import annotations

import base64
import hashlib
import io
import random
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kernel_builder.errors import IntegrityError
from kernel_builder.store.wheel import FileOnDisk, NeedMoreError, Wheel, matching


class CountingReader:
    """Bytes in memory that remember how they were read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        self.reads.append((start, stop))
        for position in range(start, stop, 10_000):
            yield self._data[position : min(stop, position + 10_000)]

    @property
    def total(self) -> int:
        return sum(stop - start for start, stop in self.reads)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311


def pack(
    files: Mapping[str, bytes],
    *,
    modes: Mapping[str, int] | None = None,
    record: Mapping[str, bytes] | None = None,
    stored: bool = False,
) -> bytes:
    """A wheel of ``files``; RECORD is made from ``record`` where that differs."""
    info = "demo-1.0.dist-info"
    rows = []
    for name, data in (files if record is None else record).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(data)}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**files, f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,"]).encode()}.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            entry.external_attr = (modes or {}).get(name, 0o100644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def wheel_of(data: bytes) -> tuple[Wheel, CountingReader]:
    reader = CountingReader(data)
    return Wheel(reader, filename="demo-1.0-py3-none-any.whl"), reader


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("torch/include/**", "torch/include/a/b.h", True),
        ("torch/include/**", "torch/included.h", False),
        ("lib/*.so", "lib/x.so", True),
        ("lib/*.so", "lib/sub/x.so", False),
        ("**/x.h", "x.h", True),
        ("**/x.h", "a/b/x.h", True),
        ("a.h", "aXh", False),
    ],
)
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert bool(matching([name], [pattern])) is fits
    assert not matching([name], [pattern], exclude=[pattern])


def test_selected_members_are_written_read_only_with_their_executable_bit(tmp_path: Path) -> None:
    data = pack({"bin/tool": b"#!/bin/sh\n", "include/a.h": b"int a;\n"}, modes={"bin/tool": 0o100755})
    wheel, _ = wheel_of(data)
    wheel.extract(wheel.select(["**"]), tmp_path)
    assert (tmp_path / "include/a.h").read_bytes() == b"int a;\n"
    assert stat.S_IMODE((tmp_path / "bin/tool").stat().st_mode) == 0o555
    assert stat.S_IMODE((tmp_path / "include/a.h").stat().st_mode) == 0o444


def test_only_what_is_wanted_is_fetched_and_neighbours_share_a_request(tmp_path: Path) -> None:
    files = {f"include/{i}.h": noise(3000, i) for i in range(40)}
    files["lib/big.so"] = noise(3_000_000)
    files |= {f"src/{i}.h": noise(3000, 100 + i) for i in range(40)}
    wheel, reader = wheel_of(pack(files))
    wheel.extract(wheel.select(["include/*", "src/*"]), tmp_path)
    assert len(list(tmp_path.rglob("*.h"))) == 80
    assert reader.total < 500_000
    assert len(reader.reads) <= 4


def test_small_wheels_take_one_request(tmp_path: Path) -> None:
    wheel, reader = wheel_of(pack({f"a/{i}.h": noise(1000, i) for i in range(50)}))
    wheel.extract(wheel.select(["**"]), tmp_path)
    assert len(reader.reads) == 1


def test_contents_that_differ_from_record_are_refused(tmp_path: Path) -> None:
    wheel, _ = wheel_of(pack({"a.h": b"evil"}, record={"a.h": b"good"}))
    with pytest.raises(IntegrityError, match=r"a\.h cannot be trusted: its contents do not match RECORD"):
        wheel.extract(wheel.select(["a.h"]), tmp_path)


def test_files_that_record_does_not_name_are_refused(tmp_path: Path) -> None:
    wheel, _ = wheel_of(pack({"a.h": b"more"}, record={}))
    with pytest.raises(IntegrityError, match="it is not listed in RECORD"):
        wheel.extract(wheel.select(["a.h"]), tmp_path)


def test_a_wheel_without_record_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.h", b"x")
    wheel, _ = wheel_of(buffer.getvalue())
    with pytest.raises(IntegrityError, match="no RECORD"):
        wheel.extract(wheel.select(["a.h"]), tmp_path)


@pytest.mark.parametrize("stored", [False, True])
def test_one_flipped_byte_is_found(tmp_path: Path, stored: bool) -> None:
    data = bytearray(pack({"a.h": noise(5000), "b.h": b"b"}, stored=stored))
    data[2500] ^= 1
    wheel, _ = wheel_of(bytes(data))
    with pytest.raises(IntegrityError):
        wheel.extract(wheel.select(["a.h"]), tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a//b", "a\\..\\b", "C:/x"])
def test_names_that_lead_outside_are_refused(name: str) -> None:
    with pytest.raises(IntegrityError, match="is not allowed"):
        wheel_of(pack({name: b"x"}))


def test_symbolic_links_are_refused() -> None:
    with pytest.raises(IntegrityError, match="is not allowed"):
        wheel_of(pack({"link": b"/etc/passwd"}, modes={"link": 0o120777}))


def test_a_rename_cannot_lead_outside_either(tmp_path: Path) -> None:
    wheel, _ = wheel_of(pack({"a.h": b"x"}))
    with pytest.raises(IntegrityError, match="would be written to"):
        wheel.extract(wheel.select(["a.h"]), tmp_path / "in", lambda name: f"../{name}")
    assert not (tmp_path / "a.h").exists()


def test_a_directory_that_points_to_another_member_is_found(tmp_path: Path) -> None:
    data = pack({"aaaa.h": b"one", "bbbb.h": b"two"})
    swapped = data.replace(b"aaaa.h", b"cccc.h", 1)  # the local header only; the directory still says aaaa.h
    wheel, _ = wheel_of(swapped)
    with pytest.raises(IntegrityError, match="is not where"):
        wheel.extract(wheel.select(["aaaa.h"]), tmp_path)


@pytest.mark.parametrize("data", [b"", b"not a zip at all", b"PK\x05\x06" + b"\0" * 18 + b"x", noise(100_000)])
def test_other_files_are_not_taken_for_wheels(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="not a valid wheel"):
        wheel_of(data)


def test_a_beginning_is_read_without_the_rest() -> None:
    big = b"HEAD" + noise(8_000_000)
    wheel, reader = wheel_of(pack({"big.so": big, "z.h": b"z"}))
    reader.reads.clear()

    def accept(prefix: bytes) -> bytes:
        if len(prefix) < 600_000:
            raise NeedMoreError("too short")
        return prefix

    prefix = wheel.read_prefix("big.so", accept)
    assert big.startswith(prefix)
    assert reader.total < 1_200_000


def test_a_beginning_that_never_suffices_is_an_error() -> None:
    wheel, _ = wheel_of(pack({"x.so": noise(700_000)}))

    def accept(prefix: bytes) -> None:
        raise NeedMoreError("still too short")

    with pytest.raises(IntegrityError, match="still too short"):
        wheel.read_prefix("x.so", accept)


@pytest.mark.parametrize("stored", [False, True])
def test_an_end_is_read_without_the_rest(stored: bool) -> None:
    rng = random.Random(3)  # noqa: S311
    text = b"".join(b"\0_ZN%d" % rng.randrange(10**12) for _ in range(40_000))
    data = rng.randbytes(6_000_000) + text
    wheel, reader = wheel_of(pack({"big.so": data}, stored=stored))
    reader.reads.clear()
    assert wheel.read_end("big.so", len(text)) == text
    assert reader.total < 3_500_000


def test_an_end_that_depends_on_everything_before_is_read_in_full() -> None:
    unit = noise(30_000)
    data = unit * 60 + b"end"
    wheel, _ = wheel_of(pack({"big.so": data}))
    assert wheel.read_end("big.so", 40_000) == data[-40_000:]


def test_a_file_on_disk_serves_as_well(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(pack({"a.h": noise(400_000)}))
    wheel = Wheel(FileOnDisk(path), filename=path.name)
    assert wheel.read("a.h") == noise(400_000)
    assert len(wheel.record_sha256) == 64
