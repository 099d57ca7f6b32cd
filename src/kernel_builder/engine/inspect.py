"""Checks a library that was just linked; the program of the action that :mod:`kernel_builder.plan.inspection` plans.

Usage: ``python -m kernel_builder.engine.inspect REQUEST --stamp FILE --project DIR --work DIR --store DIR [--tree
NAME=DIR]``. What is wrong is printed, and the exit code is 1; otherwise the stamp is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernel_builder.actions.model import Tree
from kernel_builder.actions.places import Places, expand
from kernel_builder.binary.elf import ElfError, read_elf
from kernel_builder.binary.macho import read_macho
from kernel_builder.config.model import FrameworkKind
from kernel_builder.engine.own_names import Elsewhere, OwnNames
from kernel_builder.engine.records import headers
from kernel_builder.engine.undefined import Missing, UndefinedPolicy, blame, diagnose, find_missing, grouped
from kernel_builder.files import parse_json
from kernel_builder.versions import Version

_SHOWN = 5


def own_files_read(depfiles: Iterable[Path], places: Places, trees: Iterable[Path]) -> tuple[str, ...]:
    """What compilers, which ran in the work directory, read of the project according to ``depfiles``: relative to it,
    links resolved, sorted. ``trees`` that lie in the project are not its own.
    """
    theirs = _Folders((places.work, places.store, *trees))
    project = _Folders((places.root,))
    named = {os.path.join(places.work, path) for depfile in depfiles for path in headers(depfile)}  # noqa: PTH118
    own: set[str] = set()
    for path in named:
        plain, real = os.path.normpath(path), os.path.realpath(path)
        # The innermost directory counts: the store, and what a kernel is compiled with, may lie in the project.
        if theirs.depth(plain) > project.depth(plain) or theirs.depth(real) > project.depth(real):
            continue
        if project.depth(real):
            own.add(os.path.relpath(real, places.root.resolve()))
    return tuple(sorted(own))


class _Folders:
    """Some directories, under all their names."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._prefixes = {f"{name}{os.sep}" for folder in folders for name in {folder, folder.resolve()}}

    def depth(self, path: str) -> int:
        """The length of the longest of them that ``path`` is in; 0 for none."""
        return max((len(prefix) for prefix in self._prefixes if path.startswith(prefix)), default=0)


def problem_of(request: Mapping[str, object], places: Places, trees: Sequence[Tree]) -> str | None:
    """What is wrong with the library of ``request``; ``None`` for nothing."""

    def paths(key: str) -> tuple[Path, ...]:
        words = request[key]
        assert isinstance(words, list)  # noqa: S101  (a file that we wrote)
        return tuple(Path(expand(word, places, trees=trees)) for word in words)

    own = own_files_read(paths("depfiles"), places, [tree.root for tree in trees if tree.root is not None])
    listed = parse_json(Path(expand(str(request["covered"]), places)).read_text(encoding="utf-8"))
    uncovered = sorted(set(own) - set(listed))
    if uncovered:
        return (
            f"its sources include files that the kernel's name does not cover: {', '.join(uncovered)}\n    the "
            "sources do not name them, so a change to them would not change the kernel's name; add them to 'src' of "
            "the section that includes them"
        )
    library = Path(expand(str(request["library"]), places))
    if request.get("macos") is not None:
        return _unfit_for_macos(library, str(request["macos"]))
    elf = read_elf(library.read_bytes())
    if elf.run_paths:
        return f"{library.name} has a run path, {', '.join(elf.run_paths)}: it would search directories of this machine"
    python, stable, sanitizers = request["python"], request["stable"], request.get("sanitizers", [])
    assert isinstance(sanitizers, list)  # noqa: S101
    policy = UndefinedPolicy(
        tables=paths("tables"),
        framework=FrameworkKind(str(request["framework"])),
        exports=paths("framework-tables"),
        python=(python[0], python[1]) if isinstance(python, list) else None,
        stable=Version.parse(stable) if isinstance(stable, str) else None,
        c_library=Version.parse(str(request["c-library"])),
        sanitizers=tuple(sanitizers),
    )
    missing = find_missing(elf, policy)
    return _undefined(missing, request, places, policy) if missing else None


def _unfit_for_macos(library: Path, macos: str) -> str | None:
    """What is wrong with a library for macOS, where the names of other libraries are looked up when it is loaded."""
    wanted = Version.parse(macos)
    for part in read_macho(library.read_bytes()):
        if part.minimum_macos is None:
            return f"{library.name} does not say which macOS it needs"
        needs = ".".join(map(str, part.minimum_macos[:2]))
        if Version.parse(needs) > wanted:
            return f"{library.name} needs macOS {needs}, and must run on {macos}"
        if part.run_paths:
            said = ", ".join(part.run_paths)
            return f"{library.name} has a run path, {said}: it would search directories of this machine"
    return None


def _undefined(
    missing: tuple[Missing, ...], request: Mapping[str, object], places: Places, policy: UndefinedPolicy
) -> str:
    """What to say of names that the library of ``request`` will not find."""
    objects = request["objects"]
    assert isinstance(objects, dict)  # noqa: S101
    elsewhere = request["elsewhere"]
    assert isinstance(elsewhere, dict)  # noqa: S101
    names = OwnNames.of(
        places.root,
        {Path(expand(word, places)): source for word, source in objects.items()},
        {path: Elsewhere(section=entry["section"], fits=entry["fits"]) for path, entry in elsewhere.items()},
    )
    release = str(request["release"])
    found = (diagnose(entry, names, policy, release) for entry in blame(missing, dict(names.objects)))
    library = Path(expand(str(request["library"]), places)).name
    lines = [f"{library} has undefined symbols that nothing defines when it is loaded ({release}):"]
    for entries, reason, remedy in grouped(found):
        for entry in entries[:_SHOWN]:
            users = f" (used by {', '.join(entry.used_by)})" if entry.used_by else ""
            lines.append(f"    {entry.readable}{users}")
        if len(entries) > _SHOWN:
            lines.append(f"    and {len(entries) - _SHOWN} more")
        lines.append(f"      cause: {reason}")
        if remedy is not None:
            lines.append(f"      remedy: {remedy}")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run the check; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kernel_builder.engine.inspect")
    parser.add_argument("request", type=Path)
    for name in ("stamp", "project", "work", "store"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--tree", action="append", default=[])
    options = parser.parse_args(argv)
    places = Places(root=options.project, work=options.work, output=options.work, store=options.store)
    named = (text.partition("=") for text in options.tree)
    trees = [Tree(name=name, identity="", root=Path(root)) for name, _, root in named]
    try:
        problem = problem_of(parse_json(options.request.read_text(encoding="utf-8")), places, trees)
    except OSError as error:
        problem = f"it cannot be checked: {error.filename}: {error.strerror}"
    except (ElfError, ValueError) as error:
        problem = f"it cannot be checked: {error}"
    if problem is not None:
        sys.stdout.write(f"{problem}\n")
        return 1
    options.stamp.write_text("", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
