"""Writing files so that nobody ever sees half of one, and reading JSON that anybody may have written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from kernel_builder.errors import BuildError

_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LARGEST_FILE = 50 * 10**9
"""Bytes of the largest file that the Hub takes, says its documentation on storage limits."""


_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)  # Windows has the other one
_MOST_DIGITS = 600
_MOST_DIGITS_SHOWN = 40


def open_to_hash(path: Path) -> BufferedReader:
    """Open a file that is going to be read as a whole, piece by piece. Raises ``OSError``, and :class:`BuildError` for
    one that the Hub does not take: reading it would take minutes, for nothing.
    """
    file = path.open("rb")
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST_FILE:
        file.close()
        raise BuildError(f"{path}: {too_large(size)}", hint="split it, or remove it from the kernel")
    return file


def read_small(path: Path, most: int = 16 << 20) -> bytes:
    """The bytes of a file that people write. Raises ``OSError``, also where there are more than ``most``: then it is
    something else.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def too_large(size: int) -> str:
    """A sentence about a file of so many bytes."""
    return f"it has {size / 10**9:.0f} GB, but the Hub takes at most {LARGEST_FILE / 10**9:.0f} GB a file"


def parse_json(text: str | bytes) -> Any:
    """What ``text`` says in JSON: RFC 8259, so bytes are UTF-8 without a byte-order mark, and there are no numbers but
    finite ones. ``json`` itself guesses encodings, reads and writes ``Infinity`` and ``NaN``, and raises
    ``RecursionError`` for what is nested too deeply. Raises ``ValueError`` for everything that is wrong with it.
    """
    if isinstance(text, bytes):
        text = _as_text(text)
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte-order mark, which JSON does not allow; save it as UTF-8 without one")
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_short)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _as_text(data: bytes) -> str:
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\0" in data[:4]:  # JSON begins with two characters of ASCII
        raise ValueError("it is UTF-16 or UTF-32; save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"the byte 0x{data[error.start]:02x} in line {line} is not UTF-8") from None


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number in JSON")


def _finite(word: str) -> float:
    value = float(word)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"the number {word if len(word) < _MOST_DIGITS_SHOWN else 'in it'} is too large")
    return value


def _short(word: str) -> int:
    if len(word) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(word)} digits, which is too many")
    return int(word)


class Sink(Protocol):
    """Where bytes go, piece by piece."""

    def write(self, data: bytes, /) -> object:
        """Take a piece."""
        ...


@contextmanager
def replacing(path: Path, *, follow_links: bool = True, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` in one step when the block ends.

    A link is followed, so that what it points to is replaced and not the link, unless ``follow_links`` says otherwise:
    then nothing is written outside of the directory. Permissions of a file that is there are kept. What is no ordinary
    file (a pipe, ``/dev/stdout``) is written to directly. Unless it is ``durable``, a power cut may leave less of it.
    Raises ``OSError``, which names the file where a disk is full; then, and when the block raises, the file is as it
    was.
    """
    try:
        with _replacing(path, follow_links=follow_links, durable=durable) as file:
            yield file
    except OSError as error:
        # The system says of an open file that there is no room for more, and not which file it is.
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = str(path)
        raise


@contextmanager
def _replacing(path: Path, *, follow_links: bool, durable: bool) -> Iterator[BinaryIO]:
    if follow_links and path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve() if follow_links else path
    mode = _mode(target)
    handle, name = _open_beside(target, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode is not None:
            Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def _open_beside(target: Path, mode: int) -> tuple[int, str]:
    """A new file in the directory of ``target``, open: its descriptor, and its name. What ``mode`` says is reduced by
    the kernel, for which no thread must change the process's mask.
    """
    while True:
        name = f"{target.parent}/.{target.name[:40]}.{os.urandom(4).hex()}"
        with contextlib.suppress(FileExistsError):
            try:
                return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode), name
            except FileExistsError:
                raise
            except OSError as error:  # people know the file that they asked for
                raise type(error)(error.errno, error.strerror, str(target)) from None


def _mode(target: Path) -> int | None:
    """The permissions of ``target``; ``None``, those that a new file gets."""
    with contextlib.suppress(FileNotFoundError):
        status = target.lstat()
        if stat.S_ISREG(status.st_mode):
            return stat.S_IMODE(status.st_mode)
    return None


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Give ``path`` the contents ``data`` in one step, as :func:`replacing` does. Raises ``OSError``."""
    with replacing(path, durable=durable) as file:
        file.write(data)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """:func:`write_bytes` of ``text`` in UTF-8, line ends as they are."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def bytes_of(text: str) -> int | None:
    """How many bytes ``5G`` or ``800M`` are; ``None`` for what is no size."""
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:IB|B)?", text.strip().upper())
    return int(match[1]) * _BYTES[match[2]] if match else None
