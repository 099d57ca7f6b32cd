"""Write data/tvm_ffi.toml: which names the library of each release of tvm-ffi exports (needs a network).

Usage: python scripts/generate_tvm_ffi.py [--check]

Read of each release's newest wheel for Linux on the configured index is ``libtvm_ffi.so``, about 1 MiB each. Kept are
its C functions and what is in namespace ``tvm``; the parts of the C++ runtime that it exports beside them are no
interface. ``--check`` writes nothing and exits with 1 if the table would change.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from packaging.specifiers import SpecifierSet

from kernel_builder.binary.tvm_ffi import looks_like_tvm_ffi
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import Silent
from kernel_builder.store.index import IndexFile, SimpleIndex, fitting_wheels
from kernel_builder.store.settings import find_index
from kernel_builder.toolchain.link_tables import read_symbols
from kernel_builder.toolchain.recipe import default_recipe

TABLE = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "tvm_ffi.toml"
HEAD = """\
# What the library of each release of tvm-ffi exports, as changes from the release before it. Written by
# scripts/generate_tvm_ffi.py from tvm-ffi's own wheels; do not edit.
"""


def newest_of_each(index: SimpleIndex, project: str) -> dict[tuple[int, ...], IndexFile]:
    """A wheel of the newest post-release of each release, oldest release first."""
    fitting, _ = fitting_wheels(index.files(project), allowed=SpecifierSet(">=0.1"), machine="x86_64")
    found: dict[tuple[int, ...], IndexFile] = {}
    for file in sorted(fitting, key=lambda file: file.version):
        found[file.version.release] = file
    return found


def listed(name: str, names: set[str]) -> str:
    """A key with a list of names, one a line."""
    lines = "".join(f'  "{one}",\n' for one in sorted(names))
    return f"{name} = [\n{lines}]\n" if names else f"{name} = []\n"


def table() -> str:
    """The table for what the index has now."""
    recipe = default_recipe().frameworks[FrameworkKind.TVM_FFI]
    index = SimpleIndex(find_index(os.environ), Silent())
    before: set[str] = set()
    text = HEAD
    for release, file in newest_of_each(index, recipe.project).items():
        with tempfile.TemporaryDirectory() as scratch:
            wheel = index.open(file, Path(scratch), lambda _: None)
            _, symbols = read_symbols(wheel, recipe.libraries[0].member, leading=False)
        names = {symbol.name for symbol in symbols if looks_like_tvm_ffi(symbol.name)}
        text += f'\n[[release]]\nversion = "{".".join(map(str, release))}"\n{listed("added", names - before)}'
        text += listed("removed", before - names) if before - names else ""
        before = names
    return text


def main(arguments: list[str]) -> int:
    """Write or compare the table; the exit code."""
    try:
        text = table()
    except KernelBuilderError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    if "--check" in arguments:
        same = TABLE.read_text(encoding="utf-8") == text
        sys.stdout.write("up to date\n" if same else "the table would change\n")
        return 0 if same else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
