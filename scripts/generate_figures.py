"""Draw the figures of the documentation from what the project says: ``python scripts/generate_figures.py``.

``docs/figures/flow.svg`` is the chain of values in CONTRIBUTING.md. ``docs/figures/portability.svg`` is the table of
docs/explanation/portability.md, beside the glibc of well-known systems. ``docs/figures/speed.svg`` is the ratios of
docs/benchmarks.md. A test compares them with what is there.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"

# The release of glibc that each distribution came with. Sources, which docs/explanation/portability.md links:
# https://sourceware.org/glibc/wiki/Release (maintained ones), https://github.com/mayeut/pep600_compliance (all).
SYSTEMS = {
    "Ubuntu 18.04": "2.27",
    "Debian 10, RHEL 8": "2.28",
    "Ubuntu 20.04, Debian 11": "2.31",
    "RHEL 9": "2.34",
    "Ubuntu 22.04": "2.35",
    "Debian 12": "2.36",
}
WIDTH = 440
INK, PAPER, LINE, GOOD, BAD = "#1b1f24", "#ffffff", "#8b949e", "#3f51b5", "#b3261e"
STYLE = "font-family='system-ui, sans-serif' font-size='13'"


def _svg(height: int, title: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' role='img' {STYLE}>\n"
        f"<title>{escape(title)}</title>\n"
        f"<rect width='{WIDTH}' height='{height}' rx='6' fill='{PAPER}'/>\n{body}\n</svg>\n"
    )


def _text(x: float, y: float, text: str, extra: str = "") -> str:
    # Paper around the letters, so that a line behind them does not cross them.
    halo = f"stroke='{PAPER}' stroke-width='4' paint-order='stroke'"
    return f"<text x='{x:g}' y='{y:g}' fill='{INK}' {halo} {extra}>{escape(text)}</text>"


def stages(contributing: str) -> list[tuple[str, str, str]]:
    """The chain of values: what each is called, what it holds, and the package that makes it."""
    lines = re.findall(r"^    .*?-> (\S+) +(.+?) {2,}(\S+(?:, \S+)*)$", contributing, re.MULTILINE)
    if not lines:
        raise ValueError("CONTRIBUTING.md has no chain of values any more")
    return lines


def flow(contributing: str) -> str:
    """The picture of that chain, from top to bottom."""
    step, box = 58, 42
    chain = [("argv, build.toml", "what the user asks for", ""), *stages(contributing)]
    parts = []
    for number, (name, text, package) in enumerate(chain):
        y = 14 + number * step
        if number:
            tip = f"M{WIDTH / 2 - 4:g} {y - 6}l4 5l4 -5"
            parts.append(f"<path d='M{WIDTH / 2:g} {y - 16}V{y - 2} {tip}' fill='none' stroke='{LINE}'/>")
        parts.append(f"<rect x='14' y='{y}' width='{WIDTH - 28}' height='{box}' rx='5' fill='none' stroke='{GOOD}'/>")
        parts.append(_text(24, y + 17, name, "font-weight='600'"))
        parts.append(_text(WIDTH - 24, y + 17, package, f"text-anchor='end' style='fill:{LINE}'"))
        parts.append(_text(24, y + 34, text, "font-size='12'"))
    return _svg(14 + len(chain) * step, "How a build flows", parts)


def linkings(page: str) -> list[tuple[str, str, bool]]:
    """How a library can be linked: in words, the newest glibc that it needs, and whether all nine cases are right."""
    rows = re.findall(r"^\| ([^|]+?) \| (static|shared) \| ([^|]+?) \| \**(2\.\d+)[^|]*\|$", page, re.MULTILINE)
    if not rows:
        raise ValueError("docs/explanation/portability.md has no table of ways to link any more")
    return [
        (f"libstdc++ {cpp}" + ("; libgcc static" if gcc == "static" else ""), glibc, "right" in cases)
        for cpp, gcc, cases, glibc in rows
    ]


def portability(page: str) -> str:
    """What each way to link runs on: a bar from the oldest glibc that has all it needs."""
    first, last = 24.5, 36.5

    def x(glibc: str) -> float:
        return 14 + (float(glibc.split(".")[1]) - first) / (last - first) * (WIDTH - 28)

    bars: list[str] = []
    y = 26
    for words, glibc, right in linkings(page):
        colour = GOOD if right else BAD
        note = f"glibc {glibc}" + ("" if right else ", wrong")
        bars.append(_text(14, y, words, "font-size='11'"))
        bars.append(_text(WIDTH - 14, y, note, f"font-size='12' text-anchor='end' style='fill:{colour}'"))
        begin = min(x(glibc), WIDTH - 20)
        bars.append(f"<rect x='{begin:.1f}' y='{y + 6}' width='{WIDTH - 14 - begin:.1f}' height='9' fill='{colour}'/>")
        y += 40
    bars.append(f"<line x1='14' y1='{y - 8}' x2='{WIDTH - 14}' y2='{y - 8}' stroke='{LINE}'/>")
    lines: list[str] = []
    for number, (name, glibc) in enumerate(SYSTEMS.items()):
        at, below = x(glibc), y + 18 + number * 17
        end = f"y2='{below - 4}' stroke='{LINE}' stroke-dasharray='2 3'"
        lines.append(f"<line x1='{at:.1f}' y1='14' x2='{at:.1f}' {end}/>")
        left = at < WIDTH / 2
        place = f"font-size='12' text-anchor='{'start' if left else 'end'}'"
        bars.append(_text(at + (5 if left else -5), below, f"{name}: {glibc}", place))
    height = y + 18 + len(SYSTEMS) * 17
    return _svg(height, "Which systems a kernel loads on, by how it is linked", [*lines, *bars])


def ratios(page: str) -> list[tuple[str, str, float]]:
    """What was measured beside another tool: in words, the tool, and kernel-builder's seconds over the tool's."""
    tools = "nvcc|cpp_extension|scikit-build-core"
    rows = re.findall(rf"^\| ([^|]+) \| [^|]+ \| ({tools}) [^|]+ \| (\d+\.\d+) \|$", page, re.MULTILINE)
    if not rows:
        raise ValueError("docs/benchmarks.md has no table of ratios any more")
    return [(words.replace("`", ""), tool, float(ratio)) for words, tool, ratio in rows]


def speed(page: str) -> str:
    """A bar for each ratio, from 1 to the left where kernel-builder is faster; every doubling is as wide."""
    rows = ratios(page)
    fastest, slowest = min(0.5, *(row[2] for row in rows)), max(2.0, *(row[2] for row in rows))
    notes = 140  # pixels on the right, for ratios
    unit = (WIDTH - 28 - notes) / math.log(slowest / fastest)
    one = 14 - unit * math.log(fastest)
    parts = [
        _text(one - 6, 20, "kernel-builder is faster", f"font-size='12' text-anchor='end' style='fill:{GOOD}'"),
        _text(one + 6, 20, "slower", f"font-size='12' style='fill:{BAD}'"),
    ]
    y = 48
    for words, tool, ratio in rows:
        length = unit * math.log(ratio)
        colour = GOOD if ratio <= 1 else BAD
        begin, width = min(one, one + length), max(abs(length), 1)
        parts.append(_text(14, y, words, "font-size='11'"))
        note = f"font-size='11' text-anchor='end' style='fill:{colour}'"
        parts.append(_text(WIDTH - 14, y + 14, f"{ratio:.2f} of {tool}", note))
        parts.append(f"<rect x='{begin:.1f}' y='{y + 6}' width='{width:.1f}' height='9' fill='{colour}'/>")
        y += 36
    line = f"<line x1='{one:.1f}' y1='8' x2='{one:.1f}' y2='{y - 18}' stroke='{LINE}'/>"
    return _svg(y - 10, "Build time relative to another tool", [line, *parts])


def figures() -> dict[Path, str]:
    """The files and what belongs in them."""
    page = (ROOT / "docs" / "explanation" / "portability.md").read_text(encoding="utf-8")
    return {
        FIGURES / "flow.svg": flow((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")),
        FIGURES / "portability.svg": portability(page),
        FIGURES / "speed.svg": speed((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    FIGURES.mkdir(exist_ok=True)
    for file, text in figures().items():
        file.write_text(text, encoding="utf-8")
        print(file.relative_to(ROOT))
