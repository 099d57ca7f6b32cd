"""How the framework's slim headers are used, and how it is proved that they make the same host code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernel_builder.actions.context import Context
from kernel_builder.actions.model import SLIM, Action, Step, Tool, Tree
from kernel_builder.actions.places import tool_word
from kernel_builder.binary import device_proof, relocatable

# Which Python runs a proof decides nothing.
PYTHON = Tool(name="python", path=Path(sys.executable), digest="runs the proof")
HOST_PROOF = Tool(name="host proof", path=Path(relocatable.__file__), digest="1")
DEVICE_PROOF = Tool(name="proof", path=Path(device_proof.__file__), digest="1")

PLAINLY = (
    # Nothing is inlined, and nothing refers to anything by its position.
    *("-O0", "-fno-lto", "-g0", "-ffunction-sections", "-fdata-sections", "-fmerge-constants", "-fno-jump-tables"),
    # Otherwise the code for exceptions depends on which functions the compiler has seen before: it leaves handlers out
    # around calls of those that it found not to throw.
    "-fnon-call-exceptions",
)
"""With these, after all other options, a host compiler makes equal code of equal sources, whatever else it has seen."""


def apart(name: str, prefix: str) -> str:
    """The name of a file that is made a second time."""
    folder, _, last = name.rpartition("/")
    return f"{folder}/{prefix}-{last}"


def proof_of(proof: Tool, *files: str) -> Step:
    """The step that compares ``files`` by the program ``proof``."""
    return Step(command=(tool_word(PYTHON), "-P", tool_word(proof), *files), reads=files)


def words_of_slim(context: Context, source: str) -> tuple[str, ...]:
    """What a preprocessor is told so that ``source`` sees slim headers; nothing where it is not to."""
    folder = context.toolchain.framework.slim
    if folder is None or source not in context.slim:
        return ()
    return ("-isystem", context.word(folder), *(f"-D{name}" for name in context.slim[source]))


def with_slim(
    context: Context,
    action: Action,
    *,
    steps: tuple[Step, ...],
    fallback: tuple[Step, ...],
    tools: Iterable[Tool] = (),
) -> Action:
    """``action`` with ``steps``, which see slim headers, the ``fallback`` with all of them, and ``tools`` besides."""
    folder = context.toolchain.framework.slim
    named = {tool.name: tool for tool in (*action.tools, *tools)}
    trees = (*action.trees, *([Tree(name=SLIM, identity=folder.name)] if folder is not None else []))
    return replace(action, steps=steps, fallback=fallback, tools=tuple(named.values()), trees=trees)


def slim_compile(context: Context, full: Action, slim: Action) -> Action:
    """What ``slim`` and ``full`` make, which compile a source of the host with slim headers and with all of them:
    ``full`` counts where the other one fails. To prove slim headers, both are compiled without optimization, too.
    """
    if not context.verify:
        return with_slim(context, full, steps=slim.steps, fallback=full.steps, tools=slim.tools)
    (target,) = full.outputs
    names = (apart(target, "plain"), apart(target, "plain-slim"))
    plain = tuple(_plainly(one.steps[0], target, name) for one, name in zip((full, slim), names, strict=True))
    steps = (*plain, proof_of(HOST_PROOF, *names), *slim.steps)
    return with_slim(context, full, steps=steps, fallback=full.steps, tools=(PYTHON, HOST_PROOF))


def slim_device(context: Context, full: Action, slim: Step) -> Action:
    """What ``slim`` makes, which compiles device code with slim headers; ``full``, which does that with all of them,
    where it fails. To prove slim headers, both are made, and must be the same bytes.
    """
    if not context.verify:
        return with_slim(context, full, steps=(slim,), fallback=full.steps)
    (target,) = full.outputs
    other = apart(target, "full")
    whole = _into(full.steps[0], target, other)
    steps = (whole, slim, proof_of(DEVICE_PROOF, other, target))
    return with_slim(context, full, steps=steps, fallback=full.steps, tools=(PYTHON, DEVICE_PROOF))


def _into(step: Step, target: str, name: str) -> Step:
    """``step``, which makes ``target``, into ``name``."""
    return replace(step, command=tuple(name if word == target else word for word in step.command), writes=(name,))


def _plainly(step: Step, target: str, name: str) -> Step:
    """``step``, which makes the object ``target``, without optimization, into ``name``."""
    step = _into(step, target, name)
    return replace(step, command=(*step.command, *PLAINLY))
