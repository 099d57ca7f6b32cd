"""What sources of components out of Debian's archive have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import Taken, whole_files
from kernel_builder.toolchain.debian import DebianArchive, open_archives
from kernel_builder.toolchain.host import build_machine
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import DEBIAN, ToolchainSettings


class DebianComponents:
    """Packages of one ``component`` of Debian's archive. ``downloads`` is where interrupted downloads wait."""

    label = DEBIAN
    component: str

    def __init__(
        self, settings: ToolchainSettings, transport: Transport, downloads: Path, environ: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._downloads = downloads
        self._environ = environ

    @cached_property
    def _archives(self) -> tuple[DebianArchive, ...]:
        """The mirror that the user names, or apt's. Raises :class:`ToolchainError` without mirror or keys."""
        return open_archives(
            self._settings,
            self._transport,
            machine=build_machine(),
            component=self.component,
            downloads=self._downloads,
            environ=self._environ,
        )

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:  # noqa: ARG002
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        return whole_files(parts)
