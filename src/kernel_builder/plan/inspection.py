"""The action that checks a library once it is linked: what it needs, where it looks for it, what it was made from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_builder import __version__
from kernel_builder.actions.context import Context
from kernel_builder.actions.model import Action, ActionKind, GeneratedFile, Step, Tool, action_id
from kernel_builder.actions.places import tool_word
from kernel_builder.versions import Version

PROGRAM = "kernel_builder.engine.inspect"
_MEMORY = 1 << 28
_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")
"""``PYTHONPATH``: engines put the place of this package into it."""


def covered_files(context: Context, paths: tuple[str, ...]) -> GeneratedFile:
    """The file that lists what the kernel's name covers: ``paths``, links resolved, relative to the project. All
    variants share it.
    """
    return GeneratedFile(
        path=context.word(context.layout.refused.parent / "covered.json"),
        content=json.dumps(paths, indent=0) + "\n",
    )


def inspection(
    context: Context,
    compiled: tuple[Action, ...],
    library: str,
    *,
    release: str,
    limited_api: tuple[int, int] | None,
    stable: Version | None,
    covered: str,
    elsewhere: Mapping[str, Mapping[str, object]],
) -> tuple[Action, GeneratedFile]:
    """The action that checks ``library``, which ``compiled`` actions made the objects of, and the file that tells it
    what to look at.

    ``elsewhere`` are sources that only other variants compile: for which ``section``, and whether this one could.
    ``release`` says for people what the library is for (``torch 2.13.0, cuda 13.0``); ``limited_api`` is the
    version of Python's that it may use, if it may use any; with ``stable``, a release of torch, only names of that
    release's stable ABI may be used. ``covered`` is the list of :func:`covered_files`.
    """
    layout, word = context.layout, context.word
    toolkit = context.toolkit
    depfiles = [action.depfile for action in compiled if action.depfile is not None]
    request = {
        "library": library,
        "framework": context.toolchain.framework.kind.value,
        "framework-tables": [word(path) for path in context.toolchain.framework.exports],
        "tables": [word(path) for path in (toolkit.exports if toolkit else ())],
        "python": list(limited_api) if limited_api is not None else None,
        "c-library": context.toolchain.sysroot.floor if context.toolchain.sysroot is not None else None,
        "macos": context.macos or None,
        "stable": str(stable) if stable else None,
        "release": release,
        "elsewhere": elsewhere,
        "objects": {output: action.source for action in compiled for output in action.outputs},
        "covered": covered,
        "depfiles": depfiles,
    }
    if context.build_type.sanitizers:
        request["sanitizers"] = [one.value for one in context.build_type.sanitizers]
    question = GeneratedFile(
        path=word(layout.variant / "generated" / "inspect.json"),
        content=json.dumps(request, indent=1, sort_keys=True) + "\n",
    )
    stamp = word(layout.variant / "inspected")
    trees = {tree.name: tree for action in compiled for tree in action.trees}
    outside = [name for name, tree in trees.items() if tree.root is not None]
    python = Tool(name="python", path=Path(sys.executable), digest=f"{__version__} {sys.version}")
    command = (
        tool_word(python),
        *("-P", "-m", PROGRAM, question.path, "--stamp", stamp),
        *("--project", "{project}", "--work", "{work}", "--store", "{store}"),
        *(part for name in outside for part in ("--tree", f"{name}={{tree:{name}}}")),
    )
    action = Action(
        id=action_id(context.variant, ActionKind.INSPECT, "library"),
        kind=ActionKind.INSPECT,
        variant=context.variant,
        source=library.rpartition("/")[2],
        steps=(Step(command=command, writes=(stamp,)),),
        inputs=(library,),
        implicit=(question.path, covered, *depfiles),
        outputs=(stamp,),
        log=word(layout.log_for("inspect")),
        memory=_MEMORY,
        tools=(python,),
        trees=tuple(trees.values()),
        environment=_ENVIRONMENT,
    )
    return action, question
