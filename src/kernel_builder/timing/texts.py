"""Which families of headers a source reads, and how much text comes from each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_builder.actions.model import Action
from kernel_builder.actions.places import Places
from kernel_builder.engine.read_headers import ReadText

_LARGEST = 12
"""How many files and includes of a source are kept."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the preprocessed text: ``size`` in bytes."""

    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """What a source reads, in one variant: its size in bytes, by families of headers, of the largest files, and of the
    source's own includes with all that they bring. ``seconds`` is what the preprocessor took.
    """

    source: str
    variant: str
    size: int
    seconds: float
    families: tuple[Share, ...]
    files: tuple[Share, ...]
    includes: tuple[Share, ...]

    def to_json(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceText:
        """What :meth:`to_json` gave. Raises ``KeyError``, ``TypeError`` for anything else."""
        shares = {
            key: tuple(Share(name=str(one["name"]), size=int(one["size"])) for one in value[key])
            for key in ("families", "files", "includes")
        }
        return cls(**{**value, **shares})


def family_of(path: str, action: Action, places: Places) -> str:
    """The family of a file that ``action`` reads: the project, a part of a tree, or what comes with compilers."""
    if path.startswith("<"):
        return "predefined macros"
    file = Path(path)
    if file.is_relative_to(places.work):
        return "generated"
    for tree in action.trees:
        inside = file.is_relative_to(places.store) and f"/{tree.identity}/" in path
        if (tree.root is not None and file.is_relative_to(tree.root) and tree.root != places.root) or inside:
            return f"{tree.name}: {_part(path)}" if tree.name == "torch" else tree.name
    if file.is_relative_to(places.root):
        return "the project"
    return "libstdc++" if "/c++/" in path else "C library and compiler"


def _part(path: str) -> str:
    """The first directory below the last ``include``: ``ATen``, ``c10``."""
    _, _, below = path.rpartition("/include/")
    first, slash, _ = below.partition("/")
    return first if slash else "others"


def source_text(action: Action, places: Places, text: ReadText, seconds: float, lines: Sequence[str]) -> SourceText:
    """What became of ``text``; ``lines`` are those of the source."""
    families: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path, size in text.files.items():
        families[family_of(path, action, places)] += size
        files[places.word(Path(path), action.trees) if path.startswith("/") else path] += size
    includes: Counter[str] = Counter()
    for number, size in text.included.items():
        line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        includes[line if line.startswith("#") else "(before the first line)"] += size
    return SourceText(
        source=action.source,
        variant=action.variant,
        size=sum(text.files.values()),
        seconds=round(seconds, 3),
        families=_largest(families, len(families)),
        files=_largest(files, _LARGEST),
        includes=_largest(includes, _LARGEST),
    )


def _largest(sizes: Counter[str], most: int) -> tuple[Share, ...]:
    return tuple(Share(name=name, size=size) for name, size in sizes.most_common(most) if size)
