"""What every sandbox shows: the system, without what it holds of its users. https://github.com/containers/bubblewrap"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

PROGRAM = "bwrap"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
LOADER_SETTINGS = tuple(f"/etc/{name}" for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"))
"""What programs of the system are found by."""


def shown(names: Iterable[str]) -> Iterator[str]:
    """The options that show these paths of the system, as far as they are there, to be read. Those at the top are links
    on many systems, and stay links.
    """
    for name in names:
        path = Path(name)
        if path.is_symlink() and not name.startswith("/etc/"):
            yield from ("--symlink", str(path.readlink()), name)
        elif path.exists():
            yield from ("--ro-bind", name, name)
