# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own.
"""Tell what this interpreter has (``describe``), load a variant with the ``kernels`` client (``load``), load several in
one process (``together``), or call a variant's ops, eagerly and compiled (``call``).

Usage: ``python -I -B probe.py TASK REQUEST-JSON``; what differs between backends comes in the request. The answer is
one line of JSON, the last of stdout. Python 3.9 syntax.
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
CALLING = "kernel-builder-calls: "


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


def describe(request: dict[str, Any]) -> None:
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
        versions={name: facts.get(name) for name in request["versions"]},
        devices={name: devices(driver) for name, driver in request["drivers"].items()},
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


# Dispatch keys that make an op run, besides those of backends.
COMPOSITE = ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]


def ops_of(namespace: str, keys: list[str]) -> tuple[list[str], list[str]]:
    """(all ops of the namespace, those that nothing implements for any of ``keys``)."""
    import torch

    names = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith(namespace + "::"))
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return names, [name for name in names if not any(has(name, key) for key in keys + COMPOSITE)]


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


def devices(driver: dict[str, str]) -> int:
    """How many devices a driver offers; torch itself would take seconds to say."""
    try:
        library = ctypes.CDLL(driver["library"])
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library[driver["init"]](0) != 0 or library[driver["count"]](ctypes.byref(count)) != 0:
        return 0
    return count.value


class Registrations:
    """Notes which op namespaces Python code registers in, and whose code it is: the kernel's, when it lies in ``root``.

    torch and other packages register ops of their own when parts of them are imported for the first time.
    """

    def __init__(self, root: str) -> None:
        self.inside = os.path.realpath(root) + os.sep
        self.kernel: set[str] = set()
        self.others: set[str] = set()

    def watch(self) -> None:
        import torch

        registrar: Any = torch.library.Library
        original = registrar.__init__
        watcher = self

        def noting(library: Any, ns: str, *rest: Any, **words: Any) -> None:
            watcher.note(ns)
            original(library, ns, *rest, **words)

        registrar.__init__ = noting

    def note(self, namespace: str) -> None:
        frame: Any = sys._getframe(2)
        own = os.sep + "torch" + os.sep
        while frame is not None and own in frame.f_code.co_filename:
            frame = frame.f_back
        path = os.path.realpath(frame.f_code.co_filename) if frame is not None else ""
        (self.kernel if path.startswith(self.inside) else self.others).add(namespace)


def all_ops() -> set[str]:
    import torch

    return set(torch._C._dispatch_get_all_op_names())


def foreign(before: set[str], namespace: str, seen: Registrations) -> list[str]:
    """Namespaces other than its own that the kernel registered in."""
    new = {name.split("::", 1)[0] for name in all_ops() - before}
    # What no Python code registered, some library did: the kernel's, for torch's own are loaded already.
    native = new - seen.others - seen.kernel
    return sorted((native | seen.kernel) - {namespace})


def prepared(request: dict[str, Any]) -> bool:
    """Whether torch and the client are here. An answer is given if they are not."""
    missing = [name for name, module in request["depends"].items() if importlib.util.find_spec(module) is None]
    if missing:
        answer(status="unavailable", reason=f"its Python dependency {', '.join(missing)} is not installed")
        return False
    try:
        import kernels  # noqa: F401
        import torch  # noqa: F401  (first, as a user's program does)
    except Exception as error:
        answer(status="unavailable", reason=f"torch and kernels cannot be imported: {error}")
        return False
    if request["name"] not in request["depends"].values():
        sys.meta_path.insert(0, Refusing(request["name"]))
    return True


def import_kernel(path: str, request: dict[str, Any]) -> Any:
    import kernels

    return kernels.get_local_kernel(Path(path), backend=request["backend"])


def load(request: dict[str, Any]) -> None:
    if not prepared(request):
        return
    seen = Registrations(request["path"])
    seen.watch()
    before = all_ops()
    try:
        import_kernel(request["path"], request)
    except Exception as error:
        answer(status="failed", reason=reason_of(error), trace=kernel_frames(error, request["path"]))
        return
    names, unimplemented = ops_of(request["id"], request["keys"])
    answer(status="loaded", ops=names, unimplemented=unimplemented, foreign=foreign(before, request["id"], seen))


def together(request: dict[str, Any]) -> None:
    """Load several versions of a kernel, one after the other, and see that each has its ops."""
    if not prepared(request):
        return
    for version in request["versions"]:
        try:
            import_kernel(version["path"], request)
        except Exception as error:
            answer(status="failed", reason=reason_of(error), trace=kernel_frames(error, version["path"]))
            return
    answer(status="loaded", ops=[len(ops_of(version["id"], [])[0]) for version in request["versions"]])


# --- calling ops with arguments that are made up from their schemas ---


class ImpossibleError(Exception):
    """No argument can be made up."""


def made_up(argument: Any, device: str) -> Any:
    """A value for an argument of an op's schema. Raises :class:`ImpossibleError`."""
    import torch

    kind = str(argument.type)
    if argument.has_default_value():
        return argument.default_value
    if kind == "Tensor":
        return torch.ones(4, 8, device=device)
    if kind.startswith("Optional["):
        return None
    simple = {"int": 1, "SymInt": 1, "float": 0.5, "bool": False, "number": 1.0, "Scalar": 1.0}
    if kind in simple:
        return simple[kind]
    raise ImpossibleError(f"{argument.name}: {kind}")


def has_fake(op: Any, name: str) -> bool:
    import torch
    from torch._library.simple_registry import singleton

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "Meta") or has(name, "CompositeImplicitAutograd") or has(name, "CompositeExplicitAutograd"):
        return True
    entry = singleton.find(op._qualified_op_name)
    return entry.fake_impl.kernel is not None


def call(request: dict[str, Any]) -> None:
    """Call every op that has a fake, eagerly and under ``torch.compile(fullgraph=True)``.

    Each op is announced before it is called, so that one that ends the process is known by name.
    """
    if not prepared(request):
        return
    import torch

    try:
        import_kernel(request["path"], request)
    except Exception as error:
        answer(status="failed", reason=reason_of(error), trace=[])
        return
    results: list[list[str]] = []
    for name in ops_of(request["id"], [])[0]:
        if name in request["skip"] or "." in name.split("::", 1)[1]:
            continue
        op = getattr(getattr(torch.ops, request["id"]), name.split("::", 1)[1])
        overload = op.default
        if not has_fake(overload, name):
            results.append([name, "no fake", ""])
            continue
        print(CALLING + name, flush=True)
        results.append([name, *called(op, overload, request["device"])])
    answer(status="loaded", results=results)


def called(op: Any, overload: Any, device: str) -> tuple[str, str]:
    import torch

    try:
        arguments = [made_up(argument, device) for argument in overload._schema.arguments]
        names = [argument.name for argument in overload._schema.arguments if argument.kwarg_only]
        positional = arguments[: len(arguments) - len(names)]
        words = dict(zip(names, arguments[len(positional) :]))
        op(*positional, **words)
    except Exception as error:
        return "not called", reason_of(error).splitlines()[0]
    try:
        torch.compile(lambda *given: op(*given, **words), fullgraph=True, backend="aot_eager")(*positional)
    except Exception as error:
        return "not compiled", reason_of(error).splitlines()[0]
    return "compiled", ""


if __name__ == "__main__":
    tasks = {"describe": describe, "load": load, "together": together, "call": call}
    tasks[sys.argv[1]](json.loads(sys.argv[2]))
