"""What a toolchain is made from: one published file, or something that this machine had already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ArtefactKind(StrEnum):
    """What sort of file it is, which says how it is verified."""

    WHEEL = "wheel"
    """Verified member by member against its RECORD, because only parts of it are fetched."""
    ARCHIVE = "archive"
    """Verified as a whole by ``sha256``."""
    PACKAGE = "package"
    """A distribution's package: verified as a whole by ``sha256``, which a signed index gave."""
    TREE = "tree"
    """Files that several places publish, each packed in its own way; ``sha256`` is over their paths and contents."""
    LOCAL = "local"
    """Files on this machine; ``sha256`` is over what identifies them."""


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """One thing that an entry of the store was made from.

    ``size`` is in bytes and ``sha256`` in hex, both of the whole file, ``None`` when its publisher does not say.
    ``record_sha256`` is that of a wheel's RECORD, known once the wheel was opened. ``source`` is the label of where it
    came from (``index``, the name of a further index, ``redistrib``, ``debian``, ``local``) and never an address.
    """

    name: str
    version: str
    filename: str
    kind: ArtefactKind = ArtefactKind.WHEEL
    size: int | None = None
    sha256: str | None = None
    record_sha256: str | None = None
    source: str = "index"

    @property
    def identity(self) -> str:
        """What the store keys on: a digest where there is one, else name and size. Never an address."""
        if self.sha256 is None and self.record_sha256 is None:
            return f"file:{self.filename}:{self.size}"
        return f"sha256:{self.sha256}" if self.sha256 else f"record:{self.record_sha256}"


def _optional_text(table: Mapping[str, object], key: str) -> str | None:
    value = table.get(key)
    return value if isinstance(value, str) and value else None


def parse_artefact(table: Mapping[str, object]) -> Artefact:
    """Read what ``dataclasses.asdict`` made of one. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    size = table.get("size")
    if size is not None and not isinstance(size, int):
        raise TypeError("size must be an integer")
    return Artefact(
        name=str(table["name"]),
        version=str(table["version"]),
        filename=str(table["filename"]),
        kind=ArtefactKind(str(table.get("kind", ArtefactKind.WHEEL))),
        size=size,
        sha256=_optional_text(table, "sha256"),
        record_sha256=_optional_text(table, "record_sha256"),
        source=str(table.get("source", "index")),
    )
