"""Collecting what is wrong with a file, to be told in one go and in file order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kernel_builder.errors import Diagnostic, Level
from kernel_builder.toml.nodes import dotted
from kernel_builder.toml.scan import Source, Where

_MAX_TOLD = 200
_MAX_GUESSES = 50


class _Remark(NamedTuple):
    severity: Level
    message: str
    hint: str | None
    key: str
    offset: int


@dataclass
class Report:
    """Everything noticed so far about ``source``, the text of ``file``."""

    source: Source
    file: Path
    broken: set[Where] = field(default_factory=set)
    """Keys and tables that are there, and cannot be read: they are not to be called missing."""
    _remarks: dict[_Remark, None] = field(default_factory=dict)
    _guesses: int = 0

    @property
    def has_errors(self) -> bool:
        """Whether anything noticed so far is an error."""
        return any(remark.severity is Level.ERROR for remark in self._remarks)

    def error(
        self,
        path: Where,
        message: str,
        *,
        hint: str | None = None,
        at_key: bool = False,
        offset: int | None = None,
    ) -> None:
        """Notice a mistake in the value (or, with ``at_key``, the key) at ``path``."""
        self._add(Level.ERROR, path, message, hint, at_key=at_key, offset=offset)

    def warning(self, path: Where, message: str, *, hint: str | None = None, at_key: bool = False) -> None:
        """Notice something that may be a mistake, or that will be one in the future."""
        self._add(Level.WARNING, path, message, hint, at_key=at_key, offset=None)

    def written(self, path: Where) -> str:
        """The value at ``path`` as it is written: ``2.10``, which is the number 2.1."""
        start = self.source.value(path)
        return self.source.text[start : self.source.end_of_value(start)]

    def near(self, text: str, allowed: Iterable[str]) -> str | None:
        """The spelling in ``allowed`` that ``text`` was probably meant to be."""
        options = list(allowed)
        same = same_word(text, options)
        if same is not None:
            return same
        if self._guesses >= _MAX_GUESSES or len(text) > 64:
            return None
        self._guesses += 1
        from difflib import get_close_matches  # noqa: PLC0415  (start-up time)

        found = get_close_matches(_plain(text), options, n=1, cutoff=0.6)
        return found[0] if found else None

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Everything noticed, in file order, each thing once."""
        ordered = sorted(self._remarks, key=lambda remark: remark.offset)
        told = [self._diagnostic(remark) for remark in ordered[:_MAX_TOLD]]
        if len(ordered) > _MAX_TOLD:
            rest = ordered[_MAX_TOLD:]
            worst = Level.ERROR if any(remark.severity is Level.ERROR for remark in rest) else Level.WARNING
            told.append(Diagnostic(severity=worst, message=f"and {len(rest)} more like this", file=self.file))
        return tuple(told)

    def _add(
        self,
        severity: Level,
        path: Where,
        message: str,
        hint: str | None,
        *,
        at_key: bool,
        offset: int | None,
    ) -> None:
        if offset is None:
            offset = self.source.key(path) if at_key else self.source.value(path)
        self._remarks.setdefault(
            _Remark(severity=severity, message=message, hint=hint, key=dotted(path), offset=offset)
        )

    def _diagnostic(self, remark: _Remark) -> Diagnostic:
        line, column = self.source.position(remark.offset)
        return Diagnostic(
            severity=remark.severity,
            message=remark.message,
            file=self.file,
            line=line,
            column=column,
            key=remark.key or None,
            hint=remark.hint,
        )


def same_word(text: str, allowed: Iterable[str]) -> str | None:
    """The spelling in ``allowed`` that ``text`` is but for case, underscores and blanks."""
    plain = _plain(text)
    return next((option for option in allowed if plain == option.lower().replace("_", "-")), None)


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "-").replace(" ", "-")
