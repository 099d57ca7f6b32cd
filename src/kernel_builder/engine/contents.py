"""Digests of files, each read once: the next build knows them by size, times and inode.

A comment changes no object: of sources, what counts is the text without the words of comments, line for line and column
for column. So an edited comment compiles nothing, and moving code to another line does.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.files import parse_json, write_text
from kernel_builder.seen import YOUNG_NS, changed_at, stamp, stamp_of

DIGEST_BYTES = 20
_TIMED = "@"
_MOST = 50_000
_COMMENTED = (".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".hip", ".inl", ".inc", ".mm")
_TOKEN = re.compile(
    rb"""(?P<raw>\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
    | \#[ \t]*(?:include|import|include_next|embed)[ \t]*<[^>\n]*> | \b__has_\w+[ \t]*\([ \t]*<[^>\n]*>
    | \b\d(?:[\w.]|'\w)*
    | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?
    | (?P<comment>//(?:[^\\\n]|\\.)* | /\*.*?\*/)""",
    re.VERBOSE | re.DOTALL,
)
"""What comments are not found in: raw strings, names of headers, numbers, strings, and the rest of a line after a quote
that none ends (in text that ``#if`` leaves out, or after ``#error``), which is how compilers read it.
"""
_NOT_LINE_END = re.compile(rb"[^\n]")
_TRAILING = re.compile(rb"[ \t\r\f\v]+$", re.MULTILINE)
_MARKERS = re.compile(rb'^(?:#(?:line)?[ ]\d+[ ]"[^\n]*)?\n', re.MULTILINE)
_ASKS_WHERE = re.compile(rb"\b__builtin_(?:LINE|COLUMN|FILE|FILE_NAME|source_location)\b")
_RAW = re.compile(rb'\b(?:u8|[uUL])?R"([^()\\\s]{0,16})\(.*?\)\1"', re.DOTALL)
_UNSURE = re.compile(
    rb"""\?\?/ | %: | \\[ \t\r\f\v]+\n | \r(?!\n) | [^\s\\]\\\n\S | \\\n\\\n
    | (?:\#[ \t]*(?:(?:include|include_next|import|embed)[ \t]*)? | \b__has_\w+[ \t(]*)(?:/\*|\\\n)""",
    re.VERBOSE,
)
"""Other spellings of a backslash, of a number sign and of ends of lines, and words that may go on in the next line, in
which hardly anybody writes: all of such a file counts.
"""


def blob_digest(data: bytes) -> str:
    """The digest of some bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def tells_its_time(digest: str) -> bool:
    """Whether the source with that digest asks for the time of the file that it is compiled from."""
    return digest.endswith(_TIMED)


def file_digest(path: Path) -> str:
    """:func:`blob_digest` of a file of any size. Raises ``OSError``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()


def text_digest(data: bytes) -> str:
    """The digest of preprocessed text without the markers that say which file and line it came from; with them, where
    it asks for these in a way that only compilers answer, as ``std::source_location::current()`` does.
    """
    if _ASKS_WHERE.search(data):
        return blob_digest(data)
    raw = (match[0] for match in _RAW.finditer(data))  # in which such lines, and empty ones, are what it says
    return blob_digest(b"\0".join([_MARKERS.sub(b"", data), *raw]))


def source_digest(data: bytes) -> str:
    """The digest of a source in C, C++ or CUDA: equal for two that differ in what their comments say."""
    timed = _TIMED if b"__TIMESTAMP__" in data else ""
    if _UNSURE.search(data):
        return blob_digest(data) + timed

    raw: list[bytes] = []

    def blank(match: re.Match[bytes]) -> bytes:
        # Lines and columns stay: __LINE__ and std::source_location see them.
        if match["comment"] is not None:
            return _NOT_LINE_END.sub(b" ", match[0])
        if match["raw"] is not None:
            raw.append(match[0])  # in which blanks at the end of a line count
        return match[0]

    code = _TRAILING.sub(b"", _TOKEN.sub(blank, data))
    # Nothing behind the last code has a line, unless that line is continued.
    ended = code.rstrip(b"\n")
    return blob_digest(b"\0".join([code if ended.endswith(b"\\") else ended, *raw])) + timed


@dataclass(frozen=True)
class _Known:
    stamp: list[int]
    digest: str
    read_at: int


@dataclass
class Contents:
    """Digests of files, kept in ``file`` between builds. Safe for concurrent threads."""

    file: Path
    _known: dict[str, _Known] = field(default_factory=dict)
    _fresh: dict[str, str | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: bool = False

    @classmethod
    def load(cls, file: Path) -> Contents:
        """What was kept in ``file``; nothing where it cannot be read."""
        found = cls(file)
        try:
            kept = parse_json(file.read_bytes())
            found._known = {path: _Known(list(shown), digest, 0) for path, (shown, digest) in kept.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            pass
        return found

    def digest(self, path: str) -> str | None:
        """The digest of what counts in the file; ``None`` where there is no such file.

        A file is looked at once: who changes one says so by :meth:`forget`.
        """
        if path in self._fresh:
            return self._fresh[path]
        found = self._look(path)
        self._fresh[path] = found
        return found

    def digest_before(
        self, path: str, moment: int | None, now: Callable[[str], int | None] = lambda _: None
    ) -> str | None:
        """The digest of a file that was as it is now before ``moment`` (nanoseconds since the epoch); ``None`` where it
        is not there or has changed since.

        ``now`` tells the time by the clock that the file at a path is dated with, if that was not set since
        ``moment``: a file that shows a later time was written before the clock was set back, and not since.
        """
        try:
            shown = changed_at(stamp(Path(path).stat()))
        except OSError:
            return None
        if moment is not None and shown >= moment:
            latest = now(path)
            if latest is None or shown <= latest + YOUNG_NS:
                return None
        self.look_again(path)
        return self.digest(path)

    def look_again(self, path: str) -> None:
        """The file may have changed since it was looked at."""
        known = self._known.get(path)
        if known is None or known.stamp != stamp_of(path):
            self.forget(path)

    def forget(self, path: str) -> None:
        """The file is made anew."""
        self._fresh.pop(path, None)

    def assume(self, path: str, text: str) -> None:
        """Take ``text`` for what is in the file, whatever is there now."""
        self._fresh[path] = self._digest(path, text.encode("utf-8"))

    def save(self) -> None:
        """Keep what is known for the next build."""
        if not self._changed:
            return
        kept = {path: (known.stamp, known.digest) for path, known in self._known.items() if _is_old(known)}
        if len(kept) > _MOST:
            kept = {path: entry for path, entry in kept.items() if path in self._fresh}
        write_text(self.file, json.dumps(kept, separators=(",", ":")), durable=False)

    def _look(self, path: str) -> str | None:
        try:
            shown = stamp(Path(path).stat())
            known = self._known.get(path)
            if known is not None and known.stamp == shown:
                return known.digest
            read_at = time.time_ns()
            digest = source_digest(Path(path).read_bytes()) if self._is_text(path) else file_digest(Path(path))
        except (OSError, ValueError):  # a name with a zero byte names no file
            return None
        with self._lock:
            self._known[path] = _Known(shown, digest, read_at)
            self._changed = True
        return digest

    def _digest(self, path: str, data: bytes) -> str:
        return source_digest(data) if self._is_text(path) else blob_digest(data)

    def _is_text(self, path: str) -> bool:
        """Whether it is a source: what compilers made has no comments."""
        return path.endswith(_COMMENTED) and not path.startswith(f"{self.file.parent}/")


def _is_old(known: _Known) -> bool:
    """Whether the file was not just being written when it was read: its times tell if it is written again."""
    return known.read_at == 0 or changed_at(known.stamp) < known.read_at - YOUNG_NS
