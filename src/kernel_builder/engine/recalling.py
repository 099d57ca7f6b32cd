"""What the action cache has for an action, for a step of it, or for the text that its source is.

An action is known by its command and what it read, a step by its command and the contents of the files that it reads,
a C++ source by its preprocessed text as well (:mod:`kernel_builder.engine.texts`).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_builder.actions.model import Action, Step
from kernel_builder.engine.cache import ActionCache, Made
from kernel_builder.engine.contents import blob_digest, file_digest, text_digest
from kernel_builder.engine.portable import Portable, is_text_with_paths, made_by, neutral
from kernel_builder.engine.records import Conditions, Record
from kernel_builder.engine.texts import beside_the_text

_FORMAT = 5


@dataclass(frozen=True)
class Recalling:
    """Finds in ``cache``, and keeps there, what actions make under ``conditions``. Safe for concurrent threads."""

    conditions: Conditions
    cache: ActionCache
    portable: Portable

    def key_of(self, action: Action) -> str:
        """What decides ``action``, apart from what it turns out to read."""
        facts = [
            _FORMAT,
            action.kind.value,
            [[neutral(action, word) for word in step.command] for step in (*action.steps, *action.fallback)],
            [neutral(action, word) for word in action.outputs],
            action.identity,
            self.conditions.deciding(action),
        ]
        return _digest(facts)

    def key_of_step(self, action: Action, step: Step) -> str | None:
        """What decides a step alone; ``None`` where that is not known."""
        if step.reads is None:
            return None
        reads = []
        for word in step.reads:
            path = self.conditions.plan.places.path(word, action)
            try:
                reads.append(text_digest(path.read_bytes()) if word in step.texts else file_digest(path))
            except OSError:
                return None
        command = [neutral(action, word) for word in step.command]
        writes = [neutral(action, word) for word in step.writes]
        return _digest([_FORMAT, "step", command, writes, reads, _tools(action), self.conditions.deciding(action)])

    def key_of_text(self, action: Action, digest: str) -> str:
        """What decides an action whose source is one text, with that ``digest``."""
        words = [neutral(action, word) for word in beside_the_text(action)]
        return _digest([_FORMAT, "text", words, digest, _tools(action), self.conditions.deciding(action)])

    def find(self, action: Action, key: str) -> Made | None:
        """What the cache has for the files as they are this moment: some may have changed since they were looked at."""

        def current(word: str) -> str | None:
            try:
                name = self.portable.local_name(action, word)
            except KeyError:  # a tool or tree that others have
                return None
            self.conditions.contents.look_again(name)
            return self.conditions.now(name)

        return self.cache.find(key, current)

    def restore(self, action: Action, found: Made) -> bool:
        """Write what an action made; ``False`` where a part of it is missing. Raises ``OSError``."""
        with contextlib.suppress(OSError):
            self.conditions.plan.places.path(action.log).unlink()
        return self._write_all(action, found, made_by(action))

    def restore_part(self, action: Action, key: str, words: Iterable[str]) -> Made | None:
        """Write ``words`` as what ``key`` stands for made them, and give that; ``None`` where it is not there, or not
        whole. Raises ``OSError``.
        """
        found = self.cache.find(key, lambda _: None)
        return found if found is not None and self._write_all(action, found, words) else None

    def keep(self, key: str, action: Action, record: Record) -> None:
        """Keep what ``action`` made, which ended well."""
        reads = {self.portable.name_for_all(action, name): digest for name, digest in record.reads.items()}
        kept = Made(reads=reads, blobs={}, seconds=record.seconds, memory=record.memory, fell_back=record.fell_back)
        self._keep(key, action, made_by(action), kept)

    def keep_part(self, key: str, action: Action, words: Iterable[str], *, seconds: float, memory: int) -> None:
        """Keep ``words`` as what ``key`` stands for made them."""
        self._keep(key, action, words, Made(reads={}, blobs={}, seconds=seconds, memory=memory))

    def _keep(self, key: str, action: Action, words: Iterable[str], kept: Made) -> None:
        with contextlib.suppress(OSError):  # which saves time, and nothing else
            self.cache.keep(key, self.portable.contents_of(action, words), kept)

    def _write_all(self, action: Action, found: Made, words: Iterable[str]) -> bool:
        for word in words:
            digest, path = found.blobs.get(neutral(action, word)), self.conditions.plan.places.path(word, action)
            if digest is None:
                return False
            if not is_text_with_paths(action, word):
                if not self.cache.restore(digest, path):
                    return False
                continue
            text = self.cache.blob(digest)
            if text is None:
                return False
            with path.open("ab" if word == action.log else "wb") as file:
                file.write(self.portable.local_text(action, word, text))
        return True

    def local_reads(self, action: Action, found: Made) -> dict[str, str]:
        """Digests of what was read when ``found`` was made, by the names that it has here."""
        return {self.portable.local_name(action, word): digest for word, digest in found.reads.items()}


def _tools(action: Action) -> list[str]:
    return [f"{tool.name} {tool.digest}" for tool in action.tools]


def _digest(facts: Sequence[object]) -> str:
    return blob_digest(json.dumps(facts).encode("utf-8", "surrogateescape"))
