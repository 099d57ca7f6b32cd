"""What compilers, assemblers and linkers say, explained: what it comes from, and what to do; and how much of it is
shown.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kernel_builder.binary.causes import NamedCause
from kernel_builder.binary.tvm_ffi import functions_in
from kernel_builder.engine.own_names import OwnNames, demangle
from kernel_builder.engine.snippets import fitted

_TABLE = Path(__file__).parent.parent / "data" / "complaints.toml"

_DEVICE = re.compile(r"[Uu]nresolved extern (?:function|variable) '(?P<name>\w+)'")
"""What assemblers of device code say: there, every file must be complete by itself."""
_TWICE = re.compile(
    r"multiple definition of [`'](?P<gnu>.+?)'(?:;|$)|duplicate symbol: (?:\S+\.o: \S+\.o: )?(?P<others>.+)$"
)


_HEAD, _TAIL, _WIDEST = 30, 15, 200
_MESSAGE = re.compile(r"\S.*?(?:\(\d+\)|:\d+(?::\d+)?): (?P<kind>fatal error|error|warning|note|remark)\b")
"""Where a compiler begins to say something; what follows, up to the next or a blank line, belongs to it."""
_CONTEXT = re.compile(r"In file included from|\s+from |\s+detected (?:during|at)|\S+: (?:In|At) ")


def excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """What people see of a compiler's ``lines``: of many, no notes (the candidates for a call, say), only the
    beginning, where the first error is, and the end, where a fatal one is. Wide lines are cut: those of sources around
    what is marked in them.
    """
    shown = list(lines)
    if len(shown) > _HEAD + _TAIL:
        shown = list(_without_notes(shown))
    left_out = len(lines) - len(shown)
    if len(shown) > _HEAD + _TAIL:
        left_out += len(shown) - _HEAD - _TAIL
        shown[_HEAD:-_TAIL] = [f"... ({left_out} lines)"]
    elif left_out:
        shown.append(f"... ({left_out} lines of notes)")
    return tuple(fitted(shown, _WIDEST))


def _without_notes(lines: Iterable[str]) -> Iterator[str]:
    in_note = False
    for line in lines:
        begins = _MESSAGE.match(line)
        if begins is not None:
            in_note = begins["kind"] in {"note", "remark"}
        elif not line.strip() or _CONTEXT.match(line):
            in_note = False
        if not in_note:
            yield line


class _Said(NamedTuple):
    match: re.Pattern[str]
    cause: NamedCause


@cache
def _known() -> tuple[_Said, ...]:
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["said"]
    return tuple(_Said(re.compile(row["match"]), NamedCause(why=row["why"], instead=row["instead"])) for row in rows)


def explained(lines: Sequence[str], source: str, own: OwnNames) -> tuple[NamedCause, ...]:
    """Causes of what a tool says in ``lines`` when it worked on ``source``, each once."""
    text = "\n".join(lines)
    found: dict[NamedCause, None] = {said.cause: None for said in _known() if said.match.search(text)}
    for line in lines:
        device, twice = _DEVICE.search(line), _TWICE.search(line)
        if device is not None:
            found[_on_device(device["name"], source, own)] = None
        if twice is not None:
            found[_defined_twice((twice["gnu"] or twice["others"]).strip(), own)] = None
    return tuple(found)


def _on_device(symbol: str, source: str, own: OwnNames) -> NamedCause:
    readable = demangle([symbol])[symbol]
    written = own.definition(readable)
    alone = "but each file's device code must be complete by itself"
    if written is None:
        why = f"{source} uses {readable} in device code, {alone}, and no file of the project defines it"
        return NamedCause(why=why, instead=f"define it in {source}, or in a header that {source} includes")
    why = f"{source} uses {readable} in device code, which {written.place} defines, {alone}"
    if written.file in own.headers:
        return NamedCause(why=why, instead=f"include {written.file} in {source}")
    return NamedCause(why=why, instead=f"move that definition to a header, and include it in {source}")


def _defined_twice(readable: str, own: OwnNames) -> NamedCause:
    sources = own.definers(readable)
    written = own.definition(readable)
    who = " and ".join(sources) or "several objects"
    for function in functions_in([readable]):
        why = f"{who} each export the function {function} to tvm-ffi"
        instead = f"export {function} in one source, and not in a header that several include"
        return NamedCause(why=why, instead=instead)
    if written is None:
        why = f"{who} each define {readable}"
        return NamedCause(why=why, instead="define it in one of them, or make it static")
    if written.file in own.headers:
        why = f"{written.place} defines {readable}, and so does every file that includes it: {who}"
        return NamedCause(why=why, instead=f"write 'inline' before that definition in {written.file}")
    others = [source for source in sources if source != written.file]
    if len(own.definitions(readable)) == 1 and others and written.file in sources:
        why = f"{written.place} defines {readable}, which is compiled and also included by {' and '.join(others)}"
        return NamedCause(why=why, instead=f"remove the #include of {written.file} from {' and '.join(others)}")
    why = f"{who} each define {readable}"
    return NamedCause(why=why, instead="define it in one of them, or make it static")
