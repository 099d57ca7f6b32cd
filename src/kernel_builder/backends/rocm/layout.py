"""Where the parts of a ROCm toolkit lie below its root, and the programs that make them work from there.

A toolkit has clang below ``lib/llvm``, bitcode of the device's library below clang's own directory or in ``amdgcn``,
and headers in ``include``. Releases and packagers differ in the rest, so it is looked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CLANG, BUNDLER, LLD = "clang++", "clang-offload-bundler", "lld"
WRAPPERS = "lib/llvm/wrap"
"""Beside clang's ``bin``: a program that is started from here finds clang's own headers."""
LIBRARIES = "lib/host"
"""The C library, and whatever else the programs need, of a toolkit that brings them."""
_LOADER = "ld-linux-x86-64.so.2"
_VERSION = re.compile(r"#define HIP_VERSION_(MAJOR|MINOR|PATCH) +(\d+)")


@dataclass(frozen=True, kw_only=True)
class RocmLayout:
    """The parts of a toolkit in ``root``, absolute. ``version`` is HIP's, out of its own header. ``loader`` starts its
    programs, where it brings their libraries.
    """

    root: Path
    clang: Path
    bundler: Path
    lld: Path
    bitcode: Path
    version: str
    loader: Path | None


def find_layout(root: Path) -> RocmLayout | str:
    """The parts of the toolkit in ``root``, or what it lacks."""
    places = [root / "lib" / "llvm" / "bin", root / "llvm" / "bin"]
    clang = next(_programs(places, "clang++", "clang-[0-9]*", "clang"), None)
    if clang is None:
        return "it has no clang"
    bundler = next(_programs([clang.parent, *places], BUNDLER), None)
    lld = next(_programs([clang.parent, *places], LLD), None)
    bitcode = next((file.parent for file in sorted(_bitcode(root))), None)
    lacking = [name for name, part in ((BUNDLER, bundler), (LLD, lld), ("ocml.bc", bitcode)) if part is None]
    version = hip_version(root)
    if version is None:
        lacking.append("hip/hip_version.h")
    if bundler is None or lld is None or bitcode is None or version is None:
        return f"it has no {', '.join(lacking)}"
    loader = root / LIBRARIES / _LOADER
    return RocmLayout(
        root=root,
        clang=clang,
        bundler=bundler,
        lld=lld,
        bitcode=bitcode,
        version=version,
        loader=loader if loader.is_file() else None,
    )


def hip_version(root: Path) -> str | None:
    """The version in HIP's own header (``7.1.25424``); ``None`` where there is none."""
    try:
        text = (root / "include" / "hip" / "hip_version.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = dict(_VERSION.findall(text))
    return (
        f"{found['MAJOR']}.{found['MINOR']}.{found.get('PATCH', '0')}" if {"MAJOR", "MINOR"} <= found.keys() else None
    )


def _programs(places: list[Path], *patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        for place in places:
            yield from (path for path in sorted(place.glob(pattern)) if path.is_file())


def _bitcode(root: Path) -> Iterator[Path]:
    yield from root.glob("amdgcn/bitcode/ocml.bc")
    for llvm in (root / "lib" / "llvm", root / "llvm"):
        for inner in ("lib/clang/*/amdgcn", "lib/clang/*/lib/amdgcn", "amdgcn"):
            yield from llvm.glob(f"{inner}/bitcode/ocml.bc")


def write_wrappers(layout: RocmLayout, entry: Path) -> None:
    """Write the programs that compile with the toolkit into ``entry``, which may lie anywhere later on.

    clang is told where its parts are, by absolute paths only where they lie outside of ``entry``.
    """
    folder = entry / WRAPPERS
    folder.mkdir(parents=True, exist_ok=True)

    def word(path: Path) -> str:
        if not path.is_relative_to(entry):
            return shlex.quote(str(path))
        return f'"$entry"{shlex.quote(f"/{path.relative_to(entry)}")}' if path != entry else '"$entry"'

    for name, program in ((CLANG, layout.clang), (BUNDLER, layout.bundler), (LLD, layout.lld)):
        lines = ["#!/bin/sh", f"entry=${{0%/{WRAPPERS}/*}}"]
        start = word(program)
        if layout.loader is not None:
            libraries = word(layout.loader.parent)
            start = f'{word(layout.loader)} --argv0 "$0" --library-path {libraries} {start}'
        if name == CLANG:
            flags = [
                "--driver-mode=g++",
                # From here, not from where the loader is.
                *(["-no-canonical-prefixes"] if layout.loader is not None else []),
                f"--rocm-path={word(layout.root)}",
                # Else clang looks for it in a file that not every packager has, and leaves out its own wrappers of HIP.
                f"--hip-version={layout.version}",
                f"--rocm-device-lib-path={word(layout.bitcode)}",
            ]
            lines += [
                "# clang starts itself again for each pass.",
                f'case ${{1-}} in -cc1*) exec {start} "$@" ;; esac',
                f'exec {start} {" ".join(flags)} "$@"',
            ]
        else:
            lines.append(f'exec {start} "$@"')
        path = folder / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        path.chmod(0o755)
