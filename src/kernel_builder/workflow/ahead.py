"""What loads a variant gets ready while the last of its actions still run: importing torch is most of the work.

It waits in the directory that the variant will be made in, and is asked once there is something to load. Where that
turns out not to be needed, it ends unasked; whatever ends the build ends it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kernel_builder.artifact.variant import stage_for
from kernel_builder.load.client import Environment, NoEnvironment, why_not_at_all
from kernel_builder.plan.model import VariantPlan

Place = tuple[Path, Environment | NoEnvironment]
"""An empty directory that a variant is made in, and what loads it from there."""


class Ahead:
    """For one variant at a time, as a context: ``environment`` loads variants, ``output`` is the directory for them."""

    def __init__(self, environment: Environment | NoEnvironment, output: Path) -> None:
        self._environment, self._output = environment, output
        self._name: str | None = None
        self._place: Place | None = None
        self._is_new = False
        self._stack = ExitStack()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def begin(self, variant: VariantPlan) -> None:
        """Get ready to load ``variant``, unless another one is waited for or this machine cannot load it."""
        if self._name is not None or isinstance(self._environment, NoEnvironment):
            return
        if why_not_at_all(variant.variant, self._environment) is not None:
            return
        self._name = variant.name
        self._is_new = not self._output.exists()
        stage = self._stack.enter_context(stage_for(variant.name, self._output))
        self._place = stage, self._stack.enter_context(self._environment.ahead_of(stage))

    @contextmanager
    def place_for(self, variant: VariantPlan) -> Iterator[Place]:
        """Where ``variant`` is made, and what loads it: what is ready, if it is. Both are gone afterwards."""
        if self._name == variant.name and self._place is not None:
            place, self._name, self._place, self._is_new = self._place, None, None, False
            with self._stack.pop_all():
                yield place
        else:
            with stage_for(variant.name, self._output) as stage:
                yield stage, self._environment

    def give_up(self, name: str) -> None:
        """The variant ``name`` will not be made, whatever is ready for it."""
        if self._name == name:
            self._end()

    def _end(self) -> None:
        self._name = self._place = None
        self._stack.close()
        if self._is_new:
            with suppress(OSError):  # other variants are in it
                self._output.rmdir()
        self._is_new = False
