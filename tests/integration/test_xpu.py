"""SYCL kernels from build.toml to a variant, with a compiler that judges its command line as Intel's would."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_index import make_wheel

from conftest import ProjectMaker, Tool
from kernel_builder.binary.elf import read_elf
from published import make_deb, make_tar, serve_folder
from signing import new_signer, publish_packages

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("xpu")]

NAME = "torch213-cxx11-xpu20260-x86_64-linux"
STAND_IN = Path(__file__).parent.parent / "projects" / "oneapi"
TOML = """\
[general]
name = "sycl-thing"
version = 1
edition = 5
license = "MIT"
backends = ["xpu"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.device]
backend = "xpu"
depends = []
src = ["device.cpp", "device.h"]
sycl-flags = ["-DSCALE=3"]
"""
FILES = {
    "torch-ext/binding.cpp": '#include "../device.h"\nextern "C" int tripled(int x) { return scaled(x); }\n',
    "device.h": "int scaled(int x);\n",
    "device.cpp": '#include <sycl/sycl.hpp>\n#include "device.h"\n\nint scaled(int x) {\n  int y = 0;\n'
    "  sycl::queue queue;\n"
    "  queue.parallel_for(sycl::range<1>{1}, [&](sycl::id<1> at) { y = SCALE * x + int(at[0]); });\n  return y;\n}\n",
    "torch-ext/sycl_thing/__init__.py": "from ._ops import ops\n",
}
C10 = "#include <string>\nnamespace c10 { struct Error { Error(std::string); }; Error::Error(std::string) {} }\n"


def library(folder: Path, soname: str, text: str) -> bytes:
    """A real shared object."""
    source, made = folder / f"{soname}.cpp", folder / soname
    source.write_text(text, encoding="ascii")
    subprocess.run(["g++", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", made, source], check=True)
    return made.read_bytes()


@dataclass(frozen=True)
class Machine:
    """A machine with an index of torch for XPU, and a compiler in ``oneapi`` where a test puts it."""

    root: Path
    environ: dict[str, str]

    @property
    def oneapi(self) -> Path:
        return self.root / "oneapi"

    def install(self, version: str, libraries: Mapping[str, bytes]) -> Path:
        """A compiler of that version, as Intel's installer lays it out."""
        home = self.oneapi / "compiler" / version.rpartition(".")[0]
        for path, data in toolkit_files(version, libraries).items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(data)
        (home / "bin" / "icpx").chmod(0o755)
        return home

    def settings(self, text: str) -> None:
        (self.root / "user.toml").write_text(text, encoding="utf-8")


def toolkit_files(version: str, libraries: Mapping[str, bytes]) -> dict[str, bytes]:
    files = {path.relative_to(STAND_IN).as_posix(): path.read_bytes() for path in STAND_IN.rglob("*") if path.is_file()}
    return {**files, "bin/VERSION": version.encode(), **{f"lib/{name}": data for name, data in libraries.items()}}


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("runtime")
    return {
        name: library(folder, name, 'extern "C" void __sycl_register_lib(void *) {}\n')
        for name in ("libsycl.so.8", "libsycl.so.9")
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("torch")
    names = ("libtorch.so", "libtorch_cpu.so", "libc10_xpu.so", "libtorch_xpu.so")
    files = {
        "torch/version.py": b"__version__ = '2.13.0+xpu'\n",
        "torch/include/torch/library.h": b"#pragma once\n",
        "torch/lib/libc10.so": library(folder, "libc10.so", C10),
        **{f"torch/lib/{name}": library(folder, name, f"void of_{name[:-3]}() {{}}\n") for name in names},
    }
    return make_wheel("torch", "2.13.0+xpu", files)


@pytest.fixture
def machine(tmp_path: Path, wheel: bytes) -> Machine:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "torch-2.13.0+xpu-cp312-cp312-linux_x86_64.whl").write_bytes(wheel)
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "ocloc").write_text("#!/bin/sh\n", encoding="ascii")
    (driver / "ocloc").chmod(0o755)
    environ = {
        "KERNEL_BUILDER_CACHE": str(tmp_path / "store"),
        "KERNEL_BUILDER_CONFIG": str(tmp_path / "user.toml"),
        "ONEAPI_ROOT": str(tmp_path / "oneapi"),
        "PATH": f"{driver}:{os.environ['PATH']}",
    }
    made = Machine(root=tmp_path, environ=environ)
    made.settings('sources = ["xpu", "local"]\n[[index]]\nname = "xpu"\npath = "wheels"\n')
    return made


def calls(home: Path) -> list[list[str]]:
    return [json.loads(line) for line in (home / "record.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_kernel_is_compiled_with_the_compiler_of_this_machine(
    tool: Tool, make_project: ProjectMaker, machine: Machine, runtime: dict[str, bytes]
) -> None:
    home = machine.install("2026.0.1", runtime)
    machine.install("2025.1.0", runtime)
    root = make_project("sycl-thing", FILES, toml=TOML)
    built = tool.apart("build", root, "--variant", NAME, "--json", env=machine.environ)
    assert built.code == 0, built.stderr
    (path,) = (root / "build" / NAME).glob("*.abi3.so")
    needed = read_elf(path.read_bytes()).needed
    assert "libsycl.so.9" in needed
    text, compiled, linked = calls(home)
    assert "-E" in text  # to look whether it was compiled before
    assert "-fsycl-link" in linked
    assert compiled[compiled.index("-c") + 1].endswith("device.cpp")
    metadata = json.loads((root / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "xpu"}

    other = make_project("sycl-thing", FILES, toml=TOML, directory="else where")
    elsewhere = tool.apart("build", other, "--variant", NAME, "--no-cache", env=machine.environ)
    assert elsewhere.code == 0, elsewhere.stderr
    assert len(calls(home)) == 5
    folders = (root / "build" / NAME, other / "build" / NAME)
    one, two = ({file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()} for folder in folders)
    assert one == two

    again = tool.apart("build", root, "--variant", NAME, "--json", env=machine.environ)
    assert again.variant(NAME)["status"] == "unchanged"
    assert len(calls(home)) == 5
    (root / "device.h").write_text("int scaled(int x);\nint unused(int x);\n", encoding="ascii")
    again = tool.apart("build", root, "--variant", NAME, "--json", env=machine.environ)
    assert again.code == 0, again.stderr
    assert sorted(again.compiled(NAME)) == ["device.cpp", "torch-ext/binding.cpp"]


def test_what_the_compiler_does_not_know_is_told_in_its_words(
    tool: Tool, make_project: ProjectMaker, machine: Machine, runtime: dict[str, bytes]
) -> None:
    machine.install("2026.0.1", runtime)
    root = make_project("sycl-thing", FILES, toml=TOML.replace("-DSCALE=3", "-fno-gnu-unique"))
    failed = tool.apart("build", root, "--variant", NAME, env=machine.environ)
    assert failed.code == 1
    assert "device.cpp does not compile" in failed.stderr
    assert "icpx: error: unknown argument: '-fno-gnu-unique'" in failed.stderr


def test_what_is_missing_is_named(
    tool: Tool, make_project: ProjectMaker, machine: Machine, runtime: dict[str, bytes]
) -> None:
    home = machine.install("2025.3.2", runtime)
    root = make_project("sycl-thing", FILES, toml=TOML)
    refused = tool.apart("build", root, "--variant", NAME, env=machine.environ)
    assert refused.code == 4
    assert "no source has the dpcpp" in refused.stderr
    assert f"{home} is oneAPI 2025.3.2" in " ".join(refused.stderr.split())
    assert "Intel's apt repository" in " ".join(refused.stderr.split())

    machine.install("2026.0.1", runtime)
    bare = {**machine.environ, "PATH": machine.environ["PATH"].partition(":")[2]}
    refused = tool.apart("build", root, "--variant", NAME, env=bare)
    assert refused.code == 4
    assert "the ocloc of XPU 2026.0" in refused.stderr
    assert "apt-get install intel-ocloc" in " ".join(refused.stderr.split())

    machine.settings('sources = ["index", "local"]\n')
    refused = tool.apart("build", root, "--variant", NAME, env=machine.environ)
    assert refused.code == 4
    assert "build of torch without XPU" in " ".join(refused.stderr.split())


@pytest.mark.skipif(shutil.which("gpg") is None or shutil.which("gpgv") is None, reason="needs gpg and gpgv")
def test_the_compiler_comes_out_of_intels_packages(
    tool: Tool, make_project: ProjectMaker, machine: Machine, runtime: dict[str, bytes]
) -> None:
    files = toolkit_files("2026.0.1", runtime)
    prefix = "./opt/intel/oneapi/compiler/2026.0"
    compiler = {f"{prefix}/{path}": data for path, data in files.items() if not path.startswith("lib/")}
    compiler["./opt/intel/oneapi/compiler/2026.0/share/doc/words"] = b"not taken"
    contents = {
        "dpcpp-cpp": compiler,
        "dpcpp-cpp-common": {f"{prefix}/lib/common": b""},
        "shared": {f"{prefix}/lib/shared": b""},
        "shared-common": {"./usr/share/doc/shared": b"words"},
        "shared-runtime": {f"{prefix}/lib/runtime": b""},
        "dpcpp-cpp-runtime": {f"{prefix}/{path}": data for path, data in files.items() if path.startswith("lib/")},
    }
    packages = {
        f"intel-oneapi-compiler-{name}-2026.0": (
            "2026.0.1-77",
            make_deb(lzma.compress(make_tar(members, executable=[f"{prefix}/bin/icpx"]))),
        )
        for name, members in contents.items()
    }
    with new_signer() as signer:
        publish_packages(machine.root / "mirror", signer, packages)
        shutil.copyfile(signer.keyring, machine.root / "keys.gpg")
    root = make_project("sycl-thing", FILES, toml=TOML)
    with serve_folder(machine.root / "mirror") as site:
        machine.settings(
            'sources = ["xpu", "intel", "local"]\n[[index]]\nname = "xpu"\npath = "wheels"\n'
            f'[[repository]]\nname = "intel"\nurl = "{site.url}"\nsuite = "all"\nkeyring = "keys.gpg"\n'
        )
        built = tool.apart("build", root, "--variant", NAME, "--json", env=machine.environ)
    assert built.code == 0, built.stderr
    (home,) = (machine.root / "store").glob("**/xpu-2026.0-*/bin/..")
    assert (home / "lib" / "shared").is_file()
    assert not (home / "share").exists()
    (path,) = (root / "build" / NAME).glob("*.abi3.so")
    assert "libsycl.so.9" in read_elf(path.read_bytes()).needed
