"""Small timelines for tests."""

from __future__ import annotations

from typing import Any

from kernel_builder.engine.timeline import Recorded, Span, Stage

BEGAN = 1_700_000_000.0


def span(name: str, begin: float, end: float, **facts: Any) -> Span:
    """An action ``kind:source`` or ``kind:source:architecture`` that ran from ``begin`` to ``end``."""
    kind, source, architecture = (*name.split(":"), None)[:3]
    values: dict[str, Any] = {
        "variant": "torch-x",
        "status": "done",
        "seconds": end - begin,
        "memory": 1 << 20,
        **facts,
    }
    return Span(
        id=name,
        kind=str(kind),
        source=str(source),
        architecture=architecture,
        begin=BEGAN + begin,
        end=BEGAN + end,
        **values,
    )


TWO_SLOTS = Recorded(
    jobs=2,
    stages=(
        Stage(stage="prepare", begin=BEGAN - 1, end=BEGAN),
        Stage(stage="install and load", begin=BEGAN + 12, end=BEGAN + 14),
    ),
    spans=(
        span("device:a.x:9.0", 0, 4),
        span("compile:b.cpp", 0, 6),
        span("assemble:a.x:9.0", 6, 8, needs=("device:a.x:9.0",)),  # no slot was free from 4 to 6
        span("compile:c.cpp", 4, 4.5, status="from the cache", seconds=20.0),
        span("link:lib.so", 8, 12, needs=("assemble:a.x:9.0", "compile:b.cpp", "compile:c.cpp", "compile:gone")),
    ),
)
