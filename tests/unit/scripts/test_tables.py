"""The scripts that write and check the tables: how they read headers and requirements of wheels."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT
from kernel_builder.versions import Version


def script(name: str) -> ModuleType:
    path: Path = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


HEADER = """\
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
AOTI_TORCH_EXPORT AOTITorchError old_one(int x);
// AOTI_TORCH_EXPORT void in_a_comment(void);
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0
AOTI_TORCH_EXPORT AOTITorchError
on_two_lines(
    void (*callback)(int),
    int y);
typedef void (*NotAFunction)(int);
#ifdef USE_CUDA
AOTI_TORCH_EXPORT AOTITorchError nested(void);
#endif
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_12_0
AOTI_TORCH_EXPORT int newest();
#endif
#else
AOTI_TORCH_EXPORT int replaced();
#endif
int local(int x);
"""


def test_declarations_are_read_with_their_version_guards() -> None:
    v210, v212 = Version.parse("2.10"), Version.parse("2.12")
    assert script("generate_stable_abi").declared(HEADER) == {
        "old_one": None,
        "on_two_lines": v210,
        "nested": v210,
        "newest": v212,
        "replaced": None,
    }


@pytest.mark.parametrize(
    ("requirement", "platform", "expected"),
    [
        ('nvidia-cuda-runtime-cu12==12.4.127; platform_system == "Linux"', "x86_64-linux", "cu124"),
        ('nvidia-cuda-runtime-cu12==12.4.127; platform_machine == "x86_64"', "aarch64-linux", "cpu"),
        ('cuda-toolkit[nvcc,cudart]==13.0.2; platform_system == "Linux"', "aarch64-linux", "cu130"),
        ("nvidia-cudnn-cu13==9.1", "x86_64-linux", "cpu"),
    ],
)
def test_the_toolkit_of_a_wheel_is_read_from_its_requirements(requirement: str, platform: str, expected: str) -> None:
    lines = ["Metadata-Version: 2.1", "Name: torch", "Version: 2.6.0", "Requires-Dist: filelock"]
    metadata = "\n".join([*lines, f"Requires-Dist: {requirement}", ""])
    assert script("check_support").flavour(metadata.encode(), platform) == expected


def test_the_table_of_wheels_is_complete() -> None:
    """What check_support compares is there for every release; whether it is right, only the index can say."""
    document = tomllib.loads(script("check_support").TABLE.read_text(encoding="utf-8"))
    for release in document["torch"]:
        assert release["wheels"]["version"].startswith(f"{release['version']}.")
        assert {"x86_64-linux", "aarch64-linux", "aarch64-darwin"} <= set(release["wheels"])
