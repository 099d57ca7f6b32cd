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
class ToolkitRuntime:
    """The runtime library of a backend's toolkit, by its stem; ``numbers`` are those in its name, by the toolkit's
    major, ``None`` where they are the majors.
    """

    library: str
    numbers: Mapping[int, int] | None

    def number(self, major: int) -> int | None:
        """The number in the name of the runtime of that major; ``None`` where it is not known."""
        return major if self.numbers is None else self.numbers.get(major)

    def number_in(self, name: str) -> int | None:
        """The number in ``name`` (13 of ``libcudart.so.13``); ``None`` for other libraries, and where there is none."""
        found = re.fullmatch(rf"{re.escape(self.library)}\.so\.(\d+)(\.\d+)*", name)
        return None if found is None else int(found[1])


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Stems of library names, by system, backend and framework; ``runtimes`` by backend."""

    always: frozenset[str]
    cxx: frozenset[str]
    backend: Mapping[str, frozenset[str]]
    runtimes: Mapping[str, ToolkitRuntime]
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
        runtimes={name: _runtime(**row) for name, row in linux["runtime"].items()},
        tvm_ffi=frozenset(linux["framework"]["tvm-ffi"]),
        darwin=frozenset(table["darwin"]["allowed"]),
        windows=frozenset(table["windows"]["allowed"]),
    )


def _runtime(library: str, numbers: Mapping[str, int] | None = None) -> ToolkitRuntime:
    by_major = None if numbers is None else {int(major): number for major, number in numbers.items()}
    return ToolkitRuntime(library=library, numbers=by_major)


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
