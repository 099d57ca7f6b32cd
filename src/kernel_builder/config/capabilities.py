"""Architectures: how they are written, and which capabilities of a list a toolkit compiles for.

Reference: interoperability contract 2.7. Where a list has both ``9.0`` and ``9.0a``, both are kept, which is
more than the reference builds; nothing is chosen that the toolkit cannot compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Architecture, Capability, Suffix

CAPABILITY = r"[1-9][0-9]?\.[0-9][af]?(\+PTX)?"
"""A pattern of capabilities as they are written."""

_PATTERN = re.compile(r"([1-9][0-9]?)\.([0-9])([af]?)(\+PTX)?")
_BARE = re.compile(r"(?:(?:sm|compute)_?)?([1-9][0-9]?)([0-9])([af]?)(\+PTX)?", re.IGNORECASE)
_LOOSE = re.compile(r"([1-9][0-9]?)(?:\.([0-9]))?([af]?)(?:[ \t]*[+, ]?[ \t]*(PTX))?", re.IGNORECASE)
_FORM = "write major.minor, such as '8.0', followed by 'a' or 'f' and '+PTX' where needed ('9.0a', '8.0+PTX')"

_RENAMED = {(10, 1): (11, 0), (11, 0): (10, 1)}
"""Capabilities whose number changed: what CUDA 12 called 10.1, CUDA 13 calls 11.0."""


def parse_architecture(backend: Backend, text: str) -> Architecture:
    """Read an architecture of ``backend``. Raises ``ValueError`` with a sentence on how they are written; a backend
    that has none has none that is written right.
    """
    known = backend.architectures
    if known is None:
        raise ValueError(f"{_quote(text)} is not an architecture; {backend.label} has none")
    if known.pattern is None:
        return parse_capability(text, known.noun)
    if re.fullmatch(known.pattern, text) is None:
        raise ValueError(f'{_quote(text)} is not a {known.noun}; write something like "{known.examples[-1]}"')
    return text


def is_architecture(backend: Backend, text: str) -> bool:
    """Whether ``text`` is how an architecture of ``backend`` is written."""
    try:
        parse_architecture(backend, text)
    except ValueError:
        return False
    return True


def architectures_in(backend: Backend, flags: Iterable[str]) -> tuple[str, ...]:
    """The architectures that compiler ``flags`` choose, each once, as ``build.toml`` writes them."""
    known = backend.architectures
    if known is None:
        return ()
    if known.pattern is not None:
        return tuple(dict.fromkeys(match[0] for flag in flags for match in re.finditer(known.pattern, flag)))
    return tuple(map(str, _merged(capability for flag in flags for capability in _capabilities_in(flag))))


def _capabilities_in(flag: str) -> Iterable[Capability]:
    """Those of ``arch=compute_80,code=[sm_80,compute_80]`` or ``sm_80``; code for a virtual one is PTX."""
    last = re.search(r"(?:^|[ =,-])code=(.*)", flag)
    code = last[1] if last else flag
    for kind, major, minor, suffix in re.findall(r"(sm|compute)_([1-9][0-9]?)([0-9])([af]?)(?![0-9])", code):
        yield Capability(int(major), int(minor), Suffix(suffix), ptx=kind == "compute" and last is not None)


def listed_in_one(backend: Backend, text: str) -> tuple[str, ...]:
    """The architectures of a list in one text, as ``TORCH_CUDA_ARCH_LIST`` has them; empty when it is none."""
    parts = [part for part in re.split(r"[;,\s]+", re.sub(r"\s*\+\s*", "+", text).strip(" []\t'\"")) if part]
    parts = [part.strip("'\"") for part in parts]
    if len(parts) < 2:
        return ()
    try:
        return tuple(dict.fromkeys(str(_meant(backend, part)) for part in parts))
    except ValueError:
        return ()


def _meant(backend: Backend, text: str) -> Architecture:
    """The architecture ``text``, or what it was probably meant to be. Raises ``ValueError`` for neither."""
    if backend.architectures is not None and backend.architectures.pattern is None:
        guess = _guess(text)
        if guess is not None:
            return guess
    return parse_architecture(backend, text)


def capabilities_of(architectures: Iterable[Architecture]) -> tuple[Capability, ...]:
    """Those of ``architectures`` that are capabilities."""
    return tuple(one for one in architectures if isinstance(one, Capability))


def parse_capability(text: str, noun: str = "compute capability") -> Capability:
    """Read ``8.0``, ``9.0a``, ``10.0f`` or ``8.0+PTX``; ``str()`` of the result is ``text`` again.

    Raises ``ValueError`` with a sentence that says how capabilities are written, and what was probably meant.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        meant = _guess(text)
        raise ValueError(f"{_quote(text)} is not a {noun}; " + (f"write '{meant}'" if meant else _FORM))
    return Capability(int(match[1]), int(match[2]), Suffix(match[3]), ptx=bool(match[4]))


def _quote(text: str) -> str:
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"


def _guess(text: str) -> Capability | None:
    """What ``90``, ``sm_90a``, ``9`` or ``9.0 PTX`` was probably meant to be."""
    stripped = text.strip()
    match = _BARE.fullmatch(stripped) or _LOOSE.fullmatch(stripped)
    if match is None:
        return None
    return Capability(int(match[1]), int(match[2] or 0), Suffix((match[3] or "").lower()), ptx=bool(match[4]))


@dataclass(frozen=True, kw_only=True)
class SelectedCapabilities:
    """What a section is compiled for: ``effective`` in natural order, each once; ``dropped`` are the
    requested entries that contribute nothing, in the order of the request.
    """

    effective: tuple[Capability, ...]
    dropped: tuple[Capability, ...]


def select_capabilities(
    requested: tuple[Capability, ...] | None,
    supported: tuple[Capability, ...],
    *,
    compilable: tuple[Capability, ...] | None = None,
) -> SelectedCapabilities:
    """Choose what to compile for.

    ``requested`` is what a section asks for, ``None`` where it asks for nothing; ``supported`` what the
    toolkit's default list holds, possibly with a ``+PTX`` default; ``compilable`` everything that this nvcc
    takes, when that is more than ``supported``. With no request, all of ``supported`` is chosen.

    A plain entry is chosen when it is the best one at hand for some supported capability: the largest that is
    not newer and has the same major number, or any major number when it asks for ``+PTX``. An entry with
    ``a`` or ``f`` is chosen when its number is supported. Whatever nvcc cannot compile is dropped.
    ``effective`` may come out empty; that is for the caller to report, with both lists.
    """
    if requested is None:
        return SelectedCapabilities(effective=_merged(supported), dropped=())
    targets = sorted({(capability.major, capability.minor) for capability in supported})
    known = set(targets) | {(capability.major, capability.minor) for capability in compilable or ()}
    wanted = _merged(requested)
    plain = [entry for entry in wanted if entry.suffix is Suffix.NONE and (entry.major, entry.minor) in known]
    chosen = {entry for entry in wanted if entry.suffix is not Suffix.NONE and (entry.major, entry.minor) in targets}
    for target in targets:
        usable = [
            entry for entry in plain if (entry.major, entry.minor) <= target and (entry.major == target[0] or entry.ptx)
        ]
        if usable:
            chosen.add(max(usable, key=_number))
    kept = {_number(entry) for entry in chosen}
    return SelectedCapabilities(
        effective=_merged(chosen),
        dropped=tuple(dict.fromkeys(entry for entry in requested if _number(entry) not in kept)),
    )


def names(asked: Architecture, compiled: Architecture) -> bool:
    """Whether somebody who asks for ``asked`` means ``compiled``: ``9.0`` means all code for that chip, ``9.0a`` and
    ``9.0+PTX`` too; what is added means just that.
    """
    if not isinstance(asked, Capability) or not isinstance(compiled, Capability):
        return asked == compiled
    if (asked.major, asked.minor) != (compiled.major, compiled.minor):
        return False
    is_plain = asked.suffix is Suffix.NONE and not asked.ptx
    return is_plain or (asked.suffix is compiled.suffix and (compiled.ptx or not asked.ptx))


def running_on(devices: Iterable[Architecture], compiled: tuple[Architecture, ...]) -> tuple[Architecture, ...]:
    """Those of ``compiled`` that ``devices`` run: code for the very chip, else the best of what it also takes."""
    chosen: set[Architecture] = set()
    for device in devices:
        own = {one for one in compiled if names(device, one)}
        if not own and isinstance(device, Capability):
            plain = tuple(one for one in capabilities_of(compiled) if one.suffix is Suffix.NONE)
            own = {*select_capabilities(plain, (device,), compilable=plain).effective}
        chosen |= own
    return tuple(one for one in compiled if one in chosen)


def why_dropped(capability: Capability, supported: tuple[Capability, ...]) -> str:
    """One clause for people on why :func:`select_capabilities` dropped ``capability``."""
    numbers = sorted({(entry.major, entry.minor) for entry in supported})
    number = (capability.major, capability.minor)
    other = _RENAMED.get(number)
    if other in numbers and number not in numbers:
        return f"this toolkit calls it {other[0]}.{other[1]}"
    if numbers and number < numbers[0]:
        return f"older than {numbers[0][0]}.{numbers[0][1]}, the oldest this toolkit supports"
    if numbers and number > numbers[-1]:
        return f"newer than {numbers[-1][0]}.{numbers[-1][1]}, the newest this toolkit supports"
    return "this toolkit does not support it"


def _number(capability: Capability) -> tuple[int, int, str]:
    return capability.major, capability.minor, capability.suffix.value


def _merged(capabilities: Iterable[Capability]) -> tuple[Capability, ...]:
    """Each number once, in natural order; ``+PTX`` when any of its entries asks for it."""
    merged: dict[tuple[int, int, str], Capability] = {}
    for capability in capabilities:
        found = merged.get(_number(capability), capability)
        merged[_number(capability)] = replace(found, ptx=found.ptx or capability.ptx)
    return tuple(merged[number] for number in sorted(merged))
