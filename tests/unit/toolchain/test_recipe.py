"""The table of parts: names by source and CUDA major, and bounds by release."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.recipe import Component, bound_for, default_recipe, parse_recipe

CUDA = default_recipe().toolkits[Backend("cuda")]


def components(cuda: str) -> dict[str, Component]:
    return {component.name: component for component in CUDA.components(cuda)}


def sonames(cuda: str) -> set[str]:
    return {library.soname for component in components(cuda).values() for library in component.libraries}


def test_sonames_are_those_of_the_libraries_that_nvidia_publishes() -> None:
    assert sonames("11.8") == {
        "libcudart.so.11.0",
        "libnvrtc.so.11.2",
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcusparse.so.11",
        "libcusolver.so.11",
        "libcufft.so.10",
        "libcurand.so.10",
    }
    assert {"libcusparse.so.12", "libcusolver.so.11", "libcufft.so.11", "libcublas.so.12"} <= sonames("12.4")
    assert {"libcusparse.so.12", "libcusolver.so.12", "libcufft.so.12", "libcublas.so.13"} <= sonames("13.2")


def test_wheels_are_named_and_laid_out_by_major() -> None:
    old, new = components("12.4")["cublas"].wheel, components("13.0")["cublas"].wheel
    assert old is not None
    assert new is not None
    assert (old.project, old.root) == ("nvidia-cublas-cu12", "nvidia/cublas/")
    assert old.libraries[0].member == "nvidia/cublas/lib/libcublas.so.12"
    assert (new.project, new.root) == ("nvidia-cublas", "nvidia/cu13/")


def test_before_cuda_13_no_wheel_holds_the_compiler_and_the_reason_is_there() -> None:
    for cuda in ("11.8", "12.9"):
        for name in ("nvcc", "nvvm"):
            component = components(cuda)[name]
            assert component.wheel is None
            assert f"the wheels of CUDA {cuda.partition('.')[0]} contain" in component.lacking
            assert component.debian
            assert component.redistrib == "cuda_nvcc"
    assert components("13.0")["nvvm"].redistrib == "libnvvm"


def test_a_component_is_there_since_its_release() -> None:
    assert "nvjitlink" not in components("11.8")
    assert "nvjitlink" in components("12.0")


def test_an_unknown_major_is_refused() -> None:
    with pytest.raises(ToolchainError, match=r"CUDA 14\.0 is not known"):
        CUDA.components("14.0")


def test_a_bound_holds_from_its_release_to_the_next() -> None:
    bounds = CUDA.host_compilers
    found = [bound_for(bounds, cuda) for cuda in ("11.8", "12.3", "12.4", "12.6", "12.8", "13.0", "13.3", "13.5")]
    assert [bound.gcc for bound in found if bound] == [11, 12, 13, 13, 14, 15, 15, 16]
    assert [bound.clang for bound in found if bound] == [14, 16, 17, 18, 19, 20, 21, 22]
    assert bound_for(bounds, "10.2") is None


@pytest.mark.parametrize(
    ("newest", "releases"), [(None, ">=0.11"), (30, ">=0.11"), (21, ">=0.11,<0.17"), (16, ">=0.11,<0.12"), (15, None)]
)
def test_the_releases_of_zig_that_are_no_newer_clang(newest: int | None, releases: str | None) -> None:
    found = default_recipe().zig.releases(newest)
    assert found == (SpecifierSet(releases) if releases else None)


def test_headers_of_cpu_and_cuda_builds_serve_each_other_and_others_do_not() -> None:
    torch = default_recipe().torch
    assert all(torch.serves(flavour) for flavour in (None, "cpu", "cu118", "cu126", "cpu.cxx11.abi"))
    assert not any(torch.serves(flavour) for flavour in ("rocm6.2", "xpu"))
    assert all(torch.serves(flavour, Backend("cuda"), "13.0") for flavour in (None, "cpu", "cu126"))
    for own, backend, version in (("rocm7.2", "rocm", "7.2"), ("xpu", "xpu", "2026.0")):
        served = [
            f for f in (None, "cpu", "cu130", "rocm7.1", "rocm7.2", "xpu") if torch.serves(f, Backend(backend), version)
        ]
        assert served == [None, own]


def test_headers_for_rocm_are_made_of_those_of_a_build_for_cuda_alone() -> None:
    rocm = default_recipe().torch.of(Backend("rocm"))
    flavours = (None, "cpu", "cu130", "cu118", "rocm7.1", "xpu")
    assert [one for one in flavours if rocm.can_make("2.13", one)] == [None, "cu130", "cu118"]
    assert not any(rocm.can_make("2.10", one) for one in flavours)
    assert not any(default_recipe().torch.can_make("2.13", one) for one in flavours)


TABLE = """
recipe = 1
[zig]
project = "ziglang"
include = ["zig"]
release = [{{ since = "0.11", clang = 16 }}]
[cxx-libraries]
packages = ["libstdc++-{{gcc}}-dev"]
suites = {{ bookworm = 12 }}
[torch]
project = "torch"
include = ["a"]
strip = ""
include-directories = []
flavours = []
[[torch.host-compiler]]
since = "2.0"
gcc = {minimum}
clang = 13
[cuda]
release = "cuda-toolkit"
include-directories = ["{folder}"]
"""


def test_the_digest_follows_what_is_taken_and_not_the_bounds() -> None:
    plain = parse_recipe(TABLE.format(minimum=9, folder="include"))
    bound = parse_recipe(TABLE.format(minimum=10, folder="include"))
    other = parse_recipe(TABLE.format(minimum=9, folder="headers"))
    assert (plain.torch.digest, plain.toolkits[Backend("cuda")].digest) == (
        bound.torch.digest,
        bound.toolkits[Backend("cuda")].digest,
    )
    assert plain.torch.digest == other.torch.digest
    assert plain.toolkits[Backend("cuda")].digest != other.toolkits[Backend("cuda")].digest
