from __future__ import annotations

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import parse_capability
from kernel_builder.plan.units import SectionInput, Units, merge, raise_standard


def section(name: str, *src: str, **values: tuple[str, ...]) -> SectionInput:
    capabilities = tuple(parse_capability(text) for text in values.pop("caps", ()))
    return SectionInput(
        id=name,
        src=src,
        architectures=capabilities,
        include=values.pop("include", ()),
        cxx_flags=values.pop("cxx_flags", ()),
        flags=values.pop("flags", ()),
    )


def merged(backend: Backend, *sections: SectionInput) -> Units:
    return merge(backend, sections)


def test_what_a_section_says_reaches_its_own_files_only() -> None:
    units = merged(
        Backend("cuda"),
        section("torch", "bind.cpp", cxx_flags=("-DONLY_T",)),
        section("a", "a.cu", "a.h", flags=("-DONLY_A",), include=("inc/a",), caps=("8.0",)),
        section("b", "b.cu", "b.cpp", flags=("-DONLY_B",), cxx_flags=("-DHOST_B",), caps=("9.0a",)),
    ).units
    by_source = {unit.source: unit for unit in units}
    assert list(by_source) == ["bind.cpp", "a.cu", "b.cu", "b.cpp"]
    assert by_source["bind.cpp"].own_flags == ("-DONLY_T",)
    assert by_source["a.cu"].own_flags == ("-DONLY_A",)
    assert by_source["a.cu"].include == ("inc/a",)
    assert [str(c) for c in by_source["a.cu"].architectures] == ["8.0"]
    assert by_source["b.cpp"].own_flags == ("-DHOST_B",)
    assert by_source["b.cpp"].architectures == ()
    assert by_source["b.cu"].include == ()


def test_a_file_in_two_sections_is_compiled_once_with_the_union() -> None:
    units = merged(
        Backend("cuda"),
        section("x", "k.cu", flags=("-DX",), include=("one",), caps=("9.0a", "8.0")),
        section("y", "k.cu", flags=("-DY",), include=("two", "one"), caps=("10.0f", "8.0")),
    )
    (unit,) = units.units
    assert unit.flags == ("-DX", "-DY")
    assert unit.include == ("one", "two")
    assert [str(c) for c in unit.architectures] == ["9.0a", "8.0", "10.0f"]


def test_equal_flags_are_given_once() -> None:
    units = merged(Backend("cpu"), section("x", "k.cpp", cxx_flags=("-DX",)), section("y", "k.cpp", cxx_flags=("-DX",)))
    assert units.units[0].cxx_flags == ("-DX",)


def test_a_file_listed_twice_in_a_section_is_one_unit() -> None:
    (unit,) = merged(Backend("cpu"), section("x", "k.cpp", "./k.cpp", "sub/../k.cpp", cxx_flags=("-DX",))).units
    assert unit.cxx_flags == ("-DX",)


def test_a_cuda_file_in_another_backends_section_is_named() -> None:
    (problem,) = merged(Backend("cpu"), section("[torch]", "a.cu")).misplaced
    assert problem == "a.cu (in [torch]) is a CUDA source"


@pytest.mark.parametrize(
    ("flags", "minimum", "expected", "replaced"),
    [
        (("-O3", "-std=c++17"), 20, ("-O3", "-std=c++20"), ("-std=c++17",)),
        (("-std=gnu++14",), 17, ("-std=gnu++17",), ("-std=gnu++14",)),
        (("--std=c++17",), 20, ("-std=c++20",), ("--std=c++17",)),
        (("-std", "c++17", "-g"), 20, ("-std", "c++20", "-g"), ("-std c++17",)),
        (("-std=c++20",), 20, ("-std=c++20",), ()),
        (("-std=c++23",), 20, ("-std=c++23",), ()),
        (("-std=c++2a",), 20, ("-std=c++2a",), ()),
        (("-std=c++17",), 17, ("-std=c++17",), ()),
        (("-standalone", "-Dstd=c++11"), 20, ("-standalone", "-Dstd=c++11"), ()),
    ],
)
def test_a_standard_below_torchs_is_raised(
    flags: tuple[str, ...], minimum: int, expected: tuple[str, ...], replaced: tuple[str, ...]
) -> None:
    assert raise_standard(flags, minimum) == (expected, replaced)


def test_a_suffix_that_says_nothing_is_mentioned() -> None:
    units = merged(Backend("cpu"), section("x", "a.CPP", "b.S", "c.h", "d.HPP", "e.metal"))
    assert [unit.source for unit in units.units] == ["a.CPP"]
    (warning,) = units.warnings
    assert warning.startswith("b.S is not compiled")


def test_a_kernel_section_may_be_called_torch() -> None:
    first = section("[torch]", "k.cpp", cxx_flags=("-DA",))
    (unit,) = merged(Backend("cpu"), first, section("[kernel.torch]", "k.cpp", cxx_flags=("-DB",))).units
    assert unit.cxx_flags == ("-DA", "-DB")
