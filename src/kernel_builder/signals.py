"""The signals that end a command from outside, as far as this system has them."""

from __future__ import annotations

import signal

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP

ENDING: tuple[signal.Signals, ...] = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
"""In the order in which people know them."""
