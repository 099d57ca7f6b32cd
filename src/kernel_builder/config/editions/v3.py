"""Edition 3 (December 2025 to April 2026): ``backends`` is written; ``version`` and ``license`` need not be,
and a kernel of Python code alone has no framework table.
"""

from __future__ import annotations

from kernel_builder.config.known import dependencies
from kernel_builder.config.schema import FRAMEWORKS
from kernel_builder.toml.nodes import Leaf, ListNode, Node, TableNode
from kernel_builder.toml.report import Report


def upgrade(top: TableNode, report: Report) -> TableNode:  # noqa: ARG001  (one shape for all editions)
    """Turn a document of edition 3 into one of edition 4. A missing ``license`` stays missing."""
    general = top.table("general")
    if "version" not in general.items:
        top = top.but({"general": general.but({"version": Leaf((*general.path, "version"), 1)})})
    if not any(name in top.items for name in FRAMEWORKS) and not set(top.items) - {"general", "kernel"}:
        top = top.but({"torch-noarch": TableNode(("torch-noarch",), {})})
    return _rename_dependencies(top)


def _rename_dependencies(top: TableNode) -> TableNode:
    renamed = dependencies().renamed
    sections: dict[str, Node] = {}
    for name, section in top.table("kernel").items.items():
        sections[name] = section
        depends = section.get("depends") if isinstance(section, TableNode) else None
        if isinstance(section, TableNode) and isinstance(depends, ListNode):
            items = tuple(
                Leaf(item.path, renamed[item.value])
                if isinstance(item, Leaf) and isinstance(item.value, str) and item.value in renamed
                else item
                for item in depends.items
            )
            sections[name] = section.but({"depends": ListNode(depends.path, items)})
    if not sections:
        return top
    return top.but({"kernel": TableNode(top.table("kernel").path, sections)})
