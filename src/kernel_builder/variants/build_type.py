"""What a build is for, where it is not for users: to be debugged, or to have its mistakes found by a sanitizer.

Compilers get other flags then. Whatever else a build makes of a kernel is the same, so that what is found in one holds
for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Debug(StrEnum):
    """What a debugger or a profiler finds."""

    FULL = "full"
    """Every variable and every line: nothing is optimized, and assertions hold."""
    LINES = "lineinfo"
    """The lines that code comes from; the code is that of a release."""


class Sanitizer(StrEnum):
    """What looks for mistakes while code of the host runs."""

    ADDRESS = "address"
    THREAD = "thread"
    UNDEFINED = "undefined"


_DEBUG_NAMES = {None: (), Debug.FULL: ("debug",), Debug.LINES: ("lineinfo",)}


@dataclass(frozen=True, kw_only=True)
class BuildType:
    """``debug`` says what a debugger finds, ``sanitizers``, sorted, what code of the host is instrumented with. Without
    both it is a release: what users get.
    """

    debug: Debug | None = None
    sanitizers: tuple[Sanitizer, ...] = ()

    @property
    def is_release(self) -> bool:
        """Whether it is what users get."""
        return self.debug is None and not self.sanitizers

    @property
    def folder(self) -> str:
        """The directory below the work directory that has its objects and records; empty for a release."""
        return "-".join([*_DEBUG_NAMES[self.debug], *(one.value for one in self.sanitizers)])

    @property
    def options(self) -> str:
        """The options of ``build`` that ask for it, for people; empty for a release."""
        names = [*(f"--{name}" for name in _DEBUG_NAMES[self.debug])]
        return " ".join([*names, *(f"--sanitize {one.value}" for one in self.sanitizers)])

    @property
    def device_lines(self) -> Debug | None:
        """What is kept of the lines that device code comes from."""
        return Debug.LINES if self.debug is None and self.sanitizers else self.debug

    def to_json(self) -> dict[str, object]:
        """As ``metadata.json`` tells it."""
        found: dict[str, object] = {} if self.debug is None else {"debug": self.debug.value}
        return found | ({"sanitize": [one.value for one in self.sanitizers]} if self.sanitizers else {})

    @classmethod
    def of(cls, told: Mapping[str, object]) -> BuildType:
        """What :meth:`to_json` told; anything else is passed over."""
        debug, listed = told.get("debug"), told.get("sanitize")
        return cls(
            debug=next((one for one in Debug if one.value == debug), None),
            sanitizers=tuple(one for one in Sanitizer if isinstance(listed, list) and one.value in listed),
        )


RELEASE = BuildType()
"""What users get."""
