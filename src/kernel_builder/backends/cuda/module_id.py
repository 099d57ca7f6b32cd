"""The id of a source's module, which is in the names of what is local to the source, and how device code gets it.

``cudafe++`` makes the id and ``cicc`` takes it, so that nvcc compiles for a device only after the host's half. It is
made of the source's path and of the first thing that the source defines with external linkage. Where there is none, the
time of the file and the number of the process take its place: two builds would never be the same. These get an id of
the path alone (:func:`settled`).

Device code need not wait (:func:`ahead`): ``cicc`` makes the same id as ``cudafe++`` where a name is in it, and
an id of the path alone is known beforehand. Which of the two it will be is guessed from the text of the source
(:func:`guess`). What follows holds the two ids against each other, and compiles again if they differ: a wrong guess
costs time and nothing else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from pathlib import PurePosixPath

from kernel_builder.actions.places import literal
from kernel_builder.actions.slim import apart
from kernel_builder.backends.cuda.driver import CICC, CUDAFE, PATH_FOR_NAMES, SHELL, Invocation, Pipeline, after

_AHEAD = "ahead"
"""Begins the names of what is made before the id of the host's half is known."""
ID_FILE, _NEW = "--module_id_file_name", "--gen_module_id_file"
"""With the second one a program makes up the id and writes it into the file; without, it takes what is there."""
_UNNAMED = "_00000000_0"
"""Stands where the time of the file, eight digits of it, and the number of the process were."""
_SETTLE = "; ".join(
    (
        "id=$1; program=$2; shift 2",
        f'"$program" {_NEW} "$@" || exit',
        'was=$(cat "$id"); process=${was##*_}; rest=${was%_*}; time=${rest##*_}',
        "case $process in ''|*[!0-9]*) exit 0;; esac",
        "case $time in ????????) ;; *) exit 0;; esac",
        "case $time in *[!0-9a-f]*) exit 0;; esac",
        f'printf %s "${{rest%_*}}{_UNNAMED}" > "$id"',
        'exec "$program" "$@" > /dev/null 2>&1',
    )
)
"""A name that is written out has eight letters at most; a longer one is one hexadecimal number of eight digits."""
_GIVE = 'printf %s "$1" > "$2"; shift 2; exec "$@"'
_MOVE = 'made=$1; kept=$2; shift 2; "$@" && mv "$made" "$kept"'
_AGREE = "; ".join(
    (
        'theirs=$(cat "$1"); ours=$(cat "$2")',
        '[ "$theirs" = "$ours" ] || { echo "the id of the host\'s half is $theirs, not $ours"; exit 1; }',
        'shift 2; while [ $# -gt 0 ]; do cp "$1" "$2" || exit; shift 2; done',
    )
)


class Guess(Enum):
    """What the id of a module will be made of, besides the path."""

    NAME = auto()
    """Of something that the source defines with external linkage."""
    NOTHING = auto()


def _shell(script: str, *words: str) -> tuple[str, ...]:
    """The arguments with which the shell runs ``script`` with ``words``."""
    return ("-c", literal(script), "sh", *words)


def settled(step: Invocation) -> Invocation:
    """``step``, which makes the host's half, with an id that is the same in every build."""
    made = after(step, ID_FILE)
    if step.program != CUDAFE or made is None or _NEW not in step.arguments:
        return step
    return replace(
        step,
        before=(SHELL, *_shell(_SETTLE, made)),
        arguments=tuple(word for word in step.arguments if word != _NEW),
    )


def given(step: Invocation) -> Invocation:
    """``step``, which :func:`settled` gave, with the id that is there."""
    there = tuple(name for name in step.made if name == after(step, ID_FILE))
    made = tuple(name for name in step.made if name not in there)
    return replace(step, before=(), made=made, read=(*step.read, *there))


def ahead(pipeline: Pipeline, guessed: Guess) -> Pipeline:
    """``pipeline`` with device code that does not wait for the host's half; as it is, where that cannot be.

    What ``cicc`` makes has names of its own until the pipeline's assemblies find that the ids agree. Where they do not,
    the chains of before make it again.
    """
    chains = [_parted(pipeline, chain, guessed) for chain in pipeline.devices]
    parted = [chain for chain in chains if chain is not None]
    if len(parted) != len(chains):
        return pipeline
    return replace(
        pipeline,
        devices=tuple(device for device, _ in parted),
        assemblies=tuple(assembly for _, assembly in parted),
        again=pipeline.devices,
    )


_Chain = tuple[Invocation, ...]


def _parted(pipeline: Pipeline, chain: _Chain, guessed: Guess) -> tuple[_Chain, _Chain] | None:
    """What of a chain does not need the id of the host's half, and what comes after."""
    preprocess, compiler, *assemble = chain
    shared = after(compiler, ID_FILE)
    made_by_split = {name for step in pipeline.split for name in step.made}
    if compiler.program != CICC or shared is None or shared not in made_by_split or _NEW in compiler.arguments:
        return None
    if any(set(step.read) & made_by_split for step in (preprocess, *assemble)):
        return None
    wanted = [name for name in pipeline.passed_on(chain) if name in compiler.made]
    wanted += [name for step in assemble for name in step.read if name in compiler.made]
    kept = {name: apart(name, _AHEAD) for name in wanted}
    own = apart(f"{compiler.made[0]}.id", _AHEAD)
    copies = tuple(word for name, copy in kept.items() for word in (copy, name))
    agree = Invocation(
        program=SHELL,
        path=SHELL,
        arguments=_shell(_AGREE, shared, own, *copies),
        made=tuple(kept),
        read=(shared, own, *kept.values()),
    )
    # A stub has its own name in it, so it must be made under that.
    moved = [name for name in kept if name in pipeline.stubs]
    renamed = {shared: own, **{name: copy for name, copy in kept.items() if name not in moved}}
    arguments = tuple(renamed.get(word, word) for word in compiler.arguments)
    before = tuple(word for name in moved for word in (SHELL, *_shell(_MOVE, name, kept[name])))
    if guessed is Guess.NAME:
        arguments = (_NEW, *arguments)
    else:
        before = (*before, SHELL, *_shell(_GIVE, _of_path(after(compiler, PATH_FOR_NAMES) or ""), own))
    early = replace(
        compiler,
        before=before,
        arguments=arguments,
        made=(*(kept.get(name, name) for name in compiler.made), own),
        read=tuple(name for name in compiler.read if name != shared),
    )
    return (preprocess, early), (agree, *assemble)


def _of_path(path: str) -> str:
    """The id of a source that defines nothing with external linkage, as :func:`settled` makes it."""
    name = PurePosixPath(path).name
    return f"_{zlib.crc32(path.encode()):08x}_{len(name)}_{re.sub(r'[^0-9A-Za-z]', '_', name)}{_UNNAMED}"


_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
_OWN_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)
_SCOPE = re.compile(r'\bnamespace\s+[A-Za-z_][\w:]*\s*$|\bextern\s*""\s*$')
_NAMELESS = re.compile(r"\bnamespace\s*$")
_LOCAL = re.compile(
    r"\b(?:static|inline|__inline__|__forceinline__|constexpr|consteval|template|typedef|using|friend|static_assert)\b"
)
_TYPE = re.compile(r"^\s*(?:class|struct|union|enum)\b[^()]*$")
_DECLARED = re.compile(r"\s*(?:extern|const|namespace|__device__|__constant__)\b")
"""How begins what defines nothing with external linkage although it is a variable, or names a namespace."""
_FUNCTION = re.compile(r"[\w>\]&*)]\s*[\s&*]\s*[A-Za-z_][\w:]*\s*\(")
"""A type, or one of its kind, before a name and a parenthesis: macros that are called have nothing before them."""
_REGISTRATION = re.compile(r"^\s*(?:STABLE_)?TORCH_LIBRARY\w*\s*\(")
"""Defines nothing but what is static."""


def guess(text: str) -> Guess | None:
    """What the id of a source with that text will be made of; ``None`` where nobody should guess: what a header or
    a macro of the project's defines is not seen.
    """
    is_certain = _OWN_HEADER.search(text) is None
    for head, is_block in _outside(_NOISE.sub(_blank, text)):
        if not head.strip() or _REGISTRATION.match(head) or _TYPE.search(head) or _LOCAL.search(head.partition("(")[0]):
            continue
        is_function = _FUNCTION.search(head) is not None
        if is_block and is_function:
            return Guess.NAME
        is_certain = is_certain and not is_block and (is_function or _DECLARED.match(head) is not None)
    return Guess.NOTHING if is_certain else None


def _outside(code: str) -> Iterator[tuple[str, bool]]:
    """What stands outside of functions, classes and namespaces without a name: the words before ``;`` or before the
    block that they belong to, and whether it is a block.
    """
    begin, inside = 0, 0
    for match in re.finditer(r"[{};]", code):
        head, mark = code[begin : match.start()], match[0]
        begin = match.end()
        if mark == "}":
            inside = max(0, inside - 1)
        elif inside:
            inside += mark == "{"
        elif mark == ";":
            yield head, False
        elif _SCOPE.search(head) is None:
            inside = 1
            if _NAMELESS.search(head) is None:
                yield head, True
    yield code[begin:], False


def _blank(match: re.Match[str]) -> str:
    return '""' if match[0].startswith('"') else " "
