# Runs in the interpreter that kernels are loaded with, not in kernel-builder's: standard library, torch and kernels only.
"""Tell what this interpreter has (``describe``), or load one variant with the ``kernels`` client (``load``).

Usage: ``python -I -B load_probe.py describe`` or ``... load REQUEST-JSON``. The answer is one line of JSON, the last of
stdout. Python 3.9 syntax.
"""

import importlib.abc
import importlib.util
import json
import sys
import traceback

PREFIX = "kernel-builder-probe: "


def answer(**values):
    print(PREFIX + json.dumps(values), flush=True)


def describe():
    try:
        import torch
    except Exception as error:
        return answer(torch=None, problem="torch cannot be imported: {}".format(error))
    try:
        import kernels

        client = getattr(kernels, "__version__", "unknown")
    except Exception as error:
        return answer(torch=torch.__version__, problem="the kernels client cannot be imported: {}".format(error))
    free_threaded = not getattr(sys, "_is_gil_enabled", lambda: True)()
    return answer(
        torch=torch.__version__,
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        xpu=getattr(torch.version, "xpu", None),
        metal=torch.backends.mps.is_available(),
        cxx11=bool(torch.compiled_with_cxx11_abi()),
        kernels=client,
        free_threaded=free_threaded,
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
    import torch  # noqa: F401  (first, as a user's program does)
    import kernels

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
