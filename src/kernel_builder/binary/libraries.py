"""Which libraries a kernel's library may need, by the stem of their names: ``data/libraries.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_OF_TORCH = ("libtorch", "libc10", "libcaffe2")


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Stems of library names, by system, backend and framework."""

    always: frozenset[str]
    cxx: frozenset[str]
    backend: Mapping[str, frozenset[str]]
    tvm_ffi: frozenset[str]
    darwin: frozenset[str]
    windows: frozenset[str]

    def on_linux(self, backend: str | None, *, torch: bool = True, tvm_ffi: bool = False) -> frozenset[str]:
        """Stems for a backend; for every one where it is not known. ``torch`` and ``tvm_ffi``: whether the library may
        need that framework's own.
        """
        stems = self.always | (self.tvm_ffi if tvm_ffi else frozenset())
        own = self.backend.get(backend or "")
        stems = stems.union(*self.backend.values()) if own is None else stems | own
        return stems if torch else frozenset(name for name in stems if not name.startswith(_OF_TORCH))


@cache
def load_allowed() -> Allowed:
    """Read data/libraries.toml."""
    text = resources.files("kernel_builder.data").joinpath("libraries.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    linux = table["linux"]
    return Allowed(
        always=frozenset(linux["c"] + linux["torch"]),
        cxx=frozenset(linux["cxx"]),
        backend={name: frozenset(stems) for name, stems in linux["backend"].items()},
        tvm_ffi=frozenset(linux["framework"]["tvm-ffi"]),
        darwin=frozenset(table["darwin"]["allowed"]),
        windows=frozenset(table["windows"]["allowed"]),
    )


def stem(name: str) -> str:
    """``libcudart.so.13`` -> ``libcudart``; ``libtorch_cpu.dylib`` -> ``libtorch_cpu``; ``cudart64_12.dll`` ->
    ``cudart``.
    """
    last = name.rpartition("/")[2]
    if ".so" in last:
        return last[: last.index(".so")]
    if last.endswith(".dylib"):
        return re.sub(r"(\.[0-9A-Z]+)*\.dylib$", "", last)
    if last.lower().endswith(".dll"):
        return re.sub(r"(64)?(_[0-9]+)*(-[0-9_]+)?\.dll$", "", last.lower())
    return last
