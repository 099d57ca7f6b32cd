"""Workflow commands of GitHub Actions, which show a message beside the line that it is about.

Reference: GitHub documentation, "Workflow commands".
"""

from __future__ import annotations

from collections.abc import Mapping


def annotation(command: str, properties: Mapping[str, object], text: str) -> str:
    """The line for ``command`` (``error``, ``warning``, ``notice``); properties that are ``None`` are left out."""
    words = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items() if value is not None)
    return f"::{command}{' ' if words else ''}{words}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
