"""Actions, and what they make, in words that are the same for every variant and on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.engine.records import TIME_OF, escaped
from kernel_builder.files import replacing
from kernel_builder.plan.model import BuildPlan


def neutral(action: Action, word: str) -> str:
    """A word without the name of the variant: others make the same of the same."""
    return word.replace(f"{{work}}/{action.variant}/", "{own}/")


def made_by(action: Action) -> tuple[str, ...]:
    """The words of all that ``action`` makes, its log included."""
    return (*action.makes, action.log)


def is_text_with_paths(action: Action, word: str) -> bool:
    """Whether what ``word`` names says where things are: as text, it is kept with words for directories."""
    return word in (action.log, action.depfile)


@dataclass(frozen=True)
class Portable:
    """The files of the actions of a plan, for whoever keeps them or has others make them."""

    plan: BuildPlan

    def local_name(self, action: Action, word: str) -> str:
        """What a neutral word for something that was read names here. Raises ``KeyError`` for what ``action`` lacks."""
        prefix, _, own = word.rpartition(TIME_OF)
        own = own.replace("{own}/", f"{{work}}/{action.variant}/")
        return f"{prefix}{TIME_OF if TIME_OF in word else ''}{self.plan.places.path(own, action)}"

    def name_for_all(self, action: Action, name: str) -> str:
        """The neutral word for something that was read."""
        prefix, _, path = name.rpartition(TIME_OF)
        word = neutral(action, self.plan.places.word(Path(path), action.trees))
        return f"{prefix}{TIME_OF if TIME_OF in name else ''}{word}"

    def contents_of(self, action: Action, words: Iterable[str]) -> dict[str, Path | bytes]:
        """What has the contents of files, by neutral words; texts have words for directories. Raises ``OSError``."""
        found: dict[str, Path | bytes] = {}
        for word in words:
            path = self.plan.places.path(word, action)
            found[neutral(action, word)] = (
                self._with_words(path.read_bytes(), in_make=word == action.depfile)
                if is_text_with_paths(action, word)
                else path
            )
        return found

    def contents(self, action: Action) -> dict[str, bytes]:
        """What is in the log of ``action`` and in what it made, by words that are the same everywhere, without the
        directories of this machine.
        """
        there = [word for word in made_by(action) if self.plan.places.path(word, action).exists()]
        found = self.contents_of(action, there)
        return {word: one if isinstance(one, bytes) else one.read_bytes() for word, one in found.items()}

    def take(self, action: Action, contents: Mapping[str, bytes]) -> tuple[str, ...]:
        """Write what another machine found in :meth:`contents`, each file beside and renamed; what of it is missing."""
        missing = []
        for word in made_by(action):
            data = contents.get(neutral(action, word))
            if data is None:
                missing.append(word)
                continue
            if is_text_with_paths(action, word):
                data = self.local_text(action, word, data)
            with replacing(self.plan.places.path(word, action), durable=False) as file:
                file.write(data)
        return tuple(missing)

    def local_text(self, action: Action, word: str, data: bytes) -> bytes:
        """The text that ``word`` names, with the directories of this machine."""
        for place, name in self._directories(in_make=word == action.depfile):
            data = data.replace(name, place)
        return data

    def _with_words(self, data: bytes, *, in_make: bool) -> bytes:
        """Text with words for the directories of this machine; ``in_make``: it has make's syntax."""
        for place, name in self._directories(in_make=in_make):
            data = data.replace(place, name)
        return data

    def _directories(self, *, in_make: bool) -> tuple[tuple[bytes, bytes], ...]:
        places = self.plan.places
        pairs = {
            escaped(bytes(path)) if in_make else bytes(path): b"\0%s\0" % name
            for path, name in ((places.root, b"project"), (places.store, b"store"), (places.work, b"work"))
        }
        return tuple(sorted(pairs.items(), key=lambda pair: len(pair[0]), reverse=True))
