"""What long work tells about itself while it runs.

The library emits events and never prints; the command line renders them (``cli/console.py``). Tests use
:class:`Recorder`. An event is a frozen value, so a reporter may keep it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class FetchStarted:
    """A download begins. ``total`` is in bytes, ``None`` when the server did not say."""

    what: str
    total: int | None = None


@dataclass(frozen=True, kw_only=True)
class FetchProgress:
    """``received`` bytes of ``what`` have arrived since its :class:`FetchStarted`, in all."""

    what: str
    received: int


@dataclass(frozen=True, kw_only=True)
class FetchFinished:
    """``what`` is complete, verified and in the store. ``received`` is in bytes, as counted on the wire."""

    what: str
    received: int


@dataclass(frozen=True, kw_only=True)
class UploadStarted:
    """Something goes to a server. ``total`` is in bytes."""

    what: str
    total: int


@dataclass(frozen=True, kw_only=True)
class UploadProgress:
    """``sent`` bytes of ``what`` are there since its :class:`UploadStarted`, in all."""

    what: str
    sent: int


@dataclass(frozen=True, kw_only=True)
class UploadFinished:
    """``what`` is published. ``sent`` is in bytes."""

    what: str
    sent: int


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """What is done before the first step runs: ``what`` to ``files`` files; without ``what``, it is over."""

    what: str = ""
    files: int = 0


@dataclass(frozen=True, kw_only=True)
class StepsPlanned:
    """The engine is about to run ``total`` steps; zero when everything is up to date."""

    total: int


@dataclass(frozen=True, kw_only=True)
class StepStarted:
    """A compile, link or copy step runs now."""

    description: str


@dataclass(frozen=True, kw_only=True)
class StepFinished:
    """A step ended. ``done`` of ``total`` steps are through."""

    description: str
    done: int
    total: int
    ok: bool = True


@dataclass(frozen=True, kw_only=True)
class StillRunning:
    """A step has been running for long; nothing is wrong with it."""

    description: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Nothing moves because of ``reason`` (a lock that another process holds, memory)."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something people should know that stops nothing; ``warning`` when it may be a mistake of theirs.

    ``once``: it is told when it is found out, and not again while nothing changes. ``publishing``: it matters only to
    whoever publishes what is built.
    """

    message: str
    warning: bool = False
    once: bool = False
    publishing: bool = False


@dataclass(frozen=True, kw_only=True)
class Foreground:
    """Another program has the terminal from now on, until the next event."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Text that a child process wrote, for ``-v``."""

    text: str


Event = (
    FetchStarted
    | FetchProgress
    | FetchFinished
    | UploadStarted
    | UploadProgress
    | UploadFinished
    | Preparing
    | StepsPlanned
    | StepStarted
    | StepFinished
    | StillRunning
    | Waiting
    | Notice
    | Foreground
    | Output
)


class Reporter(Protocol):
    """Takes events. Must be cheap and must not raise; may be called from several threads."""

    def emit(self, event: Event, /) -> None:
        """Take one event."""
        ...


class Silent:
    """A reporter that drops everything."""

    def emit(self, event: Event, /) -> None:
        """Drop the event."""


@dataclass
class Recorder:
    """A reporter that keeps everything, in order."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event, /) -> None:
        """Keep the event."""
        self.events.append(event)
