"""Which libraries a kernel's library may need, by the stem of their names: ``data/libraries.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kernel_builder.variants.names import System

_OF_TORCH = ("torch", "c10", "caffe2")


@dataclass(frozen=True, kw_only=True)
class ToolkitRuntime:
    """The runtime library of a backend's toolkit, by its stem, on a ``system``; ``numbers`` are those in its name, by
    the toolkit's major, ``None`` where they are the majors.
    """

    system: System
    library: str
    numbers: Mapping[int, int] | None

    def number(self, major: int) -> int | None:
        """The number in the name of the runtime of that major; ``None`` where it is not known."""
        return major if self.numbers is None else self.numbers.get(major)

    def number_in(self, name: str) -> int | None:
        """The number in ``name`` (13 of ``libcudart.so.13`` and ``cudart64_13.dll``); ``None`` for other libraries, and
        where there is none.
        """
        own = re.escape(self.library)
        pattern = rf"{own}\.so\.(\d+)(\.\d+)*" if self.system is System.LINUX else rf"{own}(?:64_)?(\d+)\.dll"
        found = re.fullmatch(pattern, name if self.system is System.LINUX else name.lower())
        return None if found is None else int(found[1])

    def name(self, number: int) -> str:
        """The name of the runtime with that number, for people."""
        return f"{self.library}.so.{number}" if self.system is System.LINUX else f"{self.library}*{number}.dll"


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """Stems of library names on a system, by backend and framework; ``cxx`` are those of the C++ runtime, ``runtimes``
    by backend.
    """

    c: frozenset[str]
    cxx: frozenset[str]
    torch: frozenset[str]
    tvm_ffi: frozenset[str]
    backend: Mapping[str, frozenset[str]]
    runtimes: Mapping[str, ToolkitRuntime]

    def stems(self, backend: str | None, *, torch: bool = True, tvm_ffi: bool = False) -> frozenset[str]:
        """What is allowed for a backend, but for the C++ runtime; for every one where it is not known. ``torch`` and
        ``tvm_ffi``: whether the library may need that framework's own.
        """
        own = self.backend.get(backend or "")
        found = self.c.union(*(self.backend.values() if own is None else (own,)))
        if not torch:
            found = frozenset(name for name in found if not name.removeprefix("lib").startswith(_OF_TORCH))
        return found | (self.torch if torch else frozenset()) | (self.tvm_ffi if tvm_ffi else frozenset())


@cache
def load_allowed(system: System = System.LINUX) -> Allowed:
    """The tables of data/libraries.toml for a system."""
    text = resources.files("kernel_builder.data").joinpath("libraries.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)[system]
    return Allowed(
        c=frozenset(table["c"]),
        cxx=frozenset(table["cxx"]),
        torch=frozenset(table["torch"]),
        tvm_ffi=frozenset(table["framework"]["tvm-ffi"]),
        backend={name: frozenset(stems) for name, stems in table.get("backend", {}).items()},
        runtimes={name: _runtime(system, **row) for name, row in table.get("runtime", {}).items()},
    )


def _runtime(system: System, library: str, numbers: Mapping[str, int] | None = None) -> ToolkitRuntime:
    by_major = None if numbers is None else {int(major): number for major, number in numbers.items()}
    return ToolkitRuntime(system=system, library=library, numbers=by_major)


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
