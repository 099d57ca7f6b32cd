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
from collections.abc import Iterable, Mapping
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
out: ``CPATH`` brings foreign headers, ``LD_RUN_PATH`` a run path, ``LIBRARY_PATH`` other libraries. The wrappers of Nix
find the C library by theirs.
"""
DECIDING_VARIABLES = ("NIX_",)
"""How names begin of variables that compilers see and that decide what they make, so their values count."""


def seen(environ: Mapping[str, str], allowed: Iterable[str] = COMPILER_ENVIRONMENT) -> dict[str, str]:
    """The variables of ``environ`` that ``allowed`` names; a ``*`` at the end stands for the rest of a name."""
    names = tuple(allowed)
    exact = frozenset(name for name in names if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return {name: value for name, value in environ.items() if name in exact or name.startswith(prefixes)}


class ActionKind(StrEnum):
    """What an action does, as progress shows it."""

    TRANSLATE = "translate"
    """Turns sources into another language of the same kind (``hipify``)."""
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
    """A program. ``digest`` changes whenever the program, or a file that it is made of, does.

    ``headers`` are the directories of headers that are its own, ``shared`` those in which the C library's are among
    others, as a compiler tells; both are empty for whatever is no compiler, or was not asked.
    """

    name: str
    path: Path
    digest: str
    headers: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Files that an action may read. ``identity`` is the key of an entry of the store, or was measured.

    ``root`` is set for a tree that is used where it lies, outside of the store and of the project. ``folders`` are the
    directories that it consists of, and ``files``, relative to the project, those of the project's own.
    """

    name: str
    identity: str
    root: Path | None = None
    folders: tuple[Path, ...] = ()
    files: tuple[str, ...] = ()


SLIM = "slim"
"""The name of the tree of slim headers: an action that has it is compiled with these, unless it falls back."""


@dataclass(frozen=True, kw_only=True)
class Threads:
    """How a program can be told to use several processors, by a variable that does not change what it makes.

    ``value`` has ``{count}`` in it; ``most`` is how many the program can make use of.
    """

    variable: str
    value: str
    most: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of an action.

    ``writes`` are the files that it makes. ``reads`` are all the files that decide them, beside the program itself;
    ``None`` where only the whole action knows (it reads headers). Of these, ``texts`` are preprocessed sources of which
    the program uses neither the lines nor the names of the files that they came from.
    """

    command: tuple[str, ...]
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    texts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "command": list(self.command),
            "reads": None if self.reads is None else list(self.reads),
            "writes": list(self.writes),
        }


@dataclass(frozen=True, kw_only=True)
class Action:
    """One command, or a few that only make sense one after the other.

    ``id`` is unique in a plan, and the same wherever the plan is made. ``steps`` run in order, each only if the one
    before it succeeded; where one fails and there is a ``fallback``, its steps run instead, from the first on.
    ``inputs`` are the files that the steps are given, ``implicit`` those that they read besides; ``outputs`` what they
    make for others. ``depfile`` lists the headers read, in make's syntax, once they ran; ``log`` is where output goes.
    ``environment`` names the variables that it may see (a ``*`` at the end stands for the rest of a name). ``memory``
    is an estimate in bytes of the most it needs (DESIGN.md F10). ``source`` is the path for people, relative to the
    project. ``architecture`` is set where the action makes code for one alone.
    """

    id: str
    kind: ActionKind
    variant: str
    source: str
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    log: str
    memory: int
    fallback: tuple[Step, ...] = ()
    implicit: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    trees: tuple[Tree, ...] = ()
    environment: tuple[str, ...] = COMPILER_ENVIRONMENT
    depfile: str | None = None
    architecture: str | None = None
    threads: Threads | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The last command, which makes what the action is for."""
        return self.steps[-1].command

    @property
    def takes(self) -> tuple[str, ...]:
        """All files that it reads, but for headers that only ``depfile`` lists."""
        return (*self.inputs, *self.implicit)

    @property
    def makes(self) -> tuple[str, ...]:
        """All files that it makes for others, the list of headers included."""
        return (*self.outputs, *((self.depfile,) if self.depfile else ()))

    @property
    def scratch(self) -> tuple[str, ...]:
        """The files that steps hand on and that nobody else needs."""
        made = dict.fromkeys(word for step in (*self.steps, *self.fallback) for word in step.writes)
        return tuple(word for word in made if word not in self.outputs)

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
            "command": list(self.command),
            "commands": [step.to_json() for step in self.steps],
            "fallback": [step.to_json() for step in self.fallback],
            "inputs": list(self.inputs),
            "implicit": list(self.implicit),
            "outputs": list(self.outputs),
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
