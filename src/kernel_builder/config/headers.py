"""Sources that include the headers of a library that their section does not depend on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from kernel_builder.config.backends import Backend
from kernel_builder.config.checks import COMPILED_SUFFIXES, Located, plain_path
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import Framework
from kernel_builder.toml.nodes import quoted
from kernel_builder.toml.report import Report

_LARGEST = 4 << 20
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif|include)\b[ \t]*(?:[<\"]([^>\"\n]+)[>\"])?", re.MULTILINE
)


def unconditional_includes(text: bytes) -> Iterator[tuple[int, str]]:
    """Line and name of each header that ``text`` includes whatever is defined."""
    text = _COMMENT.sub(lambda match: b"\n" * match[0].count(b"\n"), text)
    depth = 0
    for match in _DIRECTIVE.finditer(text):
        word, name = match[1], match[2]
        if word == b"endif":
            depth = max(0, depth - 1)
        elif word != b"include":
            depth += 1
        elif not depth and name is not None:
            yield text.count(b"\n", 0, match.start()) + 1, name.decode("utf-8", "replace")


def missing_libraries(sections: Sequence[Located], framework: Framework | None, root: Path, report: Report) -> None:
    """Notice, once for a section, sources that cannot be compiled without a library that it does not depend on.

    Includes that depend on what is defined are not judged, nor those of headers.
    """
    known = dependencies()
    beginnings = tuple(beginning.encode() for beginning in known.provides)
    depends: dict[tuple[Backend, str], set[str]] = {}  # a file in several sections is compiled with what all have
    for placed in sections:
        for source in placed.section.src:
            depends.setdefault((placed.section.backend, plain_path(source)), set()).update(placed.section.depends)
    own = (framework.directory,) if framework is not None else ()
    for placed in sections:
        backend = placed.section.backend
        names = {name for beginning in known.provides for name in known.bringing(beginning, backend)}
        if not placed.known or not names or names & {*placed.section.depends}:
            continue
        for source in placed.section.src:
            if os.path.splitext(source)[1] not in COMPILED_SUFFIXES:  # noqa: PTH122  (there may be thousands)
                continue
            text = _read(os.path.join(root, source))  # noqa: PTH118
            if not any(beginning in text for beginning in beginnings):
                continue
            folders = (str(PurePosixPath(source).parent), *placed.section.include, "csrc", *own)
            if _judge(placed, source, text, [root / folder for folder in folders], depends, report):
                break


def _judge(
    placed: Located,
    source: str,
    text: bytes,
    folders: Sequence[Path],
    depends: dict[tuple[Backend, str], set[str]],
    report: Report,
) -> bool:
    """Whether something is missing for ``source``; it is noticed."""
    backend = placed.section.backend
    for line, header in unconditional_includes(text):
        names = dependencies().bringing(header, backend)
        if not names or depends[backend, plain_path(source)] & set(names):
            continue
        if any((folder / header).is_file() for folder in folders):
            continue
        report.error(
            (*placed.reader.path, "depends"),
            f"line {line} of {quoted(source)} includes {header}, but this section depends on no library that has it",
            hint=what_to_add(names),
        )
        return True
    return False


def what_to_add(names: Sequence[str]) -> str:
    """What to write in ``depends`` for one of the libraries ``names``, oldest first."""
    others = f" (or an older release: {', '.join(names[:-1])})" if len(names) > 1 else ""
    return f"add \"{names[-1]}\" to 'depends'{others}"


def _read(file: str) -> bytes:
    """The beginning of a file; nothing of what cannot be read, which has been noticed. Never waits for a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):
        return b""
    try:
        return os.read(descriptor, _LARGEST)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
