"""What people write who know other build tools, and what does the same here: ``data/intents.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_builder.config.backends import Backend

_TABLE = Path(__file__).parent.parent / "data" / "intents.toml"


class IdleVariable(NamedTuple):
    """Variables of the environment that change nothing: ``instead`` says what does. ``backend`` is the one that they
    are about, ``None`` for all.
    """

    names: tuple[str, ...]
    instead: str
    backend: Backend | None


@cache
def _document() -> Mapping[str, Mapping[str, str]]:
    data = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {name: {_plain(word): text for word, text in data[name].items()} for name in data if name != "environment"}


@cache
def _variables() -> tuple[IdleVariable, ...]:
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["environment"]
    return tuple(
        IdleVariable(tuple(row["names"]), row["instead"], Backend(row["backend"]) if "backend" in row else None)
        for row in rows
    )


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(" ", "-")


def instead_of(kind: str, word: str) -> str | None:
    """What to do instead of ``word``, a ``kind`` of word (``keys``, ``tables``, ``depends``, ``python-depends``,
    ``commands``) that does not exist; ``None`` where nobody knows what is meant.
    """
    return _document()[kind].get(_plain(word))


def idle_variables(environ: Mapping[str, str], backends: Collection[Backend]) -> tuple[str, ...]:
    """A sentence on each group of variables in ``environ`` that change nothing, where ``backends`` are compiled for:
    nothing where none is.
    """
    told = []
    for row in _variables():
        found = [name for name in row.names if environ.get(name, "").strip()]
        if found and backends and (row.backend is None or row.backend in backends):
            names = " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)
            told.append(f"{names} {'have' if len(found) > 1 else 'has'} no effect: {row.instead}")
    return tuple(told)
