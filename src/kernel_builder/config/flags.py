"""Compiler flags of ``build.toml``: those that a build cannot honour are noticed, each with what to write instead.

Which they are is in ``data/flags.toml``, for all backends, and in the backends' rows, for their architectures.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.capabilities import architectures_in
from kernel_builder.config.known import newest_cxx_standard
from kernel_builder.config.tables import TextEntry
from kernel_builder.toml.nodes import quoted
from kernel_builder.toml.report import Report

_TABLE = Path(__file__).parent.parent / "data" / "flags.toml"

STANDARD = re.compile(r"--?std[= ](?P<dialect>c|gnu)\+\+(?P<year>[0-9][0-9a-z])")
"""A flag that chooses a standard of C++; two words are joined by a blank."""

YEARS = {"98": 1998, "03": 2003, "0x": 2011, "11": 2011, "1y": 2014, "14": 2014, "1z": 2017, "17": 2017}
YEARS |= {"2a": 2020, "20": 2020, "2b": 2023, "23": 2023, "2c": 2026, "26": 2026}
"""The year that the end of a standard's name stands for."""

UNKNOWN_YEAR = 9999
"""Later than all that this version knows."""

_PARTS = re.compile(r"-Wl,.*|[^,]+")
"""What commas separate in a list of flags for another compiler; those of ``-Wl`` are its own."""

_SOURCE = re.compile(r".*\.(c|cc|cpp|cxx|cu|hip|o|obj|a|so|so\..*|dylib|lib|ptx|cubin)", re.IGNORECASE)


class _Refusal(NamedTuple):
    match: re.Pattern[str]
    why: str
    instead: str
    warning: bool


class _Table(NamedTuple):
    separate: re.Pattern[str]
    passed: re.Pattern[str]
    refused: tuple[_Refusal, ...]


@cache
def _table() -> _Table:
    data = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    words = data["words"]
    return _Table(
        separate=re.compile(words["separate"]),
        passed=re.compile(words["passed"]),
        refused=tuple(
            _Refusal(re.compile(row["match"]), row["why"], row["instead"], row.get("warning", False))
            for row in data["refused"]
        ),
    )


@cache
def _choosers() -> tuple[tuple[Backend, re.Pattern[str]], ...]:
    """The flags that choose architectures, by backend."""
    return tuple(
        (backend, re.compile(backend.architectures.flags))
        for backend in Backend
        if backend.architectures is not None and backend.architectures.flags is not None
    )


def judge_flags(entries: Sequence[TextEntry], backend: Backend | None, report: Report) -> None:
    """Notice those of ``entries``, one list of ``build.toml``, that a build cannot honour. ``backend`` is that of the
    section, ``None`` in a table for all of them.
    """
    choosing: dict[Backend, list[TextEntry]] = {}
    for flag in _whole_flags(list(_words(entries, report)), report):
        owner = next((owner for owner, pattern in _choosers() if pattern.fullmatch(flag.text)), None)
        if owner is not None:
            choosing.setdefault(owner, []).append(flag)
            continue
        _judge(flag, report)
        passed = _table().passed.fullmatch(flag.text)
        for part in _PARTS.findall(passed["value"]) if passed else ():
            _judge(TextEntry(part.strip("\"'"), flag.path), report)
    for owner, flags in choosing.items():
        _tell_architectures(owner, flags, backend, report)


def _words(entries: Sequence[TextEntry], report: Report) -> Iterator[TextEntry]:
    """The words that ``entries`` were meant to be; those that hold several are noticed."""
    for entry in entries:
        parts = words_of(entry.text)
        if parts == [entry.text]:
            yield entry
            continue
        written = ", ".join(f'"{part}"' for part in parts)
        if len(parts) == 1:
            report.error(entry.path, f"{quoted(entry.text)} has blanks around it", hint=f"write: {written}")
        else:
            report.error(
                entry.path,
                f"{quoted(entry.text)} is {len(parts)} words in one string, which the compiler takes as one flag",
                hint=f"write each word as its own string: {written}",
            )
        yield from (TextEntry(part, entry.path) for part in parts)


def words_of(text: str) -> list[str]:
    """A flag as the words that a shell would make of it; one word where its blanks belong to it."""
    if text == text.strip() and not re.search(r"\s", text):
        return [text]
    try:
        parts = shlex.split(text)
    except ValueError:  # a quote without its counterpart
        parts = text.split()
    value = parts[0].startswith("-D") and len(parts[0]) > 2 and not any(re.match(r"-\w", part) for part in parts[1:])
    if text == text.strip() and (len(parts) == 1 or value):
        return [text]  # -DTEXT="a b"
    return [text.strip()] if value else parts


def _whole_flags(words: Sequence[TextEntry], report: Report) -> Iterator[TextEntry]:
    """Each flag with the argument that is its next word, joined by a blank. Words that are no flags are noticed."""
    separate = _table().separate
    waiting: TextEntry | None = None
    before = ""
    for word in words:
        if waiting is not None:
            yield TextEntry(f"{waiting.text} {word.text}", waiting.path)
            waiting, before = None, ""
        elif separate.fullmatch(word.text):
            waiting = word
        elif word.text.startswith(("-", "@")) and word.text != "-":
            yield word
            before = word.text
        else:
            # After a flag that nobody here knows, it may be its argument.
            if not before or _SOURCE.fullmatch(word.text):
                _tell_no_flag(word, report)
            before = ""
    if waiting is not None:
        report.error(waiting.path, f"{quoted(waiting.text)} needs a value, but is the last word", hint="add its value")
        yield waiting


def _tell_no_flag(word: TextEntry, report: Report) -> None:
    hint = "flags start with '-'"
    if _SOURCE.fullmatch(word.text):
        hint = "list files to compile in 'src'; object files and libraries cannot be linked"
    report.error(word.path, f"{quoted(word.text)} is not a flag", hint=hint)


def _judge(flag: TextEntry, report: Report) -> None:
    standard = STANDARD.fullmatch(flag.text)
    newest = newest_cxx_standard()
    if standard is not None and YEARS.get(standard["year"], UNKNOWN_YEAR) > YEARS[str(newest)]:
        report.error(
            flag.path,
            f"{quoted(flag.text)} is newer than C++{newest}, the newest standard that any torch's headers are for",
            hint=f'write: "-std=c++{newest}", or remove it: each variant gets the standard that its torch needs',
        )
        return
    for refusal in _table().refused:
        match = refusal.match.fullmatch(flag.text)
        if match is not None:
            tell = report.warning if refusal.warning else report.error
            instead = refusal.instead
            for name, value in match.groupdict(default="").items():
                instead = instead.replace(f"{{{name}}}", value)
            tell(flag.path, f"{quoted(flag.text)} {refusal.why}", hint=instead)
            return


def refused_definition(name: str, value: str) -> tuple[str, str] | None:
    """Why a source must not define the macro ``name``, and what to do: as for ``-D`` in flags. ``None`` if it may."""
    flag = f"-D{name}={value}"
    found = next((refusal for refusal in _table().refused if refusal.match.fullmatch(flag)), None)
    return None if found is None or found.warning else (found.why, found.instead)


def _tell_architectures(owner: Backend, flags: Sequence[TextEntry], backend: Backend | None, report: Report) -> None:
    """Say which key chooses what ``flags`` try to, and what to write there."""
    key = owner.key(Role.ARCHITECTURES)
    meant = architectures_in(owner, [flag.text for flag in flags])
    for number, flag in enumerate(flags):
        name = f"'{key.name}'" if key is not None else "a key of the backend"
        hint = "remove it"
        if backend is not None and backend is not owner:
            hint += f": it is for {owner.label}, and this section is for {backend.value}"
        elif number:
            hint += ", as the other one"
        elif meant and key is not None:
            place = "" if backend is not None else f" in each [kernel.<id>] section for {owner.value}"
            hint += f", and write{place}: {key.name} = [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in meant)}]"
        else:
            hint += (
                f"; without {name}, the kernel is compiled for every {owner.architectures.noun} of the toolkit"
                if owner.architectures
                else ""
            )
        report.error(
            flag.path,
            f"{quoted(flag.text)} chooses what to compile for, which is what {name} is for",
            hint=hint,
        )
