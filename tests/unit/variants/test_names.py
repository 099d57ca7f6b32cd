from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels.variants import parse_variant as client_parses

from kernel_builder.config.backends import Backend
from kernel_builder.variants.names import (
    Abi,
    ArchVariant,
    Compute,
    Machine,
    NoarchVariant,
    StableAbiTag,
    System,
    TorchTag,
    TvmFfiTag,
    Variant,
    parse_variant,
)

pairs = st.tuples(st.integers(1, 9), st.integers(0, 30))
toolkits = st.tuples(st.integers(1, 2030), st.integers(0, 9))


@st.composite
def computes(draw: st.DrawFn) -> Compute:
    backend = draw(st.sampled_from(tuple(Backend)))
    return Compute(backend=backend, version=draw(toolkits) if backend.prefix else None)


variants: st.SearchStrategy[Variant] = st.one_of(
    st.builds(NoarchVariant, backend=st.sampled_from(tuple(Backend))),
    st.builds(
        ArchVariant,
        tag=st.one_of(
            st.builds(TorchTag, version=pairs, abi=st.sampled_from([*Abi, None])),
            st.builds(StableAbiTag, version=pairs),
            st.builds(TvmFfiTag, version=pairs),
        ),
        compute=computes(),
        machine=st.sampled_from(Machine),
        system=st.sampled_from(System),
    ),
)


@given(variants)
def test_formatting_and_parsing_are_inverse(variant: Variant) -> None:
    assert parse_variant(str(variant)) == variant


@pytest.mark.parametrize(
    "name",
    [
        "torch212-cxx11-cu126-x86_64-linux",
        "torch26-cxx98-cu118-x86_64-linux",
        "torch213-cxx11-cpu-aarch64-linux",
        "torch212-metal-aarch64-darwin",
        "torch210-cu128-x86_64-windows",
        "torch-stable-abi211-cu126-x86_64-linux",
        "tvm-ffi01-cu126-x86_64-linux",
        "torch213-cxx11-rocm72-x86_64-linux",
        "torch212-cxx11-xpu20253-x86_64-linux",
        "torch-cuda",
    ],
)
def test_published_names_are_read_and_the_client_reads_them_too(name: str) -> None:
    assert str(parse_variant(name)) == name
    assert client_parses(name) is not None


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "not a variant name"),
        ("torch213", "not a variant name"),
        ("torch213-cxx11-cu130-x86_64-linux/", "not a variant name"),
        ("torch213-cxx11-cu-x86_64-linux", "not a backend with its version"),
        ("torch213-cxx11-cu1-x86_64-linux", "not a backend with its version"),
        ("torch213-cxx11-cpu12-x86_64-linux", "not a backend with its version"),
        ("torch213-cxx11-vulkan-x86_64-linux", "unknown backend"),
        ("torch213-cxx11-cu130-sparc-linux", "not a variant name"),
        ("torch200-cxx11-cpu-x86_64-linux", "redundant zeros"),
    ],
)
def test_other_names_are_refused_with_a_reason(name: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_variant(name)


def test_a_two_digit_toolkit_minor_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="one digit"):
        str(Compute(backend=Backend("cuda"), version=(12, 10)))


def test_versions_belong_to_the_backends_that_have_them() -> None:
    with pytest.raises(ValueError, match="needs a"):
        Compute(backend=Backend("cuda"))
    with pytest.raises(ValueError, match="takes no"):
        Compute(backend=Backend("cpu"), version=(1, 0))
