"""The store in one file: there and back, and nothing of a file that is not right."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import resource
import stat
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kernel_builder.errors import IntegrityError, KernelBuilderError, MachineError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import MANIFEST, Store, StoreKey
from kernel_builder.store.inventory import collect, list_entries
from kernel_builder.store.transfer import export_store, import_store

KEYS = [StoreKey.of("torch-2.13.0", wheel="a"), StoreKey.of("cuda-13.0", wheel="b")]
SOURCE = Artefact(name="demo", version="1.0", filename="demo-1.0-py3-none-any.whl", sha256="ab" * 32)

Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], list[tuple[tarfile.TarInfo, bytes]]]


def fill(into: Path) -> Sequence[Artefact]:
    (into / "bin").mkdir()
    (into / "bin" / "tool").write_text("#!/bin/sh\n")
    (into / "bin" / "tool").chmod(0o755)
    (into / "name with space ü.h").write_bytes(os.urandom(5000))
    (into / "empty").write_bytes(b"")
    return [SOURCE]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("origin"))
    for key in KEYS:
        store.ensure(key, fill)
    (store.root / "resolutions").mkdir()
    (store.root / "resolutions" / "torch-2.13-cpu-0123456789ab.json").write_text("{}")
    return store


def export(origin: Store, target: Path) -> Path:
    export_store(origin, list_entries(origin), (origin.root / "resolutions").glob("*.json"), target)
    return target


@pytest.fixture(scope="module")
def exported(origin: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(origin, tmp_path_factory.mktemp("file") / "store.tar")


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Everything that counts below the store's root: no locks."""
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for folder in ("store", "resolutions")
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["store.tar", "store.tar.gz"])
def test_what_was_exported_arrives(origin: Store, tmp_path: Path, name: str) -> None:
    target = Store(tmp_path / "cache")
    done = import_store(target, export(origin, tmp_path / name))
    assert sorted(done.entries) == sorted(key.name for key in KEYS)
    assert (done.present, done.resolutions) == ((), 1)
    assert snapshot(target.root) == snapshot(origin.root)
    assert all(target.verify(key) == [] and target.glance(key.name) == [] for key in KEYS)
    assert [path.name for path in target.root.iterdir() if path.name.startswith(".")] == []
    again = import_store(target, tmp_path / name)
    assert (again.entries, sorted(again.present)) == ((), sorted(key.name for key in KEYS))


def test_exporting_twice_gives_the_same_bytes(origin: Store, exported: Path, tmp_path: Path) -> None:
    assert export(origin, tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    first, second = export(origin, tmp_path / "a.tar.gz"), export(origin, tmp_path / "b.tar.gz")
    assert first.read_bytes() == second.read_bytes()


def test_a_damaged_entry_is_not_exported(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.ensure(KEYS[0], fill)
    file = store.path(KEYS[0]) / "empty"
    file.chmod(0o644)
    file.write_text("x")
    with pytest.raises(IntegrityError, match="empty: 1 bytes, expected 0") as caught:
        export_store(store, list_entries(store), [], tmp_path / "out.tar")
    assert caught.value.hint == "run: kernel-builder toolchain verify --repair"
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_damaged_entry_is_replaced_by_an_import(origin: Store, exported: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    import_store(store, exported)
    (store.path(KEYS[0]) / "empty").unlink()
    done = import_store(Store(store.root), exported)
    assert done.entries == (KEYS[0].name,)
    assert snapshot(store.root) == snapshot(origin.root)


def repacked(exported: Path, target: Path, change: Change) -> Path:
    """The archive after ``change`` of its members."""
    with tarfile.open(exported) as tar:
        members = [(info, (tar.extractfile(info) or io.BytesIO()).read()) for info in tar]
    with tarfile.open(target, "w") as tar:
        for info, data in change(members):
            if info.isreg():
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target


def with_member(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Change:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return lambda members: [*members, (info, data)]


def edited(ends_with: str, change: Callable[[bytes], bytes]) -> Change:
    def apply(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
        return [(info, change(data) if info.name.endswith(ends_with) else data) for info, data in members]

    return apply


def head(**changes: object) -> Change:
    return edited("kernel-builder.json", lambda data: json.dumps({**json.loads(data), **changes}).encode())


def without(ends_with: str) -> Change:
    return lambda members: [member for member in members if not member[0].name.endswith(ends_with)]


ENTRY = f"entries/{KEYS[0].name}"
BAD: dict[str, tuple[Change, str]] = {
    "a name that leads out": (with_member("entries/../../evil"), "would be outside the store"),
    "an absolute name": (with_member("/etc/evil"), "would be outside the store|does not belong there"),
    "a name out of an entry": (with_member(f"{ENTRY}/../../../evil"), "would be outside the store"),
    "a link": (with_member(f"{ENTRY}/link", b"", tarfile.SYMTYPE, "/etc/passwd"), "is not a regular file"),
    "a hard link": (with_member(f"{ENTRY}/link", b"", tarfile.LNKTYPE, f"{ENTRY}/empty"), "is not a regular file"),
    "a device": (with_member(f"{ENTRY}/null", b"", tarfile.CHRTYPE), "is not a regular file"),
    "a file that the manifest does not list": (with_member(f"{ENTRY}/more.h"), "does not match the manifest"),
    "a file twice": (with_member(f"{ENTRY}/empty", b""), "appears twice"),
    "a manifest twice": (with_member(f"{ENTRY}/{MANIFEST}", b"{}"), "appears twice"),
    "a file that belongs nowhere": (with_member("readme.txt"), "does not belong there"),
    "a resolution with an odd name": (with_member("resolutions/.hidden.json"), "does not belong there"),
    "a resolution that was not promised": (with_member("resolutions/more.json"), "its end is missing"),
    "other contents": (edited("bin/tool", lambda data: b"X" + data[1:]), "its contents have changed"),
    "fewer contents": (edited("bin/tool", lambda data: data[1:]), "does not match the manifest"),
    "a missing file": (without("bin/tool"), "bin/tool: missing"),
    "a missing manifest": (without(f"{KEYS[0].name}/{MANIFEST}"), "does not match the manifest"),
    "a missing resolution": (without("ab.json"), "its end is missing"),
    "an altered manifest": (edited(MANIFEST, lambda data: data.replace(b'"demo"', b'"evil"')), "contents have changed"),
    "another format": (head(format=2), "has format 2; this version of kernel-builder reads format 1"),
    "no head": (without("kernel-builder.json"), "not written by 'toolchain export'"),
    "a head that is no JSON": (edited("kernel-builder.json", lambda _: b"{"), "cannot read kernel-builder.json"),
    "an entry with an odd name": (head(entries=[{"name": "../x", "size": 1}]), "is not a valid entry name"),
    "an entry with another size": (
        head(entries=[{"name": key.name, "size": 1} for key in KEYS]),
        "size of the manifest",
    ),
    "an entry that does not come": (
        lambda members: [m for m in members if not m[0].name.startswith(ENTRY)],
        "is missing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_is_not_right_is_refused_and_changes_nothing(exported: Path, tmp_path: Path, case: str) -> None:
    change, message = BAD[case]
    store = Store(tmp_path / "cache")
    bad = repacked(exported, tmp_path / "bad.tar", change)
    with pytest.raises(IntegrityError, match=message):
        import_store(store, bad)
    assert snapshot(store.root) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tar", "cache"]
    assert collect(store).debris == 0
    assert not list(store.root.glob(".*"))


@pytest.mark.parametrize("name", ["/etc/hostname", "../../victim", "./a.h", "a//b.h"])
def test_a_manifest_that_lists_a_file_outside_of_its_entry_is_refused(
    exported: Path, tmp_path: Path, name: str
) -> None:
    def listed(data: bytes) -> bytes:
        manifest = json.loads(data)
        del manifest["own-sha256"]
        manifest["files"][name] = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
        return json.dumps(manifest).encode()

    bad = repacked(exported, tmp_path / "bad.tar", edited(f"{KEYS[0].name}/{MANIFEST}", listed))
    with pytest.raises(IntegrityError, match=r"outside|not a valid path"):
        import_store(Store(tmp_path / "cache"), bad)
    assert snapshot(tmp_path / "cache") == {}


@pytest.mark.parametrize("place", ["a header at the beginning", "a header at the end", "the end"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_soon(exported: Path, tmp_path: Path, place: str) -> None:
    huge = 64 << 20
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, huge
    begun = exported.read_bytes().rstrip(b"\0")
    begun += bytes(-len(begun) % 512)
    before, block = {
        "a header at the beginning": (b"", header.tobuf(tarfile.GNU_FORMAT)),
        "a header at the end": (begun, header.tobuf(tarfile.GNU_FORMAT)),
        "the end": (begun, b""),
    }[place]
    bad = tmp_path / "bad.tar.gz"
    bad.write_bytes(gzip.compress(before + block + bytes(huge), 1))
    with pytest.raises(IntegrityError, match="is larger than its limit when unpacked"):
        import_store(Store(tmp_path / "cache"), bad)
    assert snapshot(tmp_path / "cache") == {}


def test_a_file_that_was_cut_off_anywhere_is_refused(exported: Path, tmp_path: Path) -> None:
    data = exported.read_bytes()
    packed = gzip.compress(data, 1)
    cuts = [data[:size] for size in range(0, len(data) - 10240, 1311)]
    for index, cut in enumerate([*cuts, packed[:-1], packed[:99]]):
        bad = tmp_path / f"{index}.tar"
        bad.write_bytes(cut)
        with pytest.raises(IntegrityError):
            import_store(Store(tmp_path / "cache"), bad)
    assert snapshot(tmp_path / "cache") == {}


def test_something_else_than_an_exported_file_is_refused(tmp_path: Path) -> None:
    for name, data in {"text": b"hello", "empty": b"", "gz": gzip.compress(b"hello"), "zeros": bytes(20000)}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(IntegrityError, match="not written by 'toolchain export'"):
            import_store(Store(tmp_path / "cache"), tmp_path / name)
    with pytest.raises(MachineError, match="does not exist"):
        import_store(Store(tmp_path / "cache"), tmp_path / "nothing.tar")


def test_a_target_in_a_folder_that_is_not_there_is_a_clear_error(origin: Store, tmp_path: Path) -> None:
    with pytest.raises(KernelBuilderError, match="is not a directory"):
        export_store(origin, list_entries(origin), [], tmp_path / "no" / "out.tar")


@pytest.mark.parametrize("name", ["out.tar", "out.tar.gz"])
def test_a_target_that_does_not_fit_is_a_clear_error_and_leaves_nothing(
    origin: Store, tmp_path: Path, name: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(MachineError) as caught:
            export_store(origin, list_entries(origin), [], tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"cannot write {tmp_path / name}: File too large" in caught.value.message
    assert list(tmp_path.iterdir()) == []
