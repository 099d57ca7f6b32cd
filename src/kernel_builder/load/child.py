"""Asks a Python: starts it with the probe, in a process of its own, and takes what it answers.

The interpreter runs isolated (``-I``): no PYTHONPATH, no user site-packages, no current directory, so a package that
happens to have the kernel's name cannot be imported in its place (case T10).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.load.cause import cause_of
from kernel_builder.load.confinement import Sandbox, clean_environment, make_home
from kernel_builder.load.process import Child, ChildResult, scratch
from kernel_builder.variants.names import Machine, Platform, System

_PROBE = Path(__file__).with_name("probe") / "__main__.py"
_ANSWER = "kernel-builder-probe: "
_CALLS = "kernel-builder-calls: "
_BEHAVES = "kernel-builder-behaves: "
_RAN = "kernel-builder-ran: "
_REGISTERED = "kernel-builder-registered: "
_HEARD = "kernel-builder-heard: "
_WAIT = "wait"
_PIPE = 60_000
"""Bytes: what is written into a pipe that nobody reads yet, without waiting."""
_TIMEOUT = "Timeout ("
"""What Python's faulthandler writes when it ends a process."""
KILLED = "was killed by signal"
"""How :attr:`Reply.ended` begins for a process that a signal ended; the signal's number follows."""
_SECONDS = 300
_EMULATION_FACTOR = 4
_ELF_MACHINES = {62: Machine.X86_64, 183: Machine.AARCH64}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the probe answered: ``answer``, or ``problem``, a sentence that says why there is none.

    ``log`` is all that the process wrote. ``died`` says that it ended without an answer; ``calling`` is the op that it
    called at its end, if any, and ``ended`` how. ``behaviour`` is what it told of the ops that it called before,
    ``registered`` what they had registered elsewhere by then; ``None``: it did not say. ``ran`` is which code of the
    kernel ran, as file, line and name; ``None`` where that is not known.
    """

    answer: Mapping[str, Any] | None = None
    problem: str = ""
    log: str = ""
    died: bool = False
    calling: str | None = None
    ended: str = ""
    behaviour: tuple[Mapping[str, Any], ...] = ()
    registered: tuple[Mapping[str, Any], ...] | None = None
    ran: tuple[tuple[str, int, str], ...] | None = None


def platform_of(python: Path) -> Platform:
    """The platform that an interpreter is a program for; this one's where its file does not tell."""
    here = Platform.current()
    if here.system is not System.LINUX:
        return here
    try:
        with python.open("rb") as file:
            header = file.read(20)
    except OSError:
        return here
    # e_machine of the ELF header: offset 18, two bytes, both platforms are little-endian.
    machine = _ELF_MACHINES.get(int.from_bytes(header[18:20], "little")) if header.startswith(b"\x7fELF") else None
    return here if machine is None else Platform(machine=machine, system=System.LINUX)


def launcher(python: Path, environ: Mapping[str, str]) -> list[str] | str:
    """What stands before an interpreter of another platform to run it here, or a sentence saying why it cannot run."""
    machine = platform_of(python).machine
    if machine is Platform.current().machine:
        return []
    names = (f"qemu-{machine.value}", f"qemu-{machine.value}-static")
    found = next(filter(None, (shutil.which(name, path=environ.get("PATH", "")) for name in names)), None)
    if found is None:
        return (
            f"{python} is a program for {machine.value}, but {names[0]} is not installed"
            " (Debian, Ubuntu: apt-get install qemu-user; QEMU_LD_PREFIX names the directory with its C library)"
        )
    return [found]


def ask(
    python: Path,
    environ: Mapping[str, str],
    task: str,
    request: Mapping[str, object],
    *,
    sandbox: Sandbox | None = None,
    readable: Iterable[Path] = (),
) -> Reply:
    """Run the probe's ``task`` in ``python``, with what loading needs of the variables ``environ``.

    Here and in :class:`Standby` alone a kernel's code is run: with an empty home, in ``sandbox``, where it can read the
    paths ``readable``.
    """
    try:
        with _started(python, environ, (task, json.dumps(request)), sandbox, readable) as started:
            return _reply(started.ended(), started.shown)
    except _CannotRunError as error:
        return Reply(problem=str(error))


class Standby:
    """A Python that imports torch and the client, and then waits to be asked: once, about what is in ``folders``.

    It is as good as one that is started to be asked: nothing of a kernel is in it before.
    """

    def __init__(self, started: _Started, folders: Collection[Path]) -> None:
        self._started, self._folders = started, frozenset(folders)
        self._spent = False

    def ask(self, task: str, request: Mapping[str, object], readable: Iterable[Path]) -> Reply | None:
        """What :func:`ask` gives; ``None`` where another process must be asked: this one was, or has ended by itself,
        or it cannot read all of that.
        """
        words = json.dumps([task, request])
        if self._spent or not self._folders.issuperset(readable) or len(words) > _PIPE:
            return None
        self._spent = True
        self._started.child.say(f"{words}\n")
        try:
            ended = self._started.ended()
        except _CannotRunError:
            return None
        return _reply(ended, self._started.shown) if _HEARD in ended.stdout.splitlines() else None


@contextmanager
def waiting(
    python: Path, environ: Mapping[str, str], folders: Collection[Path], *, sandbox: Sandbox | None = None
) -> Iterator[Standby | None]:
    """Have ``python`` import torch meanwhile, to be asked about what will be in ``folders``; it ends with this context.
    ``None`` where it cannot be started.
    """
    with ExitStack() as stack:
        try:
            started = stack.enter_context(_started(python, environ, (_WAIT, "{}"), sandbox, folders, listens=True))
        except _CannotRunError:
            yield None
        else:
            yield Standby(started, folders)


class _CannotRunError(Exception):
    """The interpreter cannot be started here. The message says why."""


@dataclass(frozen=True, kw_only=True)
class _Started:
    """A probe that runs; ``shown`` is its command without the request, for people."""

    python: Path
    child: Child
    shown: str
    seconds: float

    def ended(self) -> ChildResult:
        """How it ends, which is waited for. Raises :class:`_CannotRunError`."""
        try:
            return self.child.result(self.seconds)
        except OSError as error:
            raise _CannotRunError(f"{self.python} does not run: {error.strerror}") from error


@contextmanager
def _started(
    python: Path,
    environ: Mapping[str, str],
    words: Sequence[str],
    sandbox: Sandbox | None,
    readable: Iterable[Path],
    *,
    listens: bool = False,
) -> Iterator[_Started]:
    """Run the probe with ``words`` while this context is open. Raises :class:`_CannotRunError`."""
    before = launcher(python, environ)
    if isinstance(before, str):
        raise _CannotRunError(before)
    seconds = _SECONDS * (_EMULATION_FACTOR if before else 1)
    command = [*before, str(python), "-I", "-B", str(_PROBE), *words]
    with ExitStack() as stack:
        home = stack.enter_context(scratch())
        make_home(home)
        confined = (sandbox or Sandbox()).command(command, home=home, readable=(_PROBE.parent, *readable))
        child = Child(confined, environ=clean_environment(environ, home), cwd=home, listens=listens)
        try:
            stack.enter_context(child)
        except OSError as error:
            raise _CannotRunError(f"{python} does not run: {error.strerror}") from error
        yield _Started(python=python, child=child, shown=" ".join(command[:-1]), seconds=seconds)


def _reply(completed: ChildResult, shown: str) -> Reply:
    lines = completed.stdout.splitlines()
    told, registered = _told(lines, _BEHAVES), _told(lines, _REGISTERED)
    ran = next(iter(_told(lines, _RAN)), None)
    own = (_ANSWER, _BEHAVES, _REGISTERED, _RAN, _HEARD)
    written = "\n".join(line for line in lines if not line.startswith(own))
    log = f"{shown}\n{written}\n{completed.stderr}"
    calls = [line.removeprefix(_CALLS) for line in lines if line.startswith(_CALLS)]
    calling = calls[-1] if calls and calls[-1] not in {one["op"] for one in told} else None
    code = completed.code
    ended = completed.stopped or (f"{KILLED} {-code}" if code < 0 else f"exited with code {code}")
    if _TIMEOUT in completed.stderr:
        ended = "did not return in time"
    answers = _told(lines, _ANSWER)
    if answers:
        log = f"{log}\n{answers[-1].get('traceback', '')}"
        later = tuple(registered[-1]) if registered else None
        return Reply(
            answer=answers[-1], log=log, behaviour=told, calling=calling, ended=ended, registered=later, ran=ran
        )
    if completed.stopped is not None:
        return Reply(problem=f"the Python process that loads it {ended}", log=log, calling=calling, ended=ended)
    cause = cause_of(completed.stderr.strip() or completed.stdout.strip())
    return Reply(
        problem=f"the Python process that loads it {ended}{f':{chr(10)}{cause}' if cause else ''}",
        log=log,
        died=True,
        calling=calling,
        ended=ended,
    )


def _told(lines: list[str], mark: str) -> tuple[Any, ...]:
    """What the probe said in the lines with that mark."""
    return tuple(json.loads(line.removeprefix(mark)) for line in lines if line.startswith(mark))
