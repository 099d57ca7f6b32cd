"""What one command runs with. ``cli/`` makes it; whatever is below takes what it needs of it as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.events import Reporter
from kernel_builder.store.cache import Store

if TYPE_CHECKING:
    from kernel_builder.toolchain.settings import ToolchainSettings


@dataclass(frozen=True, kw_only=True)
class Run:
    """The surroundings of a command.

    ``environ`` is a snapshot of the environment: nothing below reads another one, and nobody writes to it. ``offline``
    says that no connection is opened, ``sources`` is the order of sources that was asked for (empty: as configured),
    ``host_compiler`` the host compiler that was (``None``: as configured). ``store`` keeps toolchains, ``reporter``
    hears of progress.
    """

    environ: Mapping[str, str]
    store: Store
    reporter: Reporter
    offline: bool = False
    sources: tuple[str, ...] = ()
    host_compiler: str | None = None

    def settings(self, root: Path | None) -> ToolchainSettings:
        """The settings of the project in ``root`` (``None``: outside of any), with what was asked for in this run.

        Raises what :func:`load_settings` raises.
        """
        from kernel_builder.toolchain.settings import load_settings  # noqa: PLC0415  (start-up time)

        return load_settings(root, self.environ, sources=self.sources, host_compiler=self.host_compiler)
