"""The digest of a variant directory, which ``metadata.json`` carries and the client can verify.

Reference: interoperability contract 4.2; the same walk, names and encoding as the ``kernels-data`` package.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.files import open_to_hash, parse_json

METADATA = "metadata.json"
SIGNATURE = f"{METADATA}.sigstore"
_NOT_HASHED = frozenset({METADATA, SIGNATURE})


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    """``(relative path, file)`` of everything that is hashed. Links to files count, links to directories do not."""
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != "__pycache__")
        for name in sorted(files):
            path = Path(parent) / name
            relative = path.relative_to(directory).as_posix()
            if relative in _NOT_HASHED or path.suffix == ".pyc":
                continue
            if path.resolve(strict=True).is_file():
                yield relative, path


def hash_variant(directory: Path) -> dict[str, str]:
    """Path -> base64 SHA-256 of every file of a variant, sorted by the bytes of the path.

    Raises ``OSError`` for a file that cannot be read or a link that leads nowhere, and
    :class:`BuildError` for one that is larger than the Hub takes.
    """
    found: dict[str, str] = {}
    for relative, path in _files(directory):
        with open_to_hash(path) as file:
            found[relative] = base64.b64encode(hashlib.file_digest(file, "sha256").digest()).decode("ascii")
    return dict(sorted(found.items(), key=lambda item: os.fsencode(item[0])))


def files_told(directory: Path) -> dict[str, str]:
    """Path -> base64 SHA-256 of every file, as the variant's own metadata tell. Raises ``OSError`` and ``ValueError``
    where they tell none.
    """
    try:
        digest = parse_json((directory / METADATA).read_text(encoding="utf-8"))["digest"]
        return {str(path): str(text) for path, text in digest["files"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{directory / METADATA} tells no digests") from error
