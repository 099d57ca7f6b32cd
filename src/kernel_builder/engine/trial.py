"""Runs the actions of one source apart from a build, to see whether it compiles and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.actions.model import Action, Step
from kernel_builder.actions.places import Places
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.binary.elf import ElfError, ObjectNames, object_names
from kernel_builder.engine.processes import Processes
from kernel_builder.engine.records import headers
from kernel_builder.engine.work import environment_for


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How a trial ended. ``seconds`` are those of processors; ``names`` those of the object, ``read`` the files that
    were read. ``complaint`` is the first error of one that failed.
    """

    seconds: float
    names: ObjectNames | None = None
    read: tuple[str, ...] = ()
    complaint: str | None = None


def try_out(actions: Sequence[Action], places: Places, environ: Mapping[str, str]) -> Tried:
    """Run ``actions``, which end in the object of one source, in order, without precompiled headers and cache.

    All that they make is in the work directory of ``places``.
    """
    processes = Processes(places.work)
    seconds = 0.0
    read: dict[str, None] = {}
    try:
        for action in actions:
            log = places.path(action.log, action)
            for word in (*action.outputs, *action.scratch, action.log):
                places.path(word, action).parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)
            spent, code = _run(action, action.steps, places, environ, processes)
            if code > 0 and action.fallback:
                more, code = _run(action, action.fallback, places, environ, processes)
                spent += more
            seconds += spent
            if code:
                return Tried(seconds=seconds, complaint=_complaint(log))
            if action.depfile is not None:
                read |= dict.fromkeys(headers(places.path(action.depfile, action)))
        made = places.path(actions[-1].outputs[0], actions[-1]).read_bytes()
        return Tried(seconds=seconds, names=object_names(made), read=tuple(read))
    except ElfError as error:
        return Tried(seconds=seconds, complaint=f"the object cannot be read: {error}")
    except BaseException:
        processes.stop()
        raise
    finally:
        processes.close()


def _run(
    action: Action, steps: Sequence[Step], places: Places, environ: Mapping[str, str], processes: Processes
) -> tuple[float, int]:
    """Seconds of processors, and the exit code of the last step that ran."""
    environment, log = environment_for(environ, action.environment), places.path(action.log, action)
    seconds = 0.0
    for step in steps:
        ended = processes.run(places.expanded(action, without_launcher(step.command)), environment, log)
        seconds += ended.processor_seconds
        if ended.code:
            return seconds, ended.code
    return seconds, 0


def _complaint(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.strip() for line in lines if "error" in line]
    return (errors or lines[-1:] or ["it exited without output"])[0]
