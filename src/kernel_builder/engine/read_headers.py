"""What a source reads: the preprocessor of its own compile command is run once, and its text is counted by file."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.engine.processes import Processes
from kernel_builder.engine.work import environment_for

_MARK = re.compile(rb'#(?:line)? (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)\s*')
_ENTER, _LEAVE = b"1", b"2"


@dataclass(frozen=True, kw_only=True)
class ReadText:
    """Preprocessed text by where it came from: bytes of each file alone in ``files``, and in ``included`` those that
    the include at each line of the source brought, with all that it includes.
    """

    files: Mapping[str, int]
    included: Mapping[int, int]


def count_text(lines: Iterable[bytes]) -> ReadText:
    """Count preprocessed text by its line markers. Blank lines do not count."""
    files: Counter[str] = Counter()
    included: Counter[int] = Counter()
    stack: list[str] = []
    brought = 0
    for line in lines:
        mark = _MARK.fullmatch(line) if line.startswith(b"#") else None
        if mark is None:
            if stack and not line.isspace():
                files[stack[-1]] += len(line)
                brought += len(line) if len(stack) > 1 else 0
            continue
        name, flags = mark[2].decode("utf-8", "surrogateescape"), mark[3].split()
        if _ENTER in flags and stack:
            stack.append(name)
        elif _LEAVE in flags and len(stack) > 1:
            stack.pop()
            if len(stack) == 1:
                # The marker behind an include names the line after it.
                included[int(mark[1]) - 1] += brought
                brought = 0
        stack[-1:] = [name]
    return ReadText(files=dict(files), included=dict(included))


def preprocess_command(action: Action, target: str) -> tuple[str, ...] | None:
    """The words of a command that writes to ``target`` what the compiler of ``action`` reads; ``None`` where no step
    of it reads the source.
    """
    for step in action.steps:
        words = list(without_launcher(step.command))
        if action.inputs[0] not in words or "-o" not in words:
            continue
        if "-E" not in words:
            if "-c" not in words:
                continue
            words[words.index("-c")] = "-E"
        words[words.index("-o") + 1] = target
        for option in ("-MF", "-MQ", "-MMD", "-MD"):
            while option in words:
                at = words.index(option)
                del words[at : at + (1 if option in ("-MMD", "-MD") else 2)]
        return tuple(words)
    return None


@contextmanager
def preprocessed(action: Action, places: Places, environ: Mapping[str, str], scratch: Path) -> Iterator[Path | None]:
    """A file with what the compiler of ``action`` makes of the source first; ``None`` where it cannot be asked, or
    fails. It lies in the directory ``scratch``, which goes again.
    """
    target, log = scratch / "text", scratch / "log"
    command = preprocess_command(action, places.word(target))
    if command is None:
        yield None
        return
    scratch.mkdir(parents=True, exist_ok=True)
    processes = Processes(scratch)
    expanded = places.expanded(action, command)
    try:
        ended = processes.run(expanded, environment_for(environ, action.environment), log)
        yield target if ended.code == 0 else None
    except BaseException:
        processes.stop()
        raise
    finally:
        processes.close()
        for file in (target, log):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            scratch.rmdir()


def read_headers(
    action: Action, places: Places, environ: Mapping[str, str], scratch: Path
) -> tuple[ReadText, float] | None:
    """What the source of ``action`` reads, and in how many seconds; ``None`` where its compiler cannot be asked, or
    fails. ``scratch`` is a directory for the text, which goes again.
    """
    begun = time.monotonic()
    with preprocessed(action, places, environ, scratch) as target:
        if target is None:
            return None
        with target.open("rb") as text:
            return count_text(text), time.monotonic() - begun
