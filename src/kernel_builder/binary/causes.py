"""Whose an undefined name is, when nothing that a kernel may need has it, and what to do: ``data/undefined.toml``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

_API_VERSION = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


@dataclass(frozen=True, kw_only=True)
class NamedCause:
    """``why`` nobody has a name, and what to do ``instead``. Both are parts of a message."""

    why: str
    instead: str


@cache
def _rows() -> tuple[tuple[re.Pattern[str], str, str], ...]:
    text = resources.files("kernel_builder.data").joinpath("undefined.toml").read_text(encoding="utf-8")
    return tuple((re.compile(row["match"]), row["why"], row["instead"]) for row in tomllib.loads(text)["name"])


def cause_of(symbol: str) -> NamedCause | None:
    """Whose ``symbol`` is, as the linker sees it; ``None`` when its name does not tell."""
    for pattern, why, instead in _rows():
        if pattern.fullmatch(symbol):
            plain = _API_VERSION.sub("", symbol)
            return NamedCause(why=why, instead=instead.replace("{name}", plain))
    return None
