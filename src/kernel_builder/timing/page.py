"""The page that shows where a build's time went: one file that needs no network, and no script to be read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import jinja2

from kernel_builder.timing.figures import Bar, Figures
from kernel_builder.timing.texts import SourceText

_TEMPLATE = Path(__file__).parents[1] / "templates" / "timing" / "page.html.j2"


def facts_of(figures: Figures, texts: Sequence[SourceText], remark: str | None = None) -> dict[str, object]:
    """All that the page shows, as JSON values; ``remark`` says why ``texts`` are not all."""
    return {
        "jobs": figures.jobs,
        "began": figures.began,
        "seconds": {
            "wall": round(figures.wall, 3),
            "engine": round(figures.engine, 3),
            "busy": round(figures.busy, 3),
            "processor": round(figures.processor, 3),
            "longest-chain": round(figures.longest, 3),
            "floor": round(figures.floor, 3),
            "saved": round(figures.saved, 3),
        },
        "recalled": figures.recalled,
        "actions": [_bar_json(bar) for bar in figures.bars],
        "stages": [asdict(stage) for stage in figures.stages],
        "critical-path": [
            {"id": link.bar.span.id, "seconds": round(link.bar.seconds, 3), "waited": round(link.waited, 3)}
            for link in figures.critical
        ],
        "costs": {name: [asdict(cost) for cost in costs] for name, costs in figures.costs.items()},
        "headers": [text.to_json() for text in texts],
        "headers-remark": remark,
    }


def _bar_json(bar: Bar) -> dict[str, object]:
    times = {"slot": bar.slot, "begin": round(bar.begin, 3), "end": round(bar.end, 3), "saved": round(bar.saved, 3)}
    return {**asdict(bar.span), **times}


def page_of(name: str, figures: Figures, texts: Sequence[SourceText], remark: str | None = None) -> str:
    """The page about a build of the kernel ``name``."""
    slots: list[list[Bar]] = [[] for _ in range(max(bar.slot for bar in figures.bars) + 1)]
    for bar in figures.bars:
        slots[bar.slot].append(bar)
    # JSON without a way out of its element: the template writes it as is.
    data = json.dumps(facts_of(figures, texts, remark), separators=(",", ":")).replace("<", "\\u003c")
    return _template().render(
        name=name,
        figures=figures,
        slots=slots,
        texts=texts,
        remark=remark,
        kinds=sorted({bar.span.kind for bar in figures.bars}),
        families=sorted({share.name for text in texts for share in text.families}),
        total=max(figures.wall, 0.001),
        marks=marks(max(figures.wall, 0.001)),
        data=data,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"seconds": seconds, "size": _size}
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def seconds(value: float) -> str:
    """``0.42 s``, ``12.3 s``, ``163 s``."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} s"


def marks(total: float) -> tuple[float, ...]:
    """Round times to mark on an axis of ``total`` seconds: at most six, the last with room for its words."""
    power = 10.0 ** math.floor(math.log10(total))
    step = next(one * power for one in (0.1, 0.2, 0.5, 1, 2, 5) if total / (one * power) <= 6)
    return tuple(round(step * count, 6) for count in range(6) if step * count <= 0.92 * total)


def _size(value: int) -> str:
    if value < 1000:
        return f"{value} B"
    return f"{value / 1000:.0f} kB" if value < 1_000_000 else f"{value / 1_000_000:.1f} MB"
