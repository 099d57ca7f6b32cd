"""What runs actions on other machines, as an engine sees it: sites that come and go, and what each of them can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kernel_builder.actions.model import Action
from kernel_builder.engine.perform import Done, Performer

HERE = ""
"""The name of the site that is this machine."""


@dataclass(frozen=True, kw_only=True)
class Station:
    """A machine that runs actions: how many threads at once, in how many bytes of memory."""

    name: str
    threads: int
    memory: int


class LostError(Exception):
    """A site did not do an action: it is to be done again, elsewhere. ``more_memory``: that was what it lacked."""

    def __init__(self, reason: str, *, more_memory: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.more_memory = more_memory


class OtherMachines(Protocol):
    """Other machines. Safe for concurrent threads."""

    def takes(self, action: Action) -> bool:
        """Whether the action runs there at all; what does not, runs here."""
        ...

    def sites_for(self, action: Action) -> Sequence[Station]:
        """The sites that can do it now, the ones first that have most of what it reads."""
        ...

    def threads(self) -> int:
        """How many threads all sites have now."""
        ...

    def refuse(self, waiting: Sequence[Action]) -> None:
        """Nothing runs, and no site can do any of ``waiting``: raise :class:`BuildError`, unless one may still come."""
        ...

    def run(self, performer: Performer, action: Action, site: Station, *, threads: int, memory: int) -> Done:
        """Do ``action`` on ``site``, and leave what it makes here, its log included. It will most likely use that many
        ``threads`` and bytes of ``memory``.

        Raises :class:`LostError`; :class:`BuildError` where nobody can go on.
        """
        ...

    def stop(self) -> None:
        """End whatever runs, on all sites, and start nothing any more."""
        ...
