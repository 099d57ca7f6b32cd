"""What every sandbox shows: the system, without what it holds of its users. https://github.com/containers/bubblewrap"""

from __future__ import annotations

PROGRAM = "bwrap"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store")
LOADER_SETTINGS = tuple(f"/etc/{name}" for name in ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"))
"""What programs of the system are found by."""
