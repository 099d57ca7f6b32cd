"""``--offline``: the network must not be used.

Who would open a connection is told so: :class:`~kernel_builder.store.transport.Transport`, and whoever starts a program
that would.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_builder.errors import NetworkError

VARIABLE = "KERNEL_BUILDER_OFFLINE"
_NO = frozenset({"", "0", "false", "no", "off"})


class OfflineError(NetworkError):
    """Something is not on this machine, and the network must not be used."""


def asks_for_offline(environ: Mapping[str, str]) -> bool:
    """Whether ``KERNEL_BUILDER_OFFLINE`` in ``environ`` says that the network must not be used."""
    return environ.get(VARIABLE, "").strip().lower() not in _NO


def refused_offline(what: str) -> OfflineError:
    """The error for ``what`` (a noun, no credentials in it), which is not here and must not be fetched."""
    return OfflineError(
        f"{what} would have to be fetched, and the network must not be used (--offline)",
        hint="fetch it where there is a network: kernel-builder toolchain fetch; 'toolchain export' and 'toolchain"
        " import' bring it to machines that have none",
    )
