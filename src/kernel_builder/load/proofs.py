"""Proofs of loading, for whoever asks again: kept in the store, where ``git clean`` does not reach.

Each is named by all that it holds for: every byte of the variant, and what loaded it. So one project's serve another
checkout of it, and publishing needs no second look at what a build has shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_builder.load.evidence import LoadResult
from kernel_builder.seen import Memory, Sighting

FOLDER = "proofs"
"""The folder of the store."""
_MOST = 512
"""How many are kept: a few kilobytes each."""


class Proofs:
    """The proofs in ``folder``: at most ``most``, those that were used last."""

    def __init__(self, folder: Path, *, most: int = _MOST) -> None:
        self._memory = Memory(folder, most=most)

    def recall(self, key: Sequence[str]) -> LoadResult | None:
        """What loading gave before under the same ``key``, if it went well."""
        found = self._memory.recall(key)
        try:
            return LoadResult.from_json(found.value) if found is not None else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # not one of ours: it is made again

    def keep(self, key: Sequence[str], result: LoadResult) -> None:
        """Keep a successful proof. It saves time only: a folder that cannot be written is no failure."""
        if result.loaded:
            # The key says all that it rests on.
            self._memory.keep(key, {"key": list(key), **result.to_json()}, Sighting().to_json())
