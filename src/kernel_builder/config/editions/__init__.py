"""Editions of ``build.toml``: telling which one a file is in, and carrying older ones over to the present
one.

Editions 1-4 wrote no number, so they are recognised by what is in them (interoperability contract 1.1, 1.4).
Each older edition has a module whose ``upgrade`` turns a document into one of a later edition, moving nodes
that keep their place in the file; :func:`upgrade` chains them.
"""

from __future__ import annotations

from typing import NamedTuple

from kernel_builder.config.editions import v1, v2, v3, v4
from kernel_builder.config.schema import CURRENT_EDITION
from kernel_builder.toml.nodes import Leaf, TableNode, describe, shortened
from kernel_builder.toml.report import Report

_UPGRADES = {1: v1.upgrade, 2: v2.upgrade, 3: v3.upgrade, 4: v4.upgrade}


class Edition(NamedTuple):
    """The edition of a document. ``why`` says what it was recognised by; ``None`` when the file names its
    number.
    """

    number: int
    why: str | None


def edition_of(top: TableNode, report: Report) -> Edition | None:
    """The edition that a document is in. ``None``, noticed, when it names one that does not exist (yet)."""
    node = top.table("general").get("edition")
    if node is None:
        return _recognise(top)
    if not isinstance(node, Leaf) or not isinstance(node.value, int) or isinstance(node.value, bool):
        report.error(
            node.path,
            f"must be an integer, not {describe(node)}",
            hint=f"write: edition = {CURRENT_EDITION}",
        )
        return None
    if node.value > CURRENT_EDITION:
        report.error(
            node.path,
            f"edition {node.value if node.value < 2**63 else '...'} is newer than this kernel-builder, which "
            f"supports editions up to {CURRENT_EDITION}",
            hint="install a newer kernel-builder",
        )
        return None
    if node.value < 1:
        report.error(
            node.path,
            f"unknown edition {shortened(str(node.value))}",
            hint=f"the current one is: edition = {CURRENT_EDITION}",
        )
        return None
    return Edition(number=node.value, why=None)


def _recognise(top: TableNode) -> Edition:
    """Tell the edition of a document without a number by the first feature that only one edition has."""
    number, why = _first_or_second(top) or _third(top) or (4, "no 'edition' in [general]")
    return Edition(number=number, why=why)


def _first_or_second(top: TableNode) -> tuple[int, str] | None:
    general = top.table("general")
    kernels = [kernel for kernel in top.table("kernel").items.values() if isinstance(kernel, TableNode)]
    if "universal" in top.table("torch").items:
        return 1, "'universal' in [torch]"
    if any("language" in kernel.items for kernel in kernels):
        return 1, "'language' in a kernel section"
    old = next((name for name in ("universal", "cuda-minver", "cuda-maxver") if name in general.items), None)
    if old is not None:
        return 2, f"'{old}' in [general]"
    if kernels and not {"backends", "license", "version"} & general.items.keys():
        if any("backend" in kernel.items for kernel in kernels):
            return 2, "no 'backends' in [general]"
        return 1, "no 'backends' in [general], and no 'backend' in kernel sections"
    return None


def _third(top: TableNode) -> tuple[int, str] | None:
    general = top.table("general")
    if "backends" not in general.items or _has_newer_features(top):
        return None
    missing = next((name for name in ("version", "license") if name not in general.items), None)
    if missing is not None:
        return 3, f"no '{missing}' in [general]"
    # An unknown table may be a framework table with a typing mistake in its name.
    if not set(top.items) - {"general", "kernel"}:
        return 3, "no framework table"
    return None


def _has_newer_features(top: TableNode) -> bool:
    """Whether the document has something that edition 3 did not have."""
    newer = (
        ("general", "source"),
        ("general", "kernel-depends"),
        ("torch", "stable-abi"),
        ("torch", "cxx-flags"),
        ("tvm-ffi", "cxx-flags"),
    )
    return "torch-noarch" in top.items or any(name in top.table(table).items for table, name in newer)


def upgrade(top: TableNode, edition: Edition, report: Report) -> TableNode:
    """The document as one of the current edition. What has no counterpart there is noticed."""
    number = edition.number
    while number < CURRENT_EDITION:
        top = _UPGRADES[number](top, report)
        number = 3 if number == 1 else number + 1
    return top


__all__ = ["Edition", "edition_of", "upgrade"]
