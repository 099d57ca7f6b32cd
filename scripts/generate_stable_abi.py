"""Write data/stable_abi.toml: which C functions torch's stable ABI has, and since which release (needs a network).

Usage: python scripts/generate_stable_abi.py [--check]

Read of each release's wheel on the configured index are the headers of the stable ABI (with the version guards around
declarations) and the export tables of libtorch_cpu and libtorch_cuda: about 3 MiB each. A function belongs to the
release in whose libraries it first is, or to the one that its guard names, whichever is newer; one that no Linux
library has (Metal, XPU) to the one of its guard, or whose headers first declare it. ``--check`` writes nothing and
exits with 1 if the table would change.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from packaging.specifiers import SpecifierSet

from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import Silent
from kernel_builder.store.index import SimpleIndex, choose_wheel
from kernel_builder.store.settings import find_index
from kernel_builder.toolchain.link_tables import read_symbols
from kernel_builder.variants.support import load_support
from kernel_builder.versions import Version

TABLE = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "stable_abi.toml"
HEADERS = (
    "torch/csrc/inductor/aoti_torch/c",
    "torch/csrc/inductor/aoti_torch/generated",
    "torch/csrc/stable",
    "torch/headeronly",
)
LIBRARIES = ("torch/lib/libtorch_cpu.so", "torch/lib/libtorch_cuda.so")
HEAD = """\
# The C functions of torch's stable ABI by the release that they can be used from on; those of the oldest release are
# that old or older. Written by scripts/generate_stable_abi.py from torch's own wheels; do not edit.
"""
GUARD = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
DECLARATION = re.compile(r"\bAOTI_TORCH_EXPORT\b[^;{(]*?\b(\w+)\s*\(")


def declared(text: str) -> dict[str, Version | None]:
    """The exported functions that a header declares, with the version that its guards ask for."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    found: dict[str, Version | None] = {}
    guards: list[Version | None] = []
    pending = ""
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"#\s*(if|ifdef|ifndef)\b", stripped):
            match = GUARD.match(stripped)
            guards.append(Version.parse(f"{match[1]}.{match[2]}") if match else None)
        elif re.match(r"#\s*(else|elif)\b", stripped):
            guards[-1] = None
        elif re.match(r"#\s*endif\b", stripped):
            guards.pop()
        elif not stripped.startswith("#"):
            pending += f" {stripped}"
            match = DECLARATION.search(pending)
            if match:
                known = [guard for guard in guards if guard is not None]
                found[match[1]] = max(known, default=None)
                pending = ""
            elif ";" in stripped or "{" in stripped:
                pending = ""
    return found


class Findings:
    """First releases: in whose libraries a function is, whose headers declare it, which its guards name."""

    def __init__(self) -> None:
        self.exported: dict[str, Version] = {}
        self.headers: dict[str, Version] = {}
        self.guarded: dict[str, Version] = {}

    def read(self, index: SimpleIndex, release: Version) -> None:
        """Add one release. Releases must come oldest first."""
        file = choose_wheel(
            index.files("torch"), project="torch", allowed=SpecifierSet(f"=={release}.*"), machine="x86_64"
        ).file
        with tempfile.TemporaryDirectory(prefix="kernel-builder-") as folder:
            scratch = Path(folder)
            wheel = index.open(file, scratch, lambda _: None)
            wheel.extract(wheel.select([f"torch/include/{root}/**" for root in HEADERS]), scratch / "include")
            for path in sorted((scratch / "include").rglob("*.h")):
                for name, guard in declared(path.read_text(encoding="utf-8")).items():
                    self.headers.setdefault(name, release)
                    if guard is not None:
                        self.guarded[name] = max(guard, self.guarded.get(name, guard))
            for library in LIBRARIES:
                for symbol in read_symbols(wheel, library, leading=True)[1]:
                    self.exported.setdefault(symbol.name, release)
        print(f"torch {file.version}: {len(self.headers)} functions so far", file=sys.stderr)

    def table(self) -> str:
        """The text of the table."""
        groups: dict[Version, list[str]] = {}
        for name, declared_in in self.headers.items():
            if name in self.exported:
                release = max(self.exported[name], self.guarded.get(name, self.exported[name]))
            else:
                release = self.guarded.get(name, declared_in)
            groups.setdefault(release, []).append(name)
        lines = [HEAD, "# Directories of torch's headers that hold the stable ABI and need no other header of torch's."]
        lines += ["headers = [", *(f'  "{root}",' for root in HEADERS), "]", "", "[functions]"]
        for release in sorted(groups):
            lines += [f'"{release}" = [', *(f'  "{name}",' for name in sorted(groups[release])), "]"]
        return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 0: written, or the same; 1: ``--check`` found a difference; else that of the error."""
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__)
        return 2
    index = SimpleIndex(find_index(), Silent())
    findings = Findings()
    try:
        for release in sorted({row.torch for row in load_support().rows}):
            findings.read(index, release)
    except KernelBuilderError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    text = findings.table()
    if check:
        same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == text
        print("the table is right" if same else "the table would change")
        return 0 if same else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
