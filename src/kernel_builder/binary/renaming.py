"""Gives a linked library another name of the same length: what linking it again under that name would give.

The ops id of a kernel changes with every edit, that of its Python files also, and is the only thing in its library that
does. It stands in the soname, in the name of the module's function and in one string, as itself each time; nothing else
is as long and as odd, and nothing else is kept within them. Of what follows from names, the hash table of the dynamic
symbols is made again, with the order that it needs, and the build ID is derived.

Reference: System V ABI (gABI) chapter 5; "ELF: GNU hash table" as in glibc's dl-lookup.c: symbols that can be found
stand in the order of their buckets, and a filter of two bits a name comes first.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from kernel_builder.binary.elf import DYNAMIC_SYMBOL, RELOCATION, Buffer, Dynamic, ElfError, Tag, read_elf

_WORD = 64
_BUILD_ID, _GNU = 3, b"GNU\0"
_NOTE = struct.Struct("<III")


def gnu_hash(name: bytes) -> int:
    """The hash of a symbol's name that ``DT_GNU_HASH`` tables use."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def renamed(data: Buffer, old: str, new: str) -> bytearray:
    """A copy of the library ``data``, which was linked as ``old``, as ``new``. It may be a gigabyte, so there is one.

    Raises :class:`ElfError` where it is no library of that name, or one that cannot be renamed; ``ValueError`` for a
    name of another length.
    """
    before, after = old.encode("ascii"), new.encode("ascii")
    if len(before) != len(after):
        raise ValueError(f"{new} is not as long as {old}")
    changed = bytearray(data)
    if before == after:
        return changed
    at = changed.find(before)
    while at >= 0:
        changed[at : at + len(before)] = after
        at = changed.find(before, at + len(before))
    _Hashed.of(changed).make_again()
    _derive_build_id(changed, after)
    _compare(data, changed, old, new)
    return changed


@dataclass(frozen=True, kw_only=True)
class _Hashed:
    """The hash table of a library, and the symbols in it: numbers ``first`` to ``end``."""

    data: bytearray
    dynamic: Dynamic
    at: int
    buckets: int
    first: int
    bloom: int
    shift: int
    end: int

    @classmethod
    def of(cls, data: bytearray) -> _Hashed:
        dynamic = Dynamic.of(data)
        if Tag.HASH in dynamic.tags or Tag.GNU_HASH not in dynamic.tags:
            raise ElfError("its symbols are not found by a GNU hash table alone")
        at = dynamic.offset(Tag.GNU_HASH)
        buckets, first, bloom, shift = struct.unpack_from("<4I", data, at)
        return cls(
            data=data,
            dynamic=dynamic,
            at=at,
            buckets=buckets,
            first=first,
            bloom=bloom,
            shift=shift,
            end=dynamic.symbols,
        )

    def make_again(self) -> None:
        """Order the symbols by their names' buckets, tell whoever counts on their numbers, and write the table."""
        heads = struct.unpack_from(f"<{self.buckets}I", self.data, self.at + 16 + 8 * self.bloom)
        if self.end <= self.first or not any(heads):  # it exports nothing, which other rules are about
            return
        numbers = range(self.first, self.end)
        hashes = {number: gnu_hash(self.name(number)) for number in numbers}
        # Within a bucket any order will do: by name, it depends on nothing that was there before.
        order = sorted(numbers, key=lambda number: (hashes[number] % self.buckets, self.name(number)))
        place = dict(zip(order, numbers, strict=True))
        self._move_entries(self.dynamic.offset(Tag.SYMTAB), DYNAMIC_SYMBOL.size, order)
        if Tag.VERSYM in self.dynamic.tags:
            self._move_entries(self.dynamic.offset(Tag.VERSYM), 2, order)
        self._renumber(place)
        self._write([hashes[number] for number in order])

    def name(self, number: int) -> bytes:
        """The name of a symbol."""
        entry = self.dynamic.offset(Tag.SYMTAB) + number * DYNAMIC_SYMBOL.size
        start = self.dynamic.offset(Tag.STRTAB) + DYNAMIC_SYMBOL.unpack_from(self.data, entry)[0]
        return bytes(self.data[start : self.data.index(0, start)])

    def _move_entries(self, table: int, size: int, order: list[int]) -> None:
        entries = [bytes(self.data[table + number * size : table + (number + 1) * size]) for number in order]
        self.data[table + self.first * size : table + self.end * size] = b"".join(entries)

    def _renumber(self, place: dict[int, int]) -> None:
        moved = {old: new for old, new in place.items() if old != new}
        for start, stop in self.dynamic.relocations() if moved else ():
            for at in range(start, stop, RELOCATION.size):
                offset, info, addend = RELOCATION.unpack_from(self.data, at)
                new = moved.get(info >> 32)
                if new is not None:
                    RELOCATION.pack_into(self.data, at, offset, new << 32 | info & 0xFFFFFFFF, addend)

    def _write(self, hashes: list[int]) -> None:
        """The table for symbols with ``hashes``, in their order."""
        words, heads, chain = [0] * self.bloom, [0] * self.buckets, []
        for index, value in enumerate(hashes):
            bits = 1 << value % _WORD | 1 << (value >> self.shift) % _WORD
            words[value // _WORD % self.bloom] |= bits
            bucket = value % self.buckets
            heads[bucket] = heads[bucket] or self.first + index
            last = index + 1 == len(hashes) or hashes[index + 1] % self.buckets != bucket
            chain.append(value & ~1 | last)
        made = struct.pack(f"<{self.bloom}Q{self.buckets}I{len(chain)}I", *words, *heads, *chain)
        self.data[self.at + 16 : self.at + 16 + len(made)] = made


def _derive_build_id(data: bytearray, name: bytes) -> None:
    """Debuggers keep what they know of a library by its build ID, so another library has another one."""
    for start, stop in Dynamic.of(data).notes():
        at = start
        while at + _NOTE.size <= stop:
            name_size, size, kind = _NOTE.unpack_from(data, at)
            content = at + _NOTE.size + (name_size + 3 & ~3)
            if kind == _BUILD_ID and data[at + _NOTE.size : at + _NOTE.size + name_size] == _GNU:
                derived = hashlib.shake_128(bytes(data[content : content + size]) + name).digest(size)
                data[content : content + size] = derived
                return
            at = content + (size + 3 & ~3)


def _compare(old_data: Buffer, new_data: bytearray, old: str, new: str) -> None:
    """Raise :class:`ElfError` unless both say the same of themselves, but for the name."""
    one, other = read_elf(old_data), read_elf(new_data)
    expected = sorted(symbol.name.replace(old, new) for symbol in one.exports)
    if one.soname is None or old not in one.soname or other.soname != one.soname.replace(old, new):
        raise ElfError(f"its soname is {one.soname}, which does not name it {old}")
    if sorted(symbol.name for symbol in other.exports) != expected or other.undefined != one.undefined:
        raise ElfError(f"its symbols are not the same under the name {new}")
    table = _Hashed.of(new_data)
    lost = [
        symbol.name for symbol in other.exports if not _finds(table, symbol.name.encode("utf-8", "surrogateescape"))
    ]
    if lost:
        raise ElfError(f"{lost[0]} cannot be found in it under the name {new}")


def _finds(table: _Hashed, name: bytes) -> bool:
    """Whether a dynamic linker finds ``name``, as it does it."""
    value, at = gnu_hash(name), table.at + 16
    (word,) = struct.unpack_from("<Q", table.data, at + value // _WORD % table.bloom * 8)
    if not (word >> value % _WORD & word >> (value >> table.shift) % _WORD & 1):
        return False
    at += table.bloom * 8
    (number,) = struct.unpack_from("<I", table.data, at + value % table.buckets * 4)
    at += table.buckets * 4
    while table.first <= number < table.end:
        (entry,) = struct.unpack_from("<I", table.data, at + (number - table.first) * 4)
        if entry | 1 == value | 1 and table.name(number) == name:
            return True
        if entry & 1:
            return False
        number += 1
    return False
