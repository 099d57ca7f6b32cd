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
    "import importlib.resources\nx = importlib.resources.files('my_kernel')\n",
    "from importlib.resources import files\nx = files('my_kernel.data') / 'table.bin'\n",
    "from importlib import resources as r\nNAME = 'my_kernel'\nwith r.path(NAME, 'x') as p: ...\n",
    "from importlib.resources import read_text\ndef f(): return read_text(package='my_kernel', resource='x')\n",
    "import importlib_resources\nx = importlib_resources.files('my_kernel')\n",
    "import pkgutil\nx = pkgutil.get_data('my_kernel', 'x')\n",
    "from pkgutil import get_data\nx = get_data(f'my_{\"kernel\"}', 'x')\n",
    "import pkg_resources\nx = pkg_resources.resource_filename('my_kernel', 'x')\n",
    "from importlib.resources import files\nx = files('einops')\n",
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
        ("from importlib.resources import files\nx = files(__package__), files(__name__), files('torch')\n", []),
        ("import pkgutil\nx = pkgutil.get_data(__package__, 'x')\ny = pkgutil.get_data('json', 'x')\n", []),
        ("from importlib.resources import files\ntry:\n    files('my_kernel')\nexcept ImportError: ...\n", ["KB318"]),
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
    # compilers as programs
    "import subprocess\nsubprocess.run(['nvcc', '-shared', 'a.cu'])\n",
    "from subprocess import check_call as c\nc(['g++', '-o', 'x', 'x.cpp'])\n",
    "import subprocess as s\ns.Popen(args=('clang++-18', 'x.cpp'))\n",
    "import subprocess\nsubprocess.run('cd x && make -j', shell=True)\n",
    "import subprocess\nsubprocess.check_output('/usr/local/cuda/bin/nvcc x.cu', shell=True)\n",
    "import subprocess\nsubprocess.run(['nvcc', '--version'])\n",
    "import os\nos.system('nvcc -shared a.cu')\n",
    "from os import system\nsystem('CXX=g++ ninja')\n",
    "import os\nos.popen('hipcc a.hip')\n",
    "import os\nos.execvp('cc', ['cc', 'x.c'])\n",
    "import os\nos.spawnlp(os.P_WAIT, 'gcc', 'gcc', 'x.c')\n",
    "import os, subprocess\nHOME = os.environ['CUDA_HOME']\nsubprocess.run([os.path.join(HOME, 'bin', 'nvcc'), 'x'])\n",
    "import os, subprocess\nHOME = find()\nsubprocess.run([f'{HOME}/bin/nvcc', 'x'])\n",
    "import subprocess\nNVCC = 'nvcc'\nCOMMAND = [NVCC, 'x.cu']\nsubprocess.run(COMMAND)\n",
    "import subprocess\nsubprocess.run(['nvcc', 'x.cu'] + FLAGS)\n",
    "import shlex, subprocess\nsubprocess.run(shlex.split('nvcc x.cu'))\n",
    "import subprocess\nsubprocess.run('nvcc x.cu'.split())\n",
    "import shutil, subprocess\nsubprocess.run([shutil.which('nvcc'), 'x.cu'])\n",
    "import os, subprocess\nsubprocess.run([os.environ.get('CXX', 'g++'), 'x.cpp'])\n",
    "import subprocess\nsubprocess.run(['ccache', 'x86_64-linux-gnu-g++-12', 'x.cpp'])\n",
    "import subprocess\nsubprocess.run(['bash', '-c', 'nvcc x.cu'])\n",
    "import subprocess\ndef build(): subprocess.check_call(['nvcc', 'x.cu'])\nbuild()\n",
    "import subprocess, shutil\nif shutil.which('nvcc'): subprocess.run(['nvcc', 'x.cu'])\n",
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
        ("import subprocess\ndef f(): subprocess.run(['nvcc', 'x.cu'])\n", ["KB324"]),
        ("import subprocess\ndef f(): subprocess.run(['nvcc', '--version'])\n", []),
        ("import subprocess\ntry:\n    subprocess.run(['nvcc', 'x'])\nexcept FileNotFoundError: ...\n", ["KB324"]),
        ("import subprocess\ntry:\n    subprocess.run(['nvcc', '-V'])\nexcept Exception: ...\n", []),
        ("import subprocess\nsubprocess.run(['nvidia-smi'])\nsubprocess.run(['git', 'log', 'make'])\n", []),
        ("import subprocess\nsubprocess.run(name())\nsubprocess.run(f'{name()} make', shell=True)\n", []),
        ("import subprocess\nsubprocess.run(['echo', 'nvcc'])\nprint('nvcc x.cu')\n", []),
        ("class os:\n    system = print\nos.system('nvcc x.cu')\n", []),
    ],
)
def test_extensions_that_are_compiled_later_or_not_at_all(tmp_path: Path, code: str, expected: list[str]) -> None:
    assert found(tmp_path, code) == expected


SETTINGS = "import os\nfrom os import environ, getenv\nfrom torch.utils.cpp_extension import load\n"
OPT_IN = [
    "if os.environ.get('JIT'): load('a', [])\n",
    "if os.environ.get('JIT', '0') == '1': load('a', [])\n",
    "if os.getenv('JIT', '').lower() in ('1', 'true'): load('a', [])\n",
    "if 'JIT' in os.environ and gpu(): load('a', [])\n",
    "if bool(int(os.environ.get('JIT', 0))): load('a', [])\n",
    "if not os.environ.get('AOT', 'yes'): load('a', [])\n",
    "if os.environ.get('AOT', '1') != '0': pass\nelse: load('a', [])\n",
    "JIT = os.environ.get('JIT') == '1'\nif JIT: load('a', [])\n",
    "if (jit := os.getenv('JIT')): load('a', [])\n",
    "m = load('a', []) if os.environ.get('JIT') else None\n",
    "m = os.environ.get('JIT') and load('a', [])\n",
    "def jit(): return os.environ.get('JIT') == '1'\nif jit(): load('a', [])\n",
    "def build(): load('a', [])\nif os.environ.get('JIT'): build()\n",
    "def build():\n    if not os.environ.get('JIT'):\n        return\n    load('a', [])\nbuild()\n",
    "if environ.get('JIT') or getenv('J'): load('a', [])\n",
    "if os.environ.get('A'):\n    if gpu(): load('a', [])\n",
]
OPT_OUT = [
    "if os.environ.get('JIT', '1') == '1': load('a', [])\n",
    "if not os.environ.get('NO_JIT'): load('a', [])\n",
    "if os.getenv('AOT'): pass\nelse: load('a', [])\n",
    "if 'NO_JIT' not in os.environ: load('a', [])\n",
    "if os.environ.get('JIT') or x: load('a', [])\n",
    "if gpu(): load('a', [])\n",
    "JIT = os.environ.get('JIT')\nJIT = True\nif JIT: load('a', [])\n",
    "def build(): load('a', [])\nif os.environ.get('JIT'): build()\nelse: build()\n",
]


@pytest.mark.parametrize("code", OPT_IN)
def test_what_only_runs_when_the_user_asks_for_it_is_a_warning(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, SETTINGS + code) == ["KB324"]


@pytest.mark.parametrize("code", OPT_OUT)
def test_what_runs_unless_the_user_forbids_it_is_an_error(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, SETTINGS + code) == ["KB323"]


def test_modules_that_an_import_does_not_run_are_for_later(tmp_path: Path) -> None:
    code = "from torch.utils.cpp_extension import load\nimport torch\nload('a', [])\ntorch.ops.load_library('x')\n"
    assert found(tmp_path, code, init="__all__ = []\n") == ["KB324", "KB322"]
