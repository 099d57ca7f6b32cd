"""Sources of the host by what their compiler makes of them first, which is one text.

Where the text is the same, so is the object, whichever headers it came from: those of two CUDA releases differ, but a
source that includes none of them is the same source for both. To know, its preprocessor is run, which takes a tenth of
the time that a compile takes. So it is run only where that can pay: for a variant with a toolkit, beside which there
are others for the same release of the framework. The source itself is compiled, not the text: compilers show its lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.engine.read_headers import preprocess_command

_IN_THE_TEXT = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros")
"""Options that decide the text and nothing else; what they say follows, or is the next word."""
_OF_PATHS = ("-ffile-prefix-map=", "-fmacro-prefix-map=", "-fdebug-prefix-map=")
_OF_HEADERS = {"-MD": 1, "-MMD": 1, "-MF": 2, "-MQ": 2, "-MT": 2}
_NOT_BY_TEXT_ALONE = (
    *("-g", "-flto", "-fsanitize", "-fprofile", "--coverage", "-ftest-coverage"),
    *("-fplugin", "-fmodule", "-include-pch", "-Wa,", "@"),
)
"""How options begin with which objects say where lines were, or rest on other files than the source and its headers."""
_HARMLESS = ("-g0", "-gno-")


def text_command(action: Action, target: str) -> tuple[str, ...] | None:
    """The words that write into ``target`` the text that decides what ``action`` makes, and into its depfile what was
    read for that; ``None`` for an action of which that is not known, or not worth knowing.
    """
    if action.kind is not ActionKind.COMPILE or len(action.steps) != 1 or action.depfile is None:
        return None
    command = action.steps[0].command
    if without_launcher(command) != command or "-c" not in command:  # precompiled headers are faster than their text
        return None
    if any(map(_rests_on_more, command)) or all(tree.name != "toolkit" for tree in action.trees):
        return None
    words = preprocess_command(action, target)
    # What it warns of, the compiler says.
    return None if words is None else (*words, "-w", "-MD", "-MF", action.depfile, "-MQ", action.outputs[0])


def beside_the_text(action: Action) -> tuple[str, ...]:
    """The words of the command of ``action`` that decide what it makes of a text."""
    return tuple(_kept(iter(action.steps[0].command)))


def _rests_on_more(word: str) -> bool:
    return word.startswith(_NOT_BY_TEXT_ALONE) and not word.startswith(_HARMLESS)


def _kept(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if word in _IN_THE_TEXT or _OF_HEADERS.get(word) == 2:
            next(words, None)
        elif not word.startswith((*_IN_THE_TEXT, *_OF_PATHS)) and word not in _OF_HEADERS:
            yield word
