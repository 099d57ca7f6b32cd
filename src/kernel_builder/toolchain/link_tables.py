"""The names that a library exports, kept instead of the library: as text for people and checks, and for
making stubs.

A table does not depend on the machine that wrote it; a stub depends on its assembler and linker. So an entry
of the store holds tables, and stubs are made from them into an entry of their own.
"""

from __future__ import annotations

import gzip
import mmap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernel_builder.binary.elf import (
    SHT_DYNSYM,
    ElfError,
    ElfSection,
    Symbol,
    read_elf,
    read_leading_exports,
    read_sections,
    read_symbol_table,
    section_table,
)
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.store.wheel import NeedMoreError, Wheel
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.recipe import LibraryRecipe
from kernel_builder.toolchain.stubs import write_stub

EXPORTS = "exports"
_SYMBOLS = "symbols"
_SUFFIX = ".tsv.gz"


def _leading(prefix: bytes) -> tuple[Symbol, ...] | bytes:
    """The symbols at the beginning of a library, or that beginning when they do not stand there."""
    try:
        return read_leading_exports(prefix)
    except ElfError as error:
        if "need more" in str(error):
            raise NeedMoreError(str(error)) from error
        return prefix


def _dynamic(sections: Sequence[ElfSection]) -> tuple[ElfSection, ElfSection]:
    """The sections of a library's dynamic symbols and of their names."""
    symbols = next((section for section in sections if section.kind == SHT_DYNSYM), None)
    if symbols is None or symbols.link >= len(sections):
        raise ElfError("its section headers name no dynamic symbols")
    return symbols, sections[symbols.link]


def _scattered(wheel: Wheel, member: str, known: bytes) -> tuple[Symbol, ...]:
    """Exports of a library whose string table was moved to its end.

    That is what patchelf does when it gives a library another run path, as the torch wheels of the public
    index had done to them: ``.dynsym`` stays where it was, ``.dynstr`` and the section headers go to the end
    of the file.
    """
    size = wheel.members[member].size

    def beginning(stop: int) -> bytes:
        def accept(prefix: bytes) -> bytes:
            if len(prefix) < stop:
                raise NeedMoreError(f"it is truncated before byte {stop}")
            return prefix

        return known if len(known) >= stop else wheel.read_prefix(member, accept)

    table_at, table_size = section_table(beginning(64))
    if not 0 < table_at <= size - table_size:
        raise ElfError("it has no section headers")
    end_at = table_at
    end = wheel.read_end(member, size - end_at)
    sections = read_sections(end[:table_size])
    symbols, strings = _dynamic(sections)

    def contents(section: ElfSection) -> bytes:
        stop = section.offset + section.size
        if section.offset >= end_at:
            return end[section.offset - end_at : stop - end_at]
        return beginning(stop)[section.offset : stop]

    return read_symbol_table(contents(symbols), contents(strings))


def read_symbols(wheel: Wheel, member: str, *, leading: bool) -> tuple[str, tuple[Symbol, ...]]:
    """``(soname, exported symbols)`` of a shared library in a wheel.

    With ``leading`` only its beginning is fetched, and its end if need be; its soname is then taken to be its
    file name, and versions of symbols stay unknown. Raises :class:`ToolchainError` when the wheel lacks it,
    :class:`IntegrityError` when it is not such a library, and what reading the wheel raises.
    """
    name = member.rpartition("/")[2]
    if member not in wheel.members:
        raise ToolchainError(f"{wheel.filename} contains no {member}, which kernels are linked with")
    try:
        if not leading:
            elf = read_elf(wheel.read(member))
            return elf.soname or name, elf.exports
        found = wheel.read_prefix(member, _leading)
        symbols = _scattered(wheel, member, found) if isinstance(found, bytes) else found
        return name, tuple(symbol for symbol in symbols if symbol.name != name)  # the version node's own marker
    except ElfError as error:
        raise IntegrityError(
            f"{wheel.filename}: cannot read the names of {member}: {error}",
            hint="the wheel is damaged, or not what its name says: take it from another index",
        ) from error


def read_local_symbols(path: Path, *, leading: bool) -> tuple[str, tuple[Symbol, ...]]:
    """As :func:`read_symbols`, of a library on this machine; of a large one only the pages that hold names are read.

    Raises :class:`ToolchainError` when it is not there or no such library.
    """
    name = path.name
    try:
        if not leading:
            elf = read_elf(path.read_bytes())
            return elf.soname or name, elf.exports
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            table_at, table_size = section_table(data[:64])
            symbols, strings = _dynamic(read_sections(data[table_at : table_at + table_size]))
            found = read_symbol_table(
                data[symbols.offset : symbols.offset + symbols.size],
                data[strings.offset : strings.offset + strings.size],
            )
            return name, tuple(symbol for symbol in found if symbol.name != name)
    except (OSError, ValueError, ElfError) as error:
        raise ToolchainError(f"cannot read the names of {path}: {error}") from error


def table_cost(wheel: Wheel, libraries: Iterable[LibraryRecipe], *, leading_bytes: int) -> int:
    """About how many bytes reading the names of ``libraries`` takes: ``leading_bytes`` each for the large
    ones.
    """
    members = [(wheel.members.get(library.member), library.leading) for library in libraries]
    return sum(min(m.compressed, leading_bytes) if leading else m.compressed for m, leading in members if m)


def write_table(entry: Path, soname: str, symbols: Iterable[Symbol]) -> None:
    """Write ``exports/<soname>.txt`` (sorted names, one a line) and the data that :func:`write_stubs` needs.

    Of a name with several versions only the default one is kept: nothing new can be linked to the others.
    """
    kept: dict[str, Symbol] = {}
    for symbol in sorted(symbols, key=lambda s: (s.name, not s.default)):
        kept.setdefault(symbol.name, symbol)
    (entry / EXPORTS).mkdir(exist_ok=True)
    (entry / _SYMBOLS).mkdir(exist_ok=True)
    text = "".join(f"{name}\n" for name in kept)
    (entry / EXPORTS / f"{soname}.txt").write_text(text, encoding="utf-8", errors="surrogateescape")
    rows = "".join(f"{s.name}\t{s.version or ''}\t{s.kind}\t{s.binding}\t{s.size}\n" for s in kept.values())
    packed = gzip.compress(rows.encode("utf-8", "surrogateescape"), 6, mtime=0)
    (entry / _SYMBOLS / f"{soname}{_SUFFIX}").write_bytes(packed)


def table_of(entry: Path, soname: str) -> Path:
    """What :func:`write_table` kept for the stub of ``soname``."""
    return entry / _SYMBOLS / f"{soname}{_SUFFIX}"


def read_table(file: Path) -> list[Symbol]:
    """Read what :func:`write_table` kept for stubs. Raises :class:`IntegrityError` when it is damaged."""
    try:
        rows = gzip.decompress(file.read_bytes()).decode("utf-8", "surrogateescape").splitlines()
        return [
            Symbol(name=name, version=version or None, kind=kind, binding=binding, size=int(size))
            for name, version, kind, binding, size in (row.split("\t") for row in rows)
        ]
    except (OSError, EOFError, ValueError) as error:
        raise IntegrityError(
            f"{file} is damaged: {error}", hint="delete its directory; it will be fetched again"
        ) from error


def write_stubs(entry: Path, into: Path, host: HostCompiler, environ: Mapping[str, str]) -> None:
    """Make a link stub in ``into`` for every table of ``entry``.

    ``libcublas.so.13`` becomes ``libcublas.so`` with that soname, so that ``-lcublas`` finds it. Raises
    :class:`ToolchainError` when the host's tools fail.
    """
    for file in sorted((entry / _SYMBOLS).glob(f"*{_SUFFIX}")):
        soname = file.name.removesuffix(_SUFFIX)
        plain = soname[: soname.index(".so") + 3]
        write_stub(into / plain, soname=soname, symbols=read_table(file), host=host, environ=environ)
