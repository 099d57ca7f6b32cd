# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Getting ready, and importing a kernel with the client."""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.util
import sys
from pathlib import Path
from typing import Any

from .answers import answer
from .registry import torch_is_here


class Refusing(importlib.abc.MetaPathFinder):
    """Refuses an absolute import of the kernel itself, which would find some other package of its name, or none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == self.name or fullname.startswith(self.name + "."):
            raise ImportError(f"the kernel imports itself by its absolute name, {fullname!r}; use a relative import")


def prepared(request: dict[str, Any]) -> bool:
    """Whether torch, where the kernel needs it, the client, and what the kernel declares are here. An answer is given
    if they are not.
    """
    missing = missing_dependencies(request)
    if missing:
        answer(status="unavailable", reason=missing)
        return False
    return frameworks_are_here(request)


def missing_dependencies(request: dict[str, Any]) -> str:
    """A sentence about the declared Python dependencies that are not installed; ``""`` if all are."""
    missing = [name for name, module in request["depends"].items() if importlib.util.find_spec(module) is None]
    return f"its Python dependency {', '.join(missing)} is not installed" if missing else ""


def import_frameworks() -> None:
    """Import torch if it is there, the client, and what the client imports when it looks for a variant. Raises what
    they raise.
    """
    # Nothing of it is garbage, now or later: to look for some takes a sixth of the time.
    gc.disable()
    try:
        import kernels  # noqa: F401

        if torch_is_here():
            import torch  # noqa: F401

        # It says itself what is wrong with it, where the client asks for it. Here, nothing watches yet: each library
        # that may register with torch costs two looks at all that is registered.
        with contextlib.suppress(Exception):
            import tvm_ffi  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def frameworks_are_here(request: dict[str, Any]) -> bool:
    """Whether the client can be imported, and torch where the kernel needs it; they are now. An answer is given if
    not.
    """
    try:
        import_frameworks()
        if request["torch"]:
            import torch  # noqa: F401
    except Exception as error:
        answer(status="unavailable", reason=f"torch and kernels cannot be imported: {error}")
        return False
    if request["name"] not in request["depends"].values():
        sys.meta_path.insert(0, Refusing(request["name"]))
    return True


def import_kernel(path: str, request: dict[str, Any]) -> Any:
    import kernels

    return kernels.get_local_kernel(Path(path), backend=request["backend"])


def unknown_to_client(path: str) -> str:
    """A sentence where the client is too old for the kernel's backend, so that it can import none for it."""
    try:
        from kernels._rust import Metadata
    except ImportError:
        return ""  # whatever else it has; importing the kernel tells
    try:
        Metadata.read_from_file(Path(path) / "metadata.json")
    except ValueError as error:
        if "unknown variant" in str(error):
            return "the installed kernels client does not know the backend, so the kernel's Python code was not run"
    return ""
