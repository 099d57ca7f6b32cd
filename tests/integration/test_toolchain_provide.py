"""Toolchains out of small wheels that this test makes, from a loopback index to link stubs that link."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import FetchFinished, FetchStarted, Notice, Recorder
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import HostCompilers
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.recipe import WheelPart, default_recipe
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.settings import INDEX, ToolchainSettings
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.variants.names import Machine
from toolkits import cuda

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("toolchain provide"), pytest.mark.usefixtures("unloaded")]

TAG = "manylinux_2_28_x86_64"
CPU = ToolchainRequest(release="2.13", machine=Machine.X86_64)
CUDA = ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=cuda("13.0"))
NVCC = b"""#!/bin/sh
case $1 in
--list-gpu-code) echo 'sm_80\nsm_75\nsm_90' ;;
*) echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;
esac
"""


def library(folder: Path, soname: str, source: str) -> bytes:
    """A real shared object."""
    text, out = folder / f"{soname}.cpp", folder / soname
    text.write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", "-o", str(out), str(text), f"-Wl,-soname,{soname}"], check=True)
    return out.read_bytes()


def with_moved_strings(data: bytes) -> bytes:
    """The library after what patchelf does: ``.dynstr`` and the section headers at the end, filler in its place."""
    out = bytearray(data)
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    sections = bytearray(data[table : table + 64 * count])
    symbols = next(i for i in range(count) if struct.unpack_from("<I", sections, 64 * i + 4)[0] == 11)
    strings = struct.unpack_from("<I", sections, 64 * symbols + 40)[0]
    offset, size = struct.unpack_from("<QQ", sections, 64 * strings + 24)
    first = min(offset, 0x2A8)
    kept = out[offset : offset + size]
    out[offset : offset + size] = b"X" * size
    # The hash table goes too, so that nothing at the beginning tells where the names are.
    for index in range(count):
        if struct.unpack_from("<I", sections, 64 * index + 4)[0] in {0x6FFFFFF6, 7}:
            begin, length = struct.unpack_from("<QQ", sections, 64 * index + 24)
            out[begin : begin + length] = b"X" * length
    assert first
    out += bytes(-len(out) % 16)
    struct.pack_into("<Q", out, 40, len(out))
    struct.pack_into("<Q", sections, 64 * strings + 24, len(out) + len(sections))
    return bytes(out + sections + kept)


def with_moved_headers(data: bytes) -> bytes:
    """The library with its program headers behind everything but the section headers, as some of NVIDIA's have them."""
    out = bytearray(data)
    programs, table = struct.unpack_from("<QQ", data, 32)
    program_count, count = struct.unpack_from("<H", data, 56)[0], struct.unpack_from("<H", data, 60)[0]
    moved, sections = data[programs : programs + 56 * program_count], data[table : table + 64 * count]
    out[programs : programs + len(moved)] = b"X" * len(moved)
    out[table : table + len(sections)] = b"X" * len(sections)
    out += bytes(-len(out) % 16 + 0x1000)
    struct.pack_into("<QQ", out, 32, len(out), len(out) + len(moved))
    return bytes(out) + moved + sections


@dataclass
class Wheels:
    """Published wheels: file name -> contents."""

    torch: bytes
    cuda: dict[str, bytes]


def functions(prefix: str, count: int) -> str:
    return "".join(f"void {prefix}_{i}(int x) {{ static volatile int y; y = x + {i}; }}\n" for i in range(count))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    folder = tmp_path_factory.mktemp("libraries")
    torch = {
        "torch/version.py": b"__version__ = '2.13.0+cu130'\n",
        "torch/include/torch/library.h": b"#pragma once\nvoid torch_cpu_7(int);\nnamespace c10 { int value(); }\n",
        "torch/include/torch/csrc/api/include/torch/all.h": b"#pragma once\n",
        "torch/nn/functional.py": os.urandom(400_000),
        "torch/lib/libc10.so": library(folder, "libc10.so", "namespace c10 { int value() { return 1; } }"),
        "torch/lib/libtorch.so": library(folder, "libtorch.so", ""),
        "torch/lib/libtorch_cpu.so": with_moved_strings(
            library(folder, "libtorch_cpu.so", functions("torch_cpu", 3000))
        ),
        "torch/lib/libc10_cuda.so": library(folder, "libc10_cuda.so", "void c10_cuda() {}"),
        "torch/lib/libtorch_cuda.so": with_moved_headers(
            library(folder, "libtorch_cuda.so", functions("torch_cuda", 50))
        ),
    }
    cuda: dict[str, bytes] = {}
    for package in parts():
        files = {f"nvidia/cu13/include/{package.project}.h": b"#pragma once\n"}
        for entry in package.libraries:
            soname = entry.member.rpartition("/")[2]
            name = soname.partition(".")[0].removeprefix("lib")
            files[entry.member] = library(folder, soname, f'extern "C" void {name}Create() {{}}')
        executable: tuple[str, ...] = ()
        if package.project == "nvidia-cuda-nvcc":
            files |= {"nvidia/cu13/bin/nvcc": NVCC, "nvidia/cu13/bin/nvcc.profile": b"TOP = $(_HERE_)/..\n"}
            executable = ("nvidia/cu13/bin/nvcc",)
        for version in versions_of(package.project):
            filename = f"{package.project.replace('-', '_')}-{version}-py3-none-{TAG}.whl"
            cuda[filename] = make_wheel(package.project, version, files, executable=executable)
    return Wheels(torch=make_wheel("torch", "2.13.0", torch), cuda=cuda)


def versions(resolved: ResolvedToolchain) -> dict[str, str]:
    return {artefact.name: artefact.version for artefact in resolved.artefacts}


def versions_of(project: str) -> tuple[str, ...]:
    own = next(part.version for part in parts() if part.project == project)
    if own == "==13.0.*":
        return ("13.0.48", "13.0.88", "13.2.1")
    return {"nvidia-cublas": ("13.1.0.3", "13.9.0.1"), "nvidia-cuda-cccl": ("13.0.85", "13.3.4.1")}.get(
        project, ("12.0.1", "12.5.0")
    )


@pytest.fixture
def server(wheels: Wheels) -> Iterator[LoopbackIndex]:
    with serve() as index:
        index.add(f"torch-2.13.0-cp312-cp312-{TAG}.whl", wheels.torch)
        for filename, data in wheels.cuda.items():
            index.add(filename, data)
        yield index


@dataclass
class Tools:
    """The object under test and what it talks to."""

    toolchains: Toolchains
    store: Store
    recorder: Recorder


def tools(
    server: LoopbackIndex, root: Path, host: HostCompiler, *, max_age: float = 3600, url: str | None = None
) -> Tools:
    recorder = Recorder()
    settings = server.settings()
    index = SimpleIndex(settings, recorder, Transport(settings, read_seconds=5, backoff=0.01))
    store = Store(root, recorder)
    sources = open_sources(
        ToolchainSettings(order=(INDEX,)), store, recorder, toolkit_kinds(), environ={}, indexes={INDEX: index}
    )
    return Tools(
        Toolchains(
            sources, store, HostCompilers(found=(host,), environ=os.environ), recorder, toolkit_kinds(), max_age=max_age
        ),
        store,
        recorder,
    )


def parts(cuda: str = "13.0") -> list[WheelPart]:
    return [
        component.wheel
        for component in default_recipe().toolkits[Backend("cuda")].components(cuda)
        if component.wheel is not None
    ]


def test_paths_are_known_before_anything_is_fetched(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    kit = tools(server, tmp_path, host)
    resolved = kit.toolchains.resolve(CUDA)
    assert not any("/files/" in path for path, _ in server.requests)
    assert not (tmp_path / "store").exists()
    assert resolved.expected_bytes is None
    provided = kit.toolchains.provide(resolved)
    assert (provided.framework, provided.toolkit) == (resolved.framework, resolved.toolkit)


def test_cpu_toolchain_compiles_and_links(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    kit = tools(server, tmp_path / "cache", host)
    sdk = kit.toolchains.provide(kit.toolchains.resolve(CPU)).framework
    assert sdk.version == "2.13.0"
    source = tmp_path / "k.cpp"
    source.write_text("#include <torch/library.h>\nint use() { torch_cpu_7(1); return c10::value(); }\n")
    command = ["g++", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "k.so"), "-Wl,-z,defs"]
    command += [f"-I{folder}" for folder in sdk.include] + [f"-L{sdk.libraries}", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True)
    source.write_text("void missing(int);\nint use() { missing(1); return 0; }\n")
    failed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "missing(int)" in failed.stderr


def test_tables_hold_the_names_even_when_they_were_moved_to_the_end(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(server, tmp_path, host)
    sdk = kit.toolchains.provide(kit.toolchains.resolve(CPU)).framework
    tables = {path.name: path.read_text().splitlines() for path in sdk.exports}
    assert sorted(tables) == ["libc10.so.txt", "libtorch.so.txt", "libtorch_cpu.so.txt"]
    wanted = {f"_Z{len(f'torch_cpu_{i}')}torch_cpu_{i}i" for i in range(3000)}
    assert wanted <= set(tables["libtorch_cpu.so.txt"])
    assert all(names == sorted(names) for names in tables.values())


def test_cuda_toolchain_is_one_tree_with_a_compiler_that_runs(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(server, tmp_path, host)
    provided = kit.toolchains.provide(kit.toolchains.resolve(CUDA))
    sdk = provided.toolkit
    assert sdk is not None
    assert (
        "release 13.0" in subprocess.run([sdk.compiler, "--version"], check=True, capture_output=True, text=True).stdout
    )
    assert (sdk.include[0] / "nvidia-cublas.h").is_file()
    assert (sdk.libraries / "libcublas.so").is_file()
    assert all(table.is_file() for table in (*sdk.exports, *provided.framework.exports))
    (table,) = [path for path in provided.framework.exports if path.name == "libtorch_cuda.so.txt"]
    names = table.read_text(encoding="utf-8").split()
    assert {f"_Z{len(f'torch_cuda_{i}')}torch_cuda_{i}i" for i in range(50)} <= set(names)
    started = [event.what for event in kit.recorder.events if isinstance(event, FetchStarted)]
    finished = [event.what for event in kit.recorder.events if isinstance(event, FetchFinished)]
    assert sorted(started) == sorted(finished) == ["CUDA 13.0", "torch 2.13.0"]


def test_each_package_is_of_the_cuda_release_that_was_asked_for(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    chosen = versions(tools(server, tmp_path, host).toolchains.resolve(CUDA))
    assert chosen["nvidia-cuda-nvcc"] == "13.0.88"
    assert chosen["nvidia-cublas"] == "13.9.0.1"  # nothing pins it: the newest of its major


def test_the_meta_package_pins_what_belongs_together(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    def publish(version: str, *requirements: str) -> None:
        lines = "".join(f"Requires-Dist: {text} ; extra == 'all'\n" for text in requirements)
        metadata = f"Metadata-Version: 2.1\nName: cuda-toolkit\nVersion: {version}\n{lines}".encode()
        files = {f"cuda_toolkit-{version}.dist-info/METADATA": metadata}
        server.add(f"cuda_toolkit-{version}-py3-none-any.whl", make_wheel("cuda-toolkit", version, files))

    publish("13.0.1", "nvidia-cublas==13.1.0.3.*", "nvidia-cuda-nvcc==13.0.48.*", "nvidia-nvjitlink>=13.0.48,<14")
    publish("13.0.2", "nvidia-cublas==99.0.*")  # pins what the index lacks: passed over
    publish("13.2.0", "nvidia-cublas==13.9.0.1")
    chosen = versions(tools(server, tmp_path, host).toolchains.resolve(CUDA))
    assert chosen["nvidia-cublas"] == "13.1.0.3"
    assert chosen["nvidia-cuda-nvcc"] == "13.0.48"
    assert chosen["nvidia-nvjitlink"] == "13.0.88"


def test_it_is_known_before_how_much_is_fetched_of_each_file(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(server, tmp_path, host)
    resolved = kit.toolchains.resolve(CUDA)
    announced = kit.toolchains.weigh(resolved)
    sizes = {artefact.filename: artefact.size for artefact in resolved.artefacts}
    assert announced.keys() == sizes.keys()
    (torch,) = (name for name in announced if name.startswith("torch-"))
    assert 0 < announced[torch] < (sizes[torch] or 0) - 400_000  # what is not taken of it
    kit.toolchains.provide(resolved)
    totals = [event.total or 0 for event in kit.recorder.events if isinstance(event, FetchStarted)]
    assert 0 <= sum(totals) - sum(announced.values()) < 2 * sum(announced.values())  # and the wheels' directories
    later = tools(server, tmp_path, host).toolchains
    assert set(later.weigh(later.resolve(CUDA)).values()) == {0}


def test_the_second_time_nothing_is_asked_and_nothing_is_fetched(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    first = tools(server, tmp_path, host).toolchains
    provided = first.provide(first.resolve(CUDA))
    server.requests.clear()
    again = tools(server, tmp_path, host).toolchains
    begin = time.process_time()
    resolved = again.resolve(CUDA)
    assert resolved.expected_bytes == 0
    assert again.provide(resolved) == provided
    assert time.process_time() - begin < 1
    assert server.requests == []
    assert again.bytes_received == 0


def test_headers_are_shared_by_cpu_and_cuda(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    kit = tools(server, tmp_path, host).toolchains
    cpu = kit.provide(kit.resolve(CPU)).framework
    server.requests.clear()
    cuda = kit.provide(kit.resolve(CUDA)).framework
    assert (cpu.include, cpu.libraries) == (cuda.include, cuda.libraries)
    assert not any("torch" in path for path, _ in server.requests if "/files/" in path)


def test_an_unreachable_index_is_no_obstacle_when_everything_is_there(
    wheels: Wheels, server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(server, tmp_path, host)
    provided = kit.toolchains.provide(kit.toolchains.resolve(CPU))
    server.faults["torch"] = ["error*"]
    stale = tools(server, tmp_path, host, max_age=-1)
    assert stale.toolchains.provide(stale.toolchains.resolve(CPU)) == provided
    (notice,) = [event for event in stale.recorder.events if isinstance(event, Notice)]
    assert notice.warning
    assert "using what was chosen" in notice.message
    stale.store.discard(stale.toolchains.resolve(CPU).framework_key)
    with pytest.raises(NetworkError):
        stale.toolchains.resolve(CPU)


def test_a_newer_patch_release_is_taken_once_the_kept_choice_is_old(
    wheels: Wheels, server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    kit = tools(server, tmp_path, host).toolchains
    kit.provide(kit.resolve(CPU))
    server.add(f"torch-2.13.1-cp312-cp312-{TAG}.whl", wheels.torch.replace(b"torch-2.13.0.dist", b"torch-2.13.1.dist"))
    assert kit.resolve(CPU).framework.version == "2.13.0"
    assert tools(server, tmp_path, host, max_age=-1).toolchains.resolve(CPU).framework.version == "2.13.1"


def test_a_kept_choice_names_no_host(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    kit = tools(server, tmp_path, host).toolchains
    kit.provide(kit.resolve(CUDA))
    texts = [path.read_text() for path in tmp_path.rglob("*.json")]
    assert len(texts) >= 3
    assert not any("127.0.0.1" in text or "http" in text for text in texts)


def test_a_cuda_version_whose_wheels_hold_no_compiler_is_refused_with_the_reason(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    request = ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=cuda("12.4"))
    with pytest.raises(ToolchainError, match=r"no source has CUDA 12\.4") as caught:
        tools(server, tmp_path, host).toolchains.resolve(request)
    assert "the wheels of CUDA 12 contain only ptxas" in caught.value.message
    with pytest.raises(ToolchainError, match=r"CUDA 10\.2 is not known") as caught:
        tools(server, tmp_path, host).toolchains.resolve(replace(request, toolkit=cuda("10.2")))
    assert caught.value.hint == "known CUDA majors: 11, 12, 13"


def test_an_unknown_torch_is_refused_with_what_there_is(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    with pytest.raises(ToolchainError, match=r"no source has torch 2\.99") as caught:
        tools(server, tmp_path, host).toolchains.resolve(ToolchainRequest(release="2.99", machine=Machine.X86_64))
    assert "index: torch ==2.99.*: newest versions available: 2.13.0" in caught.value.message


def test_a_torch_without_cuda_libraries_serves_cpu_alone(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    files = {
        "torch/include/a.h": b"",
        **{
            f"torch/lib/{name}": library(tmp_path, name, "void f() {}")
            for name in ("libc10.so", "libtorch.so", "libtorch_cpu.so")
        },
    }
    server.pages["torch"] = {f"torch-2.13.0-cp312-cp312-{TAG}.whl": make_wheel("torch", "2.13.0", files)}
    kit = tools(server, tmp_path / "cache", host).toolchains
    assert kit.provide(kit.resolve(CPU)).framework.version == "2.13.0"
    with pytest.raises(ToolchainError, match="torch without CUDA"):
        kit.provide(kit.resolve(CUDA))


def test_a_compiler_that_does_not_run_leaves_nothing(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    name = f"nvidia_cuda_nvcc-13.0.88-py3-none-{TAG}.whl"
    files = {"nvidia/cu13/bin/nvcc": b"#!/bin/sh\nexit 3\n", "nvidia/cu13/bin/nvcc.profile": b""}
    server.add(name, make_wheel("nvidia-cuda-nvcc", "13.0.88", files, executable=("nvidia/cu13/bin/nvcc",)))
    kit = tools(server, tmp_path, host)
    with pytest.raises(ToolchainError, match="does not run on this machine"):
        kit.toolchains.provide(kit.toolchains.resolve(CUDA))
    assert not [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith(("cuda", "."))]


@pytest.mark.parametrize("fault", ["reset*", "forbidden*"])
def test_one_failing_wheel_of_many_ends_them_all_and_the_store_stays_sound(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler, fault: str
) -> None:
    name = next(name for name in server.pages["nvidia-cufft"] if "12.5.0" in name)
    server.faults[name] = [fault]
    kit = tools(server, tmp_path, host)
    with pytest.raises(NetworkError, match="nvidia_cufft"):
        kit.toolchains.provide(kit.toolchains.resolve(CUDA))
    assert not [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith(("cuda", "."))]
    server.faults.clear()
    resolved = kit.toolchains.resolve(CUDA)
    kit.toolchains.provide(resolved)
    assert resolved.toolkit_key is not None
    for key in (resolved.framework_key, resolved.framework_stubs_key, resolved.toolkit_key):
        assert kit.store.verify(key) == []


def test_a_wheel_that_lies_in_record_is_refused(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    name = f"nvidia_nvtx-13.0.88-py3-none-{TAG}.whl"
    header = "nvidia/cu13/include/nvidia-nvtx.h"
    server.add(name, make_wheel("nvidia-nvtx", "13.0.88", {header: b"int x;"}, lie_about=header))
    kit = tools(server, tmp_path, host)
    with pytest.raises(IntegrityError, match="cannot be trusted"):
        kit.toolchains.provide(kit.toolchains.resolve(CUDA))


def test_an_index_without_ranges_serves_with_a_warning_and_leaves_no_downloads(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    server.ranges = False
    kit = tools(server, tmp_path, host)
    kit.toolchains.provide(kit.toolchains.resolve(CPU))
    assert any(isinstance(event, Notice) and event.warning for event in kit.recorder.events)
    assert not list(tmp_path.rglob("*.whl"))


_CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
import os
from pathlib import Path
from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.settings import IndexSettings
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import HostCompilers, inspect_compiler
from kernel_builder.toolchain.model import Toolkit
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.settings import ToolchainSettings
from kernel_builder.toolchain.sources import open_sources
from kernel_builder.variants.names import Machine
index = SimpleIndex(IndexSettings(url=sys.argv[1], origin="test"), Silent())
store = Store(Path(sys.argv[2]))
given = {"environ": {}, "indexes": {"index": index}}
sources = open_sources(ToolchainSettings(order=("index",)), store, Silent(), toolkit_kinds(), **given)
hosts = HostCompilers(found=(inspect_compiler(Path("/usr/bin/g++"), os.environ),), environ=os.environ)
kit = Toolchains(sources, store, hosts, Silent(), toolkit_kinds())
toolkit = Toolkit(backend=Backend("cuda"), version="13.0")
resolved = kit.resolve(ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=toolkit))
print("resolved", flush=True)
kit.provide(resolved)
print(kit.bytes_received, flush=True)
"""


def child(server: LoopbackIndex, root: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, server.url, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )


def wait_for_request(server: LoopbackIndex, name: str) -> None:
    deadline = time.monotonic() + 20
    while not any(name in path for path, _ in server.requests):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_ends_the_downloads_soon_and_leaves_nothing_unfinished(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    name = next(name for name in server.pages["nvidia-cufft"] if "12.5.0" in name)
    server.faults[name] = ["slow*"]
    process = child(server, tmp_path)
    wait_for_request(server, name)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert time.monotonic() - begin < 10
    assert not [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith(("cuda", "."))]


def test_two_processes_fetch_once(server: LoopbackIndex, tmp_path: Path, host: HostCompiler) -> None:
    both = [child(server, tmp_path), child(server, tmp_path)]
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    fetched = [path for path, _ in server.requests if "/files/nvidia" in path]
    assert len(fetched) == len({part.project for part in parts()})  # each of these small wheels takes one request
    assert len(set(fetched)) == len(fetched)


def test_when_one_of_two_fetching_processes_is_killed_the_other_finishes(
    server: LoopbackIndex, tmp_path: Path, host: HostCompiler
) -> None:
    name = next(name for name in server.pages["nvidia-cufft"] if "12.5.0" in name)
    server.faults[name] = ["slow*"]
    first = child(server, tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "resolved\n"
    wait_for_request(server, name)
    second = child(server, tmp_path)
    first.kill()
    first.wait()
    first.stdout.close()
    second.communicate(timeout=120)
    assert second.returncode == 0
    kit = tools(server, tmp_path, host)
    resolved = kit.toolchains.resolve(CUDA)
    assert resolved.expected_bytes == 0
    assert resolved.toolkit_key is not None
    assert kit.store.verify(resolved.toolkit_key) == []
    assert not [path.name for path in (tmp_path / "store").iterdir() if path.name.startswith(".")]
