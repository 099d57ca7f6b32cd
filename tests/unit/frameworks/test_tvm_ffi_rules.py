"""What a tvm-ffi kernel is compiled with, and the module that Python loads it by."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from conftest import ProjectMaker
from kernel_builder.config.model import FrameworkKind
from kernel_builder.config.reader import load_project
from kernel_builder.frameworks import rules_of
from kernel_builder.frameworks.tvm_ffi import RULES
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.survey import Survey, survey

ID = "_sample_cpu_1a2b3c4"
TOML = """\
[general]
name = "sample"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[tvm-ffi]
src = ["bind.cpp"]

[kernel.host]
backend = "cpu"
depends = []
src = ["host.cpp", "own.h"]
"""


def surveyed(make_project: ProjectMaker, **files: str) -> Survey:
    named = {
        "bind.cpp": "",
        "host.cpp": "",
        "own.h": "",
        **{name.replace("_", "."): text for name, text in files.items()},
    }
    named["tvm-ffi-ext/sample/__init__.py"] = ""
    root = make_project("sample", named, toml=TOML)
    project, _ = load_project(root)
    return survey(project, build_inputs(project, root / "build"), RULES.marks_of)


def defined(found: Survey) -> dict[str, tuple[str, ...]]:
    sources = ("bind.cpp", "host.cpp")
    define = RULES.definer(sources, found, ops_id=ID, unique="1a2b3c4", cxx11_abi=True, stable=None)
    return {source: define(source) for source in sources}


NAMED = (f"TVM_FFI_EXTENSION_NAME={ID}",)


def test_the_framework_of_a_project_has_its_own_rules() -> None:
    assert rules_of(FrameworkKind.TVM_FFI) is RULES
    assert rules_of(FrameworkKind.TORCH) is rules_of(FrameworkKind.TORCH_NOARCH) is not RULES
    assert (RULES.suffix, RULES.limited_api) == (".so", None)


def test_only_who_says_the_name_is_compiled_with_it(make_project: ProjectMaker) -> None:
    found = surveyed(make_project, bind_cpp="const char *n = STR(TVM_FFI_EXTENSION_NAME);")
    assert defined(found) == {"bind.cpp": NAMED, "host.cpp": ()}
    assert RULES.binds_early(("bind.cpp", "host.cpp"), found)


def test_a_header_that_says_the_name_may_be_included_by_anyone(make_project: ProjectMaker) -> None:
    assert defined(surveyed(make_project, own_h="TVM_FFI_EXTENSION_NAME")) == {"bind.cpp": NAMED, "host.cpp": NAMED}


def test_a_kernel_that_does_not_say_its_name_is_named_when_it_is_installed(make_project: ProjectMaker) -> None:
    found = surveyed(make_project)
    assert defined(found) == {"bind.cpp": (), "host.cpp": ()}
    assert not RULES.binds_early(("bind.cpp", "host.cpp"), found)


def run_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, jax: bool) -> dict[str, object]:
    """The names of a generated ``_ops.py``, with a tvm-ffi that notes what it is asked to load."""
    fake = ModuleType("tvm_ffi")
    vars(fake)["load_module"] = lambda path: SimpleNamespace(path=path)
    monkeypatch.setitem(sys.modules, "tvm_ffi", fake)
    calls: list[object] = []
    if jax:
        for name in ("jax", "jax.ffi", "jax_tvm_ffi"):
            module = ModuleType(name)
            module.__spec__ = SimpleNamespace()  # type: ignore[assignment]
            monkeypatch.setitem(sys.modules, name, module)
        vars(sys.modules["jax"])["ffi"] = sys.modules["jax.ffi"]
        vars(sys.modules["jax.ffi"])["ffi_call"] = lambda *given, **named: ("called", given, named)
        vars(sys.modules["jax_tvm_ffi"])["register_ffi_target"] = lambda *given, **named: calls.append((given, named))
    else:
        monkeypatch.setitem(sys.modules, "jax_tvm_ffi", None)
    file = tmp_path / "_ops.py"
    file.write_text(RULES.ops_module(ID, compiled=True), encoding="utf-8")
    names: dict[str, object] = {"__file__": str(file), "calls": calls}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)  # noqa: S102
    return names


def test_the_library_beside_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_ops(tmp_path, monkeypatch, jax=True)
    assert names["ops"].path == str(tmp_path / f"{ID}.so")  # type: ignore[attr-defined]
    assert names["torch_add_op_namespace_prefix"]("relu") == f"{ID}::relu"  # type: ignore[operator]
    assert names["jax_add_ffi_target_name_prefix"]("relu") == f"{ID}.relu"  # type: ignore[operator]
    assert "add_op_namespace_prefix" not in names


def test_targets_of_jax_have_the_kernels_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run_ops(tmp_path, monkeypatch, jax=True)
    assert names["has_jax"] is True
    names["jax_register_ffi_target"]("relu", len, platform="cpu")  # type: ignore[operator]
    assert names["calls"] == [((f"{ID}.relu", len), {"platform": "cpu"})]
    assert names["jax_ffi_call"]("relu", 1, two=2) == ("called", (f"{ID}.relu", 1), {"two": 2})  # type: ignore[operator]


def test_without_jax_nothing_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in {"jax", "jax_tvm_ffi"} else object())
    names = run_ops(tmp_path, monkeypatch, jax=False)
    assert names["has_jax"] is False
    names["jax_register_ffi_target"]("relu", len)  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="jax-tvm-ffi"):
        names["jax_ffi_call"]("relu")  # type: ignore[operator]


def test_a_backend_without_sources_is_loaded_with_torch() -> None:
    text = RULES.ops_module(ID, compiled=False)
    assert "import torch" in text
    assert "tvm_ffi" not in text
