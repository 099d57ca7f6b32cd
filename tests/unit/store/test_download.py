"""Whole files: resumed, verified, and from folders as from servers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_builder.errors import IntegrityError, NetworkError
from kernel_builder.store.download import Site, kept_download
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import NotFoundError, Transport
from published import LoopbackSite, serve_folder

DATA = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoopbackSite]:
    root = tmp_path / "published"
    root.mkdir()
    (root / "file.bin").write_bytes(DATA)
    with serve_folder(root) as served:
        yield served


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(IndexSettings(url=None, origin="test"), backoff=0.01)
    yield made
    made.close()


def fetch(site: Site, folder: Path, *, size: int = len(DATA), sha256: str = SHA256) -> tuple[bytes, int]:
    """The file, and how many bytes were counted."""
    counted = [0]

    def count(arrived: int) -> None:
        counted[0] += arrived

    with kept_download(site, "file.bin", folder, size=size, sha256=sha256, on_bytes=count) as file:
        return file.read_bytes(), counted[0]


def test_a_folder_that_lacks_a_file_is_another_thing_than_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"dists/trixie/InRelease does not exist"):
        Site(tmp_path).read("dists/trixie/InRelease", limit=10)
    with pytest.raises(NetworkError, match=r"the directory .*/absent does not exist") as caught:
        Site(tmp_path / "absent").read("dists/trixie/InRelease", limit=10)
    assert not isinstance(caught.value, NotFoundError)


def test_a_file_comes_whole_and_does_not_stay(site: LoopbackSite, transport: Transport, tmp_path: Path) -> None:
    assert fetch(Site(site.url, transport), tmp_path / "d") == (DATA, len(DATA))
    assert [path.suffix for path in (tmp_path / "d").iterdir()] == [".lock"]


def test_a_break_is_resumed_within_a_download(site: LoopbackSite, transport: Transport, tmp_path: Path) -> None:
    site.breaks = 1
    data, counted = fetch(Site(site.url, transport), tmp_path / "d")
    assert data == DATA
    assert counted == len(DATA)  # nothing twice
    assert site.requests[1][1] == f"bytes={len(DATA) // 2}-{len(DATA) - 1}"


def test_what_arrived_before_a_failure_is_used_by_the_next_run(
    site: LoopbackSite, transport: Transport, tmp_path: Path
) -> None:
    site.breaks = 3
    with pytest.raises(NetworkError, match=r"fewer bytes|connection was lost"):
        fetch(Site(site.url, transport), tmp_path / "d")
    site.breaks = 0
    kept = next((tmp_path / "d").glob("*.part")).stat().st_size
    assert kept >= len(DATA) // 2
    assert fetch(Site(site.url, transport), tmp_path / "d") == (DATA, len(DATA) - kept)


def test_a_damaged_beginning_of_an_earlier_run_is_fetched_again(
    site: LoopbackSite, transport: Transport, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / f"{SHA256}.part").write_bytes(b"\xff" * 1000)
    assert fetch(Site(site.url, transport), folder)[0] == DATA


def test_a_server_without_ranges_sends_the_whole_file(site: LoopbackSite, transport: Transport, tmp_path: Path) -> None:
    site.ranges = False
    assert fetch(Site(site.url, transport), tmp_path / "d")[0] == DATA


@pytest.mark.parametrize("ranges", [True, False])
def test_a_wrong_digest_or_size_is_refused_and_nothing_stays(
    ranges: bool, site: LoopbackSite, transport: Transport, tmp_path: Path
) -> None:
    site.ranges = ranges
    with pytest.raises(IntegrityError, match="its SHA-256 is"):
        fetch(Site(site.url, transport), tmp_path / "d", sha256="0" * 64)
    with pytest.raises(IntegrityError, match=r"different range|has .* bytes|larger than"):
        fetch(Site(site.url, transport), tmp_path / "d", size=len(DATA) + 5)
    with pytest.raises(IntegrityError, match=r"different range|larger than"):
        fetch(Site(site.url, transport), tmp_path / "d", size=len(DATA) - 5)


def test_a_folder_serves_as_well_and_without_network(tmp_path: Path, site: LoopbackSite) -> None:
    for base in (site.root, str(site.root), f"file://{site.root}"):
        assert fetch(Site(base), tmp_path / "d") == (DATA, len(DATA))
    assert site.requests == []
    with pytest.raises(IntegrityError, match="its index lists 7"):
        fetch(Site(site.root), tmp_path / "d", size=7)
    with pytest.raises(NetworkError, match="does not exist"):
        Site(site.root / "nowhere").fetch("file.bin", tmp_path / "x", size=1, sha256=SHA256, on_bytes=lambda _: None)


def test_small_files_are_bounded(site: LoopbackSite, transport: Transport) -> None:
    for base in (site.url, site.root):
        assert Site(base, transport).read("file.bin", limit=len(DATA)) == DATA
        with pytest.raises(IntegrityError, match="larger than the limit of 1000 bytes"):
            Site(base, transport).read("file.bin", limit=1000)
    with pytest.raises(NotFoundError):
        Site(site.url, transport).read("other", limit=1)


def test_paths_that_lead_out_of_a_site_are_refused(site: LoopbackSite, transport: Transport) -> None:
    for base in (site.url, site.root):
        with pytest.raises(IntegrityError, match="is not a valid path"):
            Site(base, transport).read("../secret", limit=10)
    assert site.requests == []


def test_messages_hold_no_password(transport: Transport) -> None:
    base = "http://user:secret@127.0.0.1:9/x"
    assert "secret" not in Site(base, transport).where("file")
    with pytest.raises(NetworkError) as caught:
        Site(base, transport).read("file", limit=1)
    assert "secret" not in str(caught.value)
    with pytest.raises(NetworkError) as caught:
        Site(base)  # no transport: offline
    assert "secret" not in str(caught.value)
