"""Unpacking: what is wanted comes out, and nothing gets out of its root."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_builder.errors import IntegrityError, KernelBuilderError
from kernel_builder.store.archive import unpack
from kernel_builder.store.download import safe_path
from published import make_deb, make_tar, member

LIMIT = 1 << 20
TREE = {"top/bin/tool": b"#!/bin/sh\n", "top/include/a.h": b"#define A 1\n", "top/LICENSE": b"words\n"}


def everything(name: str) -> str:
    return name


def zip_of(*entries: tuple[str, bytes, int]) -> bytes:
    """A zip file of ``(name, contents, Unix mode)``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def zst(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(data)


PACKED: dict[str, Callable[[], bytes]] = {
    "a.tar.xz": lambda: lzma.compress(make_tar(TREE, executable=["top/bin/tool"])),
    "a.tar.gz": lambda: gzip.compress(make_tar(TREE, executable=["top/bin/tool"])),
    "a.tgz": lambda: gzip.compress(make_tar(TREE, executable=["top/bin/tool"])),
    "a.tar.zst": lambda: zst(make_tar(TREE, executable=["top/bin/tool"])),
    "a.zip": lambda: zip_of(
        *((name, data, 0o100755 if name == "top/bin/tool" else 0o100644) for name, data in TREE.items())
    ),
    "xz.deb": lambda: make_deb(
        lzma.compress(make_tar({f"./{n}": d for n, d in TREE.items()}, executable=["./top/bin/tool"]))
    ),
    "gz.deb": lambda: make_deb(
        gzip.compress(make_tar({f"./{n}": d for n, d in TREE.items()}, executable=["./top/bin/tool"])),
        name="data.tar.gz",
    ),
    "zst.deb": lambda: make_deb(
        zst(make_tar({f"./{n}": d for n, d in TREE.items()}, executable=["./top/bin/tool"])), name="data.tar.zst"
    ),
}


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def tar_file(tmp_path: Path, files: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(make_tar(files, extra=extra)))
    return path


@pytest.mark.parametrize("name", PACKED)
def test_every_kind_of_archive_gives_its_selected_members(name: str, tmp_path: Path, into: Path) -> None:
    archive = tmp_path / name
    archive.write_bytes(PACKED[name]())
    wanted = {"bin/tool": "tools/tool", "include/a.h": "include/a.h"}
    assert unpack(archive, into, wanted.get, limit=LIMIT, strip="top") == ("include/a.h", "tools/tool")
    assert (into / "tools/tool").read_bytes() == TREE["top/bin/tool"]
    assert stat.S_IMODE((into / "tools/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((into / "include/a.h").stat().st_mode) == 0o644
    assert not (into / "LICENSE").exists()


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/out", "a\\..\\out", "a\nb"])
def test_a_name_that_leads_out_of_the_root_condemns_the_archive(name: str, tmp_path: Path, into: Path) -> None:
    archive = tar_file(tmp_path, {"good": b"x", name: b"evil"})
    with pytest.raises(IntegrityError, match="not a valid path for a published file"):
        unpack(archive, into, lambda found: found if found == "good" else None, limit=LIMIT)
    assert list(into.iterdir()) == []
    packed = tmp_path / "a.zip"
    packed.write_bytes(zip_of((name, b"evil", 0o100644)))
    with pytest.raises(IntegrityError, match="not a valid path for a published file"):
        unpack(packed, into, everything, limit=LIMIT)


@settings(deadline=None)
@given(st.text(alphabet="./\\ab\x00", min_size=1, max_size=12))
def test_a_path_that_is_let_through_stays_below_any_root(text: str) -> None:
    try:
        safe = safe_path(text)
    except IntegrityError:
        return
    root = Path("/root/of/it")
    assert (root / safe).is_relative_to(root)
    assert ".." not in Path(safe).parts


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_condemn_the_archive(kind: bytes, tmp_path: Path, into: Path) -> None:
    archive = tar_file(tmp_path, {"good": b"x"}, member("null", kind=kind))
    with pytest.raises(IntegrityError, match="null, which is not a file, directory or link"):
        unpack(archive, into, {"good": "good"}.get, limit=LIMIT)


@pytest.mark.parametrize(
    "link",
    [
        member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("link", kind=tarfile.SYMTYPE, link="../outside"),
        member("link", kind=tarfile.SYMTYPE, link="link"),
        member("link", kind=tarfile.SYMTYPE, link="nothing"),
        member("link", kind=tarfile.LNKTYPE, link="nothing"),
    ],
)
def test_a_wanted_link_that_leads_to_nothing_inside_is_refused(
    link: tarfile.TarInfo, tmp_path: Path, into: Path
) -> None:
    archive = tar_file(tmp_path, {"good": b"x"}, link)
    with pytest.raises(IntegrityError, match="the link link, whose target is not in the archive"):
        unpack(archive, into, everything, limit=LIMIT)
    assert list(into.iterdir()) == []
    assert unpack(archive, into, {"good": "good"}.get, limit=LIMIT) == ("good",)  # unwanted: of no concern


def test_what_links_lead_to_is_copied(tmp_path: Path, into: Path) -> None:
    archive = tar_file(
        tmp_path,
        {"lib/libx.so.1.2": b"elf", "data/deep/file": b"data"},
        member("lib/libx.so", kind=tarfile.SYMTYPE, link="libx.so.1"),
        member("lib/libx.so.1", kind=tarfile.SYMTYPE, link="./libx.so.1.2"),
        member("hard", kind=tarfile.LNKTYPE, link="lib/libx.so.1.2"),
        member("lib/folder", kind=tarfile.SYMTYPE, link="../data"),
    )
    wanted = {"lib/libx.so": "libx.so", "hard": "hard", "lib/folder/deep/file": "file"}
    assert unpack(archive, into, wanted.get, limit=LIMIT) == ("file", "hard", "libx.so")
    assert {path.name: path.read_bytes() for path in into.iterdir()} == {
        "file": b"data",
        "hard": b"elf",
        "libx.so": b"elf",
    }
    assert not any(path.is_symlink() for path in into.iterdir())


def test_a_link_in_a_zip_file_is_followed_or_refused(tmp_path: Path, into: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(zip_of(("a/real", b"data", 0o100644), ("a/link", b"real", 0o120777)))
    assert unpack(archive, into, {"a/link": "copy"}.get, limit=LIMIT) == ("copy",)
    assert (into / "copy").read_bytes() == b"data"
    archive.write_bytes(zip_of(("a/link", b"../../etc", 0o120777)))
    with pytest.raises(IntegrityError, match="whose target is not in the archive"):
        unpack(archive, into, everything, limit=LIMIT)


def test_two_members_of_one_name_are_refused(tmp_path: Path, into: Path) -> None:
    data = make_tar({"a": b"1", "./a": b"2"})
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(data))
    with pytest.raises(IntegrityError, match="contains a twice"):
        unpack(archive, into, everything, limit=LIMIT)


def test_two_members_for_one_target_are_refused(tmp_path: Path, into: Path) -> None:
    archive = tar_file(tmp_path, {"a": b"1", "b": b"2"})
    with pytest.raises(IntegrityError, match="a and b would both become c"):
        unpack(archive, into, lambda _: "c", limit=LIMIT)


def test_a_target_outside_is_refused_even_if_the_caller_names_it(tmp_path: Path, into: Path) -> None:
    archive = tar_file(tmp_path, {"a": b"1"})
    with pytest.raises(IntegrityError, match="is not a valid path"):
        unpack(archive, into, lambda _: "../a", limit=LIMIT)


def test_existing_files_and_links_are_not_written_over(tmp_path: Path, into: Path) -> None:
    archive = tar_file(tmp_path, {"a": b"1"})
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (into / "a").symlink_to(victim)
    with pytest.raises(IntegrityError, match="would overwrite"):
        unpack(archive, into, everything, limit=LIMIT)
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.xz", "a.zip"])
def test_an_archive_that_unpacks_to_too_much_is_refused_before_writing(name: str, tmp_path: Path, into: Path) -> None:
    zeros = bytes(64 << 20)
    archive = tmp_path / name
    if name == "a.zip":
        archive.write_bytes(zip_of(("zeros", zeros, 0o100644)))
    else:
        tar = make_tar({"zeros": zeros})
        archive.write_bytes(gzip.compress(tar, 1) if name == "a.tar.gz" else lzma.compress(tar, preset=0))
    with pytest.raises(IntegrityError, match=r"is larger than .* when unpacked"):
        unpack(archive, into, everything, limit=LIMIT)
    assert list(into.iterdir()) == []


def test_headers_without_end_are_cut_off_by_the_limit(tmp_path: Path, into: Path) -> None:
    """A long-name header is read into memory as it comes: what it inflates to counts, too."""
    info = member("x", kind=tarfile.GNUTYPE_LONGNAME, size=256 << 20)
    archive = tmp_path / "a.tar.gz"
    with gzip.open(archive, "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(64):
            file.write(bytes(4 << 20))
    with pytest.raises(IntegrityError):
        unpack(archive, into, everything, limit=LIMIT)


@pytest.mark.parametrize("name", ["a.tar.xz", "a.tar.gz", "a.zip", "xz.deb", "gz.deb"])
def test_a_truncated_archive_is_told_from_a_whole_one(name: str, tmp_path: Path, into: Path) -> None:
    archive = tmp_path / name
    data = PACKED[name]()
    archive.write_bytes(data[: len(data) - 60])
    with pytest.raises(IntegrityError, match="is damaged"):
        unpack(archive, into, everything, limit=LIMIT)


@pytest.mark.parametrize("data", [b"", b"!<arch>\n", b"PK\x05\x06", b"\x1f\x8b", b"hello" * 30, bytes(2048)])
@pytest.mark.parametrize("name", ["a.tar.xz", "a.tar.gz", "a.zip", "a.deb"])
def test_rubbish_is_one_error(name: str, data: bytes, tmp_path: Path, into: Path) -> None:
    archive = tmp_path / name
    archive.write_bytes(data)
    with pytest.raises(IntegrityError, match="is damaged"):
        unpack(archive, into, everything, limit=LIMIT)


def test_a_deb_of_another_format_is_refused(tmp_path: Path, into: Path) -> None:
    archive = tmp_path / "a.deb"
    archive.write_bytes(make_deb(lzma.compress(make_tar({})), version=b"3.0\n"))
    with pytest.raises(IntegrityError, match="not a Debian package of format 2"):
        unpack(archive, into, everything, limit=LIMIT)


def test_an_unknown_kind_is_named(tmp_path: Path, into: Path) -> None:
    archive = tmp_path / "a.rar"
    archive.write_bytes(b"")
    with pytest.raises(IntegrityError, match=r"a\.rar is not a supported archive"):
        unpack(archive, into, everything, limit=LIMIT)


@settings(deadline=None)  # the machine may be busy
@given(
    name=st.sampled_from(["a.tar.xz", "a.tar.gz", "a.zip", "xz.deb"]),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_anywhere_is_one_error_or_harmless(name: str, damage: list[tuple[float, int]]) -> None:
    data = bytearray(PACKED[name]())
    for place, value in damage:
        data[int(place * len(data))] = value
    with TemporaryDirectory(prefix="kernel-builder-") as scratch:
        archive, into = Path(scratch) / name, Path(scratch) / "into"
        archive.write_bytes(data)
        into.mkdir()
        with contextlib.suppress(KernelBuilderError):
            unpack(archive, into, everything, limit=LIMIT)
        assert {path.name for path in Path(scratch).iterdir()} == {name, "into"}
