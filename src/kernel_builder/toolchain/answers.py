"""What compilers answered, remembered: asking one what it is, and where it keeps its parts, takes twenty processes.

An answer holds while the program is as it was, and every directory that it, or whoever looks for it, looks into.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernel_builder.seen import Memory, Sighting, environment_digest
from kernel_builder.toolchain.programs import ask

_WHERE = "-print-search-dirs"


class Answers:
    """The answers of programs that are run with the variables ``environ``, kept in ``memory``."""

    def __init__(self, memory: Memory, environ: Mapping[str, str]) -> None:
        self._memory = memory
        self._environ = environ
        self._asked: dict[Path, _Asked] = {}

    def ask(self, program: Path, *arguments: str) -> tuple[str, str]:
        """What ``program`` writes to stdout and to stderr. Raises as :func:`~kernel_builder.toolchain.programs.ask`
        does; what failed is not remembered.
        """
        if program not in self._asked:
            self._asked[program] = _Asked(program, self._environ, self._memory)
        return self._asked[program].ask(*arguments)

    def keep(self) -> None:
        """Keep what was learned."""
        for asked in self._asked.values():
            asked.keep()

    @property
    def sightings(self) -> Iterator[Mapping[str, Any] | None]:
        """What the answers rest on; ``None`` for what does not last."""
        for asked in self._asked.values():
            yield asked.seen


class _Asked:
    """One program. ``seen`` is what its answers rest on, ``None`` where that changed just now."""

    def __init__(self, program: Path, environ: Mapping[str, str], memory: Memory) -> None:
        self._program = program
        self._environ = environ
        self._memory = memory
        self._question = ("program", str(program), environment_digest(environ))
        self._is_new = False
        recalled = memory.recall(self._question)
        if recalled is not None:
            self._known: dict[str, list[str]] = recalled.value
            self.seen: Mapping[str, Any] | None = recalled.seen
            return
        self._known = {}
        sighting = Sighting()
        sighting.file(program)
        for folder in filter(None, environ.get("PATH", "").split(":")):
            sighting.folder(folder)
        with suppress(OSError, subprocess.SubprocessError):  # not a compiler
            self._look_where_it_looks(sighting)
        self.seen = sighting.to_json() if sighting.disturbed is None else None

    def _look_where_it_looks(self, sighting: Sighting) -> None:
        for line in self.ask(_WHERE)[0].splitlines():
            for folder in line.partition("=")[2].split(":") if "=" in line else ():
                sighting.folder(Path(folder))
                sighting.folder(Path(folder).parent)

    def ask(self, *arguments: str) -> tuple[str, str]:
        question = json.dumps(arguments)
        if question not in self._known:
            answer = ask([self._program, *arguments], self._environ)
            self._known[question] = [answer.stdout, answer.stderr]
            self._is_new = True
        out, err = self._known[question]
        return out, err

    def keep(self) -> None:
        if self._is_new and self.seen is not None:
            self._memory.keep(self._question, self._known, self.seen)
            self._is_new = False
