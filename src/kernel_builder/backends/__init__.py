"""Backends that kernels are compiled for: one module each, behind :mod:`kernel_builder.backends.protocol`.

A row of ``data/backends.toml`` with ``module = true`` says that there is a module of its name here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from kernel_builder.config.backends import Backend

if TYPE_CHECKING:
    from kernel_builder.backends.protocol import BackendRules
    from kernel_builder.toolchain.kinds import ToolkitKind


def rules_for(backend: Backend) -> BackendRules:
    """The rules of ``backend``. Raises ``LookupError`` for one that this version cannot compile for."""
    if not backend.has_module:
        raise LookupError(f"this version cannot compile {backend.value} kernels")
    rules: BackendRules = import_module(f"{__name__}.{backend.value}").RULES
    return rules


def toolkit_kinds() -> Mapping[Backend, ToolkitKind]:
    """The toolkits of all backends that have one."""
    found = {backend: rules_for(backend).toolkit for backend in Backend if backend.has_module}
    return {backend: kind for backend, kind in found.items() if kind is not None}
