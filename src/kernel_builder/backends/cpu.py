"""The cpu backend: every C and C++ source with the host compiler."""

from __future__ import annotations

from kernel_builder.actions.context import Context
from kernel_builder.actions.host import host_action
from kernel_builder.actions.units import Unit
from kernel_builder.backends.protocol import Selected, UnitActions
from kernel_builder.config.model import Architecture
from kernel_builder.toolchain.model import ToolkitSdk
from kernel_builder.variants.support import SupportTable

DEFINITIONS = ("CPU_KERNEL",)
"""Interoperability contract 3.5."""


class Cpu:
    """See :class:`~kernel_builder.backends.protocol.BackendRules`."""

    toolkit = None

    def supported(self, toolkit: ToolkitSdk | None, table: SupportTable) -> tuple[Architecture, ...]:  # noqa: ARG002
        """None: code for the processor family of the variant serves all of its processors."""
        return ()

    def select(
        self,
        requested: tuple[Architecture, ...] | None,  # noqa: ARG002
        supported: tuple[Architecture, ...],
    ) -> Selected:
        """Nothing to choose from."""
        return Selected(effective=supported)

    def unknown(self, effective: tuple[Architecture, ...], toolkit: ToolkitSdk) -> tuple[Architecture, ...]:  # noqa: ARG002
        """Never asked: there is no toolkit."""
        return ()

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """One action of the host compiler."""
        action = host_action(context, unit, DEFINITIONS, flags)
        return UnitActions(actions=(action,), objects=action.outputs)


RULES = Cpu()
