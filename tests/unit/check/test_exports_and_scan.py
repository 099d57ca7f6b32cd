"""Where the names of torch come from, and searching large files piece by piece."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from kernel_builder.binary.mangled import readable
from kernel_builder.check import scan
from kernel_builder.check.torch_names import installed_exports
from kernel_builder.toolchain.exports import stored_exports
from kernel_builder.variants.names import parse_variant

CPU, CUDA = parse_variant("torch213-cxx11-cpu-x86_64-linux"), parse_variant("torch213-cxx11-cu130-x86_64-linux")


@pytest.mark.parametrize("at", [0, 10, scan.PIECE - 3, scan.PIECE, scan.PIECE * 2 - scan.OVERLAP - 2, scan.PIECE * 2])
def test_a_text_across_two_pieces_is_found(tmp_path: Path, at: int) -> None:
    data = bytearray(scan.PIECE * 2 + 100)
    data[at : at + 6] = b"needle"
    file = tmp_path / "file"
    file.write_bytes(data)
    assert scan.contains(file, [(0, len(data))], b"needle")
    assert not scan.contains(file, [(at + 1, len(data)), (0, at + 5)], b"needle")


def test_pieces_end_with_the_file_whatever_the_range_says(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    assert list(scan.pieces(file, [(1, 2**62), (2**62, 2**63 - 1), (2, 1)])) == [b"bc"]


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        ("_ZN3c106detail14torchCheckFailEPKc", "c10::detail::torchCheckFail"),
        ("_ZTIN3c105ErrorE", "c10::Error"),
        ("_ZNKR2at6Tensor3fooEv", "at::Tensor::foo"),
        ("_ZNSt7__cxx1112basic_stringIcE5emptyEv", "std::__cxx11::basic_string"),
        ("_Z3addii", "add"),
        ("cudaMalloc", "cudaMalloc"),
        ("_Z", "_Z"),
        ("_ZN99999999999a", "_ZN99999999999a"),
    ],
)
def test_names_of_cxx_are_made_readable(symbol: str, text: str) -> None:
    assert readable(symbol) == text


def test_the_store_gives_the_names_of_a_release_for_the_backends_it_has(tmp_path: Path) -> None:
    exports = tmp_path / "store" / "torch-2.13.0-0123" / "exports"
    exports.mkdir(parents=True)
    for name in ("libtorch", "libtorch_cpu", "libc10"):
        (exports / f"{name}.so.txt").write_text(f"of_{name}\n", encoding="ascii")
    assert stored_exports(tmp_path, CPU) == frozenset({"of_libtorch", "of_libtorch_cpu", "of_libc10"})
    assert stored_exports(tmp_path, CUDA) is None
    assert stored_exports(tmp_path, parse_variant("torch212-cxx11-cpu-x86_64-linux")) is None
    assert stored_exports(tmp_path, parse_variant("torch-cpu")) is None


@pytest.mark.torch
def test_the_installed_torch_gives_its_names_for_its_own_release_alone() -> None:
    major, minor = version("torch").split(".")[:2]
    names = installed_exports(parse_variant(f"torch{major}{minor}-cxx11-cpu-x86_64-linux"))
    assert names is not None
    assert "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE" in names
    assert installed_exports(parse_variant("torch11-cxx11-cpu-x86_64-linux")) is None
