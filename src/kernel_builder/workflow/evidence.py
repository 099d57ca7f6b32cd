"""What compiles turn out to have read of this machine, for the metadata of what they made: the headers of the compiler
and the C library, which no lock names.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kernel_builder.actions.places import Places
from kernel_builder.artifact.tools import HEADERS
from kernel_builder.engine.records import system_headers
from kernel_builder.plan.model import VariantPlan
from kernel_builder.project.digests import by_folder


def with_headers_read(variant: VariantPlan, places: Places) -> VariantPlan:
    """``variant``, whose actions ran, with metadata that name those headers and their digests; as it is where there are
    none. They belong to the host's compiler, which is the first of the tools.
    """
    depfiles = {places.path(action.depfile, action) for action in variant.actions if action.depfile is not None}
    digests = {path: _digest(path) for path in sorted({path for file in depfiles for path in system_headers(file)})}
    read = {path: digest for path, digest in digests.items() if digest is not None}
    provenance = variant.metadata.get("provenance")
    tools = provenance.get("tools") if isinstance(provenance, dict) else None
    if not read or not isinstance(provenance, dict) or not isinstance(tools, list) or not tools:
        return variant
    host = {**tools[0], HEADERS: by_folder(read)}
    return replace(variant, metadata={**variant.metadata, "provenance": {**provenance, "tools": [host, *tools[1:]]}})


def _digest(path: str) -> str | None:
    """The SHA-256 of a file; ``None`` where it went."""
    try:
        status = os.stat(path)  # noqa: PTH116  (hundreds of them: a Path costs more than the call)
        return _digest_of(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return None


@lru_cache(maxsize=4096)
def _digest_of(path: str, _mtime: int, _size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
