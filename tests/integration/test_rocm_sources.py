"""ROCm from where AMD publishes it: its repository of packages, its wheels, and an installed one. Files are made up,
servers are on loopback; programs are shell scripts, libraries real ELF files.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import make_wheel

from kernel_builder.backends.rocm.debian import NOT_A_RELEASE, PACKAGES
from kernel_builder.backends.rocm.kind import RocmToolkit
from kernel_builder.backends.rocm.local import find_toolkits
from kernel_builder.backends.rocm.packages import release_of
from kernel_builder.backends.rocm.therock import CORE, DEVEL, IN_CORE
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Silent
from kernel_builder.store.index import FolderIndex
from kernel_builder.store.progress import Fetch
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport
from kernel_builder.store.wheel import FileOnDisk, Wheel
from kernel_builder.toolchain.choice import ComponentSource, Refused, Taken, ToolkitTree
from kernel_builder.toolchain.kinds import Opening
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.recipe import default_recipe
from kernel_builder.toolchain.settings import FurtherRepository, Place, ToolchainSettings
from kernel_builder.variants.names import Machine
from published import make_deb, make_tar, serve_folder
from signing import new_signer

KIND = RocmToolkit()
COMPONENTS = default_recipe().toolkits[KIND.backend].components("7.1")
CLANG = b"""#!/bin/sh
case "$*" in *--print-supported-cpus*) printf '\tgfx90a\n\tgfx1100\n' >&2 ;; *) echo "$0" "$@" ;; esac
"""
PROGRAMS = ("lib/llvm/bin/clang-20", "lib/llvm/bin/lld", "lib/llvm/bin/clang-offload-bundler")
HEADERS = {
    "hsa": "hsa/hsa.h",
    "comgr": "amd_comgr/amd_comgr.h",
    "rocprim": "rocprim/rocprim.hpp",
    "hipcub": "hipcub/hipcub.hpp",
    "rocthrust": "thrust/version.h",
    "hipfft": "hipfft/hipfft.h",
    "hipblas-common": "hipblas-common/hipblas-common.h",
    "hipblas": "hipblas/hipblas.h",
    "hipblaslt": "hipblaslt/hipblaslt.h",
    "rocblas": "rocblas/rocblas.h",
    "hipsparse": "hipsparse/hipsparse.h",
    "rocsparse": "rocsparse/rocsparse.h",
    "hipsolver": "hipsolver/hipsolver.h",
    "rocrand": "rocrand/rocrand.h",
    "rocsolver": "rocsolver/rocsolver.h",
    "hiprand": "hiprand/hiprand.h",
}


RTC = b"hiprtcResult hiprtcCreateProgram(hiprtcProgram *made);\n"
DECLARED = b"""\
/* %s_old(): see hipblas_destroy() */
int
%s_create (int *handle);  // not hipblas_copy()
#define HIPBLASLT_A(x)
int hipblasLtCreate(hipblasLtHandle_t *);
"""
"""The header of a component: a function of its own, one that is hipBLASLt's by its name, and what is none."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, bytes]]:
    """Component -> its files, as a toolkit has them."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = tmp_path_factory.mktemp("library") / "libamdhip64.so.7"
    source = b"int hipMalloc(void) { return 0; } int hipFree(void) { return 0; }"
    command = ["gcc", "-x", "c", "-shared", "-nostdlib", f"-Wl,-soname,{library.name}", "-o", str(library), "-"]
    subprocess.run(command, input=source, check=True)
    version = b"#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 1\n#define HIP_VERSION_PATCH 25424\n"
    found: dict[str, dict[str, bytes]] = {
        "compiler": {
            **dict.fromkeys(PROGRAMS, CLANG),
            "lib/llvm/lib/clang/20/include/a.h": b"",
            "lib/llvm/share/x": b"x",
        },
        "device-libs": {"amdgcn/bitcode/ocml.bc": b"BC"},
        "hip": {
            "include/hip/hip_version.h": version,
            "include/hip/hip_runtime.h": b"",
            "include/hip/hiprtc.h": RTC,
            ".info/version": b"7.1.0-20\n",
        },
        "runtime": {"lib/libamdhip64.so.7": library.read_bytes()},
    }
    return {
        **found,
        **{name: {f"include/{header}": DECLARED % (name.encode(), name.encode())} for name, header in HEADERS.items()},
    }


def filled(source: ComponentSource, version: str, into: Path) -> ToolkitSdk:
    """The toolkit that ``source`` gives, seen to work."""
    answers = source.offers(COMPONENTS, version, Machine.X86_64)
    assert [one for one in answers.values() if isinstance(one, Refused)] == []
    taken = [(component, answer) for component in COMPONENTS if isinstance(answer := answers[component.name], Taken)]
    scratch = into.with_name("scratch")
    scratch.mkdir(parents=True)
    into.mkdir(parents=True)
    weights = source.weigh(taken, scratch)
    assert set(weights) == {answer.artefact.filename for _, answer in taken}
    source.fill(taken, ToolkitTree(version=version, into=into, scratch=scratch, progress=Fetch("ROCm", Silent())))
    toolkit = Toolkit(backend=KIND.backend, version=version)
    chosen = [answer for _, answer in taken]
    KIND.complete(toolkit, chosen, into, os.environ)
    for component, answer in taken:
        assert KIND.is_part(component, answer.artefact)
    return KIND.describe(toolkit, chosen, into, into / "stubs")


EXPORTS = {
    "libamdhip64.so.7": ["hipFree", "hipMalloc"],
    "libhipblas.so.3": ["hipblas_create"],
    "libhipblaslt.so.1": ["hipblasLtCreate", "hipblaslt_create"],
    "libhipfft.so.0": ["hipfft_create"],
    "libhiprand.so.1": ["hiprand_create"],
    "libhiprtc.so.7": ["hiprtcCreateProgram"],
    "libhipsolver.so.1": ["hipsolver_create"],
    "libhipsparse.so.4": ["hipsparse_create"],
    "librocblas.so.5": ["rocblas_create"],
    "librocrand.so.1": ["rocrand_create"],
    "librocsolver.so.0": ["rocsolver_create"],
    "librocsparse.so.1": ["rocsparse_create"],
}
"""The names that stubs of the made-up ROCm export, by the soname of ROCm 7."""


def judge(sdk: ToolkitSdk, entry: Path, root: str) -> None:
    """What every source must come to."""
    assert sdk.known_codes() == ("gfx1100", "gfx90a")
    names = {table.name.removesuffix(".txt"): table.read_text(encoding="ascii").split() for table in sdk.exports}
    assert names == EXPORTS
    assert sdk.unfit is None
    for name, header in HEADERS.items():
        assert any((folder / header).is_file() for folder in sdk.include), name
    said = subprocess.run([sdk.compiler, "-c", "a b.hip"], capture_output=True, text=True, check=True).stdout.split()
    assert said[0].endswith("lib/llvm/bin/clang-20")
    assert f"--rocm-path={root}" in said
    assert "--hip-version=7.1.25424" in said
    assert said[-3:] == ["-c", "a", "b.hip"]
    assert not (entry / "lib/llvm/share").exists()


# An installed one


def installed(root: Path, parts: Mapping[str, Mapping[str, bytes]]) -> Path:
    for files in parts.values():
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
    for program in PROGRAMS:
        (root / program).chmod(0o755)
    return root


@pytest.fixture(autouse=True)
def _place_for_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(name: str = "local", **changes: object) -> ComponentSource:
    settings = changes.pop("settings", ToolchainSettings())
    environ = changes.pop("environ", {})
    opening = Opening(
        name=name,
        settings=settings,  # type: ignore[arg-type]
        environ=environ,  # type: ignore[arg-type]
        transport=lambda _place, _impatient: Transport(IndexSettings(url=None, origin="test"), backoff=0.01),
        downloads=Path("downloads"),
        **changes,  # type: ignore[arg-type]
    )
    found = KIND.open(opening)
    assert found is not None
    return found.source


@pytest.mark.parametrize("variable", ["ROCM_PATH", "HIP_PATH", "ROCM_HOME"])
def test_an_installed_rocm_is_used_where_it_lies(
    variable: str, parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    root = installed(tmp_path / "opt" / "rocm 7.1", parts)
    source = opened(environ={variable: str(root)})
    entry = tmp_path / "entry"
    sdk = filled(source, "7.1", entry)
    assert sdk.include == (root / "include",)
    assert not (entry / "include").exists()
    command: list[str | Path] = [sdk.compiler, "-v"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"--rocm-path={root}" in said


def test_updates_in_place_change_its_identity(parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path) -> None:
    root = installed(tmp_path / "rocm", parts)

    def identity() -> str:
        (found,) = find_toolkits({"ROCM_PATH": str(root)}, standard=tmp_path / "none")[0]
        return found.identity

    before = identity()
    for changed in ("include/hip/hip_runtime.h", "lib/llvm/bin/clang-20", "amdgcn/bitcode/ocml.bc"):
        (root / changed).write_bytes(b"something longer")
        after = identity()
        assert after != before
        before = after


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        ("lib/llvm/bin/clang-20", "it has no clang"),
        ("lib/llvm/bin/lld", "it has no lld"),
        ("amdgcn/bitcode/ocml.bc", "it has no ocml.bc"),
        ("include/hip/hip_version.h", "it has no hip/hip_version.h"),
    ],
)
def test_half_a_rocm_is_told_from_a_whole_one(
    lacking: str, reason: str, parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    root = installed(tmp_path / "rocm", parts)
    (root / lacking).unlink()
    found, refused = find_toolkits({"ROCM_PATH": str(root)}, [tmp_path / "absent"], standard=tmp_path / "none")
    assert found == ()
    assert [entry.reason for entry in refused] == ["it does not exist", reason]


def test_other_releases_and_missing_headers_are_reasons(
    parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    root = installed(tmp_path / "rocm", parts)
    source = opened(environ={"ROCM_PATH": str(root)})
    refused = source.offers(COMPONENTS, "7.2", Machine.X86_64)["compiler"]
    assert isinstance(refused, Refused)
    assert refused.reason == f"{root} is ROCm 7.1"
    (root / "include/hipcub/hipcub.hpp").unlink()
    answers = opened(environ={"ROCM_PATH": str(root)}).offers(COMPONENTS, "7.1", Machine.X86_64)
    assert isinstance(answers["compiler"], Taken)
    assert str(answers["hipcub"]).endswith("it has no hipcub/hipcub.hpp")
    assert isinstance(source.offers(COMPONENTS, "7.1", Machine.AARCH64)["compiler"], Refused)


# AMD's repository


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Callable[[str], bytes]]]:
    """Keys as AMD publishes them, as text, and what signs with them."""
    if shutil.which("gpg") is None or shutil.which("gpgv") is None:
        pytest.skip("needs gpg and gpgv (apt-get install gpg gpgv)")
    with new_signer() as signer:
        keys = tmp_path_factory.mktemp("keys") / "vendor.asc"
        keys.write_bytes(signer.gpg("--armor", "--export"))
        yield keys, signer.sign


def publish(
    root: Path, parts: Mapping[str, Mapping[str, bytes]], sign: Callable[[str], bytes], *, release: str = "70100"
) -> None:
    """A repository as reprepro makes it: each component is a package below /opt/rocm-7.1.0."""
    stanzas = []
    for component in COMPONENTS:
        files = {f"./opt/rocm-7.1.0/{name}": data for name, data in parts[component.name].items()}
        files["./usr/share/doc/copyright"] = b"words"
        programs = [name for name in files if "/bin/" in name]
        deb = make_deb(lzma.compress(make_tar(files, executable=programs)))
        pool = f"pool/main/{component.package}.deb"
        (root / pool).parent.mkdir(parents=True, exist_ok=True)
        (root / pool).write_bytes(deb)
        stanzas.append(
            f"Package: {component.package}\nVersion: 7.1.25424.{release}-20~24.04\nArchitecture: amd64\n"
            f"Installed-Size: 40\nFilename: {pool}\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
        )
    index = "\n".join(stanzas).encode()
    folder = root / "dists/noble/main/binary-amd64"
    folder.mkdir(parents=True)
    (folder / "Packages").write_bytes(index)
    listed = f" {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
    (root / "dists/noble/InRelease").write_bytes(sign(f"Suite: noble\nCodename: noble\nSHA256:\n{listed}"))


def repository(place: Place, keys: Path) -> FurtherRepository:
    return FurtherRepository(name="amd", place=place, suite="noble", component="main", keyring=keys)


def test_amds_repository_gives_a_toolkit_and_only_what_compiling_needs(
    parts: Mapping[str, Mapping[str, bytes]], keyring: tuple[Path, Callable[[str], bytes]], tmp_path: Path
) -> None:
    root = tmp_path / "site"
    publish(root, parts, keyring[1])
    entry = tmp_path / "entry"
    with serve_folder(root) as site:
        source = opened("amd", repository=repository(Place(url=site.url), keyring[0]), environ=os.environ)
        sdk = filled(source, "7.1", entry)
    judge(sdk, entry, str(entry))
    assert not list(entry.rglob("copyright"))
    moved = entry.rename(tmp_path / "moved")
    said = subprocess.run([moved / sdk.compiler.relative_to(entry)], capture_output=True, text=True, check=True).stdout
    assert f"--rocm-path={moved}" in said


def test_a_repository_of_another_release_is_not_taken(
    parts: Mapping[str, Mapping[str, bytes]], keyring: tuple[Path, Callable[[str], bytes]], tmp_path: Path
) -> None:
    publish(tmp_path, parts, keyring[1])
    source = opened("amd", repository=repository(Place(path=tmp_path), keyring[0]), environ=os.environ)
    refused = source.offers(COMPONENTS, "7.2", Machine.X86_64)["compiler"]
    assert isinstance(refused, Refused)
    assert (refused.source, refused.reason) == ("amd", "it is of ROCm 7.1")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("7.1.25424.70100-20~24.04", "7.1"),
        ("20.0.0.25385.70201-81~22.04", "7.2"),
        ("6.4.43484.60400-47~24.04", "6.4"),
        ("1.0.0.71400-1", "7.14"),
        ("1:21.1.8-14", None),
    ],
)
def test_packages_say_which_release_they_are_of(version: str, release: str | None) -> None:
    assert release_of(version) == release


# Debian's packages


def publish_debian(root: Path, parts: Mapping[str, Mapping[str, bytes]], sign: Callable[[str], bytes]) -> None:
    """A mirror of Debian with all packages, laid out as Debian's are."""
    loader = b'#!/bin/sh\nshift 4\nexec "$@"\n'
    library = parts["runtime"]["lib/libamdhip64.so.7"]
    llvm = "usr/lib/llvm-21"
    files: dict[str, dict[str, bytes]] = {
        "clang-21": {f"{llvm}/bin/clang": CLANG, f"{llvm}/bin/clang-scan-deps": CLANG},
        "lld-21": {f"{llvm}/bin/lld": CLANG},
        "clang-tools-21": {f"{llvm}/bin/clang-offload-bundler": CLANG, f"{llvm}/bin/clang-tidy": CLANG},
        "libclang-common-21-dev": {f"{llvm}/lib/clang/21/include/a.h": b""},
        "rocm-device-libs-21": {f"{llvm}/lib/clang/21/amdgcn/bitcode/ocml.bc": b"BC"},
        "libc6": {"usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2": loader, "usr/lib/x86_64-linux-gnu/libc.so.6": b""},
        "libamdhip64-6": {"usr/lib/x86_64-linux-gnu/libamdhip64.so.6.4.1": library},
    }
    stanzas = []
    for component, names in PACKAGES.items():
        for name in names:
            own = {f"usr/{path}": data for path, data in parts[component].items() if path.startswith("include/")}
            held = files.get(name, own if name == names[0] else {}) | {"usr/share/doc/x": b"words"}
            programs = [f"./{path}" for path in held if "/bin/" in path or "ld-linux" in path]
            deb = make_deb(
                lzma.compress(make_tar({f"./{path}": data for path, data in held.items()}, executable=programs))
            )
            pool = f"pool/{name}.deb"
            (root / pool).parent.mkdir(parents=True, exist_ok=True)
            (root / pool).write_bytes(deb)
            stanzas.append(
                f"Package: {name}\nVersion: 1:21.1.8-14\nArchitecture: amd64\nInstalled-Size: 40\nFilename: {pool}\n"
                f"Size: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
            )
    index = lzma.compress("\n".join(stanzas).encode())
    folder = root / "dists/sid/main/binary-amd64"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Packages.xz").write_bytes(index)
    listed = f" {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-amd64/Packages.xz\n"
    dated = "Valid-Until: Sat, 02 Jan 2021 00:00:00 UTC\n"
    (root / "dists/sid/InRelease").write_bytes(sign(f"Suite: unstable\nCodename: sid\n{dated}SHA256:\n{listed}"))


def test_debians_packages_are_for_trying_and_only_where_they_are_asked_for(
    parts: Mapping[str, Mapping[str, bytes]], keyring: tuple[Path, Callable[[str], bytes]], tmp_path: Path
) -> None:
    publish_debian(tmp_path / "mirror", parts, keyring[1])
    asked = ToolchainSettings(
        order=("index", "debian"),
        usual=False,
        debian_mirror=Place(path=tmp_path / "mirror"),
        debian_keyring=keyring[0],
        debian_expires=False,
    )
    entry = tmp_path / "entry"
    source = opened("debian", settings=asked, environ=os.environ)
    sdk = filled(source, "7.1", entry)
    assert (sdk.unfit, sdk.known_codes()) == (NOT_A_RELEASE, ("gfx1100", "gfx90a"))
    # The names of another major's library, under the soname of the release that is linked for.
    names = {table.name.removesuffix(".txt"): table.read_text(encoding="ascii").split() for table in sdk.exports}
    assert names == EXPORTS
    command: list[str | Path] = [sdk.compiler, "-c", "a.hip"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "-no-canonical-prefixes" in said
    assert said[-2:] == ["-c", "a.hip"]
    inner = subprocess.run([sdk.compiler, "-cc1", "x"], capture_output=True, text=True, check=True).stdout.split()
    assert inner[1:] == ["-cc1", "x"]
    assert not list(entry.rglob("clang-tidy")) + list(entry.rglob("doc"))

    for settings, version, reason in (
        (
            replace(asked, usual=True),
            "7.1",
            "builds with Debian's packages are for trying out and cannot be published: list 'debian' in sources",
        ),
        (asked, "5.7", "near ROCm 6 and 7 only"),
    ):
        refused = opened("debian", settings=settings, environ=os.environ)
        answer = refused.offers(COMPONENTS, version, Machine.X86_64)["compiler"]
        assert isinstance(answer, Refused)
        assert reason in answer.reason
    strict = opened("debian", settings=replace(asked, debian_expires=True), environ=os.environ)
    with pytest.raises(IntegrityError, match="was valid until Sat, 02 Jan 2021"):
        strict.offers(COMPONENTS, "7.1", Machine.X86_64)


def test_other_packages_of_debians_than_were_chosen_are_refused(
    parts: Mapping[str, Mapping[str, bytes]], keyring: tuple[Path, Callable[[str], bytes]], tmp_path: Path
) -> None:
    mirror = tmp_path / "mirror"
    publish_debian(mirror, parts, keyring[1])
    asked = ToolchainSettings(
        usual=False, debian_mirror=Place(path=mirror), debian_keyring=keyring[0], debian_expires=False
    )
    answers = opened("debian", settings=asked, environ=os.environ).offers(COMPONENTS, "7.1", Machine.X86_64)
    taken = [(component, answers[component.name]) for component in COMPONENTS]
    publish_debian(mirror, {**parts, "hipcub": {"include/hipcub/hipcub.hpp": b"another"}}, keyring[1])
    into = tmp_path / "into"
    into.mkdir()
    tree = ToolkitTree(version="7.1", into=into, scratch=tmp_path, progress=Fetch("ROCm", Silent()))
    later = opened("debian", settings=asked, environ=os.environ)
    with pytest.raises(ToolchainError, match="Debian has other packages of hipcub now"):
        later.fill(taken, tree)  # type: ignore[arg-type]


# AMD's wheels


def wheels(folder: Path, parts: Mapping[str, Mapping[str, bytes]], *, form: str = "xz", damage: bool = False) -> Path:
    """A directory of AMD's two wheels."""
    core = {f"_rocm_sdk_core/{path}": data for name in IN_CORE for path, data in parts[name].items()}
    core = {path.replace("core/amdgcn", "core/lib/llvm/amdgcn"): data for path, data in core.items()}
    others = {path: data for name, files in parts.items() if name not in IN_CORE for path, data in files.items()}
    devel = {f"_rocm_sdk_devel/{path}": data for path, data in others.items()} | {
        "_rocm_sdk_devel/lib/a.so": b"x" * 9999
    }
    link = tarfile.TarInfo("_rocm_sdk_devel/include/hip/hip_version.h")
    link.type, link.linkname = tarfile.SYMTYPE, "../../../_rocm_sdk_core/include/hip/hip_version.h"
    plain = make_tar(devel, extra=[link])
    content = plain[: len(plain) // 2] if damage else plain
    packed = lzma.compress(content) if form == "xz" else content
    tar = {f"rocm_sdk_devel/_devel.tar{'.xz' if form else ''}": packed, "rocm_sdk_devel/__init__.py": b""}
    folder.mkdir(parents=True, exist_ok=True)
    programs = tuple(f"_rocm_sdk_core/{program}" for program in PROGRAMS)
    for name, files in ((CORE, core), (DEVEL, tar)):
        file = f"{name.replace('-', '_')}-7.1.0-py3-none-linux_x86_64.whl"
        (folder / file).write_bytes(make_wheel(name, "7.1.0", files, executable=programs))
    return folder


@pytest.mark.parametrize("form", ["xz", ""])
def test_amds_wheels_give_a_toolkit_and_the_tar_in_them_is_read_as_it_comes(
    form: str, parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    index = FolderIndex(wheels(tmp_path / "wheels", parts, form=form), label="therock")
    entry = tmp_path / "entry"
    sdk = filled(opened("therock", index=index), "7.1", entry)
    judge(sdk, entry, str(entry))
    assert not (entry / "lib/a.so").exists()
    assert not list(tmp_path.rglob("_devel.tar*"))


def test_a_tar_that_ends_early_is_told(parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path) -> None:
    index = FolderIndex(wheels(tmp_path / "wheels", parts, damage=True), label="therock")
    with pytest.raises(IntegrityError, match="its tar file is damaged"):
        filled(opened("therock", index=index), "7.1", tmp_path / "entry")


def test_wheels_of_another_kind_are_told(parts: Mapping[str, Mapping[str, bytes]], tmp_path: Path) -> None:
    folder = wheels(tmp_path / "wheels", parts)
    file = f"{CORE.replace('-', '_')}-7.1.0-py3-none-linux_x86_64.whl"
    (folder / file).write_bytes(make_wheel(CORE, "7.1.0", {"rocm/placeholder.py": b""}))
    source = opened("therock", index=FolderIndex(folder, label="therock"))
    with pytest.raises(ToolchainError, match="is not laid out as AMD's wheels of ROCm are"):
        filled(source, "7.1", tmp_path / "entry")
    refused = source.offers(COMPONENTS, "7.2", Machine.X86_64)["compiler"]
    assert isinstance(refused, Refused)
    empty = tmp_path / "empty"
    empty.mkdir()
    none = opened("therock", index=FolderIndex(empty, label="therock")).offers(COMPONENTS, "7.1", Machine.X86_64)
    assert all(isinstance(answer, Refused) for answer in none.values())


def test_a_member_is_read_as_a_stream_and_believed_only_at_its_end(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    file = tmp_path / "a-1-py3-none-any.whl"
    file.write_bytes(make_wheel("a", "1", {"a/data": data}))
    with Wheel(FileOnDisk(file), filename=file.name).stream("a/data") as stream:
        assert (stream.read(10), stream.read(5)) == (data[:10], data[10:15])
    with Wheel(FileOnDisk(file), filename=file.name).stream("a/data") as stream:
        assert stream.read() == data
    file.write_bytes(make_wheel("a", "1", {"a/data": data}, lie_about="a/data"))
    with (
        pytest.raises(IntegrityError, match="do not match RECORD"),
        Wheel(FileOnDisk(file), filename=file.name).stream("a/data") as stream,
    ):
        assert stream.read(10) == data[:10]
    with (
        pytest.raises(KeyError, match="left early"),
        Wheel(FileOnDisk(file), filename=file.name).stream("a/data") as stream,
    ):
        raise KeyError("left early")


def test_a_zip64_field_that_is_not_needed_does_no_harm(tmp_path: Path) -> None:
    """Some of PyTorch's ROCm wheels have one for sizes that fit without it."""
    body = zlib.compressobj(wbits=-15)
    packed = body.compress(b"int a;") + body.flush()
    buffer = io.BytesIO(make_wheel("torch", "2.13.0", {"torch/include/a.h": b"int a;"}))
    found = bytearray(buffer.getvalue())
    name = b"torch/include/a.h"
    at = found.rindex(name)  # in the central directory
    assert packed in found
    field = bytes([1, 0, 16, 0]) + (6).to_bytes(8, "little") + len(packed).to_bytes(8, "little")
    found[at - 46 + 30 : at - 46 + 32] = len(field).to_bytes(2, "little")
    found[at + len(name) : at + len(name)] = field
    end = found.rindex(b"PK\x05\x06")
    size = int.from_bytes(found[end + 12 : end + 16], "little") + len(field)
    found[end + 12 : end + 16] = size.to_bytes(4, "little")
    file = tmp_path / "torch.whl"
    file.write_bytes(found)
    wheel = Wheel(FileOnDisk(file), filename=file.name)
    assert wheel.read("torch/include/a.h") == b"int a;"
