"""Proofs of loading, for whoever asks again: kept in the store, where ``git clean`` does not reach.

Each is named by all that it holds for: every byte of the variant, and what loaded it. So one project's serve another
checkout of it, and publishing needs no second look at what a build has shown. Which code ran is kept with it, so that
whoever edits the kernel next can go on from there (:mod:`kernel_builder.load.carried`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
            return None if found is None else replace(LoadResult.from_json(found.value), ran=ran_in(found.value))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # not one of ours: it is made again

    def keep(self, key: Sequence[str], result: LoadResult) -> None:
        """Keep a successful proof. It saves time only: a folder that cannot be written is no failure."""
        if result.loaded:
            # The key says all that it rests on.
            ran = None if result.ran is None else sorted(result.ran)
            self._memory.keep(key, {"key": list(key), **result.to_json(), "ran": ran}, Sighting().to_json())


def ran_in(kept: Mapping[str, Any]) -> frozenset[tuple[str, int, str]] | None:
    """Which code ran, as it was ``kept`` with a proof; ``None`` where that is not known. Raises ``ValueError``,
    ``TypeError``.
    """
    ran = kept.get("ran")
    return None if ran is None else frozenset((str(file), int(line), str(name)) for file, line, name in ran)
