"""Editions of ``build.toml``: telling which one a file is in, and carrying older ones over to the present one.

Editions 1-4 wrote no number, so they are recognised by what is in them (interoperability contract 1.1, 1.4). Each
older edition has a module whose ``upgrade`` turns a document into one of a later edition, moving nodes that keep their
place in the file; :func:`upgrade` chains them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_builder.config.editions import v1, v2, v3, v4
from kernel_builder.config.nodes import Leaf, TableNode, describe
from kernel_builder.config.report import Report
from kernel_builder.config.schema import CURRENT_EDITION

_UPGRADES = {1: v1.upgrade, 2: v2.upgrade, 3: v3.upgrade, 4: v4.upgrade}


@dataclass(frozen=True, kw_only=True)
class Edition:
    """The edition of a document. ``why`` says what it was recognised by; ``None`` when the file names its number."""

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
            f"must be a whole number, not {describe(node)}",
            hint=f"write: edition = {CURRENT_EDITION}",
        )
        return None
    if node.value > CURRENT_EDITION:
        report.error(
            node.path,
            f"this kernel-builder reads editions up to {CURRENT_EDITION}, and the file is in edition {describe(node)[11:]}"
            if 0 <= node.value < 2**63
            else f"this kernel-builder reads editions up to {CURRENT_EDITION}",
            hint="install a newer kernel-builder",
        )
        return None
    if node.value < 1:
        report.error(
            node.path,
            f"there is no edition {node.value}",
            hint=f"the current one is: edition = {CURRENT_EDITION}",
        )
        return None
    return Edition(number=node.value, why=None)


def _recognise(top: TableNode) -> Edition:
    """Tell the edition of a document without a number; the first feature that only one edition has decides."""
    general, torch = top.table("general"), top.table("torch")
    kernels = [kernel for kernel in top.table("kernel").items.values() if isinstance(kernel, TableNode)]
    if "universal" in torch.items:
        return Edition(number=1, why="'universal' in [torch]")
    if any("language" in kernel.items for kernel in kernels):
        return Edition(number=1, why="'language' in a kernel section")
    for name in ("universal", "cuda-minver", "cuda-maxver"):
        if name in general.items:
            return Edition(number=2, why=f"'{name}' in [general]")
    if not {"backends", "license", "version"} & general.items.keys() and kernels:
        if any("backend" in kernel.items for kernel in kernels):
            return Edition(number=2, why="no 'backends' in [general]")
        return Edition(number=1, why="no 'backends' in [general], and no 'backend' in kernel sections")
    newer = _newer_feature(top)
    frameworks = {"torch", "torch-noarch", "tvm-ffi"} & top.items.keys()
    if newer is None and "backends" in general.items:
        if not {"version", "license"} <= general.items.keys():
            missing = "license" if "version" in general.items else "version"
            return Edition(number=3, why=f"no '{missing}' in [general]")
        if not frameworks and not _nearly_frameworks(top):
            return Edition(number=3, why="no framework table")
    return Edition(number=4, why="no 'edition' in [general]")


def _newer_feature(top: TableNode) -> str | None:
    """Something that edition 3 did not have."""
    if "torch-noarch" in top.items:
        return "[torch-noarch]"
    for table, name in (
        ("general", "source"),
        ("general", "kernel-depends"),
        ("torch", "stable-abi"),
        ("torch", "cxx-flags"),
        ("tvm-ffi", "cxx-flags"),
    ):
        if name in top.table(table).items:
            return f"'{name}' in [{table}]"
    return None


def _nearly_frameworks(top: TableNode) -> list[str]:
    """Unknown top-level tables: one of them may be a framework table with a typing mistake in its name."""
    return [name for name in top.items if name not in {"general", "kernel"}]


def upgrade(top: TableNode, edition: Edition, report: Report) -> TableNode:
    """The document as one of the current edition. What has no counterpart there is noticed."""
    number = edition.number
    while number < CURRENT_EDITION:
        top = _UPGRADES[number](top, report)
        number = 3 if number == 1 else number + 1
    return top


__all__ = ["Edition", "edition_of", "upgrade"]
