"""Trial compiles of a source with another text, none done twice unless to measure it twice: what came of it is kept in
the action cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.binary.elf import ObjectNames
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.contents import blob_digest
from kernel_builder.engine.trial import Tried, try_out
from kernel_builder.files import parse_json, write_bytes

_KIND = "trial 2"
_RESULT = "result"


class TrialCompiles:
    """Compiles in ``places``, a copy of a project whose files have the digest ``inputs``, with the variables
    ``environ``.
    """

    def __init__(self, places: Places, environ: Mapping[str, str], inputs: str, cache: ActionCache) -> None:
        self.places = places
        self._environ, self._inputs, self._cache = environ, inputs, cache

    def of(
        self, source: str, text: str, targets: Mapping[str, Sequence[Action]], *, times: int = 1
    ) -> dict[str, Tried]:
        """What comes of ``source`` with that ``text`` for each of ``targets``, up to the first that does not compile;
        seconds are the least of as many ``times`` as it was compiled, now and before, at least.
        """
        data = text.encode("utf-8", "surrogateescape")
        write_bytes(self.places.root / source, data)
        found: dict[str, Tried] = {}
        for name, actions in targets.items():
            key = self._key(source, data, actions)
            done, known = self._recall(key) or (0, None)
            while known is None or (done < times and known.complaint is None):
                tried = try_out(actions, self.places, self._environ)
                done += 1
                known = tried if known is None else replace(tried, seconds=min(known.seconds, tried.seconds))
                self._keep(key, known, done)
            found[name] = known
            if known.complaint is not None:
                break
        return found

    def _key(self, source: str, data: bytes, actions: Sequence[Action]) -> str:
        commands = [[*step.command] for a in actions for step in (*a.steps, *a.fallback)]
        facts = [_KIND, self._inputs, source, blob_digest(data), commands, [a.identity for a in actions]]
        return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))

    def _recall(self, key: str) -> tuple[int, Tried] | None:
        """How often it was tried, and what came of it."""
        made = self._cache.find(key, lambda _: None)
        data = self._cache.blob(made.blobs[_RESULT]) if made is not None and _RESULT in made.blobs else None
        if data is None:
            return None
        with suppress(ValueError, TypeError, KeyError):
            value = parse_json(data)
            return int(value["times"]), self._read(value)
        return None

    def _read(self, value: Any) -> Tried:
        names = value["names"]
        return Tried(
            seconds=float(value["seconds"]),
            names=None if names is None else ObjectNames(**{kind: frozenset(names[kind]) for kind in names}),
            read=tuple(str(self.places.root / path) for path in value["read"]),
            complaint=value["complaint"],
        )

    def _keep(self, key: str, tried: Tried, times: int) -> None:
        """Keep a result. Of what was read, only the project's own files are ever asked for."""
        names = None if tried.names is None else {kind: sorted(found) for kind, found in asdict(tried.names).items()}
        paths = (Path(path) for path in tried.read)
        read = [str(path.relative_to(self.places.root)) for path in paths if path.is_relative_to(self.places.root)]
        value = {"seconds": tried.seconds, "names": names, "read": read, "complaint": tried.complaint, "times": times}
        made = Made(reads={}, blobs={}, seconds=tried.seconds, memory=0)
        self._cache.keep(key, {_RESULT: json.dumps(value).encode()}, made)
