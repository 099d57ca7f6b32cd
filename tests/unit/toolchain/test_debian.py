"""Debian's archive: which mirror, what is believed, and what comes out of a package."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.backends.cuda.debian import CUDA_MEMBERS, CUDA_PACKAGE, NVCC_PROFILE, cuda_target
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.cxx_libraries import CxxLibraries
from kernel_builder.toolchain.debian import (
    DebianArchive,
    apt_mirrors,
    debian_architecture,
    find_keyring,
    newest_package,
    open_repository,
    verify_clearsigned,
)
from kernel_builder.toolchain.host import Limits
from kernel_builder.toolchain.model import Family
from kernel_builder.toolchain.settings import FurtherRepository, Place, ToolchainSettings
from published import LoopbackSite, make_deb, make_tar, serve_folder
from signing import Signer, new_signer

needs_gpg = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("gpgv") is None, reason="needs gpg and gpgv (apt-get install gpg gpgv)"
)


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with new_signer() as made:
        yield made


@pytest.fixture(scope="module")
def expired() -> Iterator[Signer]:
    with new_signer("2020-01-02", "--faked-system-time", "20200101T000000") as made:
        yield made


MEMBERS = {**{name: b"of 12.4: " + name.encode() for name in CUDA_MEMBERS}, "usr/share/doc/x": b"words"}


def stanza(version: str, filename: str, deb: bytes, architecture: str = "amd64") -> str:
    return (
        f"Package: {CUDA_PACKAGE}\nVersion: {version}\nArchitecture: {architecture}\nInstalled-Size: 40\n"
        f"Depends: g++-13,\n libc6 (>= 2.34)\nFilename: {filename}\nSize: {len(deb)}\n"
        f"SHA256: {hashlib.sha256(deb).hexdigest()}\nDescription: a compiler\n .\n more words\n"
    )


def publish(
    root: Path,
    signer: Signer,
    *,
    extra: str = "",
    codename: str = "trixie",
    by_hash: bool = True,
    form: str = ".xz",
) -> None:
    """A mirror with one suite and one package."""
    deb = make_deb(lzma.compress(make_tar({f"./{n}": d for n, d in MEMBERS.items()}, executable=["./usr/bin/ptxas"])))
    pool = "pool/non-free/n/nvidia-cuda-toolkit/nvidia-cuda-toolkit_12.4.131~12.4.1-2_amd64.deb"
    (root / pool).parent.mkdir(parents=True, exist_ok=True)
    (root / pool).write_bytes(deb)
    text = "\n".join(
        [
            "Package: other\nVersion: 1\nArchitecture: amd64\n",
            stanza("12.4.131~12.4.1-1", "pool/old.deb", deb),
            stanza("12.4.131~12.4.1-2", pool, deb),
            stanza("13.0-1", "pool/foreign.deb", deb, "arm64"),
        ]
    )
    packages = text.encode()
    if form:
        packages = lzma.compress(packages) if form == ".xz" else gzip.compress(packages)
    digest = hashlib.sha256(packages).hexdigest()
    folder = root / "dists" / "trixie" / "non-free" / "binary-amd64"
    place = folder / "by-hash" / "SHA256" / digest if by_hash else folder / f"Packages{form}"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(packages)
    release = (
        f"Origin: Test\nSuite: stable\nCodename: {codename}\nAcquire-By-Hash: yes\n{extra}"
        f"MD5Sum:\n {'0' * 32} 1 non-free/binary-amd64/Packages{form}\n"
        f"SHA256:\n {digest} {len(packages):>8} non-free/binary-amd64/Packages{form}\n"
    )
    (root / "dists/trixie/InRelease").write_bytes(signer.sign(release))


@pytest.fixture
def site(tmp_path: Path, signer: Signer) -> Iterator[LoopbackSite]:
    root = tmp_path / "mirror"
    root.mkdir()
    publish(root, signer)
    with serve_folder(root) as served:
        yield served


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport(IndexSettings(url=None, origin="test"), backoff=0.01)
    yield made
    made.close()


@needs_gpg
@pytest.mark.parametrize("base", ["url", "folder", "file"])
def test_the_compiler_comes_out_of_a_verified_package(
    base: str, site: LoopbackSite, signer: Signer, transport: Transport, tmp_path: Path
) -> None:
    mirror: str | Path = site.root if base == "folder" else site.url if base == "url" else f"file:{site.root}"
    archive = DebianArchive(mirror, signer.keyring, transport if base == "url" else None, environ=os.environ)
    package = archive.find(CUDA_PACKAGE, "trixie")
    assert (package.version, package.suite) == ("12.4.131~12.4.1-2", "trixie")
    assert package.depends == "g++-13,\nlibc6 (>= 2.34)"
    assert package.installed_size == 40 * 1024
    into = tmp_path / "into"
    into.mkdir()
    counted: list[int] = []
    assert archive.fetch(package, into, cuda_target, counted.append) == tuple(sorted(CUDA_MEMBERS.values()))
    assert (into / "nvvm/bin/cicc").read_bytes() == b"of 12.4: usr/lib/nvidia-cuda-toolkit/bin/cicc"
    assert os.access(into / "bin/ptxas", os.X_OK)
    assert sum(counted) == package.size


@needs_gpg
def test_an_index_is_found_under_its_plain_name_too(tmp_path: Path, signer: Signer, transport: Transport) -> None:
    publish(tmp_path, signer, by_hash=False)
    with serve_folder(tmp_path) as served:
        assert (
            DebianArchive(served.url, signer.keyring, transport, environ=os.environ).find(CUDA_PACKAGE, "trixie").size
        )
    assert DebianArchive(tmp_path, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie").size


@needs_gpg
@pytest.mark.parametrize("form", [".xz", ".gz", ""])
def test_a_vendors_repository_is_read_as_reprepro_writes_it(form: str, tmp_path: Path, signer: Signer) -> None:
    publish(tmp_path, signer, by_hash=False, form=form, extra="Valid-Until: Sat, 02 Jan 2021 00:00:00 UTC\n")
    text = tmp_path / "keys.asc"
    text.write_bytes(b"keys of the vendor\n" + signer.gpg("--armor", "--export"))
    repository = FurtherRepository(
        name="vendor",
        place=Place(path=tmp_path),
        suite="trixie",
        component="non-free",
        keyring=text,
        expires=False,
    )
    transport = Transport(IndexSettings(url=None, origin="test"))
    archive = open_repository(
        repository, transport, machine="x86_64", downloads=tmp_path / "downloads", environ=os.environ
    )
    package = archive.find(CUDA_PACKAGE, repository.suite)
    assert (package.version, package.artefact.source) == ("12.4.131~12.4.1-2", "vendor")


@needs_gpg
def test_a_damaged_index_of_packages_is_told(tmp_path: Path, signer: Signer) -> None:
    folder = tmp_path / "dists/trixie/non-free/binary-amd64"
    folder.mkdir(parents=True)
    for name, data in (("Packages.gz", gzip.compress(b"Package: a\n" * 99)[:-20]), ("Packages.xz", b"no xz")):
        (folder / name).write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        release = f"Codename: trixie\nSHA256:\n {digest} {len(data)} non-free/binary-amd64/{name}\n"
        (tmp_path / "dists/trixie/InRelease").write_bytes(signer.sign(release))
        with pytest.raises(IntegrityError, match=f"{name} is damaged"):
            DebianArchive(tmp_path, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_a_keyring_whose_text_is_damaged_is_told(tmp_path: Path, signer: Signer) -> None:
    publish(tmp_path, signer)
    keys = tmp_path / "keys.asc"
    keys.write_bytes(signer.gpg("--armor", "--export").replace(b"A", b"", 3))
    with pytest.raises((ToolchainError, IntegrityError), match=r"keys.asc is damaged|lacks the keys"):
        DebianArchive(tmp_path, keys, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_an_altered_release_file_is_refused(site: LoopbackSite, signer: Signer) -> None:
    file = site.root / "dists/trixie/InRelease"
    file.write_bytes(file.read_bytes().replace(b"Origin: Test", b"Origin: Evil"))
    with pytest.raises(IntegrityError, match="its signature does not match its contents"):
        DebianArchive(site.root, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_an_unsigned_release_file_is_refused(site: LoopbackSite, signer: Signer) -> None:
    (site.root / "dists/trixie/InRelease").write_text("Suite: stable\nCodename: trixie\n")
    with pytest.raises(IntegrityError, match="cannot be trusted: it is not signed"):
        DebianArchive(site.root, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_only_what_was_signed_is_read(signer: Signer) -> None:
    signed = signer.sign("Suite: stable\n")
    framed = b"Evil: before\n\n" + signed + b"\nEvil: after\n"
    try:
        text = verify_clearsigned(framed, signer.keyring, "it", environ=os.environ)
    except IntegrityError:
        return  # newer versions of gpgv refuse it
    assert "Evil" not in text


@needs_gpg
def test_a_key_that_is_not_in_the_keyring_is_refused(site: LoopbackSite) -> None:
    with new_signer() as other, pytest.raises(IntegrityError, match="the keyring lacks the keys that signed it"):
        DebianArchive(site.root, other.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_a_key_that_has_expired_is_refused(expired: Signer) -> None:
    signed = expired.sign("Suite: stable\n", "--faked-system-time", "20200101T010000")
    with pytest.raises(IntegrityError, match="the key that signed it has expired"):
        verify_clearsigned(signed, expired.keyring, "it", environ=os.environ)


@needs_gpg
def test_a_release_file_past_its_date_is_refused(tmp_path: Path, signer: Signer) -> None:
    publish(tmp_path, signer, extra="Valid-Until: Sat, 02 Jan 2021 00:00:00 UTC\n")
    with pytest.raises(IntegrityError, match="was valid until Sat, 02 Jan 2021"):
        DebianArchive(tmp_path, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")
    publish(tmp_path, signer, extra="Valid-Until: Sat, 02 Jan 2094 00:00:00 UTC\n")
    assert DebianArchive(tmp_path, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie").size


@needs_gpg
def test_the_release_file_of_another_suite_is_refused(tmp_path: Path, signer: Signer) -> None:
    publish(tmp_path, signer, codename="bookworm")
    with pytest.raises(IntegrityError, match="is for bookworm, not for trixie"):
        DebianArchive(tmp_path, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_an_altered_index_or_package_is_refused(site: LoopbackSite, signer: Signer, tmp_path: Path) -> None:
    archive = DebianArchive(site.root, signer.keyring, None, environ=os.environ)
    package = archive.find(CUDA_PACKAGE, "trixie")
    for pattern in ("pool/**/*.deb", "dists/**/SHA256/*"):
        (file,) = site.root.glob(pattern)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(IntegrityError, match="does not match its index"):
        archive.fetch(package, tmp_path, cuda_target, lambda _: None)
    with pytest.raises(IntegrityError, match="does not match its index"):
        archive.find(CUDA_PACKAGE, "trixie")


@needs_gpg
def test_what_is_missing_is_named(site: LoopbackSite, signer: Signer, transport: Transport) -> None:
    archive = DebianArchive(site.url, signer.keyring, transport, environ=os.environ)
    with pytest.raises(ToolchainError, match="has no package nothing in trixie/non-free for amd64"):
        archive.find("nothing", "trixie")
    with pytest.raises(ToolchainError, match="has no suite forky"):
        archive.find(CUDA_PACKAGE, "forky")
    with pytest.raises(ToolchainError, match="has no suite forky"):
        DebianArchive(site.root, signer.keyring, None, environ=os.environ).find(CUDA_PACKAGE, "forky")
    with pytest.raises(ToolchainError, match="has no non-free/binary-arm64"):
        DebianArchive(site.url, signer.keyring, transport, architecture="arm64", environ=os.environ).find(
            CUDA_PACKAGE, "trixie"
        )
    with pytest.raises(NetworkError):
        DebianArchive("http://127.0.0.1:9", signer.keyring, transport, environ=os.environ).find(CUDA_PACKAGE, "trixie")
    with pytest.raises(ToolchainError, match=r"gpgv.*is not installed") as caught:
        DebianArchive(site.url, signer.keyring, transport, gpgv="no-such-gpgv", environ=os.environ).find(
            CUDA_PACKAGE, "trixie"
        )
    assert "apt-get install gpgv" in (caught.value.hint or "")


def test_a_missing_keyring_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="keyring is not at") as caught:
        find_keyring(tmp_path / "keys.gpg")
    assert "apt-get install debian-archive-keyring" in (caught.value.hint or "")


def test_mirrors_are_those_of_apt(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb http://comment.example/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://first.example/debian/ bookworm main contrib # the first\n"
        "deb-src http://source.example/debian bookworm main\n"
        "deb http://security.example/debian-security bookworm-security main\n"
        "deb http://containers.example/linux/debian bookworm stable\n"
        "deb cdrom:[Debian]/ bookworm main\n"
        "deb http://tools.example/debian nodistro main\n"
        "deb broken\n"
    )
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (folder / "debian.sources").write_text(
        "# first\nTypes: deb deb-src\nURIs: https://second.example/debian\n http://first.example/debian\n"
        "Suites: trixie trixie-updates\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: trixie\nComponents: main\n\n"
        "Types: deb\nURIs: file:/srv/mirror\nSuites: sid\nComponents: main\n"
    )
    (folder / "old.list.save").write_text("deb http://saved.example/debian bookworm main\n")
    assert apt_mirrors(tmp_path) == ("http://first.example/debian", "https://second.example/debian", "file:/srv/mirror")
    assert apt_mirrors(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("1.0~rc1", "1.0"),
        ("1.0", "1.0a"),
        ("1.9", "1.10"),
        ("9", "1:1"),
        ("1.0-1", "1.0-2"),
        ("1.0", "1.0-1"),
        ("12.4.131~12.4.1-2", "12.4.131~12.4.1-8.2+b1"),
        ("11.8.89~11.8.0-5~deb12u1", "11.8.89~11.8.0-5"),
        ("1.a", "1.+"),
    ],
)
def test_versions_are_ordered_as_debian_orders_them(less: str, more: str) -> None:
    for versions in ((less, more), (more, less)):
        index = "\n".join(stanza(version, "pool/x.deb", b"") for version in versions)
        newest = newest_package(index, CUDA_PACKAGE, {"amd64"})
        assert newest is not None
        assert newest["Version"] == more


def test_a_package_is_found_among_others_whose_names_or_words_hold_its_name() -> None:
    others = (
        f"Package: {CUDA_PACKAGE}-doc\nVersion: 99\nArchitecture: all\n",
        f"Package: lib{CUDA_PACKAGE}\nVersion: 99\nArchitecture: all\nDescription: x\n Package: {CUDA_PACKAGE}\n",
    )
    mine = stanza("1-1", "pool/x.deb", b"", "all").rstrip()  # the last one, without a line's end
    newest = newest_package("\n".join((*others, mine)), CUDA_PACKAGE, {"amd64", "all"})
    assert newest is not None
    assert (newest["version"], newest["Description"]) == ("1-1", "a compiler\n .\n more words")
    assert newest_package("\n".join(others), CUDA_PACKAGE, {"amd64", "all"}) is None


def test_a_package_without_a_sound_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="version"):
        newest_package(stanza("x y", "pool/x.deb", b""), CUDA_PACKAGE, {"amd64"})


def test_machines_have_debian_names() -> None:
    assert [debian_architecture(machine) for machine in ("x86_64", "aarch64")] == ["amd64", "arm64"]
    with pytest.raises(ToolchainError, match="riscv64"):
        debian_architecture("riscv64")


def test_the_profile_names_no_absolute_path() -> None:
    assert not [word for word in NVCC_PROFILE.replace('"', " ").split() if word.startswith("/")]


LIBRARIES = {
    "libstdc++-12-dev": {
        "usr/include/c++/12/vector": b"v",
        "usr/lib/gcc/x86_64-linux-gnu/12/libstdc++.a": b"a",
        "usr/share/doc/libstdc++-12-dev/copyright": b"c",
    },
    "libgcc-12-dev": {
        "usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o": b"o",
        "usr/lib/gcc/x86_64-linux-gnu/12/libasan_preinit.o": b"o",
    },
    "libc6-dev": {"usr/include/stdio.h": b"h", "usr/lib/x86_64-linux-gnu/crti.o": b"o"},
    "linux-libc-dev": {"usr/include/linux/types.h": b"h"},
    "libc6": {"lib/x86_64-linux-gnu/libc.so.6": b"so", "usr/lib/x86_64-linux-gnu/gconv/UTF-7.so": b"so"},
    "libgcc-s1": {"lib/x86_64-linux-gnu/libgcc_s.so.1": b"so"},
}


def publish_libraries(root: Path, signer: Signer, version: str) -> None:
    """A mirror with the packages that clang compiles with."""
    stanzas: list[str] = []
    for name, files in LIBRARIES.items():
        deb = make_deb(lzma.compress(make_tar({f"./{path}": data + version.encode() for path, data in files.items()})))
        pool = f"pool/main/{name}_{version}_amd64.deb"
        (root / pool).parent.mkdir(parents=True, exist_ok=True)
        (root / pool).write_bytes(deb)
        stanzas.append(stanza(version, pool, deb).replace(CUDA_PACKAGE, name))
    packages = lzma.compress("\n".join(stanzas).encode())
    folder = root / "dists" / "bookworm" / "main" / "binary-amd64"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Packages.xz").write_bytes(packages)
    digest = hashlib.sha256(packages).hexdigest()
    release = f"Codename: bookworm\nSHA256:\n {digest} {len(packages)} main/binary-amd64/Packages.xz\n"
    (root / "dists/bookworm/InRelease").write_bytes(signer.sign(release))


@pytest.fixture
def libraries(signer: Signer, transport: Transport, tmp_path: Path) -> CxxLibraries:
    mirror = tmp_path / "libraries"
    mirror.mkdir()
    publish_libraries(mirror, signer, "12.2.0-14")
    return CxxLibraries(
        settings=ToolchainSettings(debian_mirror=Place(path=mirror), debian_keyring=signer.keyring),
        store=Store(tmp_path / "store"),
        reporter=Silent(),
        transport=transport,
        downloads=tmp_path / "store" / "downloads",
        environ=os.environ,
        machine="x86_64",
    )


ANY_GCC = Limits(family=Family.GCC, oldest=11, newest=None)


@needs_gpg
def test_the_libraries_of_a_compiler_are_a_tree_of_what_compiling_needs(libraries: CxxLibraries) -> None:
    part = libraries.provide(ANY_GCC)
    assert part.name == "Debian's libstdc++ 12"
    assert [artefact.name for artefact in part.artefacts] == sorted(LIBRARIES)
    entry = libraries.store.path(part.key)
    found = {str(path.relative_to(entry)) for path in entry.rglob("*") if path.is_file()} - {".manifest.json"}
    left_out = ("copyright", "libasan_preinit.o", "UTF-7.so")
    assert found == {path for files in LIBRARIES.values() for path in files if not path.endswith(left_out)}


@needs_gpg
def test_libraries_in_the_store_serve_until_the_newest_are_asked_for(
    libraries: CxxLibraries, signer: Signer, tmp_path: Path
) -> None:
    first = libraries.provide(ANY_GCC)
    publish_libraries(tmp_path / "libraries", signer, "12.2.0-15")
    assert libraries.provide(ANY_GCC) == first
    assert replace(libraries, offline=True).provide(ANY_GCC) == first
    newer = libraries.provide(ANY_GCC, fresh=True)
    assert [artefact.version for artefact in newer.artefacts] == ["12.2.0-15"] * 6
    assert libraries.provide(ANY_GCC, locked=first.artefacts) == first
    elsewhere = replace(libraries, store=Store(tmp_path / "elsewhere"))
    with pytest.raises(ToolchainError, match="has other packages of libstdc"):
        elsewhere.provide(ANY_GCC, locked=first.artefacts)


@needs_gpg
def test_libraries_come_from_where_the_user_says_alone(libraries: CxxLibraries) -> None:
    def refused(**changes: object) -> str:
        with pytest.raises(ToolchainError) as caught:
            replace(libraries, settings=replace(libraries.settings, **changes)).provide(ANY_GCC)  # type: ignore[arg-type]
        assert "apt-get install g++" in str(caught.value.hint)
        return caught.value.message

    assert "debian is not among the sources" in refused(order=("index",))
    assert "the project names the mirror" in refused(by_project=frozenset({"debian"}))
    assert "keyring is not at /nowhere" in refused(debian_keyring=Path("/nowhere"))
    with pytest.raises(OfflineError, match="not in the store"):
        replace(libraries, offline=True).provide(ANY_GCC)
    with pytest.raises(ToolchainError, match="this machine has no libstdc"):
        libraries.provide(Limits(family=Family.GCC, oldest=9, newest=11))
