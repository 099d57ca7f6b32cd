"""Edition 4 (April to July 2026): like edition 5, without its number; ``stable-abi`` is one version for all
backends.
"""

from __future__ import annotations

from kernel_builder.toml.nodes import TableNode
from kernel_builder.toml.report import Report


def upgrade(top: TableNode, report: Report) -> TableNode:  # noqa: ARG001  (one shape for all editions)
    """Turn a document of edition 4 into one of edition 5: they have the same keys, and the number is the
    reader's.
    """
    return top
