"""Short texts for coding assistants, ``templates/skills``: each becomes ``<directory>/<name>/SKILL.md``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path

from kernel_builder.errors import UsageError
from kernel_builder.files import replacing

DIRECTORY = Path(".agents") / "skills"
"""Where assistants look, in a project or in the home directory."""
FILE = "SKILL.md"


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One text. ``description`` tells an assistant when to read it."""

    name: str
    description: str
    text: str


class SkillState(StrEnum):
    """What became of a skill's file."""

    ADDED = "added"
    UNCHANGED = "up to date"
    REPLACED = "replaced"


@cache
def skills() -> tuple[Skill, ...]:
    """All of them, by name."""
    folder = resources.files("kernel_builder.templates").joinpath("skills")
    found = [_read(entry.read_text(encoding="utf-8")) for entry in folder.iterdir() if entry.name.endswith(".md")]
    return tuple(sorted(found, key=lambda skill: skill.name))


def _read(text: str) -> Skill:
    head = dict(line.split(": ", 1) for line in text.split("---\n")[1].splitlines())
    return Skill(name=head["name"], description=head["description"], text=text)


def find_skills(names: Sequence[str]) -> tuple[Skill, ...]:
    """Those that are named; all without names. Raises :class:`UsageError` that names every unknown one."""
    known = {skill.name: skill for skill in skills()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"no skill is called {', '.join(unknown)}", hint=f"skills are: {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or skills()


def add_skills(directory: Path, chosen: Sequence[Skill], *, overwrite: bool) -> list[tuple[Path, SkillState]]:
    """Write the files of ``chosen`` below ``directory``, each whole or not at all; what became of each.

    Raises :class:`UsageError` that names everything in the way, before anything is written: files that were changed
    (without ``overwrite``), and what is no file. Raises :class:`OSError` where the system refuses.
    """
    files = {directory / skill.name / FILE: skill.text.encode("utf-8") for skill in chosen}
    blocked = [path for path in files if os.path.lexists(path) and (path.is_symlink() or not path.is_file())]
    blocked += [path.parent for path in files if os.path.lexists(path.parent) and not path.parent.is_dir()]
    if blocked:
        raise UsageError(f"in the way: {', '.join(map(str, blocked))}", hint="move them away; nothing was written")
    stale = {path for path, data in files.items() if path.exists() and path.read_bytes() != data}
    if stale and not overwrite:
        raise UsageError(
            f"already there, with different text: {', '.join(map(str, sorted(stale)))}",
            hint="kernel-builder skills add --overwrite replaces them; nothing was written",
        )
    placed = []
    for path, data in files.items():
        if path.exists() and path not in stale:
            placed.append((path, SkillState.UNCHANGED))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, follow_links=False) as file:
            file.write(data)
        placed.append((path, SkillState.REPLACED if path in stale else SkillState.ADDED))
    return placed
