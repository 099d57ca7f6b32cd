"""NVIDIA's archives: manifests read, archives verified and unpacked, from a server and from a folder."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_builder.backends.cuda.redistrib import RedistArchive, Redistrib, redist_platform
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport
from published import LoopbackSite, make_tar, serve_folder

PLATFORMS = ("linux-x86_64", "linux-sbsa")


def publish(root: Path, release: str, components: dict[str, dict[str, bytes]]) -> None:
    """Write archives of ``components`` (name -> files) for two platforms, and the manifest of ``release``."""
    manifest: dict[str, object] = {"release_date": "2024-03-28", "release_label": release, "release_product": "cuda"}
    for component, files in components.items():
        table: dict[str, object] = {"name": component, "license": "CUDA Toolkit", "version": f"{release}31"}
        for platform in PLATFORMS:
            folder = f"{component}-{platform}-{release}31-archive"
            data = lzma.compress(
                make_tar(
                    {f"{folder}/{name}": content for name, content in files.items()}, executable=[f"{folder}/bin/nvcc"]
                )
            )
            path = f"{component}/{platform}/{folder}.tar.xz"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
            entry = {
                "relative_path": path,
                "sha256": hashlib.sha256(data).hexdigest(),
                "md5": "0",
                "size": str(len(data)),
            }
            table[platform] = {"cuda11": {"relative_path": "no"}, "cuda12": entry} if component == "nested" else entry
        if component == "nested":
            table["cuda_variant"] = ["11", "12"]
        manifest[component] = table
    (root / f"redistrib_{release}.json").write_text(json.dumps(manifest))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LoopbackSite]:
    root = tmp_path / "redist"
    root.mkdir()
    for release in ("12.4.0", "12.4.1", "12.6.0"):
        files = {"bin/nvcc": release.encode(), "include/a.h": b"1", "LICENSE": b"text"}
        publish(root, release, {"cuda_nvcc": files, "nested": {"lib/x": b"x"}})
    with serve_folder(root) as served:
        yield served


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(IndexSettings(url=None, origin="test"), backoff=0.01)
    yield made
    made.close()


def nvcc(archives: tuple[RedistArchive, ...]) -> RedistArchive:
    (found,) = [a for a in archives if a.component == "cuda_nvcc" and a.platform == redist_platform("x86_64")]
    return found


def test_the_newest_release_of_a_minor_is_taken_from_the_index_page(site: LoopbackSite, transport: Transport) -> None:
    archives = Redistrib(site.url, transport).release("12.4")
    assert [(a.component, a.platform, a.version) for a in archives] == [
        (component, platform, "12.4.131") for component in ("cuda_nvcc", "nested") for platform in sorted(PLATFORMS)
    ]
    assert site.paths() == ["/", "/redistrib_12.4.1.json"]


@pytest.mark.parametrize("listing", [403, 404])
def test_without_an_index_page_patch_releases_are_asked_for(
    listing: int, site: LoopbackSite, transport: Transport
) -> None:
    site.listing = listing
    assert nvcc(Redistrib(site.url, transport).release("12.4")).version == "12.4.131"
    assert site.paths()[1:] == [f"/redistrib_12.4.{patch}.json" for patch in range(3)]
    with pytest.raises(ToolchainError, match=r"no archives of CUDA 13\.9"):
        Redistrib(site.url, transport).release("13.9")


def test_an_exact_release_is_taken_as_it_is(site: LoopbackSite, transport: Transport) -> None:
    assert nvcc(Redistrib(site.url, transport).release("12.4.0")).version == "12.4.031"
    with pytest.raises(ToolchainError, match=r"12\.4\.7"):
        Redistrib(site.url, transport).release("12.4.7")


def test_a_folder_needs_no_network_and_names_what_it_has(site: LoopbackSite) -> None:
    source = Redistrib(site.root, None)
    assert nvcc(source.release("12.4")).version == "12.4.131"
    with pytest.raises(ToolchainError, match=r"no archives of CUDA 11\.8; it has 12\.4, 12\.6"):
        source.release("11.8")
    assert site.requests == []


def test_wanted_members_come_out_below_the_folder_of_the_archive(
    site: LoopbackSite, transport: Transport, tmp_path: Path
) -> None:
    for name, source in {"url": Redistrib(site.url, transport), "folder": Redistrib(site.root, None)}.items():
        into = tmp_path / name
        into.mkdir()
        counted: list[int] = []
        archive = nvcc(source.release("12.4"))
        wanted = {"bin/nvcc": "bin/nvcc", "include/a.h": "include/b.h"}
        assert source.fetch(archive, into, wanted.get, counted.append) == ("bin/nvcc", "include/b.h")
        assert (into / "bin/nvcc").read_bytes() == b"12.4.1"
        assert (into / "bin/nvcc").stat().st_mode & 0o111
        assert sum(counted) == archive.size


def test_an_interrupted_archive_is_resumed_by_the_next_run(
    site: LoopbackSite, transport: Transport, tmp_path: Path
) -> None:
    source = Redistrib(site.url, transport, downloads=tmp_path / "downloads")
    archive = nvcc(source.release("12.4"))
    site.breaks, site.breaking = 3, ".tar.xz"
    with pytest.raises(NetworkError):
        source.fetch(archive, tmp_path, {"bin/nvcc": "nvcc"}.get, lambda _: None)
    site.breaks = 0
    counted: list[int] = []
    assert source.fetch(archive, tmp_path, {"bin/nvcc": "nvcc"}.get, counted.append) == ("nvcc",)
    assert 0 < sum(counted) < archive.size


def test_an_altered_archive_is_refused(site: LoopbackSite, transport: Transport, tmp_path: Path) -> None:
    source = Redistrib(site.url, transport)
    archive = nvcc(source.release("12.4"))
    file = site.root / archive.relative_path
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match="does not match its index"):
        source.fetch(archive, tmp_path, {"bin/nvcc": "nvcc"}.get, lambda _: None)
    assert not (tmp_path / "nvcc").exists()


def test_components_per_cuda_release_are_taken_for_this_one(site: LoopbackSite) -> None:
    nested = [a for a in Redistrib(site.root, None).release("12.4") if a.component == "nested"]
    assert [a.relative_path.partition("/")[0] for a in nested] == ["nested", "nested"]


def entry(path: str, sha256: str, size: str) -> str:
    return json.dumps({"a": {"linux-x86_64": {"relative_path": path, "sha256": sha256, "size": size}}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not valid JSON"),
        ("[1]", "contains no table"),
        (
            '{"a": {"linux-x86_64": {"relative_path": "x"}}}',
            r"4\.1\.json has an invalid entry for a on linux-x86_64: it has no 's",
        ),
        (
            entry("../x", "0" * 64, "1"),
            r"json has an invalid entry for a on linux-x86_64: '\.\./x' is not a valid path",
        ),
        (entry("x", "0" * 64, "big"), "on linux-x86_64: 'big' is not a size"),
        (entry("x", "0" * 64, "-3"), "on linux-x86_64: '-3' is not a size"),
        (entry("x", "z" * 64, "1"), "on linux-x86_64: 'z+' is not a SHA-256"),
    ],
)
def test_a_manifest_without_sense_is_one_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "redistrib_12.4.1.json").write_text(text)
    with pytest.raises(IntegrityError, match=message):
        Redistrib(tmp_path, None).release("12.4")


def test_a_server_that_is_not_there_is_a_network_error(transport: Transport) -> None:
    with pytest.raises(NetworkError, match="no connection"):
        Redistrib("http://127.0.0.1:9/redist", transport).release("12.4")
