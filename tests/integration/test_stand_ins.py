"""Variants that this machine cannot run are loaded all the same, with stand-ins for what it lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from conftest import Tool
from device_kernels import NEEDS, TWO_OPS, device_kernel
from kernel_builder.config.backends import Backend
from kernel_builder.load.client import Environment, Loadable, find_environment, load_variant
from kernel_builder.load.evidence import LoadResult, LoadStatus
from kernel_builder.load.probe import device_code
from kernel_builder.variants.names import parse_variant
from kernel_trees import variant

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.skipif(torch.version.cuda is not None, reason="this torch needs no stand-ins"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="this machine has no gcc"),
]
CU130 = "torch213-cxx11-cu130-x86_64-linux"


@cache
def here() -> Environment:
    found = find_environment(Path(sys.executable), dict(os.environ))
    assert isinstance(found, Environment)
    return found


def loaded(path: Path, log: Path | None = None) -> LoadResult:
    """What loading the variant in ``path`` shows."""
    metadata = json.loads((path / "metadata.json").read_text(encoding="utf-8"))
    kernel = Loadable(
        directory=path,
        variant=parse_variant(path.name),
        ops_id=metadata["id"],
        python_name=metadata["name"],
    )
    return load_variant(kernel, here(), log=log)


@pytest.mark.parametrize(
    ("name", "toolkit", "key"),
    [
        ("torch213-cxx11-cu126-x86_64-linux", "cu", "CUDA"),
        ("torch213-cxx11-rocm72-x86_64-linux", "rocm", "CUDA"),
        ("torch213-cxx11-xpu20260-x86_64-linux", "xpu", "XPU"),
        ("torch-stable-abi211-cu130-x86_64-linux", "cu", "CUDA"),
    ],
)
def test_a_variant_of_another_device_is_loaded(tmp_path: Path, name: str, toolkit: str, key: str) -> None:
    result = loaded(device_kernel(tmp_path, name, toolkit=toolkit, key=key))
    assert (result.status, result.reason, result.frames) == (LoadStatus.STOOD_IN, None, ())
    assert result.told == f"loaded with stand-ins: 2 ops, implemented for {key}"
    assert set(result.stood_in) == set(NEEDS[toolkit]) - {"libtorch_cpu.so"}
    assert result.unimplemented(parse_variant(name).backend) == ()


def test_the_check_says_how_far_the_proof_goes(tool: Tool, tmp_path: Path) -> None:
    """Another version of it loads beside it; an op for another device is found there, too."""
    code = TWO_OPS.replace('implement("thrice", "KEY")', 'implement("thrice", "CPU")')
    path = device_kernel(tmp_path, CU130, toolkit="cu", key="CUDA", code=code)
    result = tool("check", path, "--load", "--select", "KB5", "--format", "json")
    assert {(finding["code"], finding["message"]) for finding in result.json["findings"]} == {  # type: ignore[attr-defined]
        ("KB510", "loaded with stand-ins: 2 ops, implemented for CPU and CUDA"),
        ("KB504", "_device_cuda_1a2b3c4::thrice is implemented for CPU only, but the variant is for CUDA"),
    }


def test_python_that_needs_a_device_is_not_run(tmp_path: Path) -> None:
    """By what it raises, or because it calls a function of the device's runtime."""
    asks = "import torch\nfrom . import NAMESPACE\ncapability = torch.cuda.get_device_capability()\n"
    calls = "import ctypes\nfrom . import NAMESPACE\nctypes.CDLL(NAMESPACE.__file__).run()\n"
    for name, package, words in (
        ("asks", asks, "its Python code needs a device, so it was not run: __init__.py, line 3: capability = torch."),
        ("calls", calls, "its Python code calls cudaLaunchKernel, which needs a device, so it was not run"),
    ):
        files = {"__init__.py": package}
        result = loaded(device_kernel(tmp_path / name, CU130, toolkit="cu", key="CUDA", files=files))
        assert (result.status, len(result.ops)) == (LoadStatus.STOOD_IN, 2), result.reason
        assert result.reason is not None
        assert result.reason.startswith(words)


def test_python_that_is_wrong_fails(tmp_path: Path) -> None:
    package = "import torch\nfrom . import NAMESPACE\nhere = torch.cuda.is_available()\nwrogn = naem\n"
    path = device_kernel(tmp_path, CU130, toolkit="cu", key="CUDA", files={"__init__.py": package})
    result = loaded(path)
    assert (result.status, result.crashed) == (LoadStatus.FAILED, False)
    assert (result.reason or "").startswith("NameError: name 'naem'")
    assert result.frames == ("__init__.py, line 4: wrogn = naem",)


def test_a_library_that_calls_the_device_when_it_is_loaded(tmp_path: Path) -> None:
    code = TWO_OPS + "void cudaMalloc(void);\n__attribute__((constructor)) static void early(void) { cudaMalloc(); }\n"
    result = loaded(device_kernel(tmp_path, CU130, toolkit="cu", key="CUDA", code=code))
    assert result.status is LoadStatus.NOT_LOADED
    assert (result.reason or "").startswith("loading its library calls cudaMalloc, which needs a device")


def test_what_nobody_has_is_not_stood_in_for(tmp_path: Path) -> None:
    """A name that no runtime has, and a library that kernels may not need."""
    code = TWO_OPS + "void my_forgotten_function(void);\nvoid go(void) { my_forgotten_function(); }\n"
    result = loaded(device_kernel(tmp_path / "name", CU130, toolkit="cu", key="CUDA", code=code), tmp_path / "log")
    assert result.status is LoadStatus.FAILED
    assert "undefined symbol: my_forgotten_function" in (result.reason or "")
    assert "undefined symbol: my_forgotten_function" in (tmp_path / "log").read_text(encoding="utf-8")
    needs = (*NEEDS["cu"], "libmine.so.1")
    result = loaded(device_kernel(tmp_path / "library", CU130, toolkit="cu", key="CUDA", needs=needs))
    assert "libmine.so.1: cannot open shared object file" in (result.reason or "")


def test_the_torch_that_is_missing_is_named(tmp_path: Path) -> None:
    path = variant(tmp_path, "torch211-cxx11-cu130-x86_64-linux")
    result = loaded(path)
    assert result.status is LoadStatus.NOT_LOADED
    assert result.reason == f"it needs torch 2.11, but torch {torch.__version__} is installed here"


def test_a_variant_of_python_alone_is_imported(tmp_path: Path) -> None:
    package = "import torch\nfrom ._ops import ops\n\nassert torch.version.cuda\n__all__ = []\n"
    result = loaded(variant(tmp_path / "good", "torch-cuda", {"__init__.py": package}))
    assert (result.status, result.reason) == (LoadStatus.STOOD_IN, None)
    result = loaded(variant(tmp_path / "asks", "torch-cuda", {"__init__.py": "import triton\n"}))
    assert result.status is LoadStatus.NOT_LOADED
    assert (result.reason or "").startswith(
        "its Python code needs a device, so it was not run: __init__.py, line 1: import triton, ModuleNotFoundError: "
    )


NEEDS_A_DEVICE = {
    "capability": "import torch\ntorch.cuda.get_device_capability()",
    "current": "from torch import cuda\ncuda.current_device()",
    "from": "from torch.cuda import current_device\ncurrent_device()",
    "tensor": "import torch\ntorch.zeros(1, device='cuda')",
    "moved": "import torch\ntorch.zeros(1).cuda()",
    "compiler": "import triton.language as tl",
    "chained": "try:\n    import triton\nexcept ImportError:\n    raise RuntimeError('no compiler')",
    "refuses": "import torch\nif not torch.cuda.is_available():\n    raise ImportError('this kernel needs a GPU')",
    "counts": "import torch\nmin(range(torch.cuda.device_count()))",
    "accelerator": "import torch\nassert torch.accelerator.is_available()",
    "inner": "import torch\ntorch._C._cuda_getCurrentRawStream(0)",
}
IS_WRONG = {
    "name": "import torch\ntorch.cuda.is_available()\nnothing",
    "module": "import torch\ntorch.cuda.is_available()\nimport no_such_module",
    "part": "import torch\ntorch.cuda.is_available()\nfrom os import nothing",
    "raises": "raise RuntimeError('broken')",
    "attribute": "import torch\ntorch.nothing",
    "index": "[][0]",
    "type": "import torch\ntorch.zeros('a')",
}


def test_what_needs_a_device_is_told_from_what_is_wrong(tmp_path: Path) -> None:
    for name, text in {**NEEDS_A_DEVICE, **IS_WRONG}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="ascii")
    request = {"device": "cuda", "key": "CUDA", "device-modules": ["cuda", "triton"]}
    code = f"""
import importlib.util, runpy, sys, torch
spec = importlib.util.spec_from_file_location("device_code", {device_code.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for name in sys.argv[1:]:
    devices = module.Devices({str(tmp_path)!r}, {request!r})
    devices.watch()
    try:
        runpy.run_path({str(tmp_path)!r} + "/" + name + ".py")
        print(name, "passes")
    except Exception as error:
        print(name, devices.needs_one(error))
"""
    names = [*NEEDS_A_DEVICE, *IS_WRONG]
    ended = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    told = dict(line.split() for line in ended.stdout.splitlines())
    assert told == {**dict.fromkeys(NEEDS_A_DEVICE, "True"), **dict.fromkeys(IS_WRONG, "False")}


def test_every_backend_with_libraries_of_its_own_says_what_registers() -> None:
    quiet = {"cuda": "__cudaRegisterFatBinaryEnd", "rocm": "__hipRegisterFatBinary", "xpu": "__sycl_register_lib"}
    assert {backend for backend in Backend if backend.registration} == set(quiet)
