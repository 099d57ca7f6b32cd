"""What there is to say about a message: ``data/troubleshooting.toml``.

Rules have texts of their own in :mod:`kernel_builder.check`; here are the messages of everything else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

_WORD = re.compile(r"[a-z0-9_.+-]{3,}")
_COMMON = frozenset(
    {"and", "are", "but", "for", "from", "has", "have", "its", "not", "that", "the", "this", "was", "with"}
)


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One kind of trouble.

    ``says`` are pieces of this package's messages, ``others`` those of other programs; ``exit_codes`` those that a
    command ends with after it. ``text`` has paragraphs, and indented lines that are commands.
    """

    name: str
    group: str
    title: str
    says: tuple[str, ...]
    others: tuple[str, ...]
    exit_codes: tuple[int, ...]
    text: str

    @property
    def words(self) -> frozenset[str]:
        """What it is about."""
        return _words(" ".join((self.name.replace("-", " "), self.title, *self.says, *self.others)))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip(".-") for word in _WORD.findall(text.lower())) - _COMMON


def topics_ending_with(exit_code: int) -> list[Topic]:
    """Those of messages after which a command ends with ``exit_code``."""
    return [topic for topic in topics() if exit_code in topic.exit_codes]


@cache
def topics() -> tuple[Topic, ...]:
    """All of them, in the order of the file."""
    text = resources.files("kernel_builder.data").joinpath("troubleshooting.toml").read_text(encoding="utf-8")
    return tuple(
        Topic(
            name=row["name"],
            group=row["group"],
            title=row["title"],
            says=tuple(row.get("says", ())),
            others=tuple(row.get("others", ())),
            exit_codes=tuple(row.get("exit", ())),
            text=row["text"].strip("\n"),
        )
        for row in tomllib.loads(text)["topic"]
    )


def topic_of(message: str) -> Topic | None:
    """What a message of this package is about: the topic with the longest piece in it; ``None`` without any."""
    found = [(len(piece), topic) for topic in topics() for piece in topic.says if piece in message]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def topics_like(words: str) -> Sequence[Topic]:
    """Topics for what somebody pasted: those with a piece in it, else those that share most words with it, best
    first; at most three.
    """
    exact = [topic for topic in topics() if any(piece in words for piece in (*topic.says, *topic.others))]
    if exact:
        return exact[:3]
    asked = _words(words)
    shared = {topic.name: len(topic.words & asked) for topic in topics()}
    enough = max(1, len(asked) // 3)
    return sorted((t for t in topics() if shared[t.name] >= enough), key=lambda topic: -shared[topic.name])[:3]
