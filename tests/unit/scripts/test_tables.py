"""The scripts that write and check the tables: how they read headers and requirements of wheels."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import tomlkit
from packaging.version import Version as Release

from conftest import ROOT
from kernel_builder.store.index import IndexFile
from kernel_builder.variants.support import load_support, parse_support
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


def test_every_wheel_of_the_table_has_its_row() -> None:
    document = tomllib.loads(script("check_support").TABLE.read_text(encoding="utf-8"))
    names = {row.name for row in load_support().rows}
    for release in document["torch"]:
        digits = release["version"].replace(".", "")
        for platform in ("x86_64-linux", "aarch64-linux", "aarch64-darwin"):
            assert f"torch{digits}-{release['wheels'][platform]}-{platform}" in names


def test_a_release_that_is_new_to_the_table_gets_the_builds_of_the_index() -> None:
    checker = script("check_support")
    document = tomlkit.parse(checker.TABLE.read_text(encoding="utf-8"))
    platforms = {
        "x86_64-linux": "cxx11-cu133",
        "aarch64-linux": "cxx11-cu133",
        "aarch64-darwin": "cpu",
        "x86_64-windows": "cpu",
    }
    facts = checker.Facts(version="9.9.1", platforms=platforms, cxx_standard=20, python="3.10")
    document["torch"].append(checker.new_release("9.9", facts))
    text = tomlkit.dumps(document)
    assert text.startswith("# Which builds of torch exist")
    before, after = (parse_support(some) for some in (checker.TABLE.read_text(encoding="utf-8"), text))
    assert after.architecture_defaults == before.architecture_defaults
    assert [(row.name, row.cxx_standard, row.required) for row in after.rows if row not in before.rows] == [
        ("torch99-cpu-aarch64-darwin", 20, False),
        ("torch99-cxx11-cpu-aarch64-linux", 20, False),
        ("torch99-cxx11-cpu-x86_64-linux", 20, False),
        ("torch99-cxx11-cu133-aarch64-linux", 20, False),
        ("torch99-cxx11-cu133-x86_64-linux", 20, False),
        ("torch99-metal-aarch64-darwin", 20, False),
    ]
    assert checker.differences(document["torch"][-1], facts, write=False) == []


def test_releases_that_the_table_lacks_are_found_the_oldest_first() -> None:
    names = ("2.9.0", "2.15.1", "2.16.0", "2.16.1", "2.100.0", "3.0.0rc1")
    files = tuple(
        IndexFile(project="torch", version=Release(name), filename=f"torch-{name}.whl", tags=frozenset(), url="")
        for name in names
    )
    assert script("check_support").missing_releases({"2.9", "2.15"}, files) == ["2.16", "2.100"]
