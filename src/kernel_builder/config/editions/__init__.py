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
from kernel_builder.toml.scan import Where

_UPGRADES = {1: v1.upgrade, 2: v2.upgrade, 3: v3.upgrade, 4: v4.upgrade}


class Edition(NamedTuple):
    """The edition of a document. ``why`` says what it was recognised by; ``None`` when the file names its
    number. ``where`` is the key that shows it; empty where something that is not there does.
    """

    number: int
    why: str | None
    where: Where = ()


def edition_of(top: TableNode, report: Report) -> Edition:
    """The edition that a document is in. One that names none that exists (yet) is noticed, and read as what it most
    probably is, so that its other mistakes are noticed as well.
    """
    node = top.table("general").get("edition")
    if node is None:
        return _recognise(top)
    value = node.value if isinstance(node, Leaf) else None
    if not isinstance(value, int) or isinstance(value, bool):
        report.error(
            node.path,
            f"must be an integer, not {describe(node)}",
            hint=f"write: edition = {CURRENT_EDITION}",
        )
        meant = _number_in(value)
        return _recognise(top) if meant is None else Edition(number=meant, why=None, where=node.path)
    if value > CURRENT_EDITION:
        report.error(
            node.path,
            f"edition {value if value < 2**63 else '...'} is newer than this kernel-builder, which "
            f"supports editions up to {CURRENT_EDITION}",
            hint="install a newer kernel-builder",
        )
        return Edition(number=CURRENT_EDITION, why=None, where=node.path)
    if value < 1:
        report.error(
            node.path,
            f"unknown edition {shortened(str(value))}",
            hint=f"the current one is: edition = {CURRENT_EDITION}",
        )
        return _recognise(top)
    return Edition(number=value, why=None, where=node.path)


def _number_in(value: object) -> int | None:
    """The edition that ``"5"`` or ``5.0`` stands for."""
    if isinstance(value, str | float) and not isinstance(value, bool):
        text = str(value).strip().removesuffix(".0")
        if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= CURRENT_EDITION:
            return int(text[:4])
    return None


def _recognise(top: TableNode) -> Edition:
    """Tell the edition of a document without a number by the first feature that only one edition has.

    A license tells nothing: every edition takes one, and kernels without it are not built.
    """
    return _first_or_second(top) or _third(top) or Edition(number=4, why="no 'edition' in [general]")


def _first_or_second(top: TableNode) -> Edition | None:
    general = top.table("general")
    kernels = [kernel for kernel in top.table("kernel").items.values() if isinstance(kernel, TableNode)]
    universal = top.table("torch").get("universal")
    if universal is not None:
        return Edition(number=1, why="'universal' in [torch]", where=universal.path)
    language = next((kernel.items["language"] for kernel in kernels if "language" in kernel.items), None)
    if language is not None:
        return Edition(number=1, why="'language' in a kernel section", where=language.path)
    old = next((name for name in ("universal", "cuda-minver", "cuda-maxver") if name in general.items), None)
    if old is not None:
        return Edition(number=2, why=f"'{old}' in [general]", where=general.items[old].path)
    if not kernels or "backends" in general.items:
        return None
    if not any("backend" in kernel.items for kernel in kernels):
        return Edition(number=1, why="no 'backends' in [general], and no 'backend' in kernel sections")
    return Edition(number=2, why="no 'backends' in [general]") if "version" not in general.items else None


def _third(top: TableNode) -> Edition | None:
    general = top.table("general")
    if "backends" not in general.items or _has_newer_features(top):
        return None
    if "version" not in general.items:
        return Edition(number=3, why="no 'version' in [general]")
    # An unknown table may be a framework table with a typing mistake in its name.
    if not set(top.items) - {"general", "kernel"}:
        return Edition(number=3, why="no framework table")
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
