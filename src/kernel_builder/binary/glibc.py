"""What glibc offers, and since when: ``data/glibc.toml``.

Names that are bound to a version tell themselves what they need. Others do not, and neither tells in which library an
older glibc has a name: until 2.34 threads, ``dlopen``, timers and more were in libraries of their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from kernel_builder.versions import Version

TABLE = resources.files("kernel_builder.data").joinpath("glibc.toml")


@cache
def _tables() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, str]]]]:
    return tomllib.loads(TABLE.read_text(encoding="ascii"))


@cache
def offered_since(machine: str) -> Mapping[str, Version]:
    """name -> the release of glibc that first has it, on ``machine`` (``x86_64``); empty for an unknown machine."""
    groups = _tables().get(machine, {}).get("since", {})
    return MappingProxyType(
        {name: Version.parse(release) for release, names in groups.items() for name in str(names).split()}
    )


@cache
def apart_in(machine: str, release: Version) -> Mapping[str, str]:
    """name -> soname of the library that has it in ``release``, for names that a later ``libc.so.6`` has itself."""
    libraries = _tables().get(machine, {}).get("apart", {})
    return MappingProxyType(
        {
            name: soname
            for soname, groups in libraries.items()
            for moved, names in groups.items()
            if release < Version.parse(moved)
            for name in names.split()
        }
    )
