"""Which actions are out of date, for what people see of a run: how many there are, and which were not reached.

ninja decides by itself what it runs; this is the same judgement from the same facts: times of files, headers as the
compilers reported them, and the commands of the last run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_builder.actions.model import Action
from kernel_builder.files import parse_json, write_text
from kernel_builder.plan.model import BuildPlan

_RECORD = "commands.json"


def headers(depfile: Path) -> tuple[str, ...]:
    """The files that a depfile names, in its order, as they stand there; nothing when it is not there.

    Make's syntax: words are separated by blanks and continued lines; a backslash keeps a blank or ``#``, and a dollar
    sign is written twice.
    """
    try:
        text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ()
    _, _, listed = text.replace("\\\n", " ").replace("\\ ", "\0").partition(": ")
    return tuple(
        word.replace("\0", " ").replace("\\#", "#").replace("\\:", ":").replace("$$", "$") for word in listed.split()
    )


def outdated(plan: BuildPlan, *, rewritten: Iterable[Path] = ()) -> frozenset[str]:
    """The ids of the actions of ``plan`` that must run, once the files ``rewritten`` are written again."""
    recorded = _recorded(plan.places.work)
    found: set[str] = set()
    made_by = {output: action.id for action in plan.actions for output in action.outputs}
    times = dict.fromkeys(map(str, rewritten), 0)
    for action in plan.actions:
        needs = {made_by[word] for word in (*action.inputs, *action.implicit) if word in made_by}
        if needs & found or recorded.get(action.id) != digest_of(plan, action) or _is_older(plan, action, times):
            found.add(action.id)
    return frozenset(found)


def record(work: Path, done: Mapping[str, str]) -> None:
    """Keep the digests of actions that ran well, by id, for the next :func:`outdated`."""
    if done:
        write_text(work / _RECORD, json.dumps({**_recorded(work), **done}, indent=0, sort_keys=True))


def digest_of(plan: BuildPlan, action: Action) -> str:
    """A digest over the command of ``action`` on this machine, and the identity of what it runs and reads."""
    words = [word for command in plan.places.commands(action) for word in command]
    text = "\0".join([*words, action.identity])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _recorded(work: Path) -> Mapping[str, str]:
    try:
        kept = parse_json((work / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _is_older(plan: BuildPlan, action: Action, times: dict[str, int]) -> bool:
    """Whether an output is missing, or older than something that it is made from."""
    places = plan.places
    made = [_time(str(places.path(word, action))) for word in action.outputs]
    if not all(made):
        return True
    read = [str(places.path(word, action)) for word in (*action.inputs, *action.implicit)]
    if action.depfile is not None:
        read += headers(places.path(action.depfile, action))
    for path in read:
        if path not in times:
            times[path] = _time(path)
        if times[path] == 0 or times[path] > min(made):
            return True
    return False


def _time(path: str) -> int:
    """When a file was changed, in nanoseconds; 0 when it is not there."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
