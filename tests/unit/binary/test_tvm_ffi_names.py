"""tvm-ffi's interface as libraries show it, and what their libraries may leave undefined."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.binary.elf import ElfFile, Symbol
from kernel_builder.binary.tvm_ffi import exported_by_release, functions_in, looks_like_tvm_ffi, releases_without
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.undefined import UndefinedPolicy, find_missing
from kernel_builder.versions import Version


def test_functions_are_told_from_what_is_said_of_them() -> None:
    exports = ["__tvm_ffi_relu", "__tvm_ffi__metadata_relu", "__tvm_ffi__doc_relu", "__tvm_ffi__library_bin"]
    exports += ["__tvm_ffi_add", "tvm_ffi_no", "_ZN3tvm3ffi3AnyE", "__tvm_ffi__cubin_k", "__tvm_ffi__private"]
    assert functions_in(exports) == ("_private", "add", "relu")


@pytest.mark.parametrize(
    ("symbol", "own"),
    [
        ("TVMFFIFunctionCall", True),
        ("_ZN3tvm3ffi8DeepCopyERKNS0_3AnyE", True),
        ("_ZTVN3tvm3ffi5ErrorE", True),
        ("_ZN3c105ErrorC1Ev", False),
        ("TVMSomething", False),
        ("my_TVMFFIFunctionCall", False),
    ],
)
def test_names_are_known_by_their_form(symbol: str, own: bool) -> None:
    assert looks_like_tvm_ffi(symbol) is own


def test_the_table_tells_when_a_name_came_and_went() -> None:
    releases = list(exported_by_release())
    assert releases == sorted(releases)
    assert str(releases[0]) == "0.1.0"
    assert releases_without("TVMFFIFunctionCall", (0, 1)) == ()
    assert releases_without("TVMFFITensorCreateUnsafeView", (0, 1)) == tuple(releases[:6])
    assert releases_without("TVMFFINothing", (0, 1)) == tuple(releases)
    assert releases_without("TVMFFIFunctionCall", (0, 2)) == ()
    older = "_ZN3tvm3ffi4json9StringifyERKNS0_3AnyENS0_8OptionalIivEE"
    assert Version.parse("0.1.13") in releases_without(older, (0, 1))
    assert Version.parse("0.1.12") not in releases_without(older, (0, 1))


def test_a_library_for_tvm_ffi_may_need_neither_python_nor_openmp_nor_torch(tmp_path: Path) -> None:
    table = tmp_path / "libtvm_ffi.so.txt"
    table.write_text("TVMFFIFunctionCall\n")
    names = ["TVMFFIFunctionCall", "PyLong_FromLong", "GOMP_parallel", "_ZN3c105ErrorC1Ev", "TVMFFIAbsent"]
    undefined = tuple(Symbol(name=name) for name in names)
    elf = ElfFile(machine="x86_64", soname=None, needed=(), run_paths=(), exports=(), undefined=undefined)
    policy = UndefinedPolicy(tables=(), exports=(table,), python=None, framework=FrameworkKind.TVM_FFI)
    found = {entry.symbol: entry for entry in find_missing(elf, policy)}
    assert list(found) == ["GOMP_parallel", "PyLong_FromLong", "TVMFFIAbsent", "_ZN3c105ErrorC1Ev"]
    assert "must load into any program" in found["PyLong_FromLong"].reason
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC" in (found["PyLong_FromLong"].remedy or "")
    torch = UndefinedPolicy(tables=(), exports=(table,), python=(3, 9))
    allowed = {"PyLong_FromLong", "GOMP_parallel"}
    assert not allowed & {entry.symbol for entry in find_missing(elf, torch)}
