"""tvm-ffi's interface, as libraries show it: what they need of tvm-ffi, and the functions that they offer through it.

The table ``data/tvm_ffi.toml`` comes from tvm-ffi's own wheels. Reference: tvm-ffi's ``c_api.h`` and ``function.h``: a
function ``f`` of a module is the C function ``__tvm_ffi_f``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from kernel_builder.binary.mangled import namespace
from kernel_builder.versions import Version

_C_NAME = re.compile(r"TVMFFI\w+")
SYMBOL_PREFIX = "__tvm_ffi_"
"""What the C function of a function begins with."""
_ABOUT = ("_metadata_", "_doc_", "_library_", "_cubin_")
"""What follows the prefix in names that say something of a function, or of the library, and are no function."""


def looks_like_tvm_ffi(symbol: str) -> bool:
    """Whether ``symbol`` is named as what tvm-ffi's own library exports is, in C or in C++."""
    return _C_NAME.fullmatch(symbol) is not None or namespace(symbol) == "tvm"


def functions_in(exports: Iterable[str]) -> tuple[str, ...]:
    """The functions that a library with these exports offers to users of tvm-ffi, sorted."""
    own = (name.removeprefix(SYMBOL_PREFIX) for name in set(exports) if name.startswith(SYMBOL_PREFIX))
    return tuple(sorted(name for name in own if not name.startswith(_ABOUT)))


@cache
def exported_by_release() -> Mapping[Version, frozenset[str]]:
    """The names that the library of each known release exports, oldest release first."""
    text = resources.files("kernel_builder.data").joinpath("tvm_ffi.toml").read_text(encoding="utf-8")
    names: set[str] = set()
    found: dict[Version, frozenset[str]] = {}
    for release in tomllib.loads(text)["release"]:
        names = (names | set(release["added"])) - set(release.get("removed", ()))
        found[Version.parse(release["version"])] = frozenset(names)
    return found


def releases_without(name: str, release: tuple[int, int]) -> tuple[Version, ...]:
    """The releases of that major and minor which do not export ``name``, oldest first."""
    return tuple(
        version
        for version, names in exported_by_release().items()
        if (version.major, version.minor) == release and name not in names
    )
