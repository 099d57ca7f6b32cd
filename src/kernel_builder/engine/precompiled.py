"""Runs a compiler with the headers that its source begins with precompiled; the program of compile actions that
:mod:`kernel_builder.actions.precompile` plans.

Usage: ``precompiled.py --store DIR --identity TEXT [--clang] [--after TIMES] --header NAME... --unmentioned NAME...
--beside DIR... --words NUMBER PRECOMPILE... COMPILE...``. The first NUMBER words are the command that precompiles,
without input and output; the others are the compiler's whole command.

The precompiled headers are an entry of the store. A compile that can use them makes them, once others went without them
as often as ``--after`` says; those that come meanwhile do without. They only save time. Nothing else depends on them,
so where they are missing, or turn out to be of no use, the command runs as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_builder.store.artefact import Artefact
    from kernel_builder.store.cache import Store, StoreKey

PREFIX = "headers-"
LIMIT = 4 << 30
"""Bytes that all precompiled headers of a store may take; what was not used for longest goes first."""
_RECIPE = 2  # raise when they are made in another way
_ASKED = "asked"
"""The folder of the store with a file for each entry that was asked for and is not made yet: a byte for each time."""
_ASKED_SECONDS = 30 * 24 * 3600.0
"""After so long without being asked for again, an entry is as good as never asked for."""
_UMBRELLA, _READ, _UNFIT = "first.h", "headers.txt", "unfit"
_COMPLAINTS = re.compile(rb"precompiled|\bPCH\b|\.pch\b|\.gch\b|internal compiler error|PLEASE submit a bug report")
"""What a compiler says of precompiled headers that it cannot use; where it dies, it may be for them."""


class _BusyError(Exception):
    """Another process makes the headers now."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The headers to precompile: ``names`` in order, with the command ``precompile``, for a compiler and trees of that
    ``identity``. clang is told of them as such; g++ finds them beside a header.

    They are made once ``after`` compiles went without them.
    ``unmentioned`` are macros that differ between the sources that share them, so no header may mention one. In the
    directories ``beside`` a compile looks for headers, too: nothing there may stand in for one of them.
    """

    names: tuple[str, ...]
    precompile: tuple[str, ...]
    identity: str
    is_clang: bool
    unmentioned: tuple[str, ...] = ()
    beside: tuple[Path, ...] = ()
    after: int = 0

    @property
    def file(self) -> str:
        """Their name in the entry."""
        return f"{_UMBRELLA}.{'pch' if self.is_clang else 'gch'}"

    @property
    def key(self) -> StoreKey:
        """Their entry of the store."""
        from kernel_builder.store.cache import StoreKey  # noqa: PLC0415  (this file may run by itself)

        return StoreKey.of(
            f"{PREFIX}{'-'.join(re.sub(r'[^A-Za-z0-9]+', '-', name.removesuffix('.h')) for name in self.names)}",
            recipe=_RECIPE,
            names=self.names,
            words=self.precompile,
            identity=self.identity,
            unmentioned=self.unmentioned,
        )


def provide(store: Store, wanted: Wanted) -> Path | None:
    """The entry with the headers, made now where it is not there; ``None`` where there is none to use."""
    from kernel_builder.errors import KernelBuilderError  # noqa: PLC0415
    from kernel_builder.store.inventory import keep_within  # noqa: PLC0415

    made = False

    def build(into: Path) -> Sequence[Artefact]:
        nonlocal made
        made = True
        _precompile(wanted, into)
        return ()

    def check() -> None:
        raise _BusyError

    try:
        if wanted.after and not store.path(wanted.key).is_dir() and _asked_before(store, wanted.key) < wanted.after:
            return None
        entry = store.ensure(wanted.key, build, check)
        if made:
            keep_within(store, PREFIX, LIMIT)
            _forget_asking(store, wanted.key)
    except (_BusyError, KernelBuilderError, OSError):
        return None
    return None if (entry / _UNFIT).exists() or _is_hidden(entry, wanted.beside) else entry


def _asked_before(store: Store, key: StoreKey) -> int:
    """How often the entry was asked for before this time. Raises ``OSError``."""
    file = store.root / _ASKED / key.name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as noted:
        times = noted.tell()
        noted.write(b".")
    return times


def _forget_asking(store: Store, key: StoreKey) -> None:
    """The entry is made; nor does anybody want what was asked for long ago."""
    old = time.time() - _ASKED_SECONDS
    for file in (store.root / _ASKED).glob("*"):
        with contextlib.suppress(OSError):
            if file.name == key.name or file.stat().st_mtime < old:
                file.unlink()


def _precompile(wanted: Wanted, into: Path) -> None:
    """Fill an entry: the headers, and which files they are made of; or why there are none."""
    umbrella, depfile = into / _UMBRELLA, into / "made.d"
    text = "".join(f"#include <{name}>\n" for name in wanted.names)
    umbrella.write_text(text, encoding="utf-8")
    # clang remembers its input, and where the entry lies now is not where it will.
    source = "-" if wanted.is_clang else str(umbrella)
    made = subprocess.run(
        [*wanted.precompile, source, "-o", str(into / wanted.file), "-MD", "-MF", str(depfile)],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        (into / wanted.file).unlink(missing_ok=True)
        (into / _UNFIT).write_bytes(made.stderr[:2000])
    else:
        read = _listed(depfile, umbrella)
        (into / _READ).write_text("\n".join(read), encoding="utf-8", errors="surrogateescape")
        found = _mentioned(read, wanted.unmentioned)
        if found:
            (into / wanted.file).unlink()
            (into / _UNFIT).write_text(found, encoding="utf-8")
    depfile.unlink(missing_ok=True)


def _listed(depfile: Path, umbrella: Path) -> list[str]:
    """The headers in a dependency file."""
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    words = re.split(r"(?<!\\)\s+", text.partition(": ")[2].strip())
    return sorted({word.replace("\\ ", " ") for word in words} - {str(umbrella), "-", "<stdin>"})


def _mentioned(files: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of ``names`` that is in one of ``files``, and where."""
    word = re.compile(rb"\b(?:%s)\b" % b"|".join(name.encode() for name in names))
    for file in files if names else ():
        found = word.search(Path(file).read_bytes())
        if found is not None:
            return f"{file} mentions {found[0].decode()}"
    return None


def _is_hidden(entry: Path, folders: Sequence[Path]) -> bool:
    """Whether one of ``folders`` has a file of the name by which one of the headers may be included."""
    parts = [Path(line).parts for line in (entry / _READ).read_text("utf-8", "surrogateescape").splitlines()]
    starts = {part for line in parts for part in line}
    for folder in folders:
        try:
            names = {name for name in os.listdir(folder) if name in starts}  # noqa: PTH208  (thousands of them)
        except OSError:
            continue
        for line in parts if names else ():
            for at, part in enumerate(line):
                if part in names and folder.joinpath(*line[at:]).is_file():
                    return True
    return False


def with_headers(entry: Path, wanted: Wanted, command: Sequence[str]) -> list[str]:
    """The compiler's command that uses the headers in ``entry``."""
    own = ["-include-pch", str(entry / wanted.file)] if wanted.is_clang else ["-include", str(entry / _UMBRELLA)]
    return [command[0], *own, *command[1:]]


def _compile(entry: Path, wanted: Wanted, command: Sequence[str]) -> int | None:
    """Run ``command`` with the headers in ``entry``; ``None`` where they are of no use."""
    done = subprocess.run(with_headers(entry, wanted, command), capture_output=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode != 0 and (_COMPLAINTS.search(said) or done.returncode < 0 or done.returncode >= 128):
        return None
    if done.returncode == 0 and "-MF" in command:
        depfile = Path(command[list(command).index("-MF") + 1])
        _leave_out(entry / _UMBRELLA, depfile)
        if wanted.is_clang and "-MD" in command:  # clang names the precompiled ones alone
            _add(entry, depfile)
    sys.stdout.buffer.write(done.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(done.stderr)
    return done.returncode


def _leave_out(header: Path, depfile: Path) -> None:
    """g++ lists the header that the precompiled ones stand beside. It may go at any time, and decides nothing."""
    text = depfile.read_bytes()
    word = os.fsencode(header).replace(b" ", b"\\ ")
    if word in text:
        depfile.write_bytes(text.replace(b" " + word, b""))


def _add(entry: Path, depfile: Path) -> None:
    """List what the precompiled headers in ``entry`` were made of."""
    listed = (entry / _READ).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").rstrip()
    words = "".join(f" \\\n  {line.replace(' ', chr(92) + ' ').replace('$', '$$')}" for line in listed)
    depfile.write_text(f"{text}{words}\n", encoding="utf-8", errors="surrogateescape")


def main(arguments: Sequence[str]) -> int:
    """Run it with ``arguments``; the exit code is the compiler's."""
    from kernel_builder.store.cache import Store  # noqa: PLC0415

    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--identity", required=True)
    parser.add_argument("--header", action="append", required=True)
    parser.add_argument("--unmentioned", action="append", default=[])
    parser.add_argument("--beside", action="append", type=Path, default=[])
    parser.add_argument("--clang", action="store_true")
    parser.add_argument("--after", type=int, default=0)
    parser.add_argument("--words", type=int, required=True)
    at = list(arguments).index("--words") + 2
    said = parser.parse_args(arguments[:at])
    words = arguments[at:]
    wanted = Wanted(
        names=tuple(said.header),
        precompile=tuple(words[: said.words]),
        identity=said.identity,
        is_clang=said.clang,
        unmentioned=tuple(said.unmentioned),
        beside=tuple(said.beside),
        after=said.after,
    )
    command = words[said.words :]
    entry = provide(Store(said.store), wanted)
    code = _compile(entry, wanted, command) if entry is not None else None
    return subprocess.run(command, check=False).returncode if code is None else code


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main(sys.argv[1:]))
