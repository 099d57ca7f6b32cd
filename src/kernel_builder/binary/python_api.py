"""Names of Python in a library, and since when its limited API has them (by the package ``abi3info``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

_PYTHON = re.compile(r"_?Py[A-Z_]\w*")


def is_python(symbol: str) -> bool:
    """Whether ``symbol`` is named as functions and data of the interpreter are."""
    return _PYTHON.fullmatch(symbol) is not None


@cache
def limited_api() -> Mapping[str, tuple[int, int]]:
    """Name -> version of Python from which the limited API has it."""
    from abi3info import DATAS, FUNCTIONS  # noqa: PLC0415  (start-up time)

    return {
        symbol.name: (info.added.major, info.added.minor)
        for table in (FUNCTIONS, DATAS)
        for symbol, info in table.items()
    }
