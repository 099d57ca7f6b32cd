"""Proofs of loading, for whoever asks again: kept in the store, where ``git clean`` does not reach.

Each is named by all that it holds for: every byte of the variant, and what loaded it. So one project's serve another
checkout of it, and publishing needs no second look at what a build has shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kernel_builder.files import parse_json, write_text
from kernel_builder.load.evidence import LoadResult

FOLDER = "proofs"
"""The folder of the store."""
_MOST = 512
"""How many are kept: a few kilobytes each."""


class Proofs:
    """The proofs in ``folder``: at most ``most``, those that were used last."""

    def __init__(self, folder: Path, *, most: int = _MOST) -> None:
        self._folder = folder
        self._most = most

    def recall(self, key: Sequence[str]) -> LoadResult | None:
        """What loading gave before under the same ``key``, if it went well."""
        file = self._file(key)
        try:
            kept = parse_json(file.read_text(encoding="utf-8"))
            if kept["key"] != list(key):
                return None
            result = LoadResult.from_json(kept)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # no proof, or not one of ours: it is made again
        with suppress(OSError):
            file.touch()
        return result

    def keep(self, key: Sequence[str], result: LoadResult) -> None:
        """Keep a successful proof. It saves time only: a folder that cannot be written is no failure."""
        if not result.loaded:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(self._file(key), json.dumps({"key": list(key), **result.to_json()}))
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
            for file in files[: -self._most]:
                file.unlink(missing_ok=True)

    def _file(self, key: Sequence[str]) -> Path:
        digest = hashlib.sha256(json.dumps(list(key)).encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / f"{digest}.json"
