"""The texts of licences that a new project can be given: those that are short, or the default.

A text is what its licence says, word for word, with the year and the holder of the copyright where it asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from jinja2 import Template

from kernel_builder.config.known import spdx_of

_FOLDER = files("kernel_builder") / "templates" / "licenses"
_SUFFIX = ".txt.j2"
FIRST_YEAR = 2026
"""No earlier ``init`` wrote a licence."""


@cache
def known_licenses() -> tuple[str, ...]:
    """SPDX identifiers of the licences whose texts are here."""
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in _FOLDER.iterdir() if file.name.endswith(_SUFFIX)))


def license_files(license_id: str, *, holder: str, year: int) -> Mapping[str, str]:
    """The files (POSIX path -> text) of the licence ``license_id``, which ``holder`` grants from ``year`` on.

    One licence is ``LICENSE``; each of a choice (``MIT OR Apache-2.0``) is ``LICENSE-<identifier>``. Nothing where the
    text of one of them is not here.
    """
    expression = spdx_of(license_id) or ""
    names = re.split(r" (?:OR|AND) ", expression.replace("(", "").replace(")", ""))
    if not set(names) <= set(known_licenses()):
        return MappingProxyType({})
    texts = {name: Template(_text(name), keep_trailing_newline=True).render(holder=holder, year=year) for name in names}
    if len(texts) == 1:
        return MappingProxyType({"LICENSE": texts[names[0]]})
    return MappingProxyType({f"LICENSE-{name}": text for name, text in texts.items()})


@cache
def _text(name: str) -> str:
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
