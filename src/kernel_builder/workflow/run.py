"""What one command runs with. ``cli/`` makes it; whatever is below takes what it needs of it as parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.events import Reporter
from kernel_builder.seen import Memory
from kernel_builder.store.cache import Store

if TYPE_CHECKING:
    from kernel_builder.toolchain.answers import Answers
    from kernel_builder.toolchain.settings import ToolchainSettings


ANSWERS = "answers"
"""The directory of the store that keeps what programs of this machine answered."""


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

    @property
    def memory(self) -> Memory:
        """What programs of this machine answered before, with what that rests on."""
        return Memory(self.store.root / ANSWERS)

    @cached_property
    def answers(self) -> Answers:
        """What compilers answered before. Whoever asks much keeps them for the next run."""
        from kernel_builder.toolchain.answers import Answers  # noqa: PLC0415  (start-up time)

        return Answers(self.memory, self.environ)

    def settings(self, root: Path | None) -> ToolchainSettings:
        """The settings of the project in ``root`` (``None``: outside of any), with what was asked for in this run.

        Raises what :func:`load_settings` raises.
        """
        from kernel_builder.toolchain.settings import load_settings  # noqa: PLC0415  (start-up time)

        return load_settings(root, self.environ, sources=self.sources, host_compiler=self.host_compiler)
