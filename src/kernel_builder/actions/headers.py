"""The headers of the framework that sources are compiled with, as one chooses among them."""

from __future__ import annotations

from enum import StrEnum


class Headers(StrEnum):
    """Which of the framework's headers sources are compiled with."""

    SLIM = "slim"
    """Slim ones, where those of the release were proved."""
    VERIFY = "verify"
    """Both, which must make the same code, else the whole headers count; for any release."""
    FULL = "full"
    """The whole headers."""
