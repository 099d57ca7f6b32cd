"""What a kernel offers is read without importing it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from kernel_builder.config.reader import load_project
from kernel_builder.interface.read import (
    Interface,
    functions_of_library,
    functions_of_project,
    ops_of_library,
    ops_of_sources,
    read_interface,
)


class Package(Protocol):
    """Writes modules, the path of each with ``__`` for ``/`` and ``init`` for ``__init__``, and reads them."""

    def __call__(self, **files: str) -> Interface: ...


@pytest.fixture
def package(tmp_path: Path) -> Package:
    def make(**files: str) -> Interface:
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/').replace('init', '__init__')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_interface(tmp_path)

    return make


def test_functions_of_all_with_signatures_and_summaries(package: Package) -> None:
    interface = package(
        init='from ._impl import scale as scaled\n__all__ = ["relu", "scaled", "LIMIT", "layers"]\nLIMIT = 3\n'
        'def relu(x: "torch.Tensor", /, out=None, *, fast: bool = True) -> int:\n    """Clamp.\n\n    More."""\n',
        _impl="def scale(x, *rest, factor, **options):\n    pass\n",
    )
    assert [(function.name, str(function.signature), function.summary) for function in interface.functions] == [
        ("relu", "(x: 'torch.Tensor', /, out=None, *, fast: bool = True) -> int", "Clamp."),
        ("scaled", "(x, *rest, factor, **options)", None),
    ]
    assert interface.others == ("LIMIT",)
    assert interface.declared


@pytest.mark.parametrize(
    "text",
    [
        '__all__ = ("a", "b")',
        '__all__ = ["a"] + ["b"]',
        '__all__ = ["a"]\n__all__ += ["b"]',
        '__all__: list[str] = ["a", "b"]',
        'if True:\n    __all__ = ["a", "b"]',
        '__all__ = ["a"]\n__all__.append("b")',
        '__all__ = ["a"]\n__all__.extend(("b",))',
        '_more = ["b"]\n__all__ = ["a", *_more]',
        '__all__ = sorted(["a", "b"])',
    ],
)
def test_every_spelling_of_all(package: Package, text: str) -> None:
    interface = package(init=f"{text}\ndef a(): pass\ndef b(): pass\ndef c(): pass\n")
    assert [function.name for function in interface.functions] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        'from . import more\nfrom .more import *\n__all__ = ["a"]\n__all__ += more.__all__',
        'from .more import *\nfrom .more import __all__ as _more\n__all__ = ["a", *_more]',
        'from . import more\nfrom .more import *\n__all__ = ["a"] + list(more.__all__)',
        'from . import more as others\nfrom .more import *\n__all__ = ["a"]\n__all__.extend(others.__all__)',
    ],
)
def test_all_takes_in_that_of_other_modules(package: Package, text: str) -> None:
    interface = package(
        init=f"{text}\ndef a(): pass\n",
        more="from .deep import *\nfrom .deep import __all__ as _deep\n__all__ = [*_deep, 'b']\n"
        "def b(): pass\ndef c(): pass\n",
        deep="from . import more\n__all__ = ['d']\n__all__ += more.__all__\ndef d(x): pass\n",
    )
    assert sorted(function.name for function in interface.functions) == ["a", "b", "d"]


def test_without_all_public_definitions_count_and_are_marked(package: Package) -> None:
    interface = package(init="import torch\ndef a(): pass\ndef _b(): pass\nclass C: pass\n")
    assert [function.name for function in interface.functions] == ["a"]
    assert interface.others == ("C",)
    assert not interface.declared


def test_star_imports_and_chains_are_followed_and_circles_end(package: Package) -> None:
    interface = package(
        init='from .one import *\nfrom .circle import x\n__all__ = ["deep", "x"]\n',
        one="from .sub.two import *\n",
        sub__two="def deep(y): pass\n",
        circle="from . import x\n",
    )
    assert [function.name for function in interface.functions] == ["deep"]
    assert interface.others == ("x",)


def test_an_op_under_another_name_is_a_function(package: Package) -> None:
    interface = package(init='from ._ops import ops\n__all__ = ["relu"]\nrelu = ops.relu.default\n')
    assert [(function.name, function.op) for function in interface.functions] == [("relu", "relu")]


def test_layers_with_their_flags_and_inherited_forward(package: Package) -> None:
    interface = package(
        init='from . import layers\n__all__ = ["layers"]\n',
        layers="from torch import nn\n"
        "class _Base(nn.Module):\n    can_torch_compile: bool = True\n    def forward(self, x, y=1): pass\n"
        "class Silu(_Base):\n    has_backward = False\n"
        "class Other(nn.Module):\n    def forward(self): pass\n",
    )
    assert [(layer.name, str(layer.forward), dict(layer.flags)) for layer in interface.layers] == [
        ("Silu", "(x, y=1)", {"has_backward": False, "can_torch_compile": True}),
        ("Other", "()", {"has_backward": True, "can_torch_compile": False}),
    ]


def test_a_layers_package_that_brings_classes_in(package: Package) -> None:
    interface = package(
        init='__all__ = ["layers"]\n', layers__init="from .norm import Norm\n", layers__norm="class Norm: pass\n"
    )
    assert [layer.name for layer in interface.layers] == ["Norm"]


def test_a_layer_inherits_from_classes_of_its_own_file(package: Package) -> None:
    interface = package(
        init='__all__ = ["layers"]\n',
        layers__init="from .norm import Norm\n",
        layers__norm="class _Base:\n    has_backward = False\n    def forward(self, x): pass\n"
        "class Norm(_Base): pass\n",
    )
    assert [(layer.name, str(layer.forward)) for layer in interface.layers] == [("Norm", "(x)")]
    assert interface.layers[0].flags["has_backward"] is False


def test_what_does_not_parse_offers_nothing(package: Package) -> None:
    assert package(init="def (:\n") == Interface(declared=False)


def test_schemas_in_binding_sources(tmp_path: Path) -> None:
    source = tmp_path / "binding.cpp"
    source.write_text(
        'ops.def("relu(Tensor x) -> Tensor");\n'
        '// ops.def("gone(Tensor x) -> Tensor");\n'
        'm.def(\n  "add(Tensor x, "\n  "Tensor y) -> (Tensor, Tensor)", &f);\n'
        'm.def(R"x(raw.out(Tensor(a!) out, str s=\\")\\") -> ())x");\n'
        'm.def("inferred", &g);\n'
    )
    assert ops_of_sources([source, tmp_path / "missing.cpp"]) == {
        "relu": "relu(Tensor x) -> Tensor",
        "add": "add(Tensor x, Tensor y) -> (Tensor, Tensor)",
        "raw.out": 'raw.out(Tensor(a!) out, str s=\\")\\") -> ()',
    }


def test_schemas_in_a_library(tmp_path: Path) -> None:
    library = tmp_path / "k.so"
    library.write_bytes(b"\x7fELF\0\0a->b\0relu(Tensor x) -> Tensor\0" + b"y" * 9000 + b"->\0f(int a=1)->()\0tail")
    assert ops_of_library(library) == {"f": "f(int a=1)->()", "relu": "relu(Tensor x) -> Tensor"}
    library.write_bytes(b"")
    assert ops_of_library(library) == {}


OFFERS = """\
[general]
name = "offers"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[tvm-ffi]
src = ["binding.cpp"]

[kernel.plain]
backend = "cpu"
depends = []
src = ["plain.c"]
"""
OFFERED = """\
#include "more.h"
// TVM_FFI_DLL_EXPORT_TYPED_FUNC(old, old);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(
    scale, ns::scale);
const char *text = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(text, f)";
int use() { return __tvm_ffi_called(0, 0, 0, 0); }
"""
IN_C = """\
int __tvm_ffi_declared(void *self, const void *args, int count, void *result);
int __tvm_ffi_raw(void *self, const void *args, int count, void *result) { return 0; }
int __tvm_ffi__library_x(void) { return 0; }
"""


def test_functions_that_sources_offer_through_tvm_ffi(tmp_path: Path) -> None:
    files = {
        "build.toml": OFFERS,
        "binding.cpp": OFFERED,
        "more.h": "TVM_FFI_DLL_EXPORT_TYPED_FUNC(more, [](int x) { return x; });\n",
        "plain.c": IN_C,
        "tvm-ffi-ext/offers/__init__.py": "",
        "LICENSE": "MIT",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert functions_of_project(load_project(tmp_path)[0]) == ("more", "raw", "scale")
    (tmp_path / "no-library.so").write_bytes(b"not one")
    assert functions_of_library(tmp_path / "no-library.so") == ()
