"""Actions: the commands that a plan is made of, as plain data, with commands that are the same on every machine.

An action says all that decides its result: the command, the files it is given, the tools it runs (with a digest), the
trees it may read (with an identity), and the environment variables it may see. Paths in it are *words* with
placeholders, which :class:`~kernel_builder.actions.places.Places` turns into paths of this machine:

    {project}   the kernel's own directory          {store}       the store of toolchains
    {work}      kernel-builder's directory in it    {tool:NAME}   a program of ``tools``
    {tree:NAME} a tree of ``trees`` that is used where it lies, outside of the store

A brace that is meant as such is written twice, as in format strings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

COMPILER_ENVIRONMENT = (
    "PATH",
    "HOME",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LD_LIBRARY_PATH",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "CCACHE_*",
    "SCCACHE_*",
    "AWS_*",
    "DISTCC_*",
    "ICECC_*",
    "NIX_*",
)
"""What compilers and linkers see of the user's environment.

They need it to find their parts and to use a compiler cache. What would change the result behind the plan's back stays
out: ``CPATH`` brings foreign headers, ``LD_RUN_PATH`` a run path, ``LIBRARY_PATH`` other libraries.
"""


class ActionKind(StrEnum):
    """What an action does, as progress shows it."""

    PREPROCESS = "preprocess"
    SPLIT = "split"
    """Separates device code from host code (``cudafe++``)."""
    DEVICE = "device"
    """Compiles device code for one architecture (``cicc``)."""
    ASSEMBLE = "assemble"
    """Turns assembly for one architecture into machine code (``ptxas``)."""
    BUNDLE = "bundle"
    """Puts the code of several architectures into one file (``fatbinary``)."""
    COMPILE = "compile"
    LINK = "link"
    INSPECT = "inspect"
    """Checks what was linked."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A program. ``digest`` changes whenever the program, or a file that it is made of, does."""

    name: str
    path: Path
    digest: str


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Files that an action may read. ``identity`` is the key of an entry of the store, or was measured.

    ``root`` is set for a tree that is used where it lies, outside of the store and of the project.
    """

    name: str
    identity: str
    root: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Threads:
    """How a program can be told to use several processors, by a variable that does not change what it makes.

    ``value`` has ``{count}`` in it; ``most`` is how many the program can make use of.
    """

    variable: str
    value: str
    most: int


@dataclass(frozen=True, kw_only=True)
class Action:
    """One command, or a few that only make sense one after the other.

    ``id`` is unique in a plan, and the same wherever the plan is made. ``before`` are commands that run before
    ``command``, each only if the one before it succeeded; ``scratch`` the files that they hand on, which nobody else
    needs. ``inputs`` are the files that the commands are given, ``implicit`` those that they read besides; ``outputs``
    what they make. ``depfile`` lists the headers read, in make's syntax, once they ran; ``log`` is where output goes.
    ``environment`` names the variables that it may see (a ``*`` at the end stands for the rest of a name). ``memory``
    is an estimate in bytes of the most it needs (DESIGN.md F10). ``source`` is the path for people, relative to the
    project. ``architecture`` is set where the action makes code for one alone.
    """

    id: str
    kind: ActionKind
    variant: str
    source: str
    command: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    log: str
    memory: int
    before: tuple[tuple[str, ...], ...] = ()
    scratch: tuple[str, ...] = ()
    implicit: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    trees: tuple[Tree, ...] = ()
    environment: tuple[str, ...] = COMPILER_ENVIRONMENT
    depfile: str | None = None
    architecture: str | None = None
    threads: Threads | None = None

    @property
    def identity(self) -> str:
        """A digest over the tools and trees, for what no file that it is given tells."""
        facts = [
            *(f"{tool.name} {tool.digest}" for tool in self.tools),
            *(f"{tree.name} {tree.identity}" for tree in self.trees),
        ]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """For people: what it does, for which variant, to which file."""
        architecture = f" ({self.architecture})" if self.architecture else ""
        return f"{self.kind.value} {self.variant} {self.source}{architecture}"

    def sees(self, variable: str) -> bool:
        """Whether it may see that variable of the environment."""
        return any(
            variable.startswith(name[:-1]) if name.endswith("*") else variable == name for name in self.environment
        )

    def to_json(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "source": self.source,
            "architecture": self.architecture,
            "before": [list(command) for command in self.before],
            "command": list(self.command),
            "inputs": list(self.inputs),
            "implicit": list(self.implicit),
            "outputs": list(self.outputs),
            "scratch": list(self.scratch),
            "depfile": self.depfile,
            "log": self.log,
            "memory": self.memory,
            "tools": {tool.name: tool.digest for tool in self.tools},
            "trees": {tree.name: tree.identity for tree in self.trees},
            "environment": list(self.environment),
        }


@dataclass(frozen=True, kw_only=True)
class GeneratedFile:
    """A file that the plan itself provides. It is rewritten only when its content changes."""

    path: str
    content: str


def graph_id(actions: Iterable[Action]) -> str:
    """A digest over ``actions``: equal for equal work, wherever project and store are. The digests of this machine's
    own tools and trees are part of it.
    """
    text = json.dumps([action.to_json() for action in actions], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def action_id(variant: str, kind: ActionKind, source: str, architecture: str | None = None) -> str:
    """``torch213-cxx11-cpu-x86_64-linux:compile:src/a.cpp``; with an architecture, that follows."""
    parts = (variant, kind.value, source, *((architecture,) if architecture else ()))
    return ":".join(parts)
