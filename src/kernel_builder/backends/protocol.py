"""What kernel-builder must know of a backend to compile kernels for it.

A backend is one module in this package, named like the backend, whose ``RULES`` meets :class:`BackendRules`; its row in
``data/backends.toml`` holds the rest: what it is called, its keys in ``build.toml``, how its device code is read and
its devices are found. Nothing outside of this package, tables and documentation names a backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from kernel_builder.actions.context import Context
from kernel_builder.actions.model import Action, GeneratedFile
from kernel_builder.actions.units import Unit
from kernel_builder.config.model import Architecture
from kernel_builder.toolchain.model import ToolkitSdk
from kernel_builder.variants.support import SupportTable

if TYPE_CHECKING:
    from kernel_builder.toolchain.kinds import ToolkitKind


@dataclass(frozen=True, kw_only=True)
class Selected:
    """Architectures that are compiled for, in natural order, and those that were asked for and contribute nothing."""

    effective: tuple[Architecture, ...]
    dropped: tuple[Architecture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UnitActions:
    """How one source file is compiled: the actions, in an order that they can run in, the objects to link, what
    people should know of it, and the files that must be there first.
    """

    actions: tuple[Action, ...]
    objects: tuple[str, ...]
    notes: tuple[str, ...] = ()
    generated: tuple[GeneratedFile, ...] = ()


class BackendRules(Protocol):
    """What a backend is, as far as compiling goes."""

    @property
    def toolkit(self) -> ToolkitKind | None:
        """The toolkit that its kernels need, and how it is found; ``None`` for a backend without one."""
        ...

    @property
    def has_torchs_own_headers(self) -> bool:
        """Whether a release of torch has the same headers for it as for processors. Those of some backends are others
        (DESIGN.md F11), with which slim headers of C++ sources have a proof of their own, or none.
        """
        ...

    def supported(self, toolkit: ToolkitSdk | None, table: SupportTable) -> tuple[Architecture, ...]:
        """The architectures that a section without a list of its own is compiled for."""
        ...

    def select(self, requested: tuple[Architecture, ...] | None, supported: tuple[Architecture, ...]) -> Selected:
        """What a section that asks for ``requested`` (``None``: it does not say) is compiled for."""
        ...

    def unknown(self, effective: tuple[Architecture, ...], toolkit: ToolkitSdk) -> tuple[Architecture, ...]:
        """Those that the compiler, where it is at hand already, cannot make code for."""
        ...

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """How ``unit``, in one of the host's languages or its own, becomes objects, with the user's ``flags``."""
        ...


class NoArchitectures:
    """That part of :class:`BackendRules`, for a backend whose kernels are compiled for no architectures."""

    def supported(self, toolkit: ToolkitSdk | None, table: SupportTable) -> tuple[Architecture, ...]:  # noqa: ARG002
        """None."""
        return ()

    def select(
        self,
        requested: tuple[Architecture, ...] | None,  # noqa: ARG002
        supported: tuple[Architecture, ...],
    ) -> Selected:
        """Nothing to choose from."""
        return Selected(effective=supported)

    def unknown(self, effective: tuple[Architecture, ...], toolkit: ToolkitSdk) -> tuple[Architecture, ...]:  # noqa: ARG002
        """None: there is no list to choose from."""
        return ()


@runtime_checkable
class MakesForAll(Protocol):
    """What the rules of a backend have besides, if it makes something once for all units of a library."""

    def before(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:
        """What is made of some of ``units`` before the others are compiled, because these include it."""
        ...

    def after(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:
        """What is made of the objects of ``units``, for the library to be linked with besides these."""
        ...


NOTHING = UnitActions(actions=(), objects=())
"""For a backend that has nothing to make there."""
