"""What assemblers and linkers say of a project's own functions, explained: who defines them, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernel_builder.binary.causes import NamedCause
from kernel_builder.engine.own_names import OwnNames, demangle

_DEVICE = re.compile(r"[Uu]nresolved extern (?:function|variable) '(?P<name>\w+)'")
"""What assemblers of device code say: there, every file must be complete by itself."""
_TWICE = re.compile(
    r"multiple definition of [`'](?P<gnu>.+?)'(?:;|$)|duplicate symbol: (?:\S+\.o: \S+\.o: )?(?P<others>.+)$"
)


def explained(lines: Iterable[str], source: str, own: OwnNames) -> tuple[NamedCause, ...]:
    """Causes of what a tool says in ``lines`` when it worked on ``source``, each once."""
    found: dict[NamedCause, None] = {}
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
    if written is None:
        why = f"{who} define {readable}, each for itself"
        return NamedCause(why=why, instead="define it in one of them, or make it static")
    if written.file in own.headers:
        why = f"{written.place} defines {readable}, and so does every file that includes it: {who}"
        return NamedCause(why=why, instead=f"write 'inline' before that definition in {written.file}")
    others = [source for source in sources if source != written.file]
    if len(own.definitions(readable)) == 1 and others and written.file in sources:
        why = f"{written.place} defines {readable}, which is compiled and also included by {' and '.join(others)}"
        return NamedCause(why=why, instead=f"remove the #include of {written.file} from {' and '.join(others)}")
    why = f"{who} define {readable}, each for itself"
    return NamedCause(why=why, instead="define it in one of them, or make it static")
