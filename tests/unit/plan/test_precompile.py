"""Which sources are compiled with precompiled headers, and what their command says."""

from __future__ import annotations

import pytest

from kernel_builder.actions.precompile import UNMENTIONED, groups_worth_it, shared_definitions
from kernel_builder.actions.units import CXX, C, Unit
from kernel_builder.toolchain.model import Family

ALL = ("torch/all.h",)


def groups(*found: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    return tuple(map(frozenset, found))


def unit(source: str, *flags: str, language: str = CXX) -> Unit:
    return Unit(
        source=source, language=language, include=(), cxx_flags=flags, flags=(), architectures=(), sections=("s",)
    )


def test_gcc_needs_three_that_share_headers_and_flags_and_clang_one() -> None:
    units = [unit("a.cpp"), unit("b.cpp"), unit("c.cpp"), unit("d.cpp", "-mavx2"), unit("e.cpp"), unit("f.cpp")]
    first = {**dict.fromkeys(("a.cpp", "b.cpp", "c.cpp", "d.cpp"), ALL), "e.cpp": ("torch/library.h",), "f.cpp": ()}
    assert groups_worth_it(units, first, Family.GCC) == groups(("a.cpp", "b.cpp", "c.cpp"))
    assert groups_worth_it(units[1:], first, Family.GCC) == ()
    assert groups_worth_it(units, first, Family.CLANG) == groups(("a.cpp", "b.cpp", "c.cpp"), ("d.cpp",), ("e.cpp",))


def test_two_are_enough_with_slim_headers_and_share_none_with_those_that_have_all() -> None:
    units = [unit("a.cpp"), unit("b.cpp"), unit("c.cpp"), unit("d.cpp")]
    first = dict.fromkeys(("a.cpp", "b.cpp", "c.cpp", "d.cpp"), ALL)
    assert groups_worth_it(units, first, Family.GCC, ("a.cpp", "b.cpp")) == groups(("a.cpp", "b.cpp"))
    assert groups_worth_it(units, first, Family.GCC, ("a.cpp",)) == groups(("b.cpp", "c.cpp", "d.cpp"))


@pytest.mark.parametrize(
    "flag", ["-include", "-Iown", "-isystem", "-g", "-ggdb3", "-save-temps", "@file", "-Wp,-DX", "--sysroot=/x"]
)
def test_flags_that_change_what_comes_first_or_what_comes_out_forbid_it(flag: str) -> None:
    assert groups_worth_it([unit("a.cpp", flag)], {"a.cpp": ALL}, Family.CLANG) == ()


@pytest.mark.parametrize("flag", ["-mavx2", "-O0", "-fopenmp-simd", "-DX=1", "-Wall", "-std=c++20"])
def test_other_flags_are_part_of_what_is_precompiled(flag: str) -> None:
    assert groups_worth_it([unit("a.cpp", flag)], {"a.cpp": ALL}, Family.CLANG) == groups(("a.cpp",))


def test_c_has_no_part_in_it() -> None:
    assert groups_worth_it([unit("a.c", language=C)], {"a.c": ALL}, Family.CLANG) == ()


def test_what_tells_kernels_apart_is_not_in_the_headers() -> None:
    assert {"TORCH_EXTENSION_NAME", "CPU_KERNEL", "CUDA_KERNEL"} <= set(UNMENTIONED)
    given = ["-DTORCH_EXTENSION_NAME=_a_cpu_1", "-DCPU_KERNEL", "-DUSE_CUDA=1", "-D_GLIBCXX_USE_CXX11_ABI=1"]
    assert shared_definitions(given) == given[2:]
