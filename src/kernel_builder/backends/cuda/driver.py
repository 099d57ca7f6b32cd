"""What nvcc's driver would do, as steps of ours: it is asked (``--dryrun``) and never imitated.

nvcc runs its programs one after the other, for every architecture in turn. Told apart, the steps of all sources,
architectures and variants run side by side. The driver treats paths as text, so it is asked about *words* (see
:mod:`kernel_builder.actions.model`) and answers in words; the answer holds on every machine. The files that the steps
pass on have the names that ``nvcc --keep`` gives them, and the object is the same, byte for byte.

A driver that does anything which is not modelled here raises :class:`UnknownStepError`; nvcc is then run as it is.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_builder.toolchain.programs import ask

CUDAFE, CICC, PTXAS, FATBINARY = "cudafe++", "cicc", "ptxas", "fatbinary"
HOST = "c++"
"""The host compiler, in a step."""
SHELL = "sh"
"""The shell, in a step that is ours."""

_PREFIX = "#$ "
_IGNORED = ("rm",)
PATH_FOR_NAMES = "--orig_src_path_name"
"""What follows is hashed, and the hash is in the id of the module."""
_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)")
_FILE_IN_IMAGE = re.compile(r"\bfile=([^,]+)")
_MADE_BY_OPTION = {
    HOST: {"-o"},
    CUDAFE: {"--gen_c_file_name", "--module_id_file_name"},
    CICC: {"-o", "--gen_c_file_name", "--stub_file_name", "--gen_device_file_name"},
    PTXAS: {"-o"},
}
_MADE_BY_ASSIGNMENT = {FATBINARY: ("--create=", "--embedded-fatbin=")}


class UnknownStepError(Exception):
    """The driver does something that is not modelled; the message says what."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One program of the driver: ``program`` is one of the constants above, ``path`` its file, ``arguments`` words.

    ``made`` are the files that it writes, ``read`` those of other steps that it is given. ``before`` are words of ours
    that the program and its arguments follow.
    """

    program: str
    path: str
    arguments: tuple[str, ...]
    made: tuple[str, ...]
    read: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    @property
    def preprocesses(self) -> bool:
        """Whether it is the host compiler's preprocessor."""
        return self.program == HOST and "-E" in self.arguments


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How one file becomes an object. Settings are the variables that the driver sets for its programs.

    ``split`` makes the host's half, ``devices`` are chains that end in code for one architecture each, ``compile``
    bundles the code and compiles the host's half with it. ``programs`` is the directory that paths of programs and
    headers begin with, as the driver writes it.

    Where ``devices`` guess the id of the module, each has one of ``assemblies``, which makes what is left if the guess
    was right, and one of ``again``, which makes the same from the start.
    """

    split: tuple[Invocation, ...]
    devices: tuple[tuple[Invocation, ...], ...]
    compile: tuple[Invocation, ...]
    programs: str
    settings: tuple[tuple[str, str], ...] = ()
    assemblies: tuple[tuple[Invocation, ...], ...] = ()
    again: tuple[tuple[Invocation, ...], ...] = ()

    @property
    def groups(self) -> tuple[tuple[Invocation, ...], ...]:
        """All chains: each is one action."""
        return (self.split, *self.devices, *self.assemblies, self.compile)

    @functools.cached_property
    def stubs(self) -> tuple[str, ...]:
        """What the host's half includes by name."""
        wanted = {after(step, "--stub_file_name") for step in self.split}
        made = [name for chain in (*self.devices, *self.assemblies) for step in chain for name in step.made]
        return tuple(name for name in made if PurePosixPath(name).name in wanted)

    def passed_on(self, group: tuple[Invocation, ...]) -> tuple[str, ...]:
        """What ``group`` makes for others: the object, what others read, the stub that the host's half includes."""
        wanted = {name for other in self.groups if other is not group for step in other for name in step.read}
        wanted |= {*self.stubs, *self.compile[-1].made}
        return tuple(name for step in group for name in step.made if name in wanted)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the driver is asked: ``options`` without source, object, or dependencies. ``digest`` is the compiler's,
    ``environ`` what it would see where it compiled: it runs the host compiler, which may not start without.
    """

    nvcc: Path
    cxx: Path
    digest: str
    options: tuple[str, ...]
    environ: tuple[tuple[str, str], ...] = ()


def pipeline(question: Question, *, source: str, target: str, folder: str, shown: str | None = None) -> Pipeline:
    """How ``source`` becomes the object ``target``, all of them words; files on the way are in ``folder``.

    ``shown`` is the path that names are made of (default: the source's own): what is static in a source is named after
    the source's path, and would differ wherever the project is. Raises :class:`UnknownStepError`.
    """
    stem, suffix = PurePosixPath(source).stem, PurePosixPath(source).suffix
    model = _answer(question, suffix)
    known = {f"{_ELSEWHERE}/{_STEM}{suffix}": source, f"{_ELSEWHERE}/{_STEM}.o": target}

    def named(word: str) -> str:
        for placeholder, real in known.items():
            word = word.replace(placeholder, real)
        return word.replace(_FOLDER, folder).replace(_STEM, stem)

    def step(one: Invocation) -> Invocation:
        arguments = list(map(named, one.arguments))
        if shown is not None and PATH_FOR_NAMES in arguments:
            arguments[arguments.index(PATH_FOR_NAMES) + 1] = shown
        return Invocation(
            program=one.program,
            path=one.path,
            arguments=tuple(arguments),
            made=tuple(map(named, one.made)),
            read=tuple(map(named, one.read)),
        )

    return Pipeline(
        split=tuple(map(step, model.split)),
        devices=tuple(tuple(map(step, chain)) for chain in model.devices),
        compile=tuple(map(step, model.compile)),
        programs=model.programs,
        settings=model.settings,
    )


def after(step: Invocation, option: str) -> str | None:
    """What follows ``option`` in a step's arguments."""
    pairs = zip(step.arguments, step.arguments[1:], strict=False)
    return next((value for name, value in pairs if name == option), None)


# Names that no project has: the answer for one source is the answer for all.
_STEM = "kernel-builder-7f3c1b"
_FOLDER = "/kernel-builder-7f3c1b.d"
_ELSEWHERE = "/kernel-builder-7f3c1b.s"
"""Where source and object are: no file on the way has a name that begins with theirs."""


@functools.cache
def _answer(question: Question, suffix: str) -> Pipeline:
    source, target = f"{_ELSEWHERE}/{_STEM}{suffix}", f"{_ELSEWHERE}/{_STEM}.o"
    keep = ("--dryrun", "--keep", "--keep-dir", _FOLDER)
    command: tuple[str | Path, ...] = (
        question.nvcc,
        *keep,
        "-ccbin",
        question.cxx,
        "-c",
        source,
        "-o",
        target,
        *question.options,
    )
    try:
        text = ask(command, {"PATH": os.defpath, **dict(question.environ)}).stderr
    except (OSError, subprocess.SubprocessError) as error:
        complaint = getattr(error, "stderr", None) or str(error)
        raise UnknownStepError(f"nvcc --dryrun: {str(complaint).strip().splitlines()[-1]}") from error
    return _arranged(*_parsed(text, question.cxx), target)


def _parsed(text: str, cxx: Path) -> tuple[list[Invocation], dict[str, str]]:
    settings: dict[str, str] = {}
    steps: list[Invocation] = []
    for printed in text.splitlines():
        if not printed.startswith(_PREFIX):
            raise UnknownStepError(f"nvcc --dryrun prints {printed!r}")
        line = printed.removeprefix(_PREFIX)
        setting = _SETTING.fullmatch(line)
        if setting is not None and not line.startswith('"'):
            settings[setting[1]] = setting[2]
            continue
        words = shlex.split(line)
        if not words or words[0] in _IGNORED:
            continue
        words[0] = re.sub(r"\$(\w+)", lambda match: settings.get(match[1], match[0]), words[0])
        if "/" not in words[0]:
            words[0] = _on_path(words[0], settings.get("PATH", ""))
        steps.append(_step(words, cxx))
    return steps, settings


def _on_path(program: str, path: str) -> str:
    """Where the driver finds a program that it runs by its name, as those of CUDA 11 and 12 run cicc, which has a
    directory of its own. A program that is in none of them is looked for beside the driver.
    """
    found = (f"{folder}/{program}" for folder in path.split(":") if folder)
    return next(filter(os.path.isfile, found), program)


def _step(words: Sequence[str], cxx: Path) -> Invocation:
    name = HOST if words[0] == str(cxx) else PurePosixPath(words[0]).name
    arguments = tuple(words[1:])
    made: list[str] = []
    options = _MADE_BY_OPTION.get(name, set())
    assignments = _MADE_BY_ASSIGNMENT.get(name, ())
    if not options and not assignments:
        raise UnknownStepError(f"nvcc runs {name}")
    for option, value in zip(arguments, (*arguments[1:], ""), strict=True):
        if option in options:
            made.append(value)
        made += [option.removeprefix(start) for start in assignments if option.startswith(start)]
    return Invocation(program=name, path=words[0], arguments=arguments, made=tuple(made))


def _arranged(steps: Sequence[Invocation], settings: dict[str, str], target: str) -> Pipeline:
    """The steps, told apart by what they make and read."""
    maker: dict[str, Invocation] = {}
    for one in steps:
        for name in one.made:
            # The id of a module is made once, by the first program that names it.
            maker.setdefault(name, one)
    linked = [_linked(one, maker) for one in steps]
    split = [one for one in linked if one.program == CUDAFE]
    last = [one for one in linked if target in one.made]
    if len(split) != 1 or len(last) != 1 or last[0].program != HOST:
        raise UnknownStepError("nvcc does not make one object out of one split")
    first = _chain(split[0], linked)
    devices = tuple(_device(one, linked) for one in linked if one.program == CICC)
    final = (*(one for one in linked if one.program == FATBINARY), last[0])
    placed = [*first, *(one for chain in devices for one in chain), *final]
    if sorted(map(id, placed)) != sorted(map(id, linked)) or not devices:
        raise UnknownStepError("nvcc's steps depend on each other in a way that is not known")
    kept = tuple((name, settings[name]) for name in ("NVVMIR_LIBRARY_DIR",) if name in settings)
    return Pipeline(split=first, devices=devices, compile=final, programs=settings.get("_HERE_", ""), settings=kept)


def _linked(step: Invocation, maker: dict[str, Invocation]) -> Invocation:
    given = [*step.arguments, *(name for one in step.arguments for name in _FILE_IN_IMAGE.findall(one))]
    read = tuple(dict.fromkeys(name for name in given if name in maker and maker[name] is not step))
    made = tuple(name for name in step.made if maker[name] is step)
    return Invocation(program=step.program, path=step.path, arguments=step.arguments, made=made, read=read)


def _chain(step: Invocation, steps: Iterable[Invocation]) -> tuple[Invocation, ...]:
    """``step`` behind the preprocessor that makes what it reads."""
    before = [one for one in steps if one.preprocesses and set(one.made) & set(step.read)]
    if len(before) != 1:
        raise UnknownStepError(f"{step.program} does not read what one preprocessor makes")
    return (before[0], step)


def _device(step: Invocation, steps: Sequence[Invocation]) -> tuple[Invocation, ...]:
    after = [one for one in steps if one.program == PTXAS and set(one.read) & set(step.made)]
    return (*_chain(step, steps), *after)
