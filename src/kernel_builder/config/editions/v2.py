"""Edition 2 (May to December 2025): ``universal`` and CUDA bounds in ``[general]``, kernel sections with a
``backend``, no ``backends``."""

from __future__ import annotations

from kernel_builder.config.backends import Backend
from kernel_builder.toml.nodes import Leaf, ListNode, Node, TableNode, describe
from kernel_builder.toml.report import Report

UNIVERSAL_BACKENDS = (Backend("cpu"), Backend("cuda"), Backend("metal"), Backend("rocm"), Backend("xpu"))
"""What ``universal = true`` stands for."""

MOVED_PYTHON_DEPENDS = ("nvidia-cutlass-dsl",)
"""Python dependencies that moved from ``[general]`` to ``[general.cuda]`` after edition 2."""

BOUNDED = Backend("cuda")
"""The backend whose toolkit :data:`BOUNDS` speak of."""

BOUNDS = {"cuda-minver": "minver", "cuda-maxver": "maxver"}


def upgrade(top: TableNode, report: Report) -> TableNode:
    """Turn a document of edition 2 into one of edition 3."""
    general = _move_python_depends(_move_bounds(top.table("general"), report))
    universal = general.get("universal")
    if universal is not None:
        general = general.but({}, without=("universal",))
    top = top.but({"general": general})
    if isinstance(universal, Leaf) and universal.value is True:
        return noarch(top, universal, report)
    if universal is not None and not (isinstance(universal, Leaf) and universal.value is False):
        report.error(universal.path, f"must be true or false, not {describe(universal)}")
    return top.but({"general": derived_backends(general, top.table("kernel"))})


def _move_bounds(general: TableNode, report: Report) -> TableNode:
    found = {new: general.items[old] for old, new in BOUNDS.items() if old in general.items}
    if not found:
        return general
    cuda = general.table("cuda")
    for old, new in BOUNDS.items():
        if old in general.items and new in cuda.items:
            report.error(
                general.items[old].path,
                f"is given twice, also as '{new}' in [general.cuda]",
                hint=f"keep '{new}' in [general.cuda]",
                at_key=True,
            )
    return general.but({"cuda": cuda.but(found)}, without=tuple(BOUNDS))


def _move_python_depends(general: TableNode) -> TableNode:
    depends = general.get("python-depends")
    if not isinstance(depends, ListNode):
        return general
    moved = [node for node in depends.items if isinstance(node, Leaf) and node.value in MOVED_PYTHON_DEPENDS]
    if not moved:
        return general
    kept = tuple(node for node in depends.items if node not in moved)
    cuda = general.table("cuda")
    present = cuda.get("python-depends")
    together = (*(present.items if isinstance(present, ListNode) else ()), *moved)
    general = general.but({"cuda": cuda.but({"python-depends": ListNode(depends.path, together)})})
    if kept:
        return general.but({"python-depends": ListNode(depends.path, kept)})
    return general.but({}, without=("python-depends",))


def derived_backends(general: TableNode, kernels: TableNode) -> TableNode:
    """``[general]`` with ``backends``: those of the kernel sections, in alphabetical order, unless it is
    written.
    """
    if "backends" in general.items:
        return general
    first: dict[str, Leaf] = {}
    for section in kernels.items.values():
        backend = section.get("backend") if isinstance(section, TableNode) else None
        if isinstance(backend, Leaf) and isinstance(backend.value, str):
            first.setdefault(backend.value, backend)
    if not first:
        return general
    known = [first[name] for name in sorted(first)]
    return general.but({"backends": ListNode(kernels.path, tuple(known))})


def noarch(top: TableNode, universal: Leaf, report: Report) -> TableNode:
    """The document of a kernel that ``universal = true`` declares to be Python alone."""
    torch = top.table("torch")
    if "torch-noarch" in top.items:
        hint = "remove 'universal' and the rest of [torch]"
        report.error(universal.path, "cannot be combined with [torch-noarch]", hint=hint, at_key=True)
        return top
    for name, node in torch.items.items():
        empty = isinstance(node, ListNode) and not node.items
        if name != "pyext" and not empty and name in {"src", "include", "minver", "maxver"}:
            report.error(
                node.path,
                "has no effect on a Python-only kernel ('universal = true')",
                hint="remove it, or remove 'universal'",
                at_key=True,
            )
    kept: dict[str, Node] = {
        name: node for name, node in torch.items.items() if name not in {"src", "include", "minver", "maxver"}
    }
    general = top.table("general")
    if "backends" not in general.items:
        backends = tuple(Leaf(universal.path, backend.value) for backend in UNIVERSAL_BACKENDS)
        general = general.but({"backends": ListNode(universal.path, backends)})
    noarch_table = TableNode(torch.path if "torch" in top.items else universal.path, kept)
    return top.but({"general": general, "torch-noarch": noarch_table}, without=("torch",))
