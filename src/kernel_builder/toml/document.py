"""A TOML file as a whole: its text, its tables, and what keeps either from being read."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kernel_builder.toml.nodes import TableNode, table_of
from kernel_builder.toml.report import Report
from kernel_builder.toml.scan import Source


class Undecodable(NamedTuple):
    """What keeps a file from being text: where, why, and what to do."""

    offset: int
    message: str
    hint: str


def decode(data: bytes) -> tuple[str, tuple[Undecodable, ...]]:
    """The text of a file, with ``\\n`` line ends and without byte-order mark, and what keeps it from being
    UTF-8.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "", (Undecodable(0, "the file is UTF-16", "save it as UTF-8"),)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8").replace("\r\n", "\n"), ()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace").replace("\r\n", "\n")
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        message = f"the byte 0x{data[error.start]:02x} here is not UTF-8"
        return text, (Undecodable(len(before), message, "save the file as UTF-8"),)


def open_document(data: bytes, file: Path) -> tuple[TableNode, Report]:
    """The tables in ``data``, the content of ``file``. Mistakes go to the report, which knows what is broken."""
    text, undecodable = decode(data)
    source = Source(text)
    report = Report(source, file)
    for mistake in undecodable:
        report.error((), mistake.message, hint=mistake.hint, offset=mistake.offset)
    values, problems = source.parse()
    for problem in problems:
        report.error(problem.path, problem.message, hint=problem.hint, offset=problem.offset)
        report.broken.add(problem.path)
    return table_of(values), report
