"""With this directory on PYTHONPATH, torch says that it was built for CUDA, as the one does that pip installs on Linux.

The ``kernels`` client then looks for CUDA variants unless it is told a backend, as on most machines without a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Saying(Loader):
    """Loads torch as ``loader`` does, and has it say so."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.version.cuda = module.version.cuda or "13.0"

    def __getattr__(self, name: str) -> object:  # whatever else is asked of a loader of files
        return getattr(self._loader, name)


class _Finder(MetaPathFinder):
    """Finds torch alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Saying(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())
