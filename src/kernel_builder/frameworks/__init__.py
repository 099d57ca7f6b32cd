"""Frameworks that kernels are written for: one module each, behind :mod:`kernel_builder.frameworks.protocol`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_builder.config.model import FrameworkKind

if TYPE_CHECKING:
    from kernel_builder.frameworks.protocol import FrameworkRules


def rules_of(kind: FrameworkKind) -> FrameworkRules:
    """The rules of a framework. Kernels of Python alone are loaded with torch."""
    from kernel_builder.frameworks import torch, tvm_ffi  # noqa: PLC0415  (start-up time: jinja2)

    return {FrameworkKind.TVM_FFI: tvm_ffi.RULES}.get(kind, torch.RULES)
