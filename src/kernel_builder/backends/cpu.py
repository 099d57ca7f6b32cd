"""The cpu backend: every C and C++ source with the host compiler."""

from __future__ import annotations

from kernel_builder.actions.context import Context
from kernel_builder.actions.host import host_action
from kernel_builder.actions.units import Unit
from kernel_builder.backends.protocol import NoArchitectures, UnitActions

DEFINITIONS = ("CPU_KERNEL",)
"""Interoperability contract 3.5."""


class Cpu(NoArchitectures):
    """See :class:`~kernel_builder.backends.protocol.BackendRules`. Code for a processor family serves all of it."""

    toolkit = None
    has_torchs_own_headers = True

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """One action of the host compiler."""
        action = host_action(context, unit, DEFINITIONS, flags)
        return UnitActions(actions=(action,), objects=action.outputs)


RULES = Cpu()
