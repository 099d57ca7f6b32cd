"""``compile_commands.json``: how each source of a variant is compiled, for clangd and other tools.

C and C++ have the command that a build runs. What a backend's own compiler takes apart has one that clang understands,
with the same definitions, directories of headers and standard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.config.backends import Backend, ClangReading
from kernel_builder.engine.work import write_generated
from kernel_builder.errors import BuildError
from kernel_builder.files import write_text
from kernel_builder.plan.model import VariantPlan
from kernel_builder.toolchain.model import Toolchain
from kernel_builder.workflow.build import BuildRequest
from kernel_builder.workflow.making import prepared_for
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.toolchains import provide

NAME = "compile_commands.json"
_UNKNOWN_TO_CLANG = frozenset({"-fno-gnu-unique"})
_KEPT = re.compile(r"-(?:D|I|isystem|std=)")


def write_compile_commands(request: BuildRequest, run: Run) -> tuple[Path, str, int]:
    """Write the file of the first variant of ``request`` into the project. Headers are fetched, nothing is compiled.

    Returns its path, the variant's name, and how many sources it has. Raises what preparing a build raises, and
    :class:`BuildError` where no variant is compiled.
    """
    prepared = prepared_for(request, run)
    provide(prepared.chosen, prepared.matrix, run)
    if not prepared.has_compilers:
        prepared = prepared.planned_again()
    plan, places = prepared.plan, prepared.plan.places
    variant = next((one for one in plan.variants if one.actions), None)
    if variant is None:
        raise BuildError(
            "this kernel has no compiled variant", hint="a kernel with only Python code needs no such file"
        )
    write_generated((places.path(file.path), file.content) for file in variant.generated)
    entries = list(entries_of(variant, places, prepared.planning.toolchains[variant.name]))
    file = places.root / NAME
    write_text(file, json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return file, variant.name, len(entries)


def entries_of(variant: VariantPlan, places: Places, toolchain: Toolchain) -> Iterator[Mapping[str, object]]:
    """An entry for each source of the project that ``variant`` compiles, in the plan's order."""
    seen: set[str] = set()
    for action in variant.actions:
        file = str(places.root / action.source)
        command = None if action.source in seen else _command_with(file, action, places)
        if command is None:
            continue
        seen.add(action.source)
        yield {
            "directory": str(places.root),
            "file": file,
            "arguments": list(_for_editors(command, file, variant.backend, toolchain)),
        }


def _command_with(file: str, action: Action, places: Places) -> tuple[str, ...] | None:
    """The first command of an action that reads that file with its headers, with all of them if it has the choice."""
    steps = (*action.fallback, *action.steps)
    commands = (places.expanded(action, without_launcher(step.command)) for step in steps)
    return next((words for words in commands if file in words and any(map(_KEPT.match, words))), None)


def _for_editors(command: Sequence[str], file: str, backend: Backend, toolchain: Toolchain) -> Sequence[str]:
    if not file.endswith(backend.sources or ("\0",)) or backend.editor is None:
        return [word for word in command if word not in _UNKNOWN_TO_CLANG]
    return [*_as_clang(backend.editor, toolchain), *_definitions(command, re.compile(backend.editor.drop)), file]


def _as_clang(editor: ClangReading, toolchain: Toolchain) -> Iterator[str]:
    yield "clang++"
    yield from editor.arguments
    if toolchain.toolkit is not None:
        yield editor.toolkit.format(toolchain.toolkit.compiler.parent.parent)


def _definitions(command: Sequence[str], drop: re.Pattern[str]) -> Iterator[str]:
    """Definitions, directories of headers and the standard, but for definitions that the language itself brings."""
    words = iter(command)
    for word in words:
        if not _KEPT.match(word):
            continue
        value = f"{word}{next(words, '')}" if word in {"-D", "-I"} else word
        if word == "-isystem":
            yield from (word, next(words, ""))
        elif not drop.fullmatch(value):
            yield value
