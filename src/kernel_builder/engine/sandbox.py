"""Actions under bubblewrap: without a network, with nothing to read but what they declare, and with a work directory of
their own, out of which just their outputs are taken.

Checks of kernel-builder's own, which read what others made and make nothing, run outside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kernel_builder.actions.model import Action, ActionKind, Tool
from kernel_builder.actions.places import Places
from kernel_builder.bubblewrap import LOADER_SETTINGS, PROGRAM, SYSTEM, shown
from kernel_builder.errors import MachineError
from kernel_builder.plan.model import BuildPlan
from kernel_builder.toolchain.c_library import SITE, is_of_c_library

_TRIAL_SECONDS = 20
_STORE = "store"
"""The directory of entries in the store."""
_BEHIND = f"/run/{'system-headers-of-this-machine/' * 12}"
"""Where directories of system headers really are, by a name that is longer than any by which compilers find them."""
_HOME = "/tmp"  # noqa: S108  (of the sandbox, which is empty)


@dataclass(frozen=True, kw_only=True)
class ActionSandbox:
    """Runs actions of ``plan`` with the bubblewrap ``program``."""

    program: str
    plan: BuildPlan = field(repr=False)

    @cached_property
    def _makers(self) -> Mapping[str, Sequence[Action]]:
        """Who makes a file, by its word."""
        found: dict[str, list[Action]] = {}
        for action in self.plan.actions:
            for word in action.makes:
                found.setdefault(word, []).append(action)
        return found

    def holds(self, action: Action) -> bool:
        """Whether ``action`` runs inside."""
        return action.kind is not ActionKind.INSPECT

    @contextmanager
    def box(self, action: Action) -> Iterator[Box]:
        """Where ``action`` runs; nothing is left of it afterwards."""
        base = Path(tempfile.mkdtemp(prefix=".sandbox-", dir=self.plan.places.work))
        try:
            box = Box(action=action, place=base / "work", places=self.plan.places, start=self._start(action, base))
            for word in {*action.makes, *action.scratch}:
                box.inside(self.plan.places.path(word, action)).parent.mkdir(parents=True, exist_ok=True)
            yield box
        finally:
            shutil.rmtree(base, ignore_errors=True)

    def _start(self, action: Action, base: Path) -> tuple[str, ...]:
        """The words before a command. A mount costs a millisecond and more, so the many small files of the project and
        of the plan are copied to ``base``.
        """
        places, work, project = self.plan.places, base / "work", base / "project"
        work.mkdir()
        project.mkdir()
        visible = dict.fromkeys((*_entries(action, places), *_trees(action), *_programs(action.tools, places)))
        for path in (*visible, places.work):
            if path.is_relative_to(places.root):
                (project / path.relative_to(places.root)).mkdir(parents=True, exist_ok=True)
        for name in {name for tree in action.trees for name in tree.files}:
            _copy(places.root / name, project / name)
        for file in self.plan.generated:
            path = places.path(file.path)
            if path.is_relative_to(places.work) and file.path not in action.takes:
                _copy(path, work / path.relative_to(places.work))
        inputs = self._inputs(action)
        for path in inputs:
            if path.is_relative_to(places.root) and not path.is_relative_to(places.work):
                _copy(path, project / path.relative_to(places.root))
        words = [self.program, *_nothing_but_the_system(), *_headers(action)]
        words += ["--ro-bind", str(project), str(places.root)]
        words += [word for path in visible for word in ("--ro-bind-try", str(path), str(path))]
        words += ["--bind", str(work), str(places.work)]
        inside = [str(path) for path in inputs if not path.is_relative_to(project) and path.is_relative_to(places.work)]
        words += [word for path in inside for word in ("--ro-bind-try", path, path)]
        return (*words, "--chdir", str(places.work), "--")

    def _inputs(self, action: Action) -> list[Path]:
        """Files that ``action`` is given, and all that those made who made one of them."""
        places = self.plan.places
        makers = {maker.id: maker for word in action.takes for maker in self._makers.get(word, ())}.values()
        found = [places.path(word, action) for word in action.takes]
        found += [places.path(word, maker) for maker in makers for word in maker.makes]
        own = {places.path(word, action) for word in (*action.makes, *action.scratch)}
        return sorted({path for path in found if path not in own})


def _copy(path: Path, target: Path) -> None:
    """Have ``target`` be like the file ``path``, if there is one. A hard link would change when ``path`` changed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError, IsADirectoryError):
        shutil.copy2(path, target)


@dataclass(frozen=True, kw_only=True)
class Box:
    """A sandbox for one action: ``place`` is there what the work directory is for its programs."""

    action: Action
    place: Path
    places: Places
    start: tuple[str, ...]

    def inside(self, path: Path) -> Path:
        """Where a file of the work directory really is."""
        return self.place / path.relative_to(self.places.work)

    def command(self, command: Sequence[str], extra: Iterable[Path] = ()) -> tuple[str, ...]:
        """``command``, inside, with files besides that it reads."""
        more = [word for path in extra for word in ("--ro-bind", str(path), str(path))]
        return (*self.start[:-1], *more, *self.start[-1:], *command)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """``environment``, with a home that is empty."""
        kept = {name: text for name, text in environment.items() if not name.startswith(("TMP", "TEMP", "XDG_"))}
        return {**kept, "HOME": _HOME}

    def take_out(self, words: Iterable[str]) -> None:
        """Put what was made where it belongs. What was not made is missing there."""
        for word in words:
            path = self.places.path(word, self.action)
            with suppress(FileNotFoundError):
                self.inside(path).replace(path)


def find_bubblewrap(environ: Mapping[str, str]) -> str:
    """The program that makes sandboxes, tried. Raises :class:`MachineError` where there is none to be had, and why."""
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if program is None:
        raise MachineError("--sandbox needs bubblewrap, and there is no bwrap on PATH", hint=_HOW.format(_INSTALL))
    command = [program, *_nothing_but_the_system(), "--", "/usr/bin/env", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False)
        said = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except (OSError, subprocess.SubprocessError) as error:
        said = [str(error)]
    if said is not None:
        reason = "".join(said) or "it gave no reason"
        raise MachineError(f"--sandbox: bubblewrap cannot run here: {reason}", hint=_HOW.format(_NAMESPACES))
    return program


_HOW = "{}, or build without a sandbox: kernel-builder build --try-sandbox (rebuild has this option, too)"
_INSTALL = "install it (apt-get install bubblewrap; dnf install bubblewrap)"
_NAMESPACES = "it needs user namespaces, which the system, or the container, must allow"


def _nothing_but_the_system() -> list[str]:
    """A new root with the system's programs, no network, and no other processes."""
    words = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    return [*words, "--tmpfs", "/tmp", *shown((*SYSTEM, *LOADER_SETTINGS))]  # noqa: S108


def _headers(action: Action) -> list[str]:
    """Of directories with system headers, what the C library, the kernel and the compiler have there."""
    declared = {folder for tree in action.trees for folder in tree.folders}
    shared = {folder for tool in action.tools for folder in tool.shared} - declared
    words: list[str] = []
    for number, folder in enumerate(sorted(shared)):
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        # Links to files cost nothing. g++ writes where they lead if that is shorter (-fcanonical-system-headers).
        behind = f"{_BEHIND}{number}"
        words += ["--ro-bind", str(folder), behind, "--tmpfs", str(folder)]
        for entry in entries:
            if folder == SITE or not is_of_c_library(f"{entry.name}/" if entry.is_dir() else entry.name):
                continue
            if entry.is_dir():
                words += ["--ro-bind", entry.path, entry.path]
            else:
                words += ["--symlink", f"{behind}/{entry.name}", entry.path]
    own = sorted({folder for tool in action.tools for folder in tool.headers})
    hidden = [
        folder
        for folder in own
        for above in [max((one for one in shared if folder.is_relative_to(one)), key=_depth, default=None)]
        if above is not None and (above == SITE or not is_of_c_library(folder.relative_to(above).as_posix() + "/"))
    ]
    return words + [word for folder in hidden for word in ("--ro-bind-try", str(folder), str(folder))]


def _depth(path: Path) -> int:
    return len(path.parts)


def _entries(action: Action, places: Places) -> list[Path]:
    """The entries of the store that ``action`` names: in its commands, or as trees and tools. No entry leads to others,
    and those that other actions use are not shown.
    """
    base = places.store / _STORE
    steps = (*action.steps, *action.fallback)
    told = [word for step in steps for word in places.expanded(action, step.command)]
    told += [str(folder) for tree in action.trees for folder in tree.folders]
    told += [str(path) for tool in action.tools for path in (tool.path, tool.path.resolve(), *tool.headers)]
    inside = re.compile(rf"{re.escape(str(base))}/([^/\s:;,='\"]+)")
    names = {match[1] for text in told for match in inside.finditer(text)}
    names |= {tree.identity for tree in action.trees if "/" not in tree.identity}
    return [base / name for name in sorted(names) if (base / name).exists()]


def _trees(action: Action) -> list[Path]:
    """The directories of what is used where it lies, under all their names."""
    return [name for tree in action.trees for folder in tree.folders for name in (folder, folder.resolve())]


def _programs(tools: Iterable[Tool], places: Places) -> list[Path]:
    """What must be seen for tools that are neither of the system nor of the store."""
    elsewhere = [
        path
        for tool in tools
        for path in (tool.path, tool.path.resolve())
        if not any(path.is_relative_to(folder) for folder in (*SYSTEM, places.store / _STORE))
    ]
    found = [path.parent.parent if path.parent.name == "bin" else path.parent for path in elsewhere]
    if any(tool.path == Path(sys.executable) for tool in tools):
        found += [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1]]
    found += [folder for tool in tools for folder in tool.headers]
    return [path for path in found if not any(path.is_relative_to(folder) for folder in SYSTEM)]
