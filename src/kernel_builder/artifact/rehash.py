"""Writes the digest of finished variants into their ``metadata.json``, everything else in it kept.

Reference: interoperability contract 4.2 and 6.6; keys that this version does not know stay (sharp edge 37).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_builder.artifact.digest import METADATA, hash_variant
from kernel_builder.errors import BuildError
from kernel_builder.files import parse_json, write_bytes

_MAX_BYTES = 16 * 2**20


def rehash_variants(variants: Sequence[Path], *, jobs: int = 4) -> tuple[bool, ...]:
    """Bring the digest of each variant up to date; for each, whether its metadata was rewritten.

    All metadata is read and all files are hashed before the first file is written. A file is replaced in one step;
    where metadata is a link, the file that it leads to.
    Raises :class:`BuildError` for metadata that is no JSON object, ``OSError`` for files that cannot be read or
    written.
    """
    documents = [_read(variant / METADATA) for variant in variants]
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        digests = list(pool.map(hash_variant, variants))
    return tuple(
        _write(variant / METADATA, old, _with_digest(document, digest))
        for variant, (old, document), digest in zip(variants, documents, digests, strict=True)
    )


def _read(file: Path) -> tuple[bytes, dict[str, object]]:
    if file.stat().st_size > _MAX_BYTES:
        raise BuildError(f"{file} is too large for a metadata file")
    raw = file.read_bytes()
    try:
        document = parse_json(raw)
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{file} is not JSON: {error}", hint="rebuild the variant") from error
    if not isinstance(document, dict):
        raise BuildError(f"{file} is not a JSON object", hint="rebuild the variant")
    return raw, document


def _with_digest(document: dict[str, object], files: dict[str, str]) -> dict[str, object]:
    """The document with its digest replaced in place, or inserted before the provenance."""
    digest = {"algorithm": "sha256", "files": files}
    if "digest" in document:
        return {key: digest if key == "digest" else value for key, value in document.items()}
    made: dict[str, object] = {}
    for key, value in document.items():
        if key == "provenance":
            made["digest"] = digest
        made[key] = value
    return made | {"digest": digest} if "digest" not in made else made


def _write(file: Path, old: bytes, document: dict[str, object]) -> bool:
    new = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
    if new == old or parse_json(old) == document:
        return False
    write_bytes(file, new)
    return True
