"""What becomes of a project's lock: asked on the command line, long before anything reads one."""

from __future__ import annotations

from enum import StrEnum


class LockUse(StrEnum):
    """What a build does with the lock."""

    PREFER = "prefer"
    """Variants that are in it are built from what it names, the others from what is chosen now."""
    REQUIRE = "require"
    """Everything is built from what it names, or refused (``--locked``)."""
    UPGRADE = "upgrade"
    """It is not looked at, and every source is asked again."""
