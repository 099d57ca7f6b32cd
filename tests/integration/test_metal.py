"""Kernels for macOS from build.toml to a variant, with compilers that judge their command lines as Apple's would."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_index import make_wheel

from conftest import ProjectMaker, Result, Tool
from kernel_builder.binary.macho import read_macho
from kernel_builder.binary.metallib import metal_libraries

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("metal")]

NAME, CPU = "torch213-metal-aarch64-darwin", "torch213-cpu-aarch64-darwin"
STAND_IN = Path(__file__).parent.parent / "projects" / "xcode"
TOML = """\
[general]
name = "shaded-thing"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "metal"]

[torch]
src = ["torch-ext/binding.cpp"]

[kernel.host]
backend = "cpu"
depends = []
src = ["host.cpp"]

[kernel.device]
backend = "metal"
depends = []
src = ["device.mm", "device.metal", "shared.h"]
"""
FILES = {
    "torch-ext/binding.cpp": "int binding() { return 1; }\n",
    "host.cpp": "int host() { return 1; }\n",
    "device.mm": "#import <Metal/Metal.h>\n#include EMBEDDED_METALLIB_HEADER\n",
    "device.metal": '#include "shared.h"\nkernel void twice(device float *x [[buffer(0)]]) { x[0] *= FACTOR; }\n',
    "shared.h": "#define FACTOR 2\n",
    "torch-ext/shaded_thing/__init__.py": "from ._ops import ops\n\n__all__ = []\n",
}


@dataclass(frozen=True)
class Mac:
    """A Mac, as far as the command can see."""

    tool: Tool
    xcode: Path
    environ: dict[str, str]

    def build(self, root: Path, *more: str) -> Result:
        return self.tool("build", root, "--json", "--no-load", *more, env=self.environ)

    def calls(self) -> list[list[str]]:
        """What was made so far, by which command."""
        lines = (self.xcode / "record.jsonl").read_text(encoding="utf-8").splitlines()
        return [call for call in map(json.loads, lines) if "-o" in call]


@pytest.fixture
def mac(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    files = {"torch/version.py": b"__version__ = '2.13.0'\n", "torch/include/torch/library.h": b"#pragma once\n"}
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / "torch-2.13.0-cp312-none-macosx_14_0_arm64.whl"
    wheel.write_bytes(make_wheel("torch", "2.13.0", files))
    (tmp_path / "user.toml").write_text('sources = ["mine"]\n[[index]]\nname = "mine"\npath = "wheels"\n')
    shutil.copytree(STAND_IN, tmp_path / "Xcode")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    environ = {
        "KERNEL_BUILDER_CACHE": str(tmp_path / "store"),
        "KERNEL_BUILDER_CONFIG": str(tmp_path / "user.toml"),
        "PATH": f"{tmp_path / 'Xcode' / 'bin'}:{os.environ['PATH']}",
    }
    return Mac(tool=tool, xcode=tmp_path / "Xcode", environ=environ)


def test_shaders_and_objective_cxx_become_one_library(mac: Mac, make_project: ProjectMaker) -> None:
    root = make_project("shaded-thing", FILES, toml=TOML)
    built = mac.build(root, "--variant", NAME)
    assert built.code == 0, built.stderr
    (path,) = (root / "build" / NAME).glob("*.abi3.so")
    (part,) = read_macho(path.read_bytes())
    assert (part.machine, part.minimum_macos) == ("aarch64", (26, 0, 0))
    assert [(shaders.system, shaders.minimum, shaders.whole) for shaders in metal_libraries(path.read_bytes())] == [
        ("macOS", (26, 0, 0), True)
    ]
    assert part.exports == (f"PyInit_{path.name.partition('.')[0]}",)
    assert json.loads((root / "build" / NAME / "metadata.json").read_text(encoding="utf-8"))["backend"] == {
        "type": "metal"
    }
    assert sorted({call[0] for call in mac.calls()}) == ["clang++", "metal", "metallib"]

    ran = len(mac.calls())
    assert mac.build(root, "--variant", NAME).code == 0
    assert len(mac.calls()) == ran
    (root / "shared.h").write_text("#define FACTOR 3\n", encoding="ascii")
    again = mac.build(root, "--variant", NAME)
    assert again.code == 0, again.stderr
    assert {call[0] for call in mac.calls()[ran:]} >= {"metal", "metallib"}


def test_a_kernel_for_the_processor_runs_on_macos_15(mac: Mac, make_project: ProjectMaker) -> None:
    root = make_project("shaded-thing", FILES, toml=TOML)
    for name in ("metal", "metallib"):
        (mac.xcode / "bin" / name).unlink()
    built = mac.build(root, "--variant", CPU)
    assert built.code == 0, built.stderr
    (path,) = (root / "build" / CPU).glob("*.abi3.so")
    assert read_macho(path.read_bytes())[0].minimum_macos == (15, 0, 0)

    refused = mac.build(root, "--variant", NAME)
    assert refused.code == 4
    assert "xcrun finds no metal" in refused.stderr
    assert "xcodebuild -downloadComponent MetalToolchain" in refused.stderr


def test_what_is_missing_or_wrong_is_named(mac: Mac, make_project: ProjectMaker) -> None:
    root = make_project("shaded-thing", {**FILES, "device.mm": "@implementation\n"}, toml=TOML)
    (root / "build.toml").write_text(TOML.replace("device.mm", "device.cpp"), encoding="utf-8")
    (root / "device.mm").rename(root / "device.cpp")
    failed = mac.build(root, "--variant", NAME)
    assert failed.code == 1
    assert "expected unqualified-id" in failed.stderr

    linux = mac.build(root, "--variant", "torch213-cxx11-cpu-x86_64-linux")
    assert linux.code == 4
    assert "compiles only for macOS, not for linux, on this machine" in linux.stderr

    (mac.xcode / "bin" / "xcrun").unlink()
    refused = mac.build(root, "--variant", CPU)
    assert refused.code == 4
    assert "there is no xcrun on PATH" in refused.stderr


def test_linux_refuses_it_by_name(tool: Tool, make_project: ProjectMaker) -> None:
    root = make_project("shaded-thing", FILES, toml=TOML)
    refused = tool("build", root, "--variant", NAME)
    assert refused.code == 4
    assert "compiles only for Linux, not for darwin, on this machine: run it on a Mac with Xcode" in refused.stderr
