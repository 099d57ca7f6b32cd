"""Where the sources of a project define a function, read off their text: for messages about names that are missing.

Nothing is preprocessed, so what is found is where a person should look, not what a compiler would see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_LARGEST = 4 << 20
_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)
_TAIL = re.compile(
    r"\s*(?:(?:const|volatile|noexcept(?:\s*\([^()]*\))?|override|final|&&?|->\s*[\w:<>,&*\s]+?"
    r"|__attribute__\s*\(\(.*?\)\)|\[\[.*?\]\])\s*)*(?P<end>[{;]|:(?!:)[^;{]*\{)"
)
_BLOCK = re.compile(
    r"(?P<kind>\b(?:inline\s+)?namespace|\b(?:class|struct|union)(?:\s+alignas\([^()]*\))?)\b\s*"
    r"(?:\[\[.*?\]\]\s*)?(?P<name>[\w:]*)[^;{}()=]*$"
)
_EXPLICIT = re.compile(r"(?:\b[A-Za-z_]\w*(?:<[^<>]*>)?::)+$")
_EXTERN_C = re.compile(r'\bextern\s*""')  # literals are blank
_C_LINKAGE = 'extern "C"'
_BLANKS = re.compile(r"\s+")
_KEYWORDS = re.compile(
    r"\b(?:return|if|while|for|switch|else|throw|new|delete|case|sizeof)\s*$|[=.,(!&|?+/-]\s*$|(?<!:):\s*$"
)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A function in a source. ``text`` is its declaration, ``scope`` the namespaces and classes that it is in, ``{}``
    for one without a name; ``parameters`` is how many it has. ``in_class``: it is a member; ``is_c``: it has C linkage.
    """

    file: str
    line: int
    text: str
    scope: str
    parameters: int
    is_definition: bool
    in_class: bool
    is_c: bool

    @property
    def place(self) -> str:
        """``src/a.cpp:12``."""
        return f"{self.file}:{self.line}"

    def has(self, word: str) -> bool:
        """Whether the declaration has a keyword."""
        return re.search(rf"\b{word}\b", self.text) is not None


def find_written(root: Path, files: Iterable[str], name: str) -> tuple[Written, ...]:
    """Every declaration and definition of a function ``name``, without its namespaces, in ``files`` below ``root``."""
    return tuple(entry for file, text in _texts(root, files, name) for entry in _in_text(file, text, name))


def find_class(root: Path, files: Iterable[str], name: str) -> str | None:
    """The place, ``a.h:12``, where one of ``files`` below ``root`` has the body of the class ``name``."""
    begins = re.compile(
        rf"\b(?:class|struct|union)\b[^;{{}}()=<>]*?\b{re.escape(name)}\b\s*(?:final\s*)?(?::(?!:)[^;{{}}]*)?\{{"
    )
    for file, text in _texts(root, files, name):
        match = begins.search(text)
        if match is not None:
            return f"{file}:{text.count(chr(10), 0, match.start()) + 1}"
    return None


def mentions(root: Path, files: Iterable[str], text: str) -> tuple[str, ...]:
    """Which of ``files`` below ``root`` have ``text`` in their code."""
    return tuple(file for file, code in _texts(root, files, text) if text in code)


def _texts(root: Path, files: Iterable[str], name: str) -> Iterator[tuple[str, str]]:
    """The code of those of ``files`` that have ``name`` in it."""
    for file in files:
        try:
            status = (root / file).stat()
            text = _code(root / file, status.st_mtime_ns) if status.st_size <= _LARGEST else ""
        except OSError:
            continue
        if name in text:
            yield file, text


@lru_cache(maxsize=4096)
def _code(path: Path, _changed: int) -> str:
    """A source without comments, directives and what is in literals. Many names are looked for in the same sources."""
    return _NOISE.sub(_blank, path.read_text(encoding="utf-8", errors="replace"))


def _blank(match: re.Match[str]) -> str:
    return '""' if match[0].startswith('"') else "\n" * match[0].count("\n") or " "


def _in_text(file: str, text: str, name: str) -> list[Written]:
    found: list[Written] = []
    for match in re.finditer(rf"(?<![\w~]){re.escape(name)}\s*(?:<[^;{{}}()]*>\s*)?\(", text):
        begin = max(text.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        head = text[begin : match.start()]
        end = _closing(text, match.end() - 1)
        # Something must stand before it: a type, or the class of a constructor.
        if end is None or not head.strip() or _KEYWORDS.search(head):
            continue
        tail = _TAIL.match(text, end)
        if tail is None:
            continue
        inside = text[match.end() : end - 1].strip()
        around, in_class = _around(text, match.start())
        explicit = _EXPLICIT.search(head)
        scope = [name for name in around if name != _C_LINKAGE] + (explicit[0].split("::")[:-1] if explicit else [])
        shown = _BLANKS.sub(" ", text[begin:end]).strip()
        found.append(
            Written(
                file=file,
                line=text.count("\n", 0, match.start()) + 1,
                text=shown,
                scope="::".join(scope),
                in_class=in_class or explicit is not None,
                is_c=_C_LINKAGE in around or _EXTERN_C.search(head) is not None,
                parameters=0 if inside in {"", "void"} else _top_level_commas(inside) + 1,
                is_definition=tail["end"] != ";",
            )
        )
    return found


def _around(text: str, position: int) -> tuple[list[str], bool]:
    """What the blocks around a position are called: namespaces, classes and :data:`_C_LINKAGE`; whether a class is
    among them.
    """
    blocks: list[tuple[str | None, bool]] = []
    last = 0
    for brace in re.finditer(r"[{}]", text[:position]):
        if brace[0] == "}":
            del blocks[-1:]
        else:
            head = text[max(last, brace.start() - 300) : brace.start()]
            block = _BLOCK.search(head)
            if block is not None:
                blocks.append((block["name"] or "{}", "namespace" not in block["kind"]))
            else:
                is_c = _EXTERN_C.search(head) is not None and head.rstrip().endswith('"')
                blocks.append((_C_LINKAGE if is_c else None, False))
        last = brace.end()
    names = [part for name, _ in blocks if name is not None for part in name.split("::")]
    return names, any(is_class for _, is_class in blocks)


def _closing(text: str, opening: int) -> int | None:
    depth = 0
    for at in range(opening, min(len(text), opening + 10_000)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return None


def _top_level_commas(text: str) -> int:
    depth = count = 0
    for character in text:
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(character, 0)
        count += character == "," and depth == 0
    return count


@dataclass(frozen=True, kw_only=True)
class Spelled:
    """A demangled name in parts: ``float* mine::scale<int>(float const*) const``.

    ``scope`` is ``mine``, ``base`` is ``scale``, ``arguments`` ``<int>``, ``parameters`` the text between the
    parentheses (``None``: it is no function of C++), ``after`` what follows them.
    """

    scope: str
    base: str
    arguments: str
    parameters: str | None
    after: str

    @property
    def count(self) -> int | None:
        """How many parameters it has; ``None`` when the name does not say."""
        if self.parameters is None:
            return None
        return _top_level_commas(self.parameters) + 1 if self.parameters else 0


def spell(readable: str) -> Spelled:
    """The parts of a demangled name."""
    text, parameters, after = readable, None, ""
    close = readable.rfind(")")
    if close > 0 and not readable.startswith(("vtable", "typeinfo", "VTT")):
        depth, at = 0, close
        while at >= 0:
            depth += {")": 1, "(": -1}.get(readable[at], 0)
            if depth == 0:
                break
            at -= 1
        inside = readable[at + 1 : close]
        if at > 0 and inside != "anonymous namespace":
            text, parameters, after = readable[:at], inside, readable[close + 1 :].strip()
    pieces = _split(text)
    last = pieces[-1]
    base, less, arguments = (last, "", "") if last.startswith("operator") else last.partition("<")
    scope = "::".join(pieces[:-1])
    if less:  # a template's name comes with its result's type
        scope = scope.rpartition(" ")[2] if "(anonymous" not in scope else scope[scope.find("(anonymous") :]
        base = base.rpartition(" ")[2]
    return Spelled(scope=scope, base=base, arguments=f"{less}{arguments}", parameters=parameters, after=after)


def _split(text: str) -> list[str]:
    """``text`` at the double colons outside of brackets."""
    pieces, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, "<": 1, "[": 1, "{": 1, ")": -1, ">": -1, "]": -1, "}": -1}.get(character, 0)
        if depth == 0 and text.startswith("::", at):
            pieces.append(text[start:at])
            start = at + 2
    return [*pieces, text[start:]]
