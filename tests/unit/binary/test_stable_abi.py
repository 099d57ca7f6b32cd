"""torch's stable ABI: the table of its functions, and what a library may need of it (contract 3.5 and 7.5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.binary.elf import ElfFile, Symbol
from kernel_builder.binary.stable_abi import (
    stable_functions,
    stable_header_roots,
    target_definition,
    why_not_stable,
)
from kernel_builder.config.known import OLDEST_STABLE_ABI
from kernel_builder.engine.undefined import UndefinedPolicy, find_missing
from kernel_builder.versions import Version

V210, V213 = Version.parse("2.10"), Version.parse("2.13")


@pytest.mark.parametrize(("release", "value"), [("2.11", "0x20b000000000000"), ("2.9", "0x209000000000000")])
def test_the_target_is_told_to_the_headers_in_torchs_own_encoding(release: str, value: str) -> None:
    assert target_definition(Version.parse(release)) == f"TORCH_TARGET_VERSION={value}"


@pytest.mark.parametrize(
    ("function", "since"),
    [
        ("aoti_torch_get_data_ptr", "2.5"),  # older than the versions of the ABI
        ("torch_call_dispatcher", "2.10"),
        ("torch_parallel_for", "2.10"),
        ("aoti_torch_aten_full", "2.10"),
        ("torch_from_blob", "2.11"),
    ],
)
def test_functions_are_known_by_the_release_they_came_with(function: str, since: str) -> None:
    assert stable_functions()[function] == Version.parse(since)


def test_the_oldest_target_is_the_first_release_that_can_register_operators() -> None:
    registering = ("aoti_torch_library_init_def", "aoti_torch_library_def", "aoti_torch_library_impl")
    assert {stable_functions()[name] for name in registering} == {OLDEST_STABLE_ABI}


def test_the_table_covers_every_release_since_the_first() -> None:
    releases = {str(release) for release in stable_functions().values()}
    assert releases == {f"2.{minor}" for minor in range(5, 16)}
    assert "torch/headeronly" in stable_header_roots()


def library(*names: str) -> ElfFile:
    undefined = tuple(Symbol(name=name) for name in names)
    return ElfFile(machine="x86_64", soname=None, needed=(), run_paths=(), exports=(), undefined=undefined)


def test_only_the_stable_part_of_torch_may_be_needed(tmp_path: Path) -> None:
    newer = min(name for name, since in stable_functions().items() if since == V213 and name.startswith("torch_"))
    names = ["torch_call_dispatcher", newer, "_ZN2at4_ops3add4callERKNS_6TensorES4_", "_ZNK3c106Device3strEv", "uv_run"]
    torch, cuda = tmp_path / "torch.txt", tmp_path / "cuda.txt"
    torch.write_text("\n".join(names), encoding="utf-8")
    cuda.write_text("cudaMalloc", encoding="utf-8")
    elf = library(*names, "cudaMalloc", "PyModule_Create2", "GOMP_parallel")

    def complaints(stable: Version | None) -> dict[str, str]:
        policy = UndefinedPolicy(tables=(cuda,), exports=(torch,), python=(3, 9), stable=stable)
        return {entry.symbol: entry.reason for entry in find_missing(elf, policy)}

    assert complaints(None) == {}
    found = complaints(V210)
    assert sorted(found) == sorted(names[1:])
    assert found[newer] == "torch has it since 2.13, but the kernel targets the stable ABI of 2.10"
    assert found[names[2]] == found[names[3]]
    assert "C++ interface is not part" in found[names[2]]
    assert "it is not part of torch's stable ABI" in found["uv_run"]
    assert newer not in complaints(V213)


def test_a_function_that_no_release_has_is_missing_all_the_same(tmp_path: Path) -> None:
    table = tmp_path / "torch.txt"
    table.write_text("torch_call_dispatcher", encoding="utf-8")
    policy = UndefinedPolicy(tables=(), exports=(table,), python=(3, 9), stable=V213)
    (entry,) = find_missing(library("torch_parallel_for", "torch_call_dispatcher"), policy)
    assert (entry.symbol, entry.reason) == ("torch_parallel_for", "no library that the kernel may use defines it")


@pytest.mark.parametrize("symbol", ["_ZTIN3c105ErrorE", "_ZNK5torch6stable6Tensor3dimEv", "_ZN2at6detailE"])
def test_cxx_names_of_torch_are_told_from_others(symbol: str) -> None:
    found, other = why_not_stable(symbol, V213), why_not_stable("_ZN4mine3addEv", V213)
    assert found is not None
    assert other is not None
    assert "C++ interface" in found.why
    assert "C++ interface" not in other.why
