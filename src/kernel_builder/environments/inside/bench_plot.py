# Runs in an environment that has matplotlib, as a program of its own. Python 3.9 syntax.
"""Usage: ``python bench_plot.py FILE``: draws what is on standard input, a JSON object with ``title``, ``below`` (a
line of small print) and ``curves``, into FILE, whose suffix says in which format. Without FILE it only says by its exit
code whether it could.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def draw(figure: Any, request: dict[str, Any]) -> None:
    """Time over size, and, where a benchmark says how many bytes it moves, bandwidth over size."""
    curves = request["curves"]
    moved = any(point["bandwidth"] for curve in curves for point in curve["points"])
    panels = figure.subplots(1, 2 if moved else 1, squeeze=False)[0]
    families = list(dict.fromkeys(curve["label"].partition(",")[0] for curve in curves))
    for curve in curves:
        colour = f"C{families.index(curve['label'].partition(',')[0]) % 10}"
        style = {
            "color": colour,
            "linestyle": "--" if curve["theirs"] else "-",
            "marker": "s" if curve["theirs"] else "o",
            "markersize": 4,
            "label": curve["label"],
        }
        points = curve["points"]
        sizes = [point["size"] for point in points]
        panels[0].plot(sizes, [point["median"] * 1e6 for point in points], **style)
        low, high = ([point[key] * 1e6 for point in points] for key in ("q1", "q3"))
        panels[0].fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        if moved:
            wide = [point for point in points if point["bandwidth"]]
            panels[1].plot([point["size"] for point in wide], [point["bandwidth"] / 1e9 for point in wide], **style)
    panels[0].set(xscale="log", yscale="log", xlabel="elements", ylabel="time, µs (median, quartiles)")
    if moved:
        panels[1].set(xscale="log", yscale="log", xlabel="elements", ylabel="bandwidth, GB/s")
    for panel in panels:
        panel.set_xscale("log", base=2)
        panel.grid(visible=True, which="major", alpha=0.3)
    panels[-1].legend(fontsize="small")
    figure.suptitle(request["title"])
    figure.supxlabel(request["below"], fontsize="x-small", color="0.4")


def main(files: list[str]) -> None:
    """Draw. Raises what matplotlib raises for a file or a format that it cannot write."""
    # Without pyplot there is no display to look for.
    import matplotlib  # noqa: PLC0415 (only here)
    from matplotlib.figure import Figure  # noqa: PLC0415

    if not files:
        return
    # An SVG has its text as text, and neither the time nor ids by chance: the same figures give the same file.
    vector = files[0].lower().endswith(".svg")
    with matplotlib.rc_context({"svg.hashsalt": "kernel-builder", "svg.fonttype": "none"}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        draw(figure, json.load(sys.stdin))
        figure.savefig(files[0], dpi=150, metadata={"Date": None} if vector else None)


if __name__ == "__main__":
    main(sys.argv[1:])
