"""In which order the variants of a plan get their turn, and how many at once.

ninja starts first what has the longest chain of edges behind it. Left alone it would compile everything of every
variant before it links the first one, since nothing follows a link but a check. So each variant gets a tail of edges
that do nothing, longer the earlier its turn: a variant links as soon as its objects are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernel_builder.actions.model import Action

LAST_TURN = "turns"
"""What stands for the end of all tails."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The variants that have something to do, in their order; at most ``at_once`` of them at a time (``None``: as many
    as there is room for).
    """

    variants: tuple[str, ...] = ()
    at_once: int | None = None

    def predecessor(self, variant: str) -> str | None:
        """The variant that must be over before ``variant`` begins."""
        if self.at_once is None or variant not in self.variants:
            return None
        place = self.variants.index(variant) - self.at_once
        return self.variants[place] if place >= 0 else None

    def tails(self, goals: Mapping[str, Sequence[str]], actions: Iterable[Action]) -> list[str]:
        """Lines of ``build.ninja``: the tails of the variants, which end in ``goals`` (escaped), and their end."""
        if len(self.variants) < 2:
            return [f"build {LAST_TURN}: phony"]
        steps = longest_chain(actions)
        lines, last = ["rule turn", "  command = :"], ""
        for place, variant in enumerate(self.variants):
            after = [*goals[variant], *([last] if last else [])]
            for step in range(steps):
                last = f"turn-{place}-{step}"
                lines.append(f"build {last}: turn || {' '.join(after)}")
                after = [last]
        return [*lines, f"build {LAST_TURN}: phony {last}"]


def longest_chain(actions: Iterable[Action]) -> int:
    """How many actions follow one upon the other, at most. ``actions`` are in an order in which they can run."""
    depth: dict[str, int] = {}
    longest = 0
    for action in actions:
        own = 1 + max((depth.get(word, 0) for word in (*action.inputs, *action.implicit)), default=0)
        depth.update(dict.fromkeys(action.outputs, own))
        longest = max(longest, own)
    return longest
