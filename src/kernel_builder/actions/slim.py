"""Which of the framework's headers sources with device code are compiled with."""

from __future__ import annotations

from enum import StrEnum


class Headers(StrEnum):
    """Which of the framework's headers the passes over a source with device code see, those for the host among them."""

    SLIM = "slim"
    """Slim ones, where those of the release were proved."""
    VERIFY = "verify"
    """Both, which must make the same code, else the whole headers count; for any release."""
    FULL = "full"
    """The whole headers."""
