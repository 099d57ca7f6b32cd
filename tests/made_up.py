"""A backend that nobody has, added to a copy of kernel-builder: one module, one row of a table, one build of torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import kernel_builder

SOURCES = Path(__file__).parent / "projects" / "toy-backend"
_BUILD = '  { backend = "toy", versions = ["1.0"], platforms = ["x86_64-linux"], since = "2026-01-01" },\n'


def package_with_toy(root: Path) -> tuple[Path, frozenset[str]]:
    """A folder for ``PYTHONPATH`` with a kernel-builder that knows the backend, and which of its files are changed or
    added, relative to the package.
    """
    original, copy = Path(kernel_builder.__file__).parent, root / "kernel_builder"
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "data" / "backends.toml").open("a", encoding="utf-8") as file:
        file.write("\n" + (SOURCES / "row.toml").read_text(encoding="utf-8"))
    table = copy / "data" / "support.toml"
    table.write_text(table.read_text(encoding="utf-8").replace("builds = [\n", "builds = [\n" + _BUILD), "utf-8")
    shutil.copy(SOURCES / "toy.py", copy / "backends" / "toy.py")
    changed = {
        path.relative_to(copy).as_posix()
        for path in copy.rglob("*")
        if path.is_file() and not _same(path, original / path.relative_to(copy))
    }
    return root, frozenset(changed)


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()
