"""Frameworks that kernels are written for: one module each, behind :mod:`kernel_builder.frameworks.protocol`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_builder.config.model import FrameworkKind

if TYPE_CHECKING:
    from kernel_builder.frameworks.protocol import FrameworkRules


def rules_of(kind: FrameworkKind) -> FrameworkRules:  # noqa: ARG001
    """The rules of a framework. Kernels of Python alone are loaded with torch, whatever they call themselves; compiled
    tvm-ffi kernels are left out before anything is planned (:mod:`kernel_builder.variants.matrix`).
    """
    from kernel_builder.frameworks.torch import RULES  # noqa: PLC0415  (start-up time: jinja2)

    return RULES
