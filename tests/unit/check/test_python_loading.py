"""What Python code looks for on the user's machine: distributions, libraries, compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import codes, source

INIT = "from . import part\n\n__all__ = []\n"


def found(tmp_path: Path, code: str, init: str = INIT) -> list[str]:
    return codes(source(tmp_path, {"__init__.py": init, "part.py": code}), "KB317", "KB318", "KB32")


OWN_METADATA = [
    "import importlib.metadata\nv = importlib.metadata.version('my-kernel')\n",
    "import importlib.metadata as m\nv = m.version('my_kernel')\n",
    "from importlib import metadata\nv = metadata.version('My.Kernel')\n",
    "from importlib import metadata as md\nv = md.distribution('my-kernel').version\n",
    "from importlib.metadata import version\nv = version('my-kernel')\n",
    "from importlib.metadata import version as v\nx = v(distribution_name='my-kernel')\n",
    "from importlib.metadata import *\nx = version('my-kernel')\n",
    "from importlib.metadata import version\ndef f(): return version('my-kernel')\n",
    "from importlib.metadata import version\nNAME = 'my-kernel'\nx = version(NAME)\n",
    "from importlib.metadata import version\nx = version(__name__)\n",
    "from importlib.metadata import version\nx = version(__package__.split('.')[0])\n",
    "import importlib_metadata\nx = importlib_metadata.metadata('my-kernel')\n",
    "import pkg_resources\nx = pkg_resources.get_distribution('my-kernel').version\n",
    "import importlib\nx = importlib.import_module('importlib.metadata').version('my-kernel')\n",
    "import importlib.metadata as m\nx = getattr(m, 'version')('my-kernel')\n",
    "from importlib.metadata import version\ntry:\n    x = version('my-kernel')\nexcept ValueError:\n    x = ''\n",
    "from importlib.metadata import version\nx = version('einops')\n",
]


@pytest.mark.parametrize("code", OWN_METADATA)
def test_a_kernel_has_no_distribution(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == ["KB317"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "from importlib.metadata import *\ntry:\n    version('my-kernel')\nexcept PackageNotFoundError: ...\n",
            ["KB318"],
        ),
        (
            "import importlib.metadata as m\ntry:\n    m.version('my-kernel')\nexcept m.PackageNotFoundError: ...\n",
            ["KB318"],
        ),
        ("import importlib.metadata as m\ntry:\n    x = m.version('my-kernel')\nexcept Exception: ...\n", ["KB318"]),
        (
            "import importlib.metadata as m\ndef f():\n    try:\n        m.version('my-kernel')\n    except: ...\n",
            ["KB318"],
        ),
        ("import importlib.metadata as m\nx = m.version('torch')\n", []),
        ("import importlib.metadata as m\ndef f(): return m.version('einops')\n", []),
        ("def version(name): ...\nx = version('my-kernel')\n", []),
        ("# importlib.metadata.version('my-kernel')\n", []),
    ],
)
def test_other_distributions_and_handled_failures(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert found(tmp_path, code) == expected


LIBRARIES = [
    "import torch\ntorch.ops.load_library('_C.so')\n",
    "import torch\ndef f():\n    torch.ops.load_library('_C.so')\n",
    "from torch import ops\nops.load_library('_C.so')\n",
    "from torch.ops import load_library as load\nload('_C.so')\n",
    "import torch\nload = torch.ops.load_library\nload('_C.so')\n",
    "import torch\nload = getattr(torch.ops, 'load_library')\nload('_C.so')\n",
    "from torch import *\nops.load_library('_C.so')\n",
    "import torch\ntorch.classes.load_library('_C.so')\n",
    "from functools import partial\nimport torch\nload = partial(torch.ops.load_library)\nload('_C.so')\n",
    "import ctypes\nctypes.CDLL('/usr/lib/libcuda.so')\n",
    "from ctypes import CDLL\nCDLL('/usr/lib/libcuda.so')\n",
    "from ctypes import *\nCDLL('/usr/lib/libcuda.so')\n",
    "import ctypes as c\nc.cdll.LoadLibrary('/usr/lib/libcuda.so')\n",
    "from ctypes import cdll\ncdll.LoadLibrary('/usr/lib/libcuda.so')\n",
    "import ctypes\nPATH = '/usr/lib/libcuda.so'\nctypes.PyDLL(PATH, mode=1)\n",
    "import ctypes, os\nctypes.CDLL(os.path.join('/usr/lib', 'libcuda.so'))\n",
    "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path('/usr/lib') / 'libcuda.so'))\n",
    "import ctypes\nctypes.WinDLL('C:\\\\cuda\\\\cudart.dll')\n",
    "import ctypes\ndef f():\n    return ctypes.CDLL('/usr/lib/libcuda.so')\nlib = f()\n",
    "import ctypes\nclass A:\n    lib = ctypes.CDLL('/usr/lib/libcuda.so')\n",
    "import ctypes, os\nif os.name == 'posix':\n    ctypes.CDLL('/usr/lib/libcuda.so')\n",
    "import ctypes, os\nctypes.CDLL(os.path.join(os.path.dirname(__file__), '_C.so'))\n",
    "import ctypes, pathlib\nHERE = pathlib.Path(__file__).parent\ndef f():\n    ctypes.CDLL(HERE / '_C.so')\n",
]


@pytest.mark.parametrize("code", LIBRARIES)
def test_libraries_that_are_loaded(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == ["KB321"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import ctypes\ndef f():\n    ctypes.CDLL('/usr/lib/libcuda.so')\n", ["KB322"]),
        ("import ctypes\ntry:\n    ctypes.CDLL('/usr/lib/libcuda.so')\nexcept OSError: ...\n", ["KB322"]),
        ("import torch\ntry:\n    torch.ops.load_library('x.so')\nexcept OSError: ...\n", ["KB322"]),
        ("import ctypes\nctypes.CDLL('libcuda.so.1')\nctypes.CDLL(None)\nctypes.CDLL(name())\n", []),
        ("import torch\ntorch.load('/x')\ntorch.ops.aten.add\n", []),
        ("class ctypes:\n    CDLL = print\nctypes.CDLL('/usr/lib/libcuda.so')\n", []),
    ],
)
def test_libraries_that_are_loaded_later_or_not_at_all(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert found(tmp_path, code) == expected


COMPILED = [
    "from torch.utils.cpp_extension import load_inline\nm = load_inline('a', [''])\n",
    "from torch.utils.cpp_extension import load as l\nm = l(name='a', sources=[])\n",
    "import torch.utils.cpp_extension\nm = torch.utils.cpp_extension.load('a', [])\n",
    "import torch.utils.cpp_extension as e\nm = e.load('a', [])\n",
    "from torch.utils import cpp_extension\nm = cpp_extension.load_inline('a', [])\n",
    "from torch import utils\nm = utils.cpp_extension.load('a', [])\n",
    "from torch.utils.cpp_extension import *\nm = load('a', [])\n",
    "import importlib\nm = importlib.import_module('torch.utils.cpp_extension').load('a', [])\n",
    "from torch.utils.cpp_extension import load\ndef f():\n    return load('a', [])\nm = f()\n",
    "from torch.utils.cpp_extension import load\nclass A:\n    m = load('a', [])\n",
    "from torch.utils.cpp_extension import load\ndef f(m=load('a', [])): ...\n",
]


@pytest.mark.parametrize("code", COMPILED)
def test_extensions_that_are_compiled_on_import(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == ["KB323"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from torch.utils.cpp_extension import load\ndef f():\n    return load('a', [])\n", ["KB324"]),
        ("from torch.utils.cpp_extension import load\ntry:\n    m = load('a', [])\nexcept Exception: ...\n", ["KB324"]),
        ("from torch.utils.cpp_extension import CUDA_HOME\nfrom json import load\nm = load('a')\n", []),
    ],
)
def test_extensions_that_are_compiled_later_or_not_at_all(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert found(tmp_path, code) == expected


def test_modules_that_an_import_does_not_run_are_for_later(tmp_path: Path) -> None:
    code = "from torch.utils.cpp_extension import load\nimport torch\nload('a', [])\ntorch.ops.load_library('x')\n"
    assert found(tmp_path, code, init="__all__ = []\n") == ["KB324", "KB322"]
