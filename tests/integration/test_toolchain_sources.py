"""Each part of a toolchain from the first source that has it, and a reason for everything that was not taken."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.errors import NetworkError, ToolchainError
from kernel_builder.events import Notice, Recorder
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import HostCompilers
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.recipe import default_recipe
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.settings import load_settings
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.variants.names import Abi, Machine
from published import serve_folder
from toolkits import cuda

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

TAG = "manylinux_2_28_x86_64"
OLD_CPU = ToolchainRequest(release="2.6", machine=Machine.X86_64, abi=Abi.CXX98)
NEW_CPU = ToolchainRequest(release="2.6", machine=Machine.X86_64, abi=Abi.CXX11)
OLD_CUDA = ToolchainRequest(release="2.6", machine=Machine.X86_64, abi=Abi.CXX98, toolkit=cuda("12.4"))

_C10 = "#include <string>\nnamespace c10 { void check(char const *, std::string const &) {} }\n"
_NVCC = """#!/bin/sh
case "$*" in
--list-gpu-code) printf 'sm_80\\nsm_90\\n' ;;
*--dryrun*) printf '#$ TOP=%s\\n' "$(dirname "$0")/.." >&2 ;;
*) echo 'Cuda compilation tools, release 12.4, V12.4.131' ;;
esac
"""


def library(folder: Path, soname: str, source: str, *, abi: int = 1) -> bytes:
    text, out = folder / f"{soname}.cpp", folder / soname
    text.write_text(source)
    command = ["g++", "-shared", "-fPIC", "-O1", f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-o", str(out), str(text)]
    subprocess.run([*command, f"-Wl,-soname,{soname}"], check=True)
    return out.read_bytes()


def torch_wheel(folder: Path, version: str, *, abi: int, cuda: bool = True) -> bytes:
    files = {
        "torch/version.py": f"__version__ = '{version}'\n".encode(),
        "torch/include/torch/library.h": b"#pragma once\n",
        "torch/lib/libc10.so": library(folder, "libc10.so", _C10, abi=abi),
        "torch/lib/libtorch.so": library(folder, "libtorch.so", ""),
        "torch/lib/libtorch_cpu.so": library(folder, "libtorch_cpu.so", "void cpu() {}"),
    }
    if cuda:
        files["torch/lib/libc10_cuda.so"] = library(folder, "libc10_cuda.so", "void c10_cuda() {}")
        files["torch/lib/libtorch_cuda.so"] = library(folder, "libtorch_cuda.so", "void torch_cuda() {}")
    return make_wheel("torch", version, files)


@dataclass
class Torches:
    """Wheels of torch 2.6 for x86_64: as the public index has it, and in flavours."""

    old: bytes
    new: bytes
    cpu: bytes


@pytest.fixture(scope="module")
def torches(tmp_path_factory: pytest.TempPathFactory) -> Torches:
    folder = tmp_path_factory.mktemp("torches")
    return Torches(
        old=torch_wheel(folder, "2.6.0", abi=0),
        new=torch_wheel(folder, "2.6.0+cu126", abi=1),
        cpu=torch_wheel(folder, "2.6.0+cpu", abi=0, cuda=False),
    )


def filename(version: str) -> str:
    return f"torch-{version}-cp312-cp312-{TAG}.whl"


@pytest.fixture
def server(torches: Torches) -> Iterator[LoopbackIndex]:
    with serve() as index:
        index.add(filename("2.6.0"), torches.old)
        yield index


@dataclass
class Kit:
    """The object under test, and what it told."""

    toolchains: Toolchains
    recorder: Recorder


def kit(
    server: LoopbackIndex,
    tmp_path: Path,
    host: HostCompiler,
    settings: str = "",
    environ: Mapping[str, str] | None = None,
    max_age: float = 3600,
) -> Kit:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "kernel-builder.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "user.toml").touch()
    environ = {
        "KERNEL_BUILDER_CONFIG": str(tmp_path / "user.toml"),
        "KERNEL_BUILDER_INDEX_URL": server.url,
        "PATH": "/usr/bin:/bin",
        **(environ or {}),
    }
    recorder = Recorder()
    store = Store(tmp_path / "store", recorder)
    sources = open_sources(load_settings(project, environ), store, recorder, toolkit_kinds(), environ=environ)
    compilers = HostCompilers(found=(host,), environ=environ)
    return Kit(Toolchains(sources, store, compilers, recorder, toolkit_kinds(), max_age=max_age), recorder)


def sources_of(resolved: ResolvedToolchain) -> dict[str, str]:
    return {taken.part: taken.source for taken in resolved.chain.taken}


def reasons_of(resolved: ResolvedToolchain) -> str:
    return "\n".join(f"{entry.part}: {entry}" for entry in resolved.chain.refused)


def test_the_abi_is_proved_by_the_wheel_and_another_is_refused(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    one = kit(server, tmp_path, host, 'sources = ["index"]\n')
    resolved = one.toolchains.resolve(OLD_CPU)
    assert one.toolchains.provide(resolved).framework.version == "2.6.0"
    with pytest.raises(ToolchainError) as caught:
        one.toolchains.resolve(NEW_CPU)
    assert f"index: {filename('2.6.0')}: its libc10.so has the old C++ ABI (cxx98)" in caught.value.message
    assert "kernel-builder.toml" in (caught.value.hint or "")


def test_a_further_index_has_what_the_first_has_not(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler
) -> None:
    with serve() as other:
        other.password = "secret"  # noqa: S105
        other.add(filename("2.6.0+cu126"), torches.new)
        other.add(filename("2.6.0+rocm6.2"), torches.new)
        url = other.url.replace("http://", "http://user:secret@")
        one = kit(server, tmp_path, host, f'[[index]]\nname = "private"\nurl = "{url}"\n')
        resolved = one.toolchains.resolve(NEW_CPU)
        one.toolchains.provide(resolved)
    assert sources_of(resolved) == {"torch": "private"}
    assert "rocm6.2 builds have different headers" in reasons_of(resolved)
    texts = [path.read_text(errors="replace") for path in (tmp_path / "store").rglob("*.json")]
    assert texts
    assert not any("secret" in text or "127.0.0.1" in text for text in texts)
    (artefact,) = one.toolchains.artefacts(resolved)
    assert (artefact.source, artefact.version) == ("private", "2.6.0+cu126")
    assert artefact.record_sha256


@pytest.mark.parametrize("layout", [".", "torch"])
def test_a_folder_of_wheels_is_an_index(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler, layout: str
) -> None:
    folder = tmp_path / "project" / "wheels" / layout
    folder.mkdir(parents=True)
    (folder / filename("2.6.0+cu126")).write_bytes(torches.new)
    settings = 'sources = ["here"]\n[[index]]\nname = "here"\npath = "wheels"\n'
    one = kit(server, tmp_path, host, settings)
    resolved = one.toolchains.resolve(NEW_CPU)
    provided = one.toolchains.provide(resolved)
    assert sources_of(resolved) == {"torch": "here"}
    assert (provided.framework.include[0] / "torch" / "library.h").is_file()
    assert server.requests == []


def test_a_damaged_wheel_does_not_stand_in_the_way_of_the_others_of_its_folder(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler
) -> None:
    folder = tmp_path / "project" / "wheels"
    folder.mkdir(parents=True)
    (folder / filename("2.6.0+cu126")).write_bytes(torches.new)
    (folder / filename("2.5.0")).write_bytes(torches.old[:-100])
    (folder / filename("2.7.0")).mkdir()
    settings = 'sources = ["here"]\n[[index]]\nname = "here"\npath = "wheels"\n'
    assert sources_of(kit(server, tmp_path, host, settings).toolchains.resolve(NEW_CPU)) == {"torch": "here"}
    (folder / filename("2.6.0+cu126")).write_bytes(torches.new[:-100])
    with pytest.raises(NetworkError, match=r"torch-2\.6\.0\+cu126.* is not a valid wheel"):
        kit(server, tmp_path, host, settings).toolchains.resolve(NEW_CPU, fresh=True)


def test_the_flavour_of_the_very_cuda_comes_first_and_a_cpu_one_never_serves_cuda(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler
) -> None:
    folder = tmp_path / "project" / "wheels"
    folder.mkdir(parents=True)
    for version, data in (("2.6.0+cpu", torches.cpu), ("2.6.0+cu118", torches.old), ("2.6.0+cu124", torches.old)):
        (folder / filename(version)).write_bytes(data)
    toolkit = make_toolkit(tmp_path / "cuda-12.4")
    settings = 'sources = ["here", "local"]\n[[index]]\nname = "here"\npath = "wheels"\n'
    one = kit(server, tmp_path, host, settings, {"CUDA_HOME": str(toolkit)})
    assert one.toolchains.resolve(OLD_CPU).chain.taken[0].artefact.version == "2.6.0+cpu"
    resolved = one.toolchains.resolve(OLD_CUDA)
    assert resolved.chain.taken[0].artefact.version == "2.6.0+cu124"
    (folder / filename("2.6.0+cu124")).unlink()
    (folder / filename("2.6.0+cu118")).unlink()
    with pytest.raises(ToolchainError, match="cpu builds have no CUDA libraries"):
        kit(server, tmp_path, host, settings, {"CUDA_HOME": str(toolkit)}, max_age=-1).toolchains.resolve(OLD_CUDA)


def make_toolkit(root: Path, *, without: str = "", version: str = "12.4") -> Path:
    """What a toolkit of CUDA 12 looks like from outside."""
    components = default_recipe().toolkits[Backend("cuda")].components(version)
    headers = ["crt/host_defines.h", "cuda_runtime_api.h", "thrust/version.h", "nvrtc.h", "cuda_profiler_api.h"]
    headers += ["nvtx3/nvToolsExt.h", "nvJitLink.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h", "cufft.h", "curand.h"]
    programs = ["bin/nvcc", "bin/nvcc.profile", "bin/cudafe++", "bin/fatbinary", "bin/ptxas", "nvvm/bin/cicc"]
    for name in [*programs, *(f"include/{header}" for header in headers)]:
        if name != without:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            program = _NVCC.replace("release 12.4, V12.4", f"release {version}, V{version}")
            path.write_text(program if name.startswith(("bin", "nvvm")) else "#pragma once\n")
            path.chmod(0o755)
    (root / "lib").mkdir(exist_ok=True)
    for component in components:
        for entry in component.libraries:
            if entry.soname != without:
                name = entry.soname.partition(".")[0].removeprefix("lib")
                library(root / "lib", entry.soname, f'extern "C" void {name}Create() {{}}')
    return root


def test_a_toolkit_of_this_machine_is_used_in_place(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    root = make_toolkit(tmp_path / "cuda-12.4")
    one = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', {"CUDA_HOME": str(root)})
    resolved = one.toolchains.resolve(OLD_CUDA)
    cuda = one.toolchains.provide(resolved).toolkit
    assert cuda is not None
    assert (cuda.compiler, cuda.include) == (root / "bin" / "nvcc", (root / "include",))
    assert cuda.known_codes() == ("sm_80", "sm_90")
    assert {name for name, source in sources_of(resolved).items() if source == "index"} == {"torch"}
    assert "nvcc: index: nvcc: the wheels of CUDA 12 contain only ptxas" in reasons_of(resolved)
    table = next(path for path in cuda.exports if path.name.startswith("libcublas.so"))
    assert table.read_text() == "cublasCreate\n"
    assert (cuda.libraries / "libcublas.so").is_file()


def test_without_nvidias_archives_the_next_source_serves_and_it_is_said_once(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.backends.cuda.kind.PUBLIC_BASE", "http://127.0.0.1:1/redist")
    environ = {"CUDA_HOME": str(make_toolkit(tmp_path / "cuda-12.4"))}
    (tmp_path / "project" / "empty").mkdir(parents=True)
    nothing = '[debian]\nmirror = "empty"\n'
    one = kit(server, tmp_path, host, nothing, environ)
    for _ in range(2):
        resolved = one.toolchains.resolve(OLD_CUDA, fresh=True)
        assert sources_of(resolved)["nvcc"] == "local"
    (notice,) = [event for event in one.recorder.events if isinstance(event, Notice)]
    assert not notice.warning
    assert notice.message.startswith("the source 'redistrib' is skipped: NVIDIA's archives cannot be reached from here")
    one.toolchains.provide(resolved)
    later = kit(server, tmp_path, host, nothing, environ)
    assert sources_of(later.toolchains.resolve(OLD_CUDA))["nvcc"] == "local"
    assert later.recorder.events == []  # the choice is kept, and nobody is asked
    asked = kit(server, tmp_path, host, f'sources = ["index", "redistrib", "local"]\n{nothing}', environ)
    assert asked.toolchains.resolve(OLD_CUDA).chain.unreachable == ("redistrib",)  # somebody wants them


def test_who_had_nothing_is_not_asked_again_for_an_hour_but_this_machine_is(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.backends.cuda.kind.PUBLIC_BASE", "http://127.0.0.1:1/redist")
    toolkit = tmp_path / "cuda-12.4"
    (tmp_path / "project" / "empty").mkdir(parents=True)
    nothing, environ = '[debian]\nmirror = "empty"\n', {"CUDA_HOME": str(toolkit)}

    def resolve(**how: bool) -> ResolvedToolchain | str:
        try:
            return kit(server, tmp_path, host, nothing, environ).toolchains.resolve(OLD_CUDA, **how)
        except ToolchainError as error:
            return f"{error.message}\n{error.hint}"

    first = resolve(recall=True)
    asked = len(server.requests)
    assert asked
    assert resolve(recall=True) == first  # every word of it
    assert len(server.requests) == asked
    assert resolve() == first  # whoever demands it asks again
    assert len(server.requests) > asked
    (kept,) = (tmp_path / "store" / "resolutions").glob("*.refused")
    long_ago = time.time() - 2 * 3600
    os.utime(kept, (long_ago, long_ago))
    asked = len(server.requests)
    assert resolve(recall=True) == first
    assert len(server.requests) > asked
    make_toolkit(toolkit)
    found = resolve(recall=True)
    assert isinstance(found, ResolvedToolchain)
    assert sources_of(found)["nvcc"] == "local"
    assert not kept.exists()


def test_archives_that_can_be_reached_again_are_asked(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_builder.backends.cuda.kind.PUBLIC_BASE", "http://127.0.0.1:1/redist")
    (tmp_path / "project" / "empty").mkdir(parents=True)
    nothing = '[debian]\nmirror = "empty"\n'
    with pytest.raises(ToolchainError, match="cannot be reached from here"):
        kit(server, tmp_path, host, nothing).toolchains.resolve(OLD_CUDA, recall=True)
    make_mirror(tmp_path / "mirror", make_toolkit(tmp_path / "made"))
    monkeypatch.setattr("kernel_builder.backends.cuda.kind.PUBLIC_BASE", (tmp_path / "mirror").as_uri())
    resolved = kit(server, tmp_path, host, nothing).toolchains.resolve(OLD_CUDA, recall=True)
    assert sources_of(resolved)["nvcc"] == "redistrib"


def test_an_updated_toolkit_is_another_one(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    root = make_toolkit(tmp_path / "cuda-12.4")
    environ = {"CUDA_HOME": str(root)}
    before = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', environ).toolchains
    first = before.resolve(OLD_CUDA)
    before.provide(first)
    again = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', environ).toolchains
    assert again.resolve(OLD_CUDA).toolkit_key == first.toolkit_key
    os.utime(root / "bin" / "ptxas", (1, 1))
    changed = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', environ).toolchains
    assert changed.resolve(OLD_CUDA).toolkit_key != first.toolkit_key


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ("nvvm/bin/cicc", "it has no cicc"),
        ("include/nvrtc.h", "it has no nvrtc.h"),
        ("libcusolver.so.11", "it has no libcusolver.so.11"),
    ],
)
def test_what_a_toolkit_lacks_is_named(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, without: str, reason: str
) -> None:
    root = make_toolkit(tmp_path / "cuda-12.4", without=without)
    one = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', {"CUDA_HOME": str(root)})
    with pytest.raises(ToolchainError) as caught:
        one.toolchains.resolve(OLD_CUDA)
    assert f"local: {root}: {reason}" in caught.value.message


def test_of_two_toolkits_the_matching_one_is_taken_and_the_other_is_named(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    root = make_toolkit(tmp_path / "cuda-12.4")
    other = make_toolkit(tmp_path / "cuda-11.8")
    nvcc = other / "bin" / "nvcc"
    nvcc.write_text(_NVCC.replace("12.4, V12.4.131", "11.8, V11.8.89"))
    settings = 'sources = ["index", "local"]\n'
    (tmp_path / "user.toml").write_text(f'[local]\ntoolkits = ["{other}"]\n')
    one = kit(server, tmp_path, host, settings, {"CUDA_HOME": str(root)})
    resolved = one.toolchains.resolve(OLD_CUDA)
    assert resolved.toolkit is not None
    assert resolved.toolkit.compiler == root / "bin" / "nvcc"
    with pytest.raises(ToolchainError, match=rf"{other} is CUDA 11\.8"):
        kit(server, tmp_path, host, settings).toolchains.resolve(OLD_CUDA)


def make_torch(prefix: Path, version: str, scratch: Path) -> Path:
    """An environment with a torch in it; its ``site-packages``."""
    site = prefix / "lib" / "python3.12" / "site-packages"
    for name, data in (
        ("version.py", f"__version__ = '{version}'\n".encode()),
        ("include/torch/library.h", b"#pragma once\n"),
        ("lib/libc10.so", library(scratch, "libc10.so", _C10)),
        ("lib/libtorch.so", library(scratch, "libtorch.so", "")),
        ("lib/libtorch_cpu.so", library(scratch, "libtorch_cpu.so", "void cpu() {}")),
    ):
        path = site / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return site


def test_the_torch_of_the_active_environment_serves_where_no_index_does(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler
) -> None:
    site = make_torch(tmp_path / "venv", "2.6.0+cu126", tmp_path)
    one = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', {"VIRTUAL_ENV": str(tmp_path / "venv")})
    resolved = one.toolchains.resolve(NEW_CPU)
    torch = one.toolchains.provide(resolved).framework
    assert sources_of(resolved) == {"torch": "local"}
    assert torch.include[0] == site / "torch" / "include"
    assert any("_Z3cpuv" in table.read_text() for table in torch.exports)
    with pytest.raises(ToolchainError, match=r"it is torch 2\.6\.0\+cu126"):
        one.toolchains.resolve(ToolchainRequest(release="2.7", machine=Machine.X86_64, abi=Abi.CXX11))


def test_of_two_torches_here_the_chosen_one_stays_chosen_and_locked(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    make_torch(tmp_path / "venv", "2.6.0", tmp_path)
    newer = make_torch(tmp_path / "conda", "2.6.1", tmp_path)
    environ = {"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")}
    one = kit(server, tmp_path, host, 'sources = ["local"]\n', environ).toolchains
    chosen = one.provide(one.resolve(NEW_CPU))
    assert chosen.framework.version == "2.6.1"
    resolved = one.resolve(NEW_CPU)
    assert one.resolve_locked(NEW_CPU, resolved.artefacts).framework == resolved.framework
    # Also after a better one has come.
    make_torch(tmp_path / "venv", "2.6.2", tmp_path)
    later = kit(server, tmp_path, host, 'sources = ["local"]\n', environ).toolchains
    assert later.resolve_locked(NEW_CPU, resolved.artefacts).framework.include[0] == newer / "torch" / "include"
    assert later.resolve(NEW_CPU).framework.version == "2.6.2"


def test_a_source_that_does_not_answer_is_passed_over_with_a_warning(
    server: LoopbackIndex, torches: Torches, tmp_path: Path, host: HostCompiler
) -> None:
    folder = tmp_path / "project" / "wheels"
    folder.mkdir(parents=True)
    (folder / filename("2.6.0+cu124")).write_bytes(torches.old)
    dead = 'url = "http://127.0.0.1:9/simple"'
    settings = (
        f'sources = ["dead", "here"]\n[[index]]\nname = "dead"\n{dead}\n[[index]]\nname = "here"\npath = "wheels"\n'
    )
    one = kit(server, tmp_path, host, settings)
    assert sources_of(one.toolchains.resolve(OLD_CPU)) == {"torch": "here"}
    (notice,) = [event for event in one.recorder.events if isinstance(event, Notice)]
    assert notice.warning
    assert "dead is skipped" in notice.message
    with pytest.raises(NetworkError):
        kit(server, tmp_path, host, f'sources = ["dead"]\n[[index]]\nname = "dead"\n{dead}\n').toolchains.resolve(
            OLD_CPU
        )


def test_a_toolchain_from_exactly_the_files_of_a_lock(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    root = make_toolkit(tmp_path / "cuda-12.4")
    environ = {"CUDA_HOME": str(root)}
    one = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', environ).toolchains
    resolved = one.resolve(OLD_CUDA)
    locked = one.resolve_locked(OLD_CUDA, resolved.artefacts)
    assert (locked.framework, locked.toolkit) == (resolved.framework, resolved.toolkit)
    with pytest.raises(ToolchainError, match="no file provides torch"):
        one.resolve_locked(OLD_CUDA, resolved.artefacts[1:])
    os.utime(root / "bin" / "ptxas", (1, 1))
    later = kit(server, tmp_path, host, 'sources = ["index", "local"]\n', environ).toolchains
    with pytest.raises(ToolchainError, match="has changed or is gone"):
        later.resolve_locked(OLD_CUDA, resolved.artefacts)


LIBRARY_VERSIONS = {"libcublas": "4.1", "libcusparse": "5.4.2", "libcusolver": "7.1.2", "libcufft": "3.0.4"}
"""The libraries of a release have versions of their own."""


def make_mirror(folder: Path, toolkit: Path, *, without: str = "", release: str = "12.4.1") -> None:
    """NVIDIA's archives of a release of CUDA 12, in their layout, out of the files of a toolkit.

    The manifest has what NVIDIA's have: a license, a version and a path for each component, and an archive for each
    platform, of which only this one's are there.
    """
    files = {
        "cuda_nvcc": ["bin", "nvvm", "include/crt"],
        "cuda_cudart": ["include/cuda_runtime_api.h", "lib/libcudart.so.12"],
        "cuda_cccl": ["include/thrust"],
        "cuda_nvrtc": ["include/nvrtc.h", "lib/libnvrtc.so.12"],
        "cuda_profiler_api": ["include/cuda_profiler_api.h"],
        "cuda_nvtx": ["include/nvtx3"],
        "libnvjitlink": ["include/nvJitLink.h"],
        "libcublas": ["include/cublas_v2.h", "lib/libcublas.so.12", "lib/libcublasLt.so.12"],
        "libcusparse": ["include/cusparse.h", "lib/libcusparse.so.12"],
        "libcusolver": ["include/cusolverDn.h", "lib/libcusolver.so.11"],
        "libcufft": ["include/cufft.h", "lib/libcufft.so.11"],
        "libcurand": ["include/curand.h", "lib/libcurand.so.10"],
    }
    folder.mkdir()
    manifest: dict[str, object] = {"release_date": "2025-01-15", "release_label": release, "release_product": "cuda"}
    manifest["nvidia_driver"] = {"name": "NVIDIA Driver", "license": "NVIDIA", "version": "560.35.05"}
    for component, paths in files.items():
        if component == without:
            continue
        version = f"{release.rpartition('.')[0]}.{LIBRARY_VERSIONS.get(component, '131')}"
        table: dict[str, object] = {
            "name": component.replace("_", " "),
            "license": "CUDA Toolkit",
            "license_path": f"{component}/LICENSE.txt",
            "version": version,
        }
        for platform, suffix in (("linux-x86_64", "tar.xz"), ("linux-sbsa", "tar.xz"), ("windows-x86_64", "zip")):
            stem = f"{component}-{platform}-{version}-archive"
            path = folder / component / platform / f"{stem}.{suffix}"
            data = b"not fetched"
            if platform == "linux-x86_64":
                path.parent.mkdir(parents=True)
                with tarfile.open(path, "w:xz", preset=0) as archive:
                    for name in paths:
                        archive.add(toolkit / name, f"{stem}/{name}")
                data = path.read_bytes()
            table[platform] = {
                "relative_path": path.relative_to(folder).as_posix(),
                "sha256": hashlib.sha256(data).hexdigest(),
                "md5": hashlib.md5(data, usedforsecurity=False).hexdigest(),
                "size": str(len(data)),
            }
        manifest[component] = table
    (folder / f"redistrib_{release}.json").write_text(json.dumps(manifest, indent=4))


@pytest.mark.parametrize("release", ["12.6.3", "12.8.1"])
def test_a_mirror_of_nvidias_archives_gives_releases_that_nobody_else_has(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, release: str
) -> None:
    version = release.rpartition(".")[0]
    make_mirror(tmp_path / "redist", make_toolkit(tmp_path / "toolkit", version=version), release=release)
    request = ToolchainRequest(release="2.6", machine=Machine.X86_64, abi=Abi.CXX98, toolkit=cuda(version))
    with pytest.raises(ToolchainError) as caught:
        kit(server, tmp_path, host, 'sources = ["index"]\n').toolchains.resolve(request)
    assert f"no source has CUDA {version} for" in caught.value.message
    assert "NVIDIA's archives" in (caught.value.hint or "")
    with serve_folder(tmp_path / "redist") as site:
        one = kit(server, tmp_path, host, 'sources = ["index", "redistrib"]\n', {"KERNEL_BUILDER_REDISTRIB": site.url})
        resolved = one.toolchains.resolve(request)
        toolkit = one.toolchains.provide(resolved).toolkit
        asked = [path for path in site.paths() if path.endswith((".xz", ".zip"))]
    assert toolkit is not None
    assert {source for part, source in sources_of(resolved).items() if part != "torch"} == {"redistrib"}
    nvcc = subprocess.run([toolkit.compiler, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"release {version}," in nvcc
    assert len(asked) == 12
    assert all("/linux-x86_64/" in path for path in asked)
    versions = {artefact.name: artefact.version for artefact in one.toolchains.artefacts(resolved)}
    assert (versions["cuda_nvcc"], versions["libcufft"]) == (f"{version}.131", f"{version}.3.0.4")


def test_nvidias_archives_make_a_whole_toolkit(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    make_mirror(tmp_path / "redist", make_toolkit(tmp_path / "toolkit"))
    settings = f'sources = ["index", "redistrib"]\n[redistrib]\npath = "{tmp_path / "redist"}"\n'
    one = kit(server, tmp_path, host, settings)
    resolved = one.toolchains.resolve(OLD_CUDA)
    cuda = one.toolchains.provide(resolved).toolkit
    assert cuda is not None
    tree = cuda.compiler.parents[1]
    assert tree.is_relative_to(tmp_path / "store")
    assert sorted(path.name for path in tree.iterdir() if not path.name.startswith(".")) == [
        "bin",
        "exports",
        "gpu-codes.txt",
        "include",
        "nvvm",
        "symbols",
    ]
    assert (tree / "include" / "thrust" / "version.h").is_file()
    assert all(table.is_file() for table in cuda.exports)
    assert {source for part, source in sources_of(resolved).items() if part != "torch"} == {"redistrib"}
    # One archive has three of the parts.
    archives = [artefact for artefact in one.toolchains.artefacts(resolved) if artefact.source == "redistrib"]
    assert len({artefact.filename for artefact in archives}) == 12
    locked = one.toolchains.resolve_locked(OLD_CUDA, resolved.artefacts)
    assert locked.toolkit_key == resolved.toolkit_key


def test_what_the_archives_lack_is_named(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    make_mirror(tmp_path / "redist", make_toolkit(tmp_path / "toolkit"), without="libcufft")
    settings = f'sources = ["index", "redistrib"]\n[redistrib]\npath = "{tmp_path / "redist"}"\n'
    with pytest.raises(ToolchainError) as caught:
        kit(server, tmp_path, host, settings).toolchains.resolve(OLD_CUDA)
    assert "the cufft of CUDA 12.4" in caught.value.message
    assert "index: nvidia-cufft-cu12: the package index has no such project" in caught.value.message
    assert "redistrib: libcufft: CUDA 12.4 has none there" in caught.value.message
