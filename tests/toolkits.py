"""Toolkits that tests ask for."""

from __future__ import annotations

from kernel_builder.config.backends import Backend
from kernel_builder.toolchain.model import Toolkit


def cuda(version: str) -> Toolkit:
    """A release of CUDA (``13.0``)."""
    return Toolkit(backend=Backend("cuda"), version=version)
