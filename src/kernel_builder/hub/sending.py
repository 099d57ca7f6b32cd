"""Files as ``huggingface_hub`` sends them, with a count of the bytes that went out. Imports that library."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import CommitOperationAdd


class _CountingReader(io.BufferedReader):
    """A file that tells how far it was read. Reads that go back, after a failure, tell nothing until they pass it."""

    def __init__(self, path: str, tell: Callable[[int], None]) -> None:
        super().__init__(io.FileIO(path), buffer_size=1 << 20)
        self._report = tell

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._report(self.tell())
        return data


class CountedFile(CommitOperationAdd):
    """An addition whose content was hashed before."""

    _report: Callable[[int], None] | None = None

    @classmethod
    def of_bytes(cls, path: str, data: bytes) -> CountedFile:
        """Content that is in memory."""
        return cls(path_in_repo=path, path_or_fileobj=data)

    @classmethod
    def of_path(cls, path: str, source: Path, sha256: str, tell: Callable[[int], None]) -> CountedFile:
        """A file on disk with a known SHA-256, which is not computed again; ``tell`` hears how far it was sent."""
        made = cls(path_in_repo=path, path_or_fileobj=str(source))
        made.upload_info.sha256 = bytes.fromhex(sha256)
        made._report = tell
        return made

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        """The content, for the library."""
        if self._report is None or not isinstance(self.path_or_fileobj, str | os.PathLike):
            with super().as_file(with_tqdm=with_tqdm) as file:
                yield file
            return
        with _CountingReader(str(self.path_or_fileobj), self._report) as reader:
            yield reader
