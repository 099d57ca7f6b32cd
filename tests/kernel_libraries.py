"""Tiny real libraries for the tests of library rules, and variants around them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Finding, Settings

CPU = "torch213-cxx11-cpu-x86_64-linux"
CUDA = "torch213-cxx11-cu130-x86_64-linux"
ID = "_sample_cpu_1a2b3c4"
INIT = f"void *PyInit_{ID}(void) {{ return 0; }}\n"


class Workshop:
    """Compiles libraries into a directory. Every library is a few lines of C or C++."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0

    def run(self, *command: str | Path) -> None:
        """Run a tool; its message is the test's when it fails."""
        completed = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr

    def library(
        self,
        source: str,
        *flags: str | Path,
        name: str = f"{ID}.abi3.so",
        language: str = "c",
        into: Path | None = None,
    ) -> Path:
        """Compile ``source`` into a shared library called ``name``, in a directory of its own."""
        self._count += 1
        directory = into or self.root / f"library{self._count}"
        directory.mkdir(exist_ok=True)
        file = self.root / f"source{self._count}.{language}"
        file.write_text(source, encoding="ascii")
        target = directory / name
        compiler = "gcc" if language in {"c", "s", "S"} else "g++"
        self.run(compiler, "-shared", "-fPIC", "-O1", file, "-o", target, *flags)
        return target

    def provider(self, soname: str, *versions: str) -> Path:
        """A library that has, for each of ``versions`` (``GLIBC_2.36:arc4random``), that symbol in that version."""
        symbols = [version.partition(":")[2] for version in versions]
        self._count += 1
        script = self.root / f"versions{self._count}.map"
        nodes: dict[str, list[str]] = {}
        for version in versions:
            node, _, symbol = version.partition(":")
            nodes.setdefault(node, []).append(symbol)
        script.write_text(
            "".join(
                f"{node} {{ global: {' '.join(f'{name};' for name in names)} }};\n" for node, names in nodes.items()
            ),
            encoding="ascii",
        )
        source = "".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols)
        return self.library(
            source,
            "-nostdlib",
            "-fno-builtin",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={script}",
            name="libprovider.so",
        )

    def variant(self, name: str, library: Path | None = None, *, id: str = ID, **metadata: object) -> Path:  # noqa: A002
        """A variant directory around a library."""
        self._count += 1
        directory = self.root / f"build{self._count}" / name
        directory.mkdir(parents=True)
        backend = name.split("-")[-3].rstrip("0123456789").replace("cu", "cuda", 1) if "-cu" in name else "cpu"
        document: dict[str, object] = {"name": "sample", "id": id, "version": 1, "license": "MIT", "python-depends": []}
        document["backend"] = {"type": backend}
        (directory / "metadata.json").write_text(json.dumps(document | metadata), encoding="ascii")
        (directory / "__init__.py").write_text("__all__ = []\n", encoding="ascii")
        if library is not None:
            (directory / library.name).write_bytes(library.read_bytes())
        return directory


def findings(path: Path, code: str, settings: Settings | None = None) -> tuple[Finding, ...]:
    """Findings of one rule."""
    return check_paths([path], settings, select=[code]).findings


def messages(path: Path, code: str, settings: Settings | None = None) -> list[str]:
    """Messages of one rule's findings."""
    return [finding.message for finding in findings(path, code, settings)]


def codes(path: Path, settings: Settings | None = None, select: Sequence[str] = ("KB0", "KB1")) -> list[str]:
    """Codes of all findings about libraries."""
    return [finding.rule.code for finding in check_paths([path], settings, select=select).findings]
