"""What every source of wheels needs."""

from __future__ import annotations

from kernel_builder.errors import IntegrityError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.index import IndexFile
from kernel_builder.store.wheel import Wheel


def wheel_artefact(file: IndexFile, wheel: Wheel, source: str) -> Artefact:
    """What a manifest says about a wheel that was opened. Raises :class:`IntegrityError` when its RECORD is not the one
    that it must have.
    """
    if file.record_sha256 not in {None, wheel.record_sha256}:
        raise IntegrityError(
            f"{file.filename} is not the wheel that was chosen: the SHA-256 of its RECORD is {wheel.record_sha256},"
            f" not {file.record_sha256}",
            hint="use another index: this one, or a proxy on the way, alters files",
        )
    return Artefact(
        name=file.project,
        version=str(file.version),
        filename=file.filename,
        size=file.size,
        sha256=file.sha256,
        record_sha256=wheel.record_sha256,
        source=source,
    )
