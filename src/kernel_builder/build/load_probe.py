# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own.
"""Tell what this interpreter has (``describe``), or load one variant with the ``kernels`` client (``load``).

Usage: ``python -I -B load_probe.py describe`` or ``... load REQUEST-JSON``. The answer is one line of JSON, the last of
stdout. Python 3.9 syntax.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.metadata
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

PREFIX = "kernel-builder-probe: "


def answer(**values: object) -> None:
    print(PREFIX + json.dumps(values), flush=True)


def version_facts(torch_file: str) -> dict[str, object]:
    """What torch/version.py says; it stands alone, and importing torch itself takes seconds."""
    facts: dict[str, object] = {}
    path = os.path.join(os.path.dirname(torch_file), "version.py")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), facts)
    return facts


def has_cxx11_abi(version: str) -> bool:
    """Builds of torch from 2.7 on have the new ABI; before, only torch itself can tell."""
    major, minor = version.split("+", maxsplit=1)[0].split(".")[:2]
    if (int(major), int(minor)) >= (2, 7):
        return True
    import torch

    return bool(torch.compiled_with_cxx11_abi())


def describe() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        answer(torch=None, problem="torch is not installed")
        return
    if importlib.util.find_spec("kernels") is None:
        answer(torch=None, problem="the kernels client is not installed")
        return
    try:
        facts = version_facts(spec.origin)
        version = str(facts["__version__"])
        cxx11 = has_cxx11_abi(version)
    except Exception as error:
        answer(torch=None, problem=f"its torch cannot be used: {error}")
        return
    answer(
        torch=version,
        cuda=facts.get("cuda"),
        hip=facts.get("hip"),
        xpu=facts.get("xpu"),
        metal=sys.platform == "darwin",
        gpus=gpus(),
        client=importlib.metadata.version("kernels"),
        cxx11=cxx11,
        free_threaded=not getattr(sys, "_is_gil_enabled", lambda: True)(),
    )


class Refusing(importlib.abc.MetaPathFinder):
    """Refuses an absolute import of the kernel itself, which would find some other package of its name, or none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == self.name or fullname.startswith(self.name + "."):
            raise ImportError(f"the kernel imports itself by its absolute name, {fullname!r}; use a relative import")


# Every key that can make an op run. An op without tensors may well be registered for the CPU in a CUDA kernel.
KEYS = ["CPU", "CUDA", "XPU", "MPS", "PrivateUse1"]
KEYS += ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]


def ops_of(namespace: str) -> tuple[list[str], list[str]]:
    """(all ops of the namespace, those that nothing implements)."""
    import torch

    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return names, [name for name in names if not any(has(name, key) for key in KEYS)]


def reason_of(error: BaseException) -> str:
    """The error's type and words, without notes of the client's own."""
    words = str(error).strip() or "(no message)"
    return f"{type(error).__name__}: {words}"


def kernel_frames(error: BaseException, root: str) -> list[str]:
    """Where in the kernel's own files it happened, outermost first: ``ops/__init__.py, line 3: import nothing``."""
    inside = os.path.realpath(root) + os.sep
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "", line=error.text))
    found = []
    for frame in frames:
        path = os.path.realpath(frame.filename)
        if path.startswith(inside):
            found.append(f"{path[len(inside) :]}, line {frame.lineno}: {(frame.line or '').strip()}")
    return found


def gpus() -> int:
    """How many NVIDIA GPUs the driver offers; torch itself would take seconds to say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def load(request: dict[str, Any]) -> None:
    missing = [name for name, module in request["depends"].items() if importlib.util.find_spec(module) is None]
    if missing:
        answer(status="unavailable", reason=f"its Python dependency {', '.join(missing)} is not installed")
        return
    try:
        import kernels
        import torch  # noqa: F401  (first, as a user's program does)
    except Exception as error:
        answer(status="unavailable", reason=f"torch and kernels cannot be imported: {error}")
        return

    if request["name"] not in request["depends"].values():
        sys.meta_path.insert(0, Refusing(request["name"]))
    backend = request["backend"]
    try:
        kernels.get_local_kernel(Path(request["path"]), backend=backend if backend == "cpu" else None)
    except Exception as error:
        answer(status="failed", reason=reason_of(error), trace=kernel_frames(error, request["path"]))
        return
    names, unimplemented = ops_of(request["id"])
    answer(status="loaded", ops=names, unimplemented=unimplemented)


if __name__ == "__main__":
    if sys.argv[1] == "describe":
        describe()
    else:
        load(json.loads(sys.argv[2]))
