# Runs in the interpreter that kernels are loaded with, not in kernel-builder's: standard library, torch and kernels only.
"""Tell what this interpreter has (``describe``), or load one variant with the ``kernels`` client (``load``).

Usage: ``python -I -B load_probe.py describe`` or ``... load REQUEST-JSON``. The answer is one line of JSON, the last of
stdout. Python 3.9 syntax.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import traceback

PREFIX = "kernel-builder-probe: "


def answer(**values):
    print(PREFIX + json.dumps(values), flush=True)


def version_facts(torch_file):
    """What torch/version.py says; it stands alone, and importing torch itself takes seconds."""
    facts = {}
    path = os.path.join(os.path.dirname(torch_file), "version.py")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), facts)
    return facts


def has_cxx11_abi(version):
    """Builds of torch from 2.7 on have the new ABI; before, only torch itself can tell."""
    major, minor = version.split("+")[0].split(".")[:2]
    if (int(major), int(minor)) >= (2, 7):
        return True
    import torch

    return bool(torch.compiled_with_cxx11_abi())


def describe():
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return answer(torch=None, problem="torch is not installed")
    if importlib.util.find_spec("kernels") is None:
        return answer(torch=None, problem="the kernels client is not installed")
    try:
        facts = version_facts(spec.origin)
        version = str(facts["__version__"])
        cxx11 = has_cxx11_abi(version)
    except Exception as error:
        return answer(torch=None, problem="its torch cannot be used: {}".format(error))
    return answer(
        torch=version,
        cuda=facts.get("cuda"),
        hip=facts.get("hip"),
        xpu=facts.get("xpu"),
        metal=sys.platform == "darwin",
        cxx11=cxx11,
        free_threaded=not getattr(sys, "_is_gil_enabled", lambda: True)(),
    )


class Refusing(importlib.abc.MetaPathFinder):
    """Refuses an absolute import of the kernel itself, which would find some other package of its name, or none."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, fullname, path=None, target=None):
        if fullname == self.name or fullname.startswith(self.name + "."):
            raise ImportError(
                "the kernel imports itself by its absolute name, {!r}; use a relative import (from . import ...)".format(
                    fullname
                )
            )
        return None


KEYS = {"cpu": ["CPU"], "cuda": ["CUDA"], "rocm": ["CUDA"], "xpu": ["XPU"], "metal": ["MPS"]}
ANY_DEVICE = ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]


def ops_of(namespace, backend):
    """(all ops of the namespace, those that nothing implements for the backend)."""
    import torch

    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = KEYS.get(backend, []) + ANY_DEVICE
    return names, [name for name in names if not any(has(name, key) for key in keys)]


def load(request):
    missing = [name for name, module in request["depends"].items() if importlib.util.find_spec(module) is None]
    if missing:
        return answer(status="unavailable", reason="its Python dependency {} is not installed".format(", ".join(missing)))
    try:
        import torch  # noqa: F401  (first, as a user's program does)
        import kernels
    except Exception as error:
        return answer(status="unavailable", reason="torch and kernels cannot be imported: {}".format(error))

    if request["name"] not in request["depends"].values():
        sys.meta_path.insert(0, Refusing(request["name"]))
    backend = request["backend"]
    try:
        from pathlib import Path

        kernels.get_local_kernel(Path(request["path"]), backend=backend if backend == "cpu" else None)
    except Exception as error:
        text = traceback.format_exc()
        return answer(status="failed", reason="{}: {}".format(type(error).__name__, error), trace=text)
    names, unimplemented = ops_of(request["id"], backend)
    return answer(status="loaded", ops=names, unimplemented=unimplemented)


if __name__ == "__main__":
    if sys.argv[1] == "describe":
        describe()
    else:
        load(json.loads(sys.argv[2]))
