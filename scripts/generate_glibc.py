"""Write data/glibc.toml from the lists of symbols in a clone of glibc: python scripts/generate_glibc.py CLONE"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

TABLE = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "glibc.toml"
FOLDERS = {
    "x86_64": ("sysdeps/unix/sysv/linux/x86_64/64", "sysdeps/unix/sysv/linux/x86_64"),
    "aarch64": ("sysdeps/unix/sysv/linux/aarch64",),
}
MERGED = {
    "libpthread": "libpthread.so.0",
    "libdl": "libdl.so.2",
    "librt": "librt.so.1",
    "libutil": "libutil.so.1",
    "libanl": "libanl.so.1",
}
LIBRARIES = ("libc", "ld", "libm", "libmvec", *MERGED)
APART = range(17, 34)  # releases of glibc 2 that have these libraries apart
NEWEST = 42
HEAD = """\
# What glibc offers, and since when. Written by scripts/generate_glibc.py from glibc's own *.abilist; do not edit.
#
# [MACHINE.since]        release -> names that glibc has since then, the libraries beside libc.so.6 included
# [MACHINE.apart.NAME]   release -> names that were in the library NAME until then, and are in libc.so.6 since
"""


def release(text: str) -> tuple[int, ...]:
    """``2.2.5`` -> ``(2, 2, 5)``."""
    return tuple(int(part) for part in text.split("."))


def symbols(clone: str, tag: str, machine: str, library: str) -> Iterator[tuple[str, str]]:
    """(name, release) of each symbol that ``library`` has in ``tag``."""
    for folder in FOLDERS[machine]:
        done = subprocess.run(
            ["git", "-C", clone, "show", f"{tag}:{folder}/{library}.abilist"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            for line in done.stdout.splitlines():
                match = re.match(r"GLIBC_([0-9.]+) (\S+) ", line)
                if match and "placeholder" not in match[2]:
                    yield match[2], match[1]
            return


def since(clone: str, machine: str) -> Mapping[str, list[str]]:
    """release -> names."""
    first: dict[str, str] = {}
    for library in LIBRARIES:
        for name, version in symbols(clone, f"glibc-2.{NEWEST}", machine, library):
            first[name] = min(first.get(name, version), version, key=release)
    return grouped(first)


def apart(clone: str, machine: str) -> Mapping[str, Mapping[str, list[str]]]:
    """library -> release -> names."""
    in_libc = {
        minor: {name for name, _ in symbols(clone, f"glibc-2.{minor}", machine, "libc")}
        for minor in range(APART.start, NEWEST + 1)
    }
    found = {}
    for library, soname in MERGED.items():
        moved: dict[str, str] = {}
        for minor in APART:
            for name, _ in symbols(clone, f"glibc-2.{minor}", machine, library):
                if name not in in_libc[minor]:
                    until = next((later for later in range(minor, NEWEST + 1) if name in in_libc[later]), None)
                    if until is not None:
                        moved[name] = f"2.{until}"
        found[soname] = grouped(moved)
    return found


def grouped(names: Mapping[str, str]) -> Mapping[str, list[str]]:
    """release -> names, both in order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        groups[names[name]].append(name)
    return {version: groups[version] for version in sorted(groups, key=release)}


def table(groups: Mapping[str, list[str]]) -> str:
    """The lines of a TOML table."""
    return "".join(
        f'"{version}" = """\\\n{textwrap.fill(" ".join(names), 118, break_long_words=False)}"""\n'
        for version, names in groups.items()
    )


def main(clone: str) -> None:
    """Write the table."""
    parts = [HEAD]
    for machine in FOLDERS:
        parts.append(f"[{machine}.since]\n{table(since(clone, machine))}")
        parts += [f'[{machine}.apart."{soname}"]\n{table(groups)}' for soname, groups in apart(clone, machine).items()]
    TABLE.write_text("\n".join(parts), encoding="ascii")


if __name__ == "__main__":
    main(sys.argv[1])
