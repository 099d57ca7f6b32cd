"""The cpu backend: every C and C++ source with the host compiler."""

from __future__ import annotations

from kernel_builder.plan.compile import Context, host_step
from kernel_builder.plan.model import Step
from kernel_builder.plan.units import Unit

DEFINITIONS = ("CPU_KERNEL",)
"""Interoperability contract 3.5."""


def compile_step(context: Context, unit: Unit, flags: tuple[str, ...]) -> Step:
    """The step that compiles ``unit``, with the user's ``flags``."""
    return host_step(context, unit, DEFINITIONS, flags)
