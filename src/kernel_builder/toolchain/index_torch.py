"""Headers and export tables of one torch release, out of the beginning and the middle of its wheel (F1, F2,
F11).

The wheel that the index has serves the CPU variant and every CUDA version of its release: the headers are the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import StoreKey, require_space
from kernel_builder.store.index import Index, IndexFile
from kernel_builder.store.progress import Progress
from kernel_builder.store.wheel import Wheel
from kernel_builder.toolchain.link_tables import EXPORTS, read_symbols, table_cost, write_table
from kernel_builder.toolchain.model import TorchSdk
from kernel_builder.toolchain.recipe import Recipe

_LEADING = 5 * 2**19  # bytes that the names of one of its large libraries take over the wire
_TABLE_SPACE = 32 * 2**20
"""Room for the export tables, in bytes; torch's take about 15 MiB."""


def torch_key(file: IndexFile, recipe: Recipe) -> StoreKey:
    """The store's key of the headers and tables out of ``file``."""
    return StoreKey.of(f"torch-{file.version}", wheel=file.identity, recipe=recipe.digest)


def torch_sdk(file: IndexFile, recipe: Recipe, entry: Path, stubs: Path, *, cuda: bool) -> TorchSdk:
    """The value that describes ``entry``, whether or not it exists yet."""
    names = [library.member.rpartition("/")[2] for library in recipe.torch.libraries if cuda or not library.cuda]
    return TorchSdk(
        version=file.version.public,
        include=tuple(entry / folder for folder in recipe.torch_include),
        libraries=stubs,
        exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(names)),
    )


def build_torch(
    file: IndexFile, *, recipe: Recipe, index: Index, scratch: Path, progress: Progress, into: Path
) -> Sequence[Artefact]:
    """Fill ``into`` with headers, ``version.py`` and export tables. ``scratch`` takes what is only passing.

    Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk), and
    :class:`ToolchainError` when the wheel has no headers.
    """
    wheel = index.open(file, scratch, progress.add)
    members = wheel.select(recipe.torch.include)
    if not members:
        raise ToolchainError(f"{file.filename} holds no C++ headers, so nothing can be compiled with it")
    libraries = [library for library in recipe.torch.libraries if not library.cuda or library.member in wheel.members]
    require_space(into.parent, sum(member.size for member in members) + _TABLE_SPACE)
    progress.expect(sum(member.compressed for member in members) + table_cost(wheel, libraries, leading_bytes=_LEADING))
    wheel.extract(members, into, lambda name: name.removeprefix(recipe.torch_strip))
    for library in libraries:
        write_table(into, *read_symbols(wheel, library.member, leading=library.leading))
    return (source_of(file, wheel),)


def source_of(file: IndexFile, wheel: Wheel) -> Artefact:
    """What the manifest says about a wheel. Raises :class:`IntegrityError` when its RECORD is not the one that it must
    have.
    """
    if file.record_sha256 not in {None, wheel.record_sha256}:
        raise IntegrityError(
            f"{file.filename} is not the wheel that was locked: the SHA-256 of its RECORD is {wheel.record_sha256},"
            f" not {file.record_sha256}",
            hint="the index, or what is between, alters files",
        )
    return Artefact(
        name=file.project,
        version=str(file.version),
        filename=file.filename,
        size=file.size,
        sha256=file.sha256,
        record_sha256=wheel.record_sha256,
    )
