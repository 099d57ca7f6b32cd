"""Compiles whose source begins with headers of the framework, which need to be read once for all of them.

What a source includes first, with nothing but comments before, is read the same way whatever follows. So these headers,
in that order, are precompiled and kept in the store, and the objects stay the same, byte for byte. They are not part of
the plan: :mod:`kernel_builder.engine.precompiled` runs the compiler, makes them when they are missing, and does without
where they cannot be used.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path

import kernel_builder
from kernel_builder.actions.context import Context
from kernel_builder.actions.model import Tool
from kernel_builder.actions.places import tool_word
from kernel_builder.actions.units import CXX, Unit
from kernel_builder.config.backends import Backend
from kernel_builder.toolchain.model import Family

_PROGRAM = Path(kernel_builder.__file__).parent / "engine" / "precompiled.py"
_TOOLS = (
    # Which Python runs it, and how it works, decide nothing that is made.
    Tool(name="python", path=Path(sys.executable), digest="runs the launcher"),
    Tool(name="launcher", path=_PROGRAM, digest="runs the compiler"),
)
_WORTH = {Family.GCC: 3, Family.CLANG: 1}
"""How many sources make up for precompiling: g++ writes 700 MB in the time of one and a half compiles, and saves 60 %;
clang 130 MB in that of one, and saves 65 %. Headers of clang are kept even for one, since it will be edited.
"""
_WORTH_SLIM = 2
"""The same of slim headers, which g++ alone gets: 290 MB in the time of two compiles, and it saves 75 %."""
_AFTER_SLIM = 2
"""How many compiles go without them first, so that a kernel that is built once takes no longer, and one that is worked
on never takes more than twice as long as it would have with the better choice.
"""
_OTHERWISE = re.compile(
    r"-(include|imacros|I|iquote|isystem|idirafter|iprefix|isysroot|-sysroot|x|E|S|M|P|B|g|fmodules|fprofile|ftest"
    r"|save-temps|specs|nostdinc|-coverage|Xclang|Xpreprocessor|Wp,)|@"
)
"""Flags that say what is read first, or that make something else of it than an object without debug information."""
UNMENTIONED = ("TORCH_EXTENSION_NAME", *(f"{backend.value.upper()}_KERNEL" for backend in Backend))
"""Macros that tell kernels and backends apart, which no header of the framework knows."""


def shared_definitions(words: Iterable[str]) -> list[str]:
    """The definitions among ``words`` that all sources that share headers have."""
    return [word for word in words if word.removeprefix("-D").partition("=")[0] not in UNMENTIONED]


def groups_worth_it(
    units: Sequence[Unit], first: Mapping[str, tuple[str, ...]], family: Family, slim: Collection[str] = ()
) -> tuple[frozenset[str], ...]:
    """The sources whose first headers are precompiled: they have some, and enough others have the same. Those that
    share precompiled headers are together; those in ``slim`` have slim headers.
    """
    groups: dict[object, set[str]] = {}
    for unit in units:
        names = first.get(unit.source)
        if names and unit.language == CXX and not any(map(_OTHERWISE.match, unit.own_flags)):
            groups.setdefault((names, unit.own_flags, unit.source in slim), set()).add(unit.source)

    def worth(group: Set[str]) -> int:
        return _WORTH[family] if group.isdisjoint(slim) else _WORTH_SLIM

    return tuple(frozenset(group) for group in groups.values() if len(group) >= worth(group))


def launcher(
    context: Context, unit: Unit, precompile: Sequence[str], folders: Sequence[Path]
) -> tuple[list[str], tuple[Tool, ...]]:
    """What goes before the command that compiles ``unit``, and the tools that it runs; nothing where it would not pay.

    ``precompile`` is the command that precompiles headers, without the framework's directories but those of slim
    headers, and ``folders`` are those besides in which ``unit`` looks for headers.
    """
    names = context.precompiled.get(unit.source)
    if names is None:
        return [], ()
    word, torch = context.word, context.toolchain.framework
    words = [*precompile, *(word for path in torch.include for word in ("-isystem", context.word(path)))]
    facts = f"{context.host.digest} {torch.identity}"
    python, program = _TOOLS
    return [
        tool_word(python),
        "-P",
        tool_word(program),
        *("--store", "{store}", "--identity", hashlib.sha256(facts.encode()).hexdigest()[:16]),
        *(["--clang"] if context.host.family is Family.CLANG else []),
        *(["--after", str(_AFTER_SLIM)] if unit.source in context.slim else []),
        *(part for name in names for part in ("--header", name)),
        *(part for name in UNMENTIONED for part in ("--unmentioned", name)),
        *(part for path in folders for part in ("--beside", word(path))),
        *("--words", str(len(words)), *words),
    ], _TOOLS


def without_launcher(command: Sequence[str]) -> tuple[str, ...]:
    """The compiler's own words of ``command``, without what :func:`launcher` put before them."""
    python, program = _TOOLS
    if tuple(command[:3]) != (tool_word(python), "-P", tool_word(program)):
        return tuple(command)
    at = command.index("--words")
    return tuple(command[at + 2 + int(command[at + 1]) :])
