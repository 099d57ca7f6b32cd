"""Which of the framework's headers device code is compiled with."""

from __future__ import annotations

from enum import StrEnum


class Headers(StrEnum):
    """Which of the framework's headers the passes for device code see."""

    SLIM = "slim"
    """Slim ones, where those of the release were proved."""
    VERIFY = "verify"
    """Both, which must make the same code, else the whole headers count; for any release."""
    FULL = "full"
    """The whole headers."""
