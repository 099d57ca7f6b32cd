"""How long checking takes, and how much memory: a folder of 16 CUDA variants, 1 GB in all, and one library of 3 GB.

    python benchmarks/check_speed.py [DIRECTORY]

The libraries are real ELF files with GPU code of that size. Needs gcc, and 4.2 GB below DIRECTORY (default: a temporary
one). Each figure is that of a process of its own; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VARIANTS, FOLDER_BYTES, LARGE_BYTES = 16, 10**9, 3 * 10**9
ID = "_sample_cuda_1a2b3c4"

CHILD = """
import resource, sys, time
from pathlib import Path
from kernel_builder.check.engine import all_rules, check_paths
from kernel_builder.check.model import Settings
all_rules()
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
cpu = time.process_time()
report = check_paths([Path(sys.argv[1])], Settings(hash_files=sys.argv[2] == "hash"), select=sys.argv[3:])
took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"{took:.2f} s ({time.process_time() - cpu:.2f} CPU s),", end=" ")
print(f"{(after - before) / 1024:.0f} MiB more memory at most, {len(report.findings)} findings")
"""


def _library(folder: Path, size: int) -> Path:
    """A library of ``size`` bytes, nearly all of them in ``.nv_fatbin``, 2 MiB of constants in ``.rodata``."""
    header = bytes.fromhex("50ed55ba") + (1).to_bytes(2, "little") + (16).to_bytes(2, "little")
    code, entry = size - 3 * 2**20, 64
    fatbin = folder / "code.fatbin"
    with fatbin.open("wb") as file:
        file.write(header + (code - 16).to_bytes(8, "little"))
        file.write((2).to_bytes(2, "little") + b"\1\1" + entry.to_bytes(4, "little"))
        file.write((code - 16 - entry).to_bytes(8, "little") + bytes(12) + (80).to_bytes(4, "little") + bytes(32))
        block = os.urandom(2**20)
        while file.tell() < code:
            file.write(block[: code - file.tell()])
    (folder / "constants.bin").write_bytes(os.urandom(2 * 2**20))
    source = folder / "library.c"
    source.write_text(
        f'__asm__(".section .nv_fatbin,\\"\\"\\n.incbin \\"{fatbin}\\"\\n.section .rodata\\n'
        f'.incbin \\"{folder / "constants.bin"}\\"\\n.text");\nvoid *PyInit_{ID}(void) {{ return 0; }}\n',
        encoding="ascii",
    )
    library = folder / "library.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
    fatbin.unlink()
    return library


def _variant(folder: Path, name: str, library: Path) -> None:
    variant = folder / "build" / name
    variant.mkdir(parents=True)
    backend = {"type": "cuda", "archs": ["8.0"]}
    document = {"name": "sample", "id": ID, "version": 1, "license": "MIT", "python-depends": [], "backend": backend}
    (variant / "metadata.json").write_text(json.dumps(document), encoding="ascii")
    (variant / "__init__.py").write_text("__all__ = []\n", encoding="ascii")
    for number in range(30):
        (variant / f"module{number}.py").write_text(f"def function{number}(x):\n    return x\n" * 50, encoding="ascii")
    with library.open("rb") as source, (variant / f"{ID}.abi3.so").open("wb") as target:
        while block := source.read(2**22):
            target.write(block)


def _measure(what: str, path: Path, mode: str, *select: str) -> None:
    command = [sys.executable, "-c", CHILD, str(path), mode, *select]
    print(f"{what}: {subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()}", flush=True)


def main() -> None:
    """Make the files and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIRECTORY", nargs="?", help="where the files are made")
    with tempfile.TemporaryDirectory(dir=parser.parse_args().directory) as name:
        root = Path(name)
        work, folder = root / "work", root / "folder"
        work.mkdir()
        library = _library(work, FOLDER_BYTES // VARIANTS)
        for number in range(VARIANTS):
            _variant(folder, f"torch2{number}-cxx11-cu130-x86_64-linux", library)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "kernel_builder", "hash", folder], check=True, stdout=subprocess.DEVNULL)
        print(f"16 variants, 1 GB, kernel-builder hash: {time.perf_counter() - start:.2f} s")
        _measure("16 variants, 1 GB, libraries alone", folder, "no-hash", "KB1")
        _measure("16 variants, 1 GB, without hashing", folder, "no-hash")
        _measure("16 variants, 1 GB, with hashing   ", folder, "hash")
        large = _library(work, LARGE_BYTES)
        _measure("one library of 3 GB", large, "no-hash")


if __name__ == "__main__":
    main()
