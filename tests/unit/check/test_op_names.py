"""Ops that Python code names are compared with those that the kernel registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.model import Finding
from kernel_builder.load.evidence import LoadedOp, LoadResult, LoadStatus
from kernel_libraries import Workshop
from kernel_trees import codes, findings, source, variant, write

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/torch_binding.cpp", "torch-ext/more.h"]

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["cpu/op.cpp"]
"""
BINDING = """\
#include "registration.h"
#include "more.h"
#define SCHEMA(name) name "(Tensor x) -> Tensor"
#define DEFINE(name) ops.def(#name "(Tensor x) -> Tensor"); ops.impl(#name, &name)
#define SUFFIX "_suffixed"

static constexpr char const *kSchema = "by_variable(Tensor x) -> Tensor";

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("silu_and_mul(Tensor! out, Tensor x) -> ()");
  ops.def(
      "split_"
      "text(Tensor x) -> Tensor", tags);
  ops.def(R"(raw.overload(Tensor x) -> Tensor)");
  ops.def("inferred", &inferred);
  ops.def(torch::schema("wrapped(Tensor x) -> Tensor"));
  ops.def(SCHEMA_TEXT);
  ops.def("joined" SUFFIX "(Tensor x) -> Tensor");
  ops.def(kSchema);
  DEFINE(by_macro);
#if defined(CUDA_KERNEL)
  ops.def("cuda_only(Tensor x) -> Tensor");
#endif
#if 0
  ops.def("never(Tensor x) -> Tensor");
#endif
  // ops.def("commented(Tensor x) -> Tensor");
  register_more(ops);
}
"""
MORE = """\
#pragma once
#define SCHEMA_TEXT "by_text(Tensor x) -> Tensor"
inline void register_more(torch::Library &m) { m.def("elsewhere(Tensor x) -> Tensor"); }
"""
NAMES = (
    *("silu_and_mul", "split_text", "raw", "inferred", "wrapped", "by_text", "joined_suffixed", "by_variable"),
    *("by_macro", "cuda_only", "elsewhere"),
)
PYTHON = {"__init__.py": "from . import part\n\n__all__ = []\n"}


def kernel(tmp_path: Path, code: str, binding: str = BINDING, **files: str) -> Path:
    package = {**PYTHON, "part.py": code, **{f"{name}.py": text for name, text in files.items()}}
    root = source(tmp_path, package, toml=TOML)
    return write(root, {"torch-ext/torch_binding.cpp": binding, "torch-ext/more.h": MORE, "cpu/op.cpp": "int cpu;\n"})


def missing(path: Path) -> list[Finding]:
    return findings(path, "KB207")


def test_every_op_of_the_sources_is_known(tmp_path: Path) -> None:
    uses = "".join(f"ops.{name}\nops.{name}.default\n" for name in NAMES)
    assert missing(kernel(tmp_path, f"from ._ops import ops\n{uses}")) == []


@pytest.mark.parametrize("name", ["never", "commented", "DEFINE", "silu_and_mull"])
def test_what_is_not_defined_is_missing(tmp_path: Path, name: str) -> None:
    (found,) = missing(kernel(tmp_path, f"from ._ops import ops\n\ndef f(x):\n    return ops.{name}(x)\n"))
    assert (found.path.endswith("part.py"), found.line, found.symbol) == (True, 4, name)
    assert f"the kernel registers no op {name}" in found.message


def test_a_source_that_defines_it_and_is_not_listed_is_named(tmp_path: Path) -> None:
    root = kernel(tmp_path, "from ._ops import ops\n\ndef f(x):\n    return ops.later(x)\n")
    binding = 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("later(Tensor x) -> Tensor"); }\n'
    write(root, {"torch-ext/later.cpp": binding, "build/old.cpp": binding.replace("later", "older")})
    (found,) = missing(root)
    assert found.hint == "torch-ext/later.cpp defines it: add that file to 'src' in build.toml"
    write(root, {"torch-ext/later.cpp": binding.replace("later", "another")})
    (found,) = missing(root)
    assert found.hint is None


def test_the_nearest_name_is_told(tmp_path: Path) -> None:
    (found,) = missing(kernel(tmp_path, "from ._ops import ops\nops.silu_mul\n"))
    assert found.message.endswith("did you mean silu_and_mul?")


USES = [
    "from ._ops import ops\nops.gone(1)\n",
    "from ._ops import ops as o\no.gone.default(1)\n",
    "from . import _ops\n_ops.ops.gone(1)\n",
    "from . import _ops as generated\ngenerated.ops.gone\n",
    "from ._ops import *\nops.gone\n",
    "from ._ops import ops\nalias = ops\nalias.gone\n",
    "from ._ops import ops\ngetattr(ops, 'gone')\n",
    "from ._ops import ops\nclass A:\n    f = ops.gone\n",
    "from ._ops import ops\ndef f(x, g=ops.gone): ...\n",
    "def f():\n    from ._ops import ops\n    return ops.gone\n",
    "from .other import ops\nops.gone\n",
    "from .other import namespace as n\nn.gone\n",
    "import torch\nfrom ._ops import add_op_namespace_prefix as p\ntorch.library.register_fake(p('gone'))\n",
    "import torch\nfrom ._ops import *\ntorch.library.register_autograd(add_op_namespace_prefix('gone.x'), f)\n",
    "from . import _ops\nNAME = _ops.add_op_namespace_prefix('gone')\nlib.impl(NAME, print)\n",
    "try:\n    from ._ops import ops\nexcept ImportError:\n    ops = None\nops.gone\n",
    # attributes, functions, other modules
    "from ._ops import ops\nclass A:\n    def __init__(self): self._C = ops\n    def f(self): self._C.gone(1)\n",
    "from ._ops import ops\nclass A:\n    _C = ops\n    def f(self): return self._C.gone\n",
    "from ._ops import ops\nclass A:\n    _C = ops\n    @classmethod\n    def f(cls): return cls._C.gone\n",
    "from ._ops import ops\nclass A:\n    _C = ops\nA._C.gone\n",
    "from ._ops import ops\nclass A:\n    _C = ops\nclass B(A):\n    def f(this): return this._C.gone\n",
    "from ._ops import ops\nclass A:\n    c: object = None\n    def f(self): self.c = ops; self.c.gone\n",
    "from ._ops import ops\nclass A:\n    @property\n    def c(self): return ops\n    def f(self): self.c.gone\n",
    "from ._ops import ops\nclass A:\n    def c(self): return ops\n    def f(self): self.c().gone\n",
    "from ._ops import ops\nclass A:\n    def __init__(self): self.c = ops; o = self.c; o.gone\n",
    "def get():\n    from ._ops import ops\n    return ops\nget().gone\n",
    "from functools import cache\n@cache\ndef get():\n    from ._ops import ops\n    return ops\no = get()\no.gone\n",
    "from ._ops import ops\nget = lambda: None\n(o := ops).gone\n",
    "from ._ops import ops\nif (o := ops) is not None:\n    o.gone\n",
    "from ._ops import ops\no, p = ops, 1\no.gone\n",
    "from ._ops import ops\no = ops if x else None\no.gone\n",
    "from . import _ops\ngetattr(_ops, 'ops').gone\n",
    "from importlib import import_module\nimport_module('._ops', __package__).ops.gone\n",
    "from . import other\nother.ops.gone\n",
    "from . import other as o\no.alias.gone\n",
    "from .other import alias\nalias.gone\n",
    # names that are put together
    "from ._ops import ops\nname = 'gone'\ngetattr(ops, name)\n",
    "from ._ops import ops\nname = 'x'\ngetattr(ops, f'gone')\n",
    "from ._ops import ops\na = 'go'\ngetattr(ops, f'{a}ne')\n",
    "from ._ops import ops\na = 'go'\ngetattr(ops, a + 'ne')\n",
    "from ._ops import ops\na = 'go'\ngetattr(ops, '%sne' % a)\n",
    "from ._ops import ops\na = 'go'\ngetattr(ops, '{}{b}'.format(a, b='ne'))\n",
    "from ._ops import ops\ngetattr(ops, ''.join(['go', 'ne']))\n",
    "from ._ops import ops\ngetattr(ops, 'GONE'.lower())\n",
    "from ._ops import ops\ngetattr(ops, 'gone' if x else 'raw')\n",
    "from ._ops import ops\nfor name in ('raw', 'gone'):\n    globals()[name] = getattr(ops, name)\n",
    "from ._ops import ops\nNAMES = ['raw', 'gone']\nall = {n: getattr(ops, n) for n in NAMES}\n",
    "from ._ops import ops\nfor name, count in [('raw', 1), ('gone', 2)]:\n    f = getattr(ops, name)\n",
    "from ._ops import ops\nfor dtype in ('raw', 'gone'):\n    f = getattr(ops, f'{dtype}')\n",
    "from operator import attrgetter\nfrom ._ops import ops\nattrgetter('gone')(ops)\n",
    "import operator\nfrom ._ops import ops\nget = operator.attrgetter('gone.default')\nget(ops)\n",
    "from ._ops import ops\nops.__getattr__('gone')\n",
    "import torch\nfrom ._ops import ops\n@torch.library.register_fake(f'{ops.name}::gone')\ndef f(): ...\n",
    "from torch.library import *\nfrom ._ops import ops\n@register_fake(f'{ops.name}::gone')\ndef f(): ...\n",
    "from torch.library import register_fake\nfrom ._ops import ops\nregister_fake(ops.name + '::gone')(f)\n",
    "from torch.library import register_fake\nfrom ._ops import ops\nregister_fake('{}::gone'.format(ops.name))\n",
    "from torch.library import register_fake\nfrom ._ops import ops\nregister_fake('%s::%s' % (ops.name, 'gone'))\n",
    "from torch.library import register_fake\nfrom ._ops import ops\nregister_fake('::'.join((ops.name, 'gone')))\n",
    "from torch.library import register_fake\nfrom ._ops import ops\nNS = ops.name\nregister_fake(f'{NS}::gone')\n",
    "from torch.library import register_fake as r\nfrom ._ops import add_op_namespace_prefix as p\nr(p('go') + 'ne')\n",
    "import torch\nfrom ._ops import ops\nlib = torch.library.Library(ops.name, 'IMPL')\nlib.impl('gone', f)\n",
    "from torch.library import *\nfrom ._ops import ops\nregister_fake(ops.__name__.split('.')[-1] + '::gone')\n",
    "import torch\nfrom ._ops import ops\ntorch.library.Library(ops.name, 'IMPL').impl('gone.x', f)\n",
]


@pytest.mark.parametrize("code", USES)
def test_uses_in_every_spelling(tmp_path: Path, code: str) -> None:
    other = "from ._ops import ops, ops as namespace\nalias = ops\n"
    assert [found.symbol for found in missing(kernel(tmp_path, code, other=other))] == ["gone"]


QUIET = [
    "import torch\ntorch.ops.aten.gone\n",
    "from ._ops import ops\ndef f(ops): return ops.gone\n",
    "from ._ops import ops\nfor ops in (): ops.gone\n",
    "from ._ops import ops\nimport torch as ops\nops.gone\n",
    "from .other import ops\nops.gone\n",
    "from ._ops import ops\nops.name, ops.__name__, ops.__class__\n",
    "from ._ops import ops\nif hasattr(ops, 'gone'):\n    ops.gone\n",
    "from ._ops import ops\ngetattr(ops, 'gone', None)\n",
    "from ._ops import ops\ndef f(name): getattr(ops, f'gone_{name}')\n",
    "from ._ops import ops\nfor name in names(): getattr(ops, name)\n",
    "from ._ops import ops\nfor name in ('gone', 'raw'):\n    if x(name): getattr(ops, name)\n",
    "from ._ops import ops\nfor name in ('gone', 'raw'):\n    if x(name): continue\n    getattr(ops, name)\n",
    "from ._ops import ops\nall = [getattr(ops, n) for n in ('gone',) if x(n)]\n",
    "from ._ops import ops\nname = 'go'\nname += 'ne'\ngetattr(ops, name)\n",
    "from ._ops import ops\nname = 'gone'\nname = read()\ngetattr(ops, name)\n",
    "from ._ops import ops\nfor name in ('gone',):\n    if hasattr(ops, name): f = getattr(ops, name)\n",
    "from ._ops import ops\nclass A:\n    c = ops\n    def g(self, c):\n        self.c = c\n        self.c.gone\n",
    "from ._ops import ops\no = (o if x else o)\no.gone\n",
    "from ._ops import ops\ndef get(): return get()\nget().gone\n",
    "from ._ops import ops\nclass A:\n    def __init__(self, ops): self.c = ops\n    def g(self): self.c.gone\n",
    "from ._ops import ops\nclass A:\n    c = ops\nclass B:\n    def g(self): self.c.gone\n",
    "from ._ops import ops\ndef get(x):\n    if x: return torch\n    return ops\nget().gone\n",
    "from ._ops import ops\ndef get():\n    yield ops\nget().gone\n",
    "from . import other\nother.namespace.gone\n",
    "import torch\nfrom ._ops import ops\n@torch.library.register_fake(f'{other}::gone')\ndef f(): ...\n",
    "import torch\nfrom ._ops import ops\nlib = torch.library.Library('aten', 'IMPL')\nlib.impl('gone', f)\n",
    "from ._ops import ops\ntry:\n    ops.gone\nexcept AttributeError:\n    pass\n",
    "from ._ops import ops\ntry:\n    ops.gone\nexcept Exception:\n    pass\n",
    "from typing import TYPE_CHECKING\nfrom ._ops import ops\nif TYPE_CHECKING:\n    x = ops.gone\n",
    "from ._ops import ops\n# ops.gone\nx = 'ops.gone'\n",
    "class A:\n    def f(self): return self.ops.gone\n",
    "from ._ops import add_op_namespace_prefix\nregister(add_op_namespace_prefix('gone'))\n",
]


@pytest.mark.parametrize("code", QUIET)
def test_what_is_not_a_use_of_the_kernels_ops_is_passed_over(tmp_path: Path, code: str) -> None:
    assert missing(kernel(tmp_path, code, other="class ops: ...\n")) == []


REGISTERED = [
    "@torch.library.custom_op(add_op_namespace_prefix('own'), mutates_args=())\ndef own(x): ...\n",
    "NAME = add_op_namespace_prefix('own')\n@torch.library.triton_op(NAME, mutates_args=())\ndef own(x): ...\n",
    "from torch.library import custom_op as c\n@c(name=add_op_namespace_prefix('own'))\ndef f(x): ...\n",
    "lib = torch.library.Library(ops.__name__, 'FRAGMENT')\nlib.define('own(Tensor x) -> Tensor')\n",
    "torch.library.define(add_op_namespace_prefix('own'), '(Tensor x) -> Tensor')\n",
    "ops.own = print\n",
]


@pytest.mark.parametrize("code", REGISTERED)
def test_ops_that_python_registers_count(tmp_path: Path, code: str) -> None:
    head = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\n"
    (found,) = missing(kernel(tmp_path, f"{head}{code}ops.own\nops.gone\n"))
    assert found.symbol == "gone"


OPEN = [
    "def register(name): torch.library.custom_op(name, mutates_args=())(print)\n",
    "register(torch.library.custom_op)\n",
    "for n in names: torch.library.define(add_op_namespace_prefix(n), '() -> ()')\n",
    "lib.define(f'{name}(Tensor x) -> Tensor')\n",
]


@pytest.mark.parametrize("code", OPEN)
def test_where_python_registers_unreadable_names_nothing_is_said(tmp_path: Path, code: str) -> None:
    head = "import torch\nfrom ._ops import add_op_namespace_prefix, ops\nops.gone\n"
    assert missing(kernel(tmp_path, head + code)) == []


@pytest.mark.parametrize(
    "native",
    [
        'for (auto name : names) { m.def(name + "(Tensor x) -> Tensor"); }\n',
        "m.def(schema_of(3));\n",
        '#define ALL(X) X(a) X(b)\n#define D(name) m.def(#name "() -> ()");\nALL(D)\n',
        'torch::RegisterOperators().op(NAMESPACE "::x() -> ()", &x);\n',
    ],
)
def test_where_sources_register_unreadable_names_nothing_is_said(tmp_path: Path, native: str) -> None:
    root = kernel(tmp_path, "from ._ops import ops\nops.gone\n", binding=BINDING + native)
    assert missing(root) == []


def test_a_kernel_of_python_alone_registers_what_its_python_does(tmp_path: Path) -> None:
    code = "import torch\nfrom ._ops import *\n@torch.library.custom_op(add_op_namespace_prefix('own'))\ndef f(): ...\n"
    root = source(tmp_path, {**PYTHON, "part.py": f"{code}ops.own\nops.gone\n"})
    assert [found.symbol for found in missing(root)] == ["gone"]


# --- builds ---

LIBRARY = """\
#include <string.h>
const char *text(void) { return "silu_and_mul(Tensor! out, Tensor x) -> ()"; }
const char *name(void) { return "inferred"; }
void in_code(char *to) { memcpy(to, "in_instructions(Tensor x) -> Tensor", 36); }
const char *longer(void) { return "and_mul(Tensor x) -> Tensor"; }
void brief(char *to) { memcpy(to, "brief", 6); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with ops as texts, as a mere name, and as pieces in instructions."""
    return Workshop(tmp_path_factory.mktemp("library")).library(LIBRARY, "-O2").read_bytes()


def built(tmp_path: Path, code: str, library: bytes) -> Path:
    files: dict[str, str | bytes] = {**PYTHON, "part.py": code, "_my_kernel_cuda_1a2b3c4.abi3.so": library}
    return variant(tmp_path, "torch213-cxx11-cu130-x86_64-linux", files=files)


def test_a_build_is_compared_with_its_library(tmp_path: Path, library: bytes) -> None:
    known = "ops.silu_and_mul, ops.inferred, ops.in_instructions, ops.brief"
    (found,) = missing(built(tmp_path, f"from ._ops import ops\n{known}\nops.silu_and_mull\n", library))
    assert (found.line, found.symbol) == (3, "silu_and_mull")
    assert found.message.endswith("did you mean silu_and_mul?")


def test_a_build_may_name_its_own_id(tmp_path: Path, library: bytes) -> None:
    code = "import torch\ntorch.ops._my_kernel_cuda_1a2b3c4.inferred\ntorch.ops._my_kernel_cuda_1a2b3c4.gone\n"
    assert [found.symbol for found in missing(built(tmp_path, code, library))] == ["gone"]


@pytest.mark.parametrize("asked", ["x.is_cpu", "x.device.type == 'cpu'", "torch.version.hip", "cuda.is_available()"])
def test_one_variant_alone_may_use_ops_of_another_backend(tmp_path: Path, library: bytes, asked: str) -> None:
    code = f"from ._ops import ops\ndef f(x):\n    return ops.for_cpu(x) if {asked} else ops.inferred(x)\n"
    (found,) = missing(built(tmp_path, code, library))
    assert (found.severity.value, found.symbol) == ("warning", "for_cpu")
    (found,) = missing(built(tmp_path / "alike", code.replace(asked, "x"), library))
    assert found.severity.value == "error"


def test_what_loading_showed_is_exact(tmp_path: Path, library: bytes) -> None:
    root = built(tmp_path, "from ._ops import ops\nops.mul, ops.inferred\n", library)
    assert missing(root) == []  # a text ends in mul
    result = LoadResult(status=LoadStatus.LOADED, ops=(LoadedOp(name="x::inferred"), LoadedOp(name="x::f.out")))
    (found,) = findings(root, "KB207", evidence={root.name: result})
    assert found.symbol == "mul"


def test_all_variants_of_a_folder_count(tmp_path: Path, library: bytes) -> None:
    code = "from ._ops import ops\nif x:\n    ops.inferred, ops.for_cpu, ops.for_nobody\n"
    built(tmp_path / "build", code, library)
    for_cpu = Workshop(tmp_path).library('const char *text(void) { return "for_cpu() -> ()"; }').read_bytes()
    ops_id = "_my_kernel_cpu_1a2b3c4"
    files: dict[str, str | bytes] = {**PYTHON, f"{ops_id}.abi3.so": for_cpu}
    variant(tmp_path / "build", "torch213-cxx11-cpu-x86_64-linux", files=files, ops_id=ops_id, backend={"type": "cpu"})
    assert [found.symbol for found in missing(tmp_path / "build")] == ["for_nobody"]


def test_a_build_may_use_what_its_sources_define_for_another_backend(tmp_path: Path, library: bytes) -> None:
    code = "from ._ops import ops\nif x:\n    ops.cuda_only\nelse:\n    ops.for_nobody\n"
    root = kernel(tmp_path, "")
    built(root / "build", code, library)
    assert [found.symbol for found in missing(root / "build")] == ["for_nobody"]


# --- ops of others ---

FIXED = [
    "import torch\ntorch.ops.vllm.f(1)\n",
    "import torch as t\nt.ops.vllm.f.default(1)\n",
    "from torch import ops\nops.vllm.f\n",
    "from torch import ops as o\ndef f(): return o.vllm.f\n",
    "import torch\no = torch.ops\no.vllm.f\n",
    "import torch\nspace = torch.ops.vllm\nspace.f\n",
    "import torch\ngetattr(torch.ops, 'vllm').f\n",
    "import torch\ngetattr(torch.ops.vllm, 'f')\n",
    "import torch\ndef f(name): return getattr(torch.ops.vllm, name)\n",
    "import importlib\nimportlib.import_module('torch').ops.vllm.f\n",
    "from torch import *\nops.vllm.f\n",
    "import torch\ntry:\n    torch.ops.vllm.f\nexcept AttributeError:\n    raise\n",
    "import torch\ntry:\n    torch.ops.vllm.f\nexcept ValueError:\n    pass\n",
    "import sys, torch\nsys.modules['torch'].ops.vllm.f(1)\n",
    "import sys\ntorch = sys.modules.get('torch')\ntorch.ops.vllm.f(1)\n",
    "from sys import modules\nimport torch\nmodules['torch'].ops.vllm.f(1)\n",
    "import operator, torch\noperator.attrgetter('ops.vllm.f')(torch)\n",
    "from operator import attrgetter as g\nimport torch\nget = g('ops.vllm')\nget(torch).f\n",
    "import torch\ntorch.__dict__['ops'].vllm.f\n",
    "import torch\nvars(torch)['ops'].vllm.f\n",
    "import torch\ntorch.ops.__getattr__('vllm').f\n",
    "import torch\nname = 'vllm'\ngetattr(torch.ops, name).f\n",
    "import torch\ngetattr(torch.ops, f'{\"v\"}llm').f\n",
    "import torch\ntorch._ops.ops.vllm.f\n",
    "from torch._ops import ops\nops.vllm.f\n",
    "import torch\nclass A:\n    def __init__(self): self.c = torch.ops.vllm\n    def f(self): return self.c.f(1)\n",
    "import torch\nclass A:\n    c = torch.ops\n    def f(self): return self.c.vllm.f(1)\n",
    "import torch\ndef space(): return torch.ops.vllm\nspace().f(1)\n",
    "import torch\n(o := torch.ops.vllm).f(1)\n",
    "import torch\na, b = torch.ops.vllm, 1\na.f(1)\n",
]


@pytest.mark.parametrize("code", FIXED)
def test_namespaces_of_others_are_found(tmp_path: Path, code: str) -> None:
    (found,) = findings(kernel(tmp_path, code), "KB208", "KB209")
    assert (found.rule.code, found.symbol) == ("KB208", "vllm")


def test_every_place_of_a_namespace_is_named(tmp_path: Path) -> None:
    code = "import torch\nx = torch.ops\n" + "".join(f"torch.ops.vllm.f{n}(torch.ops.vllm.g)\n" for n in range(8))
    (found,) = findings(kernel(tmp_path, code), "KB208")
    assert (found.line, found.message.split("; ")[-1]) == (3, "also in lines 4, 5, 6, 7, 8 and 2 more")
    (alone,) = findings(kernel(tmp_path / "two", "import torch\ntorch.ops.vllm.f\ntorch.ops.vllm.f\n"), "KB208")
    assert alone.message.endswith("op namespace; also in line 3")


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntry:\n    torch.ops.vllm.f\nexcept (AttributeError, RuntimeError):\n    f = None\n",
        "import torch\nif hasattr(torch.ops, 'vllm'):\n    f = torch.ops.vllm.f\n",
        "import torch\nif hasattr(torch.ops.vllm, 'f'):\n    f = torch.ops.vllm.f\n",
        "import torch\nf = getattr(torch.ops.vllm, 'f', None)\n",
        "import contextlib, torch\nwith contextlib.suppress(AttributeError):\n    torch.ops.vllm.f\n",
    ],
)
def test_where_failure_is_allowed_it_is_a_warning(tmp_path: Path, code: str) -> None:
    assert codes(kernel(tmp_path, code), "KB208", "KB209") == ["KB209"]


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.ops.aten.add, torch.ops.prims.add, torch.ops._c10d_functional.wait_tensor\n",
        "import torch\ntorch.ops.c10d.x, torch.ops.quantized.x, torch.ops.higher_order.cond, torch.ops.mkldnn.x\n",
        "import torch\nfrom ._ops import ops\nops.silu_and_mul\ndef f(name): getattr(torch.ops, name).f\n",
        "from ._ops import ops\nops.inferred.x\n",
        "x = 'torch.ops.vllm.f'\n# torch.ops.vllm.f\n",
        "import torch\ndef f(torch): return torch.opsx.vllm\n",
    ],
)
def test_torchs_own_namespaces_pass(tmp_path: Path, code: str) -> None:
    assert codes(kernel(tmp_path, code), "KB208", "KB209") == []
