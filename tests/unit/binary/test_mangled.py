"""Names of C++ as people and rules read them."""

from __future__ import annotations

import pytest

from kernel_builder.binary.mangled import namespace, readable
from kernel_builder.binary.stable_abi import looks_like_torch


@pytest.mark.parametrize(
    ("symbol", "name", "outer"),
    [
        ("_ZN3c106detail14torchCheckFailEPKc", "c10::detail::torchCheckFail", "c10"),
        ("_ZN3c10lsERSoRKNS_6DeviceE", "c10::operator<<", "c10"),
        ("_ZNK2at6TensoreqERKS0_", "at::Tensor::operator==", "at"),
        ("_ZN3c10ssIiEEvv", "c10::operator<=>", "c10"),
        ("_ZN3c105ErrorD1Ev", "c10::Error", "c10"),
        ("_ZTVN3c105ErrorE", "c10::Error", "c10"),
        # Arguments are no operators: foo(short, short) and foo(long).
        ("_Z3fooss", "foo", None),
        ("_Z3fool", "foo", None),
        ("_ZSt4cout", "std::cout", "std"),
        # What is static, or in a namespace without a name.
        ("_ZL3usev", "use", None),
        ("_ZN4mineL3useEi", "mine::use", "mine"),
        ("_ZN12_GLOBAL__N_16Hidden3getEv", "(anonymous namespace)::Hidden::get", "(anonymous namespace)"),
        ("_ZL", "_ZL", None),
        ("cudaMalloc", "cudaMalloc", None),
    ],
)
def test_names_are_read_without_arguments(symbol: str, name: str, outer: str | None) -> None:
    assert (readable(symbol), namespace(symbol)) == (name, outer)


def test_operators_of_torch_look_like_torch() -> None:
    assert looks_like_torch("_ZN3c10lsERSoRKNS_6DeviceE")
    assert not looks_like_torch("_ZN4mineERSo")
