"""Text made to fit a terminal: by whole words, measured in columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def cell_len(text: str) -> int:
    """How many columns of a terminal ``text`` takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len as measure  # noqa: PLC0415  (start-up time)

    return measure(text)


_NARROWEST = 20
"""In fewer columns nothing is wrapped: there is no good way to."""
_GAP = "  "


def wrapped(text: str, width: int | None) -> str:
    """``text`` with its lines broken between words where they are longer than ``width`` columns (``None``: nowhere).

    What follows is indented below its line. A word that is longer than that, such as a path, stays whole.
    """
    if width is None or width < _NARROWEST:
        return text
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, width))


def _pieces(line: str, width: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    pieces, current = [], indent
    for word in line[len(indent) :].split(" "):
        if current.strip() and cell_len(current) + 1 + cell_len(word) > width:
            pieces.append(current.rstrip())
            current = f"{indent}    {word}"
        else:
            current += f" {word}" if current.strip() else word
    return [*pieces, current.rstrip()]


def shortened(text: str, room: int, tail: str = "") -> str:
    """``text`` and ``tail``, or as much of their end as fits into ``room`` columns: without the first words, without
    the first directories of the last one, without ``tail``. Words stay whole, so it may be empty.
    """
    words = text.split(" ")
    folders = words[-1].split("/")
    for end in dict.fromkeys([tail, ""]):
        candidates = [text]
        candidates += [f"... {' '.join(words[start:])}" for start in range(1, len(words))]
        candidates += [f".../{'/'.join(folders[start:])}" for start in range(1, len(folders))]
        for candidate in candidates:
            if cell_len(candidate + end) <= room:
                return candidate + end
    return ""


def duration(seconds: float) -> str:
    """``0:07``, ``12:34``, ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table; a cell may have several. The last columns, of figures, are at the right.

    Where it does not fit into ``width`` columns, each row is a paragraph below the first cell.
    """
    cells = [[cell.split("\n") for cell in row] for row in (head, *rows)]
    widths = [max(cell_len(line) for row in cells for line in row[column]) for column in range(len(head))]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return [line for row in rows for line in _paragraph(head, row, width)]
    return [line for row in cells for line in _row(row, widths)]


def _row(row: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    lines = []
    for number in range(max(map(len, row))):
        texts = [cell[number] if number < len(cell) else "" for cell in row]
        padded = [_padded(text, widths[place], right=place > 1) for place, text in enumerate(texts)]
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _paragraph(head: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    names = [name.replace("\n", " ") for name in head]
    longest = max(map(cell_len, names[1:]))
    lines = [row[0]]
    for name, cell in zip(names[1:], row[1:], strict=True):
        text = f"  {_padded(name, longest, right=False)}  {cell.replace(chr(10), ', ')}"
        lines += wrapped(text, width).split("\n")
    return lines
