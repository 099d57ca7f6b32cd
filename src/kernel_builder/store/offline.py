"""``--offline``: one switch for the whole process, kept in the environment so that its children know it too.

Everything that would open a connection asks here first: :class:`~kernel_builder.store.transport.Transport` for every
request, and whoever starts a program that would.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from kernel_builder.environment import variable
from kernel_builder.errors import NetworkError

VARIABLE = "KERNEL_BUILDER_OFFLINE"
_NO = frozenset({"", "0", "false", "no", "off"})


class OfflineError(NetworkError):
    """Something is not on this machine, and the network must not be used."""


def is_offline() -> bool:
    """Whether the network must not be used: ``--offline`` was given or ``KERNEL_BUILDER_OFFLINE`` is set."""
    return os.environ.get(VARIABLE, "").strip().lower() not in _NO


def refuse_offline(what: str) -> None:
    """Raise :class:`OfflineError` for ``what`` (a noun, no credentials in it) if the network must not be used."""
    if is_offline():
        raise OfflineError(
            f"{what} must be fetched, but --offline forbids using the network",
            hint="fetch it on a machine with network access: kernel-builder toolchain fetch; then copy it here with"
            " 'toolchain export' and 'toolchain import'",
        )


@contextmanager
def offline() -> Iterator[None]:
    """No network within the block, for all of the process."""
    with variable(VARIABLE, "1"):
        yield
