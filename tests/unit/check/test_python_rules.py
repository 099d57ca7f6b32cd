"""Rules about Python: each with what breaks it and what does not."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from kernel_builder.check.python_facts import GENERATED_NAMES
from kernel_builder.frameworks.torch_glue import ops_module
from kernel_trees import codes, findings, source, variant

IMPORTED = "from . import part\n\n__all__ = []\n"


def in_part(tmp_path: Path, code: str, *rules: str, **more: str) -> list[str]:
    """Codes of what is found in a module that importing the kernel runs."""
    return codes(source(tmp_path, {"__init__.py": IMPORTED, "part.py": code}, **more), *(rules or ("KB3",)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x: int | None = None): ...\n", ["KB302"]),
        ("class A:\n    x: 'int' = 1\n    y: int | str = 1\n", ["KB302"]),
        ("Size = int | None\n", ["KB302"]),
        ("import tomllib\n", ["KB302"]),
        ("from itertools import pairwise\n", ["KB302"]),
        ("match 1:\n    case _:\n        pass\n", ["KB301"]),
        ("def f(:\n", []),
        ("def f(x):\n    return list(zip(x, x, strict=True))\n", ["KB303"]),
        ("def f(x):\n    return isinstance(x, int | str)\n", ["KB303"]),
        ("def f(x):\n    y: int | None = x\n    return y\n", []),
        ("from __future__ import annotations\ndef f(x: int | None = None): ...\n", []),
        ("from typing import Literal\ndef f(x: Literal['a|b'], flags: 'int | None'): ...\n", []),
        ("A, B = 1, 2\nC = A | B\nD = {1} | {2}\n", []),
        ("import sys\nif sys.version_info >= (3, 11):\n    import tomllib\n", []),
        ("try:\n    from typing import ParamSpec\nexcept ImportError:\n    ParamSpec = None\n", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from typing import TypeAlias\n", []),
        ("with (open('a') as a, open('b') as b):\n    pass\n", []),
    ],
)
def test_the_floor_of_python(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert in_part(tmp_path, code, "KB301", "KB302", "KB303") == expected


LATE = "from __future__ import annotations\nimport torch, typing\nfrom torch.library import *\n"
EVALUATED = [
    "@torch.library.custom_op('x::f', mutates_args=())\ndef f(x: Tensor | None) -> Tensor: ...\n",
    "@custom_op('x::f', mutates_args=())\ndef f(x: Tensor) -> Tensor | None: ...\n",
    "from torch.library import triton_op as op\n@op('x::f', mutates_args={})\ndef f(x: list[int | None]): ...\n",
    "def f(x: Tensor | None): ...\ntorch.library.custom_op('x::f', f, mutates_args=())\n",
    "def f(x: Tensor | None): ...\ntorch.library.custom_op('x::f', mutates_args=())(f)\n",
    "import functools\no = functools.partial(torch.library.custom_op)\n@o('x::f')\ndef f(x: int | None): ...\n",
    "def f(x: Tensor | None): ...\nS = torch.library.infer_schema(f, mutates_args=())\n",
    "def f(x: int | None): ...\nT = typing.get_type_hints(f)\n",
    "@custom_op('x::f', mutates_args=(), schema=None)\ndef f(x: 'Tensor | None'): ...\n",
]
NOT_EVALUATED = [
    "@torch.library.custom_op('x::f', mutates_args=())\ndef f(x: Optional[Tensor]) -> Tensor: ...\n",
    "@torch.library.custom_op('x::f', mutates_args=(), schema='(Tensor? x) -> ()')\ndef f(x: T | None): ...\n",
    "@torch.library.register_fake('x::f')\ndef f(x: Tensor | None): ...\n",
    "def custom_op(f): return f\n@custom_op\ndef f(x: int | None): ...\n",
    "@torch.library.custom_op('x::f', mutates_args=())\ndef f(x: Tensor):\n    y: int | None = None\n",
]


@pytest.mark.parametrize("code", EVALUATED)
def test_annotations_that_torch_evaluates_count_when_they_are_postponed(tmp_path: Path, code: str) -> None:
    assert in_part(tmp_path, LATE + code, "KB301", "KB302", "KB303") == ["KB302"]
    assert in_part(tmp_path / "newer", LATE + code, "KB302") == ["KB302"]
    later = source(tmp_path / "floor", {"__init__.py": IMPORTED, "part.py": LATE + code})
    assert codes(later, "KB302", python_floor=(3, 10)) == []


@pytest.mark.parametrize("code", NOT_EVALUATED)
def test_other_postponed_annotations_do_not(tmp_path: Path, code: str) -> None:
    assert in_part(tmp_path, LATE + code, "KB301", "KB302", "KB303") == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("try:\n    from . import _gen\nexcept ImportError: ...\n", "no module _gen, and __init__.py defines no _gen"),
        ("from . import _gen, _more\n", "no module _gen and no _more, and __init__.py defines no _gen and no _more"),
        ("from .sub import gen\n", "no module sub.gen, and sub/__init__.py defines no gen"),
        ("from .other import gen\n", "other defines no gen"),
        ("__import__('nope', globals(), locals(), [], 1)\n", "the kernel has no module nope"),
        ("__import__('nope', level=1)\n", "the kernel has no module nope"),
        ("__import__('other', globals(), locals(), ['gen'], 1)\n", "other defines no gen"),
        ("__import__('', globals(), locals(), ('gen',), 1)\n", "no module gen, and __init__.py defines no gen"),
        ("import importlib\nimportlib.__import__('nope', globals(), {}, (), 1)\n", "the kernel has no module nope"),
    ],
)
def test_what_a_relative_import_lacks_is_named(tmp_path: Path, code: str, said: str) -> None:
    package = {"__init__.py": IMPORTED, "part.py": code, "other.py": "", "sub/__init__.py": ""}
    (found,) = findings(source(tmp_path, package), "KB312", "KB313", "KB314", "KB315")
    assert found.message.endswith(said)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('other', globals(), locals(), [], 1)\n",
        "__import__('other', globals(), locals(), ['x'], 1)\n",
        "__import__('nope', globals(), locals(), [], level)\n",
        "__import__('json', globals(), locals(), [], 0)\n",
    ],
)
def test_relative_imports_by_level_resolve(tmp_path: Path, code: str) -> None:
    package = {"__init__.py": IMPORTED, "part.py": code, "other.py": "x = 1\n"}
    assert codes(source(tmp_path, package), "KB312", "KB313", "KB314", "KB315") == []


RUN_ON_IMPORT = [
    "import itertools\nx = itertools.batched('ab', 1)\n",
    "import itertools as it\nx = (1,\n  it.batched('ab', 1))\n",
    "from itertools import *\nx = batched('ab', 1)\n",
    "from typing import *\nx: Self\n",
    "import math\nclass A:\n    x = math.cbrt(1)\n",
    "import math\ndef f(x=math.cbrt(1)): return 1\n",
    "import math\nx = [math.cbrt(y) for y in (1,)]\n",
    "from typing import override\nclass A:\n    @override\n    def f(self): ...\n",
    "import dataclasses as dc\n@dc.dataclass(slots=True)\nclass A: ...\n",
    "def f():\n    return zip(strict=True)\nx = f()\n",
    "def f():\n    import tomllib\ndef g():\n    f()\ng()\n",
    "def register(function):\n    import tomllib\n    return function\n@register\ndef g(): ...\n",
    "def register(name):\n    import tomllib\n    return lambda f: f\n@register('a')\ndef g(): ...\n",
    "class A:\n    def __init__(self):\n        import tomllib\nA()\n",
]
RUN_LATER = [
    "import dataclasses\ndef f():\n    @dataclasses.dataclass(slots=True)\n    class A: ...\n",
    "x = lambda: zip(strict=True)\n",
    "import math\nclass A:\n    def f(self): return math.cbrt(1)\n",
    "def f():\n    return batched('ab', 1)\nfrom itertools import *\n",
    "def f():\n    import tomllib\n    yield 1\nx = f()\n",
    "def f():\n    def g():\n        import tomllib\n    return g\nx = f()\n",
]


@pytest.mark.parametrize("code", RUN_ON_IMPORT)
def test_whatever_an_import_runs_must_work_on_the_floor(tmp_path: Path, code: str) -> None:
    assert set(in_part(tmp_path, code, "KB302", "KB303")) == {"KB302"}


@pytest.mark.parametrize("code", RUN_LATER)
def test_what_runs_later_is_a_warning(tmp_path: Path, code: str) -> None:
    assert in_part(tmp_path, code, "KB302", "KB303") == ["KB303"]


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    try:\n        import numpy\n    except ImportError:\n        return\nf()\n",
        "import os\ndef f():\n    if os.name:\n        return\n    import numpy\nf()\n",
        "import os\ndef f():\n    import numpy\nif os.name:\n    f()\n",
        "def f():\n    import numpy\ntry:\n    f()\nexcept ImportError:\n    pass\n",
    ],
)
def test_what_a_called_function_may_not_reach_is_a_warning(tmp_path: Path, code: str) -> None:
    assert in_part(tmp_path, code, "KB312", "KB313") == ["KB313"]


def test_a_function_that_an_import_calls_is_part_of_it(tmp_path: Path) -> None:
    assert in_part(tmp_path, "def f():\n    import numpy\nf()\n", "KB31") == ["KB312"]
    assert in_part(tmp_path, "def f():\n    raise SystemExit\nf()\n", "KB35") == ["KB350"]


def test_another_floor(tmp_path: Path) -> None:
    root = source(tmp_path, {"__init__.py": "__all__ = []\ndef f(x: int | None): ...\n"})
    assert codes(root, "KB302") == ["KB302"]
    assert codes(root, "KB302", python_floor=(3, 10)) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python cannot parse them")
def test_newer_f_strings(tmp_path: Path) -> None:
    assert in_part(tmp_path, "d = {}\nx = f'{d['a']}'\n", "KB302") == ["KB302"]
    assert in_part(tmp_path, "d = {}\nx = f'{d[\"a\"]}'\n", "KB302") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy\n", ["KB312"]),
        ("import importlib\nimportlib.import_module('numpy.linalg')\n", ["KB312"]),
        ("from importlib import import_module as load\nload('numpy')\n", ["KB312"]),
        ("__import__('numpy')\n", ["KB312"]),
        ("try:\n    import numpy\nexcept ImportError:\n    raise\n", ["KB312"]),
        ("try:\n    import numpy\nexcept ImportError:\n    numpy = None\n", ["KB313"]),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import numpy\n", ["KB313"]),
        ("def f():\n    import numpy\n", ["KB313"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\n", ["KB313"]),
        ("import os\nif os.name == 'nt':\n    import numpy\n", ["KB313"]),
        ("import typing_extensions\n", ["KB313"]),
        ("import distutils.util\n", ["KB304"]),
        ("try:\n    import distutils\nexcept ImportError:\n    pass\n", []),
        ("import os, torch, triton.language as tl\nfrom torch import nn\n", []),
        ("import my_kernel\n", ["KB310"]),
        ("from my_kernel.part import f\n", ["KB310"]),
        ("def f():\n    import my_kernel.part as p\n", ["KB310"]),
        ("import importlib\nimportlib.import_module('my_kernel.part')\n", ["KB310"]),
        ("import importlib\nname = 'a'\nimportlib.import_module(f'my_kernel.{name}')\n", ["KB310"]),
        ("import sys\nm = sys.modules.get('my_kernel.part')\n", ["KB311"]),
        ("try:\n    import my_kernel\nexcept ImportError:\n    pass\n", ["KB311"]),
        ("names = {}\nname = names.get('a', f'my_kernel.{1}.x')\n__import__(name)\n", ["KB311"]),
        ("import importlib\nimportlib.import_module('.part', __package__)\n", []),
        ("from . import part\nfrom .part import os\nimport os\n", []),
        ("from . import _ops\nfrom ._ops import ops\n", []),
        ("import torch\nfrom . import _ops as own\nfrom ._ops import add_op_namespace_prefix, torch as t\n", []),
        ("from ._ops import core\n", ["KB314"]),
        ("from ._ops import ops, core as c\n", ["KB314"]),
        ("def f():\n    from ._ops import core\n", ["KB314"]),
        ("try:\n    from ._ops import core\nexcept ImportError:\n    core = None\n", ["KB315"]),
        ("from .nothing import x\n", ["KB314"]),
        ("from ... import x\n", ["KB314"]),
        ("from .deeper.leaf import missing\n", ["KB314"]),
        ("from .deeper import leaf\nfrom .deeper.leaf import value\n", []),
        ("def f():\n    from .nothing import x\n", ["KB314"]),
        ("def f():\n    def g():\n        from . import nothing\n", ["KB314"]),
        ("class A:\n    def f(self):\n        from .deeper.leaf import missing\n", ["KB314"]),
        ("import os\nif os.name == 'nt':\n    from .nothing import x\n", ["KB314"]),
        ("def f():\n    import importlib\n    importlib.import_module('.nothing', __package__)\n", ["KB314"]),
        ("try:\n    from .nothing import x\nexcept ImportError:\n    raise\n", ["KB314"]),
        ("try:\n    pass\nexcept ImportError:\n    from .nothing import x\n", ["KB314"]),
        ("try:\n    from .nothing import x\nexcept ImportError:\n    x = None\n", ["KB315"]),
        ("try:\n    from .nothing import x\nexcept (ValueError, ModuleNotFoundError):\n    x = None\n", ["KB315"]),
        ("def f():\n    try:\n        from .nothing import x\n    except:\n        pass\n", ["KB315"]),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    from .nothing import x\n", ["KB315"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .nothing import x\n", ["KB315"]),
        ("import typing as t\nif t.TYPE_CHECKING:\n    from .deeper.leaf import missing\n", ["KB315"]),
    ],
)
def test_imports(tmp_path: Path, code: str, expected: list[str]) -> None:
    files = {"__init__.py": IMPORTED, "part.py": code, "deeper/leaf.py": "value = 1\n"}
    assert codes(source(tmp_path, files), "KB304", "KB31") == expected


def test_an_absolute_self_import_is_told_with_its_relative_form(tmp_path: Path) -> None:
    files = {"__init__.py": "__all__ = []\n", "a/b.py": "x = 1\nfrom my_kernel.a.c import y\n", "a/c.py": "y = 1\n"}
    (found,) = findings(source(tmp_path, files), "KB310")
    assert (found.path.endswith("a/b.py"), found.line) == (True, 2)
    assert found.hint == "write: from ..a.c import y"


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("import my_kernel.a.c\n", "write: from ..a import c"),
        ("import my_kernel.a.c as c\n", "write: from ..a import c"),
        ("import my_kernel.a.c as other\n", "write: from ..a import c as other"),
    ],
)
def test_the_relative_form_keeps_the_name_that_is_used(tmp_path: Path, code: str, hint: str) -> None:
    files = {"__init__.py": "__all__ = []\n", "a/b.py": code, "a/c.py": "y = 1\n"}
    assert [found.hint for found in findings(source(tmp_path, files), "KB310")] == [hint]


@pytest.mark.parametrize(
    "code",
    [
        "import my_kernel._C as core\n",
        "from my_kernel import _C as core\n",
        "from my_kernel._C import scale\n",
        "from my_kernel.deep._ext import scale\n",
        "from . import _C\n",
        "from ._C import scale\n",
        "def f():\n    from . import _scale_ext as ext\n",
    ],
)
def test_a_compiled_module_of_its_own_is_told_with_what_there_is_instead(tmp_path: Path, code: str) -> None:
    files = {"__init__.py": f"__all__ = []\n{code}", "deep/__init__.py": ""}
    (found,) = findings(source(tmp_path, files), "KB31")
    assert found.severity.value == "error"
    assert found.hint is not None
    assert found.hint.startswith("write: from ._ops import ops;")


def test_modules_that_importing_the_kernel_does_not_run_may_need_more(tmp_path: Path) -> None:
    files = {"__init__.py": "__all__ = []\n", "part.py": "import numpy\n", "part_test.py": "import pytest\n"}
    assert codes(source(tmp_path, files), "KB31") == ["KB313", "KB313"]


def test_declared_dependencies_by_the_modules_they_bring(tmp_path: Path) -> None:
    code = "import cutlass\nimport cuda.bindings.driver\nimport einops\n"
    general = 'python-depends = ["einops"]\n[general.cuda]\npython-depends = ["nvidia-cutlass-dsl"]\n'
    assert in_part(tmp_path / "declared", code, "KB31", general=general) == []
    assert sorted(in_part(tmp_path / "not", code, "KB31")) == ["KB312", "KB312", "KB313"]


def test_triton_in_a_kernel_for_the_cpu(tmp_path: Path) -> None:
    assert in_part(tmp_path / "a", "import triton\n", "KB316", backends='"cpu", "cuda"') == ["KB316"]
    assert in_part(tmp_path / "b", "import triton\n", "KB316", backends='"cuda"') == []
    assert in_part(tmp_path / "c", "def f():\n    import triton\n", "KB316", backends='"cpu"') == []


def test_a_module_named_like_the_standard_librarys(tmp_path: Path) -> None:
    assert codes(source(tmp_path / "a", {"types.py": ""}), "KB320") == ["KB320"]
    assert codes(source(tmp_path / "b", {"inner/types.py": "", "_types.py": ""}), "KB320") == []
    found = findings(source(tmp_path / "c", {"types.py": "", "typing.py": "", "_json.py": ""}), "KB320")
    names = {one.symbol: str(one.hint).partition("rename it to ")[2].partition(",")[0] for one in found}
    assert (names["typing"], names["_json"]) == ("typing_", "__json")  # _typing is in C
    for name in names.values():
        assert codes(source(tmp_path / name, {f"{name}.py": ""}), "KB320") == []


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("", ["KB330"]),
        ("__all__ = ['f']\n", ["KB331"]),
        ("def f(): ...\n__all__ = [f]\n", ["KB331"]),
        ("from .part import f\n__all__ = ['f', 'part', 'layers']\n", ["KB331"]),
        ("def f(): ...\n__all__ = ['f']\n__all__ += ['g']\n", ["KB331"]),
        ("from .part import *\n__all__ = ['f', 'part']\n", []),
        ("if True:\n    f = 1\nelse:\n    g = 2\n__all__ = ['f', 'g']\n", []),
        ("__all__ = ['f']\ndef __getattr__(name): ...\n", []),
        ("from . import part\n__all__ = part.__all__\n", []),
    ],
)
def test_public_names(tmp_path: Path, init: str, expected: list[str]) -> None:
    root = source(tmp_path, {"__init__.py": init, "part.py": "def f(): ...\n"})
    assert codes(root, "KB33") == expected


LAYERS = "import torch.nn as nn\nfrom dataclasses import dataclass\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class L(nn.Module):\n    def forward(self, x): return x\n", []),
        ("class L(nn.Module):\n    has_backward = False\n    can_torch_compile: bool = True\n    eps: float\n", []),
        ("class L(nn.Module):\n    def extra_repr(self): return ''\n", []),
        ("@dataclass\nclass Output:\n    loss: float = 0\n    def helper(self): ...\n", []),
        ("class L(nn.Module):\n    def __init__(self): super().__init__()\n", ["KB340"]),
        ("class L(nn.Module):\n    eps = 1e-5\n", ["KB340"]),
        ("class _B(nn.Module):\n    def helper(self): ...\nclass L(_B):\n    pass\n", ["KB340"]),
    ],
)
def test_layers(tmp_path: Path, code: str, expected: list[str]) -> None:
    files = {"__init__.py": "from . import layers\n__all__ = ['layers']\n", "layers.py": LAYERS + code}
    assert codes(source(tmp_path, files), "KB340") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys\nsys.exit(1)\n", ["KB350"]),
        ("raise SystemExit\n", ["KB350"]),
        ("def f():\n    exit(1)\n", ["KB351"]),
        ("import os\ndef f():\n    os._exit(1)\n", ["KB351"]),
        ("import sys\nif __name__ == '__main__':\n    sys.exit(1)\n", []),
        ("def exit(): ...\nexit()\n", []),
        ("def f(pool):\n    pool.exit()\n", []),
    ],
)
def test_ends_of_the_process(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert in_part(tmp_path, code, "KB35") == expected


def test_a_variant_is_judged_like_its_sources(tmp_path: Path) -> None:
    code = {"__init__.py": "import numpy\nimport my_kernel.part\nfrom . import _ops\n__all__ = ['x']\n"}
    assert codes(variant(tmp_path, files=code), "KB3") == ["KB312", "KB310", "KB331"]
    assert codes(variant(tmp_path / "good"), "KB3") == []


def test_the_package_one_level_down_as_variants_had_it_once(tmp_path: Path) -> None:
    root = variant(tmp_path, "torch-cuda", {"my_kernel/__init__.py": "from .part import f\n__all__ = ['f']\n",
                                            "my_kernel/part.py": "def f(): ...\n"})  # fmt: skip
    (root / "__init__.py").unlink()
    (root / "_ops.py").unlink()
    assert codes(root, "KB3") == []
    (root / "my_kernel/part.py").write_text("import numpy\n", encoding="utf-8")
    assert codes(root, "KB3") == ["KB314", "KB312"]


def test_what_the_generated_module_lacks_is_an_op(tmp_path: Path) -> None:
    root = source(tmp_path, {"deeper/part.py": "from .._ops import core\n", "__init__.py": "__all__ = []\n"})
    (found,) = findings(root, "KB314")
    assert found.message == "from .._ops import core: _ops defines no core"
    assert found.hint == "write: from .._ops import ops, and call ops.core(...)"
    built = variant(tmp_path / "build", files={"part.py": "from ._ops import core\n"})
    assert [found.hint for found in findings(built, "KB314")] == [
        "write: from ._ops import ops, and call ops.core(...)"
    ]


@pytest.mark.parametrize(
    ("code", "symbols"),
    [
        ("from . import _ops\n_ops.ops.f(1)\n_ops.add_op_namespace_prefix('f')\n_ops.__name__\n", []),
        ("from . import _ops\n\n\ndef f(x):\n    return _ops.core(x)\n", ["core"]),
        ("from . import _ops as own\n\nf = own.core.f\n", ["core"]),
        ("from . import _ops\n\n_ops.extra = 1\nprint(_ops.extra)\n", []),
        ("from . import _ops\n\ntry:\n    f = _ops.core\nexcept AttributeError:\n    f = None\n", []),
        ("from . import _ops\n\n\ndef f(_ops):\n    return _ops.core\n", []),
    ],
)
def test_attributes_that_the_generated_module_lacks(tmp_path: Path, code: str, symbols: list[str]) -> None:
    files = {"__init__.py": code + "\n__all__ = []\n"}
    for tree in (source(tmp_path / "k", files), variant(tmp_path / "build", files=files)):
        found = [one for one in findings(tree, "KB207") if "_ops defines" in one.message]
        assert [one.symbol for one in found] == symbols
        assert all(one.hint is not None and one.hint.endswith(".ops.core") for one in found)


def test_the_names_of_the_generated_module_are_those_that_builds_write() -> None:
    tree = ast.parse(ops_module("_own", compiled=True))
    bound = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    bound |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}  # type: ignore[attr-defined]
    bound |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert bound == GENERATED_NAMES


def test_a_number_that_is_too_long_for_python(tmp_path: Path) -> None:
    root = source(tmp_path, {"part.py": f"x = {'9' * 5000}\n"})
    (found,) = findings(root, "KB305")
    assert found.message == "not valid Python: a number has too many digits"
