"""What goes between a build and its workers: plain values of JSON and bytes, never objects of this package.

An action goes with the words of its commands, so no path of one machine is in it. Its tools and trees are named by
digest and identity: a worker runs its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import kernel_builder
from kernel_builder.actions.model import Action, ActionKind, Step, Threads, Tool, Tree


@dataclass(frozen=True, kw_only=True)
class Provisions:
    """What a worker compiles with: tools by name and digest, trees by name and identity."""

    tools: Mapping[tuple[str, str], Tool]
    trees: Mapping[tuple[str, str], Tree]

    @classmethod
    def of(cls, actions: Sequence[Action]) -> Provisions:
        """Those of ``actions``."""
        return cls(
            tools={(tool.name, tool.digest): tool for action in actions for tool in action.tools},
            trees={(tree.name, tree.identity): tree for action in actions for tree in action.trees},
        )


_Own = TypeVar("_Own", Tool, Tree)


class LacksError(Exception):
    """A worker has not what an action needs; the message says what."""


def action_to_json(action: Action) -> dict[str, Any]:
    """An action, as :func:`action_from_json` reads it on another machine."""
    threads = action.threads
    return {
        "id": action.id,
        "kind": action.kind.value,
        "variant": action.variant,
        "source": action.source,
        "steps": [_step_to_json(step) for step in action.steps],
        "fallback": [_step_to_json(step) for step in action.fallback],
        "inputs": list(action.inputs),
        "implicit": list(action.implicit),
        "outputs": list(action.outputs),
        "depfile": action.depfile,
        "log": action.log,
        "memory": action.memory,
        "tools": [[tool.name, tool.digest] for tool in action.tools],
        "trees": [[tree.name, tree.identity] for tree in action.trees],
        "environment": list(action.environment),
        "architecture": action.architecture,
        "threads": None if threads is None else [threads.variable, threads.value, threads.most],
    }


def action_from_json(value: Mapping[str, Any], provisions: Provisions) -> Action:
    """An action with this machine's tools and trees. Raises :class:`LacksError`."""
    tools = [_own(provisions.tools, name, digest) for name, digest in value["tools"]]
    trees = [_own(provisions.trees, name, identity) for name, identity in value["trees"]]
    threads = value["threads"]
    return Action(
        id=value["id"],
        kind=ActionKind(value["kind"]),
        variant=value["variant"],
        source=value["source"],
        steps=tuple(map(_step_from_json, value["steps"])),
        fallback=tuple(map(_step_from_json, value["fallback"])),
        inputs=tuple(value["inputs"]),
        implicit=tuple(value["implicit"]),
        outputs=tuple(value["outputs"]),
        depfile=value["depfile"],
        log=value["log"],
        memory=value["memory"],
        tools=tuple(tools),
        trees=tuple(trees),
        environment=tuple(value["environment"]),
        architecture=value["architecture"],
        threads=None if threads is None else Threads(variable=threads[0], value=threads[1], most=threads[2]),
    )


def _own(known: Mapping[tuple[str, str], _Own], name: str, wanted: str) -> _Own:
    try:
        return known[name, wanted]
    except KeyError:
        has = ", ".join(sorted(identity for other, identity in known if other == name)) or "none"
        raise LacksError(f"it has no {name} that is {wanted} (it has {has})") from None


def _step_to_json(step: Step) -> dict[str, Any]:
    return {**step.to_json(), "texts": list(step.texts)}


def _step_from_json(value: Mapping[str, Any]) -> Step:
    reads = value["reads"]
    return Step(
        command=tuple(value["command"]),
        writes=tuple(value["writes"]),
        reads=None if reads is None else tuple(reads),
        texts=tuple(value["texts"]),
    )


@cache
def code_digest() -> str:
    """A digest over this package's own code, which decides what is made as compilers do."""
    root = Path(kernel_builder.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """What a build and its workers must have in common, by how people call it."""
    return {
        "kernel-builder": f"{kernel_builder.__version__} ({code_digest()})",
        "Python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
    }


def to_blob(value: object) -> bytes:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


Wanted = Callable[[], bool]
"""Whether somebody still waits for what is being done."""
