"""C++, CUDA and Objective-C++ sources as text: what a compiler would see of them, as far as that can be read off.

Nothing is preprocessed. Comments are gone, and so is what no compiler ever sees (``#if 0``); what depends on a
condition that is not known here is kept and marked. Literals are read as C++ joins them, macros that stand for one
followed.
"""

from __future__ import annotations

import os.path
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.project.tree import native_files

SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".c", ".cu", ".hip", ".mm")
"""What is compiled."""
HEADER_SUFFIXES = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc")
LARGEST = 8 << 20
"""Bytes of a source that are read; larger ones are generated, and no bindings."""

_DEFINED = frozenset({"TORCH_EXTENSION_NAME", "Py_LIMITED_API", "_GLIBCXX_USE_CXX11_ABI", "__cplusplus"})
"""Macros that every build defines."""

_TOKEN = re.compile(
    r"//(?:[^\n\\]|\\\n|\\.)*|/\*.*?(?:\*/|\Z)"
    r'|\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.|\\\n)*"'
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\[^\n]{1,9}?)'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(.*)$", re.DOTALL)
_INCLUDED = re.compile(r'[<"]([^>"\n]+)[>"]')
_MACRO = re.compile(r"(\w+)(\([^()]*\))?[ \t]*(.*)$", re.DOTALL)
_TESTED = re.compile(r"(?:defined[ \t]*)?\(?[ \t]*(\w+)[ \t]*\)?")
_STRING = re.compile(
    r'\s*(?:u8)?(?:R"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=mark)"|"(?P<plain>(?:[^"\\\n]|\\.|\\\n)*)")',
    re.DOTALL,
)
_ESCAPES = {r"\"": '"', r"\n": "\n", r"\t": "\t", r"\\": "\\", "\\\n": ""}
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_DEEPEST = 4
_LONGEST_CALL = 1 << 16


class State(Enum):
    """Whether a compiler sees a line."""

    SEEN = "always"
    MAYBE = "under a condition that is not known here"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class Include:
    """``#include``: the path as written, where, and whether it is read whatever the configuration. ``quoted``: it is
    looked for beside the file that has it, too. ``next``: only in the directories behind that of the file.
    """

    path: str
    line: int
    certain: bool
    quoted: bool = True
    next: bool = False


@dataclass(frozen=True, kw_only=True)
class Definition:
    """``#define`` in its place: ``value`` is empty for one without."""

    name: str
    value: str
    line: int
    certain: bool


@dataclass(frozen=True, kw_only=True)
class Pragma:
    """``#pragma`` in its place, without that word: ``omp parallel for``."""

    text: str
    line: int
    certain: bool


@dataclass(frozen=True, kw_only=True)
class Macro:
    """``#define``: ``parameters`` is ``None`` for one that takes none."""

    parameters: tuple[str, ...] | None
    body: str


@dataclass(frozen=True, kw_only=True, eq=False)
class NativeText:
    """One source. ``code`` has the lines of the file, with comments, directives and what is never compiled blank."""

    code: str
    includes: tuple[Include, ...]
    macros: Mapping[str, Macro]
    definitions: tuple[Definition, ...] = ()
    pragmas: tuple[Pragma, ...] = ()
    uncertain: frozenset[int] = field(default=frozenset(), repr=False)

    def line(self, position: int) -> int:
        """The line of a position in ``code``, from 1."""
        return self.code.count("\n", 0, position) + 1

    def is_certain(self, position: int) -> bool:
        """Whether a compiler sees that position whatever the configuration."""
        return self.line(position) not in self.uncertain

    @cached_property
    def bare(self) -> str:
        """``code`` with the content of literals blanked; positions stay."""
        return hollowed(self.code)


def without_comments(text: str) -> str:
    """A source without its comments; literals and lines stay."""
    return _TOKEN.sub(_without_comment, text)


def read_native(text: str) -> NativeText:
    """Read a source."""
    bare = without_comments(text)
    lines = bare.split("\n")
    # A literal of several lines may hold a whole program.
    shapes = hollowed(bare).split("\n") if 'R"' in bare else lines
    kept = [""] * len(lines)
    includes: list[Include] = []
    macros: dict[str, Macro] = {}
    definitions: list[Definition] = []
    pragmas: list[Pragma] = []
    uncertain: set[int] = set()
    conditions = _Conditions()
    state, at = conditions.state, 0
    while at < len(lines):
        start, line = at, lines[at]
        if not shapes[at].lstrip().startswith("#"):
            if state is not State.NEVER:
                kept[at] = line
            if state is State.MAYBE:
                uncertain.add(at + 1)
            at += 1
            continue
        while line.endswith("\\") and at + 1 < len(lines):
            at += 1
            line = f"{line[:-1]} {lines[at]}"
        at += 1
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        word, rest = match[1], match[2].strip()
        found = _INCLUDED.match(rest) if word in {"include", "import", "include_next"} else None
        if not conditions.take(word, rest) and state is not State.NEVER:
            if found is not None:
                includes.append(
                    Include(
                        path=found[1].strip(),
                        line=start + 1,
                        certain=state is State.SEEN,
                        quoted=rest.startswith('"'),
                        next=word == "include_next",
                    )
                )
            elif word == "define":
                conditions.defined(rest)
                name = _define(rest, macros)
                if name is not None:
                    is_certain = state is State.SEEN
                    value = macros[name].body
                    definitions.append(Definition(name=name, value=value, line=start + 1, certain=is_certain))
            elif word == "pragma":
                pragmas.append(Pragma(text=rest, line=start + 1, certain=state is State.SEEN))
        state = conditions.state
    return NativeText(
        code="\n".join(kept),
        includes=tuple(includes),
        macros=macros,
        definitions=tuple(definitions),
        pragmas=tuple(pragmas),
        uncertain=frozenset(uncertain),
    )


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    if not text.startswith(("//", "/*")):
        return text
    return "\n" * text.count("\n") or " "


_PRINTED = re.compile(r"[^\n]")


def _hollow(match: re.Match[str]) -> str:
    return '"' + _PRINTED.sub(" ", match[0][1:-1]) + '"'


def hollowed(text: str) -> str:
    """``text`` with what stands in its literals blanked; every character stays where it is."""
    return _TOKEN.sub(_hollow, text)


def _define(rest: str, macros: dict[str, Macro]) -> str | None:
    """Take a definition, and say of what."""
    match = _MACRO.match(rest)
    if match is None:
        return None
    parameters = match[2]
    named = tuple(name.strip() for name in parameters[1:-1].split(",")) if parameters is not None else None
    macros[match[1]] = Macro(parameters=named, body=match[3].strip())
    return match[1]


class _Conditions:
    """The ``#if`` that a line stands in."""

    def __init__(self) -> None:
        self._open: list[list[State]] = []  # each: the state of its present branch, and the best of those before
        self._guard: str | None = None

    @property
    def state(self) -> State:
        states = [entry[0] for entry in self._open]
        if State.NEVER in states:
            return State.NEVER
        return State.MAYBE if State.MAYBE in states else State.SEEN

    def take(self, word: str, rest: str) -> bool:
        """Follow a directive; whether it was one about conditions."""
        if word in {"if", "ifdef", "ifndef"}:
            now = _judge(word, rest)
            self._guard = rest if word == "ifndef" and now is State.MAYBE else None
            self._open.append([now, State.NEVER])
        elif word in {"elif", "elifdef", "elifndef", "else"} and self._open:
            entry = self._open[-1]
            before = State.SEEN if State.SEEN in entry else State.MAYBE if State.MAYBE in entry else State.NEVER
            now = State.SEEN if word == "else" else _judge(word.removeprefix("el"), rest)
            if before is State.SEEN:
                now = State.NEVER
            elif before is State.MAYBE and now is State.SEEN:
                now = State.MAYBE
            entry[:] = [now, before]
        elif word == "endif" and self._open:
            self._open.pop()
        else:
            return word in {"elif", "else", "endif"}
        return True

    def defined(self, rest: str) -> None:
        """``#define`` right behind ``#ifndef`` of the same name: an include guard, whose inside is seen."""
        if (
            self._guard is not None
            and self._guard == rest.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0].strip()
            and self._open
        ):
            self._open[-1][0] = State.SEEN
        self._guard = None


def _judge(word: str, condition: str) -> State:
    """What is known of a condition. Only constants and macros that every build defines are."""
    text = condition.strip()
    negated = word.endswith("ndef")
    if word == "if":
        while text.startswith("!"):
            negated, text = not negated, text[1:].strip()
    number = re.fullmatch(r"\(*\s*(\d+)[uUlL]*\s*\)*", text)
    if word == "if" and number is not None:
        known = int(number[1]) != 0
    elif word == "if" and text in {"true", "false"}:
        known = text == "true"
    else:
        match = _TESTED.fullmatch(text)
        is_defined = match is not None and match[1] in _DEFINED and (word != "if" or "defined" in text)
        if not is_defined:
            return State.MAYBE
        known = True
    return State.SEEN if known != negated else State.NEVER


# --- literals ---


def unescaped(text: str) -> str:
    """The value of what stands between the quotes of a literal."""
    return re.sub(r"\\(?:.|\n)", lambda escape: _ESCAPES.get(escape[0], escape[0]), text)


def literal_at(text: str, position: int, macros: Mapping[str, Macro] | None = None, depth: int = 0) -> tuple[str, int]:
    """The value of the string literals at ``position``, joined as C++ does, and the end of the last one.

    Names of macros that stand for such literals are followed. The value is empty where there is none.
    """
    value, end = "", position
    while True:
        match = _STRING.match(text, end)
        if match is not None:
            value += match["raw"] if match["raw"] is not None else unescaped(match["plain"])
            end = match.end()
            continue
        name = _NAME.match(text, end)
        macro = (macros or {}).get(name[1]) if name is not None else None
        if name is None or macro is None or macro.parameters is not None or depth >= _DEEPEST:
            return value, end
        inner, stop = literal_at(macro.body, 0, macros, depth + 1)
        if not inner or macro.body[stop:].strip():
            return value, end
        value, end = value + inner, name.end()


def closing(text: str, position: int) -> int:
    """The end of the bracket that opens at ``position``, behind it; the end of the text where nothing closes it.

    ``text`` has no strings that hold brackets: see :attr:`NativeText.bare`.
    """
    depth = 0
    for match in re.compile(r"[(){}\[\]]").finditer(text, position):
        depth += 1 if match[0] in "({[" else -1
        if depth == 0:
            return match.end()
    return len(text)


def arguments(text: str, position: int) -> tuple[str, ...]:
    """The texts between the commas of the call whose bracket opens at ``position``."""
    text = text[position : position + _LONGEST_CALL]
    bare = hollowed(text)
    end = closing(bare, 0) - 1
    inside, bare = text[1:end], bare[1:end]
    found: list[str] = []
    depth, start = 0, 0
    for at, character in enumerate(bare):
        if character in "({[":
            depth += 1
        elif character in ")}]":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(inside[start:at].strip())
            start = at + 1
    last = inside[start:].strip()
    return (*found, last) if found or last else ()


def expanded(macro: Macro, given: tuple[str, ...]) -> str:
    """The body of a macro with its parameters replaced: ``x``, ``#x`` and ``a##x``."""
    body = macro.body
    parameters = macro.parameters or ()
    values = dict(zip(parameters, given, strict=False))
    if "..." in parameters:
        values["__VA_ARGS__"] = ", ".join(given[len(parameters) - 1 :])
        values.pop("...", None)
    for name, value in values.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        body = re.sub(rf"(?<!#)#[ \t]*{re.escape(name)}\b", lambda _, q=quoted: f'"{q}"', body)  # type: ignore[misc]
    names = "|".join(map(re.escape, values)) or r"(?!)"
    body = re.sub(rf"\b(?:{names})\b", lambda match: values[match[0]], body)
    return re.sub(r"[ \t]*##[ \t]*", "", body)


# --- files ---


def listed_sources(project: Project) -> tuple[str, ...]:
    """Sources and headers that ``build.toml`` lists, relative to the project, each once."""
    listed = (*project.framework.src, *(path for section in project.sections for path in section.src))
    return tuple(dict.fromkeys(listed))


@dataclass(frozen=True, kw_only=True)
class ReadFile:
    """A file of the project that is compiled: itself, or as a part of others. ``certain``: in every configuration."""

    path: str
    native: NativeText
    certain: bool


def compiled_files(project: Project) -> Iterator[ReadFile]:
    """The sources that ``build.toml`` has compiled, and the project's own files that they include, each once.

    An include is looked for beside the file that has it, in the project, and in the directories for headers. Files that
    are too large or cannot be read are left out.
    """
    root = str(project.root)
    folders = ["", project.framework.directory, "csrc", *project.framework.include]
    folders += [path for section in project.sections for path in section.include]
    certain = [path for path in listed_sources(project) if path.lower().endswith(SUFFIXES)]
    uncertain: list[str] = []
    seen: set[str] = set()
    while certain or uncertain:
        is_certain = bool(certain)
        relative = certain.pop(0) if is_certain else uncertain.pop(0)
        if relative in seen:
            continue
        seen.add(relative)
        text = _text(project.root / relative)
        if text is None:
            continue
        native = read_native(text)
        yield ReadFile(path=relative, native=native, certain=is_certain)
        for include in native.includes:
            found = _within(root, [posixpath.dirname(relative), *folders], include.path)
            if found is not None:
                (certain if is_certain and include.certain else uncertain).append(found)


def other_files(project: Project) -> Iterator[ReadFile]:
    """The native sources in the project's tree that ``build.toml`` does not have compiled."""
    listed = {*listed_sources(project)}
    for relative in native_files(project.root):
        if relative not in listed and relative.lower().endswith(SUFFIXES):
            text = _text(project.root / relative)
            if text is not None:
                yield ReadFile(path=relative, native=read_native(text), certain=False)


def _within(root: str, places: Iterable[str], path: str) -> str | None:
    for place in places:
        relative = posixpath.normpath(f"{place}/{path}" if place else path)
        if not relative.startswith((".", "/")) and os.path.isfile(f"{root}/{relative}"):  # noqa: PTH113  (many)
            return relative
    return None


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > LARGEST:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None


# --- ops ---

DEFINES = re.compile(r"(?:\.|->)\s*(?:template\s+)?def\s*\(")
"""How an op is defined: ``m.def(``."""
_OTHER_WAYS = re.compile(r"\b(?:RegisterOperators|registerDef|torch_library_def)\b")
_SCHEMA_NAME = re.compile(r"\s*(?:\w+::)?([A-Za-z_]\w*)(?:\.\w+)?\s*(?:\(|$)")
_WRAPPED = re.compile(r"\s*(?:\w+\s*::\s*)*\w+\s*\(\s*(?=[\"RuU])")


class _UnreadableError(Exception):
    """A definition whose name cannot be read off."""


def ops_of(files: Iterable[ReadFile]) -> frozenset[str] | None:
    """Names of the ops that sources define in any configuration, without namespace and overload.

    ``None`` where a definition cannot be read off: then there may be any others.
    """
    read = tuple(files)
    macros: dict[str, Macro] = {}
    for file in read:
        macros.update(file.native.macros)
    defining = _defining(macros)
    found: set[str] = set()
    try:
        for file in read:
            native = file.native
            if _OTHER_WAYS.search(native.bare):
                return None
            found |= set(_defined_in(native.code, native.bare, macros, defining, 0))
    except _UnreadableError:
        return None
    return frozenset(found)


def _defining(macros: Mapping[str, Macro]) -> frozenset[str]:
    """Macros that define ops, by way of others too."""
    found = {name for name, macro in macros.items() if DEFINES.search(macro.body)}
    while True:
        more = {
            name
            for name, macro in macros.items()
            if name not in found and found.intersection(re.findall(r"\w+", macro.body))
        }
        if not more:
            return frozenset(found)
        found |= more


def _defined_in(
    code: str, bare: str, macros: Mapping[str, Macro], defining: frozenset[str], depth: int
) -> Iterator[str]:
    """Names of the ops that a text defines. Raises :class:`_UnreadableError`."""
    if depth > _DEEPEST:
        raise _UnreadableError
    for match in DEFINES.finditer(bare):
        yield _name_at(code, bare, match.end(), macros)
    for name in sorted(defining):
        for match in re.finditer(rf"\b{re.escape(name)}\b", bare):
            macro = macros[name]
            opens = re.compile(r"\s*\(").match(bare, match.end())
            if macro.parameters is None:
                body = macro.body
            elif opens is not None:
                body = expanded(macro, arguments(code, opens.end() - 1))
            else:
                raise _UnreadableError  # a macro that is given to another one
            yield from _defined_in(body, hollowed(body), macros, defining, depth + 1)


def _name_at(code: str, bare: str, position: int, macros: Mapping[str, Macro]) -> str:
    text, end = literal_at(code, position, macros)
    if not text:
        wrapped = _WRAPPED.match(code, position)  # torch::schema("...")
        if wrapped is not None:
            text, end = literal_at(code, wrapped.end(), macros)
        else:
            text, end = _constant_at(code, position, macros)
    match = _SCHEMA_NAME.match(text)
    if match is None or not text or bare[end:].lstrip()[:1] not in {",", ")"}:
        raise _UnreadableError
    return match[1]


def _constant_at(code: str, position: int, macros: Mapping[str, Macro]) -> tuple[str, int]:
    """The value of a variable, ``constexpr char const *schema = "...";``, and the end of its name."""
    name = _NAME.match(code, position)
    if name is None:
        return "", position
    values = re.finditer(rf"\b{re.escape(name[1])}\s*(?:\[[^\]]*\])?\s*[={{(]\s*(?=[\"RuU])", code)
    texts = {literal_at(code, match.end(), macros)[0] for match in values}
    return (texts.pop() if len(texts) == 1 else ""), name.end()
