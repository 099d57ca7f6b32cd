"""Feed damaged and hostile files to the readers and rules of ``check``: nothing may break, hang or eat memory.

    python scripts/fuzz_check.py [SECONDS] [SEED]

Real small libraries (ELF from gcc, Mach-O and PE from the tests' assemblers) are truncated, have bytes flipped and
fields of their headers replaced by extreme numbers; the library rules must come to findings. Then directories: 10^6
entries, links out of the tree and in circles, names that are no text, metadata and Python that no parser likes.
Prints figures; exits with 1 at the first exception, or when one file takes longer than 5 s or 512 MiB.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "unit" / "check"))

from test_other_formats import GOOD, fat, pe

from kernel_builder.check.engine import check_paths

SOURCE = """
extern int puts(const char *);
extern int PyLong_FromLong(long);
int function(int a) { return puts("/home/user/a.cpp") + PyLong_FromLong(a); }
void *PyInit__k_cpu_1(void) { return 0; }
__asm__(".section .nv_fatbin,\\"a\\"\\n.long 0xBA55ED50\\n.short 1\\n.short 16\\n.quad 88\\n.short 2\\n.short 257\\n"
        ".long 64\\n.quad 24\\n.long 0\\n.long 0\\n.long 0\\n.long 80\\n.zero 56\\n.text");
"""
VARIANT = "torch213-cxx11-cu130-x86_64-linux"
EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
LINKS = {
    "up": "../../..",
    "root": "/",
    "loop": "loop",
    "self.py": "self.py",
    "dev.so": "/dev/zero",
    "passwd.py": "/etc/passwd",
    "metadata.json": "/dev/zero",
}
SOURCES = (
    b"(" * 100_000,
    b"a=" * 50_000 + b"1",
    b"\0" * 1000,
    b"-" * 200_000 + b"1",
    b"x." * 50_000 + b"x",
    b"if 1:\n" + b" if 1:\n" * 200,
    b"f'" + b"{" * 5000,
)
METADATA = b'{"name": "k", "id": "_k_cpu_1", "version": 1, "backend": {"type": "cuda", "archs": ["8.0"]}}'


def seeds(work: Path) -> dict[str, bytes]:
    """Files to damage."""
    (work / "a.c").write_text(SOURCE, encoding="ascii")
    found = {"mach-o": GOOD, "fat": fat(GOOD, GOOD), "pe": pe({"python3.dll": ("PyLong_FromLong",)})}
    for linker in ("bfd", "gold", "lld", "mold"):
        if shutil.which(f"ld.{linker}"):
            command = ["gcc", "-shared", "-fPIC", f"-fuse-ld={linker}", "-Wl,-rpath,/x", "a.c", "-o", "a.so"]
            subprocess.run(command, cwd=work, check=True)
            found[linker] = (work / "a.so").read_bytes()
    return found


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One damaged copy."""
    copy = bytearray(data)
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(copy[: chance.randrange(len(copy))])
    for _ in range(chance.choice((1, 2, 8, 64))):
        if kind == 1:
            copy[chance.randrange(len(copy))] = chance.randrange(256)
            continue
        near = chance.choice((64, 1024, 4096, len(copy)))
        layout = chance.choice(("<H", "<I", "<Q", ">I"))
        at = chance.randrange(0, max(1, min(near, len(copy)) - 8))
        value = chance.choice(EXTREMES) if kind == 2 else chance.randrange(len(copy) * 2)
        struct.pack_into(layout, copy, at, value & (2 ** (8 * struct.calcsize(layout)) - 1))
    return bytes(copy)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def fuzz_libraries(work: Path, seconds: float, chance: random.Random) -> None:
    """Damage libraries until the time is over."""
    variant = work / "build" / VARIANT
    variant.mkdir(parents=True)
    (variant / "metadata.json").write_bytes(METADATA)
    (variant / "__init__.py").touch()
    library = variant / "_k_cpu_1.abi3.so"
    known = seeds(work)
    codes: Counter[str] = Counter()
    made, slowest, end, start_peak = 0, 0.0, time.monotonic() + seconds, _peak()
    while time.monotonic() < end:
        data = damaged(known[chance.choice(sorted(known))], chance)
        library.write_bytes(data)
        start = time.monotonic()
        try:
            report = check_paths([variant], select=["KB0", "KB1"], jobs=1)
        except Exception:  # noqa: BLE001  (whatever it is, it is what is looked for)
            kept = Path(tempfile.gettempdir()) / "fuzz_check_failure.bin"
            kept.write_bytes(data)
            traceback.print_exc()
            raise SystemExit(f"after {made} files; the file is kept at {kept}") from None
        took = time.monotonic() - start
        slowest, made = max(slowest, took), made + 1
        codes.update({finding.rule.code for finding in report.findings})
        if took > 5 or _peak() - start_peak > 512:
            raise SystemExit(f"a file took {took:.1f} s, and the peak is {_peak()} MiB")
    print(f"{made} damaged libraries of {', '.join(known)}: no exception; slowest {slowest * 1000:.0f} ms,")
    print(f"  peak {_peak()} MiB ({start_peak} before); findings: {dict(sorted(codes.items()))}")


def lying_libraries(work: Path) -> Iterator[tuple[str, Path]]:
    """Libraries that promise far more than they have, in files that are large but empty."""
    data = bytearray(seeds(work)["bfd"])
    for name, size in (("1 TiB", 2**40), ("16 GiB", 2**34)):
        path = work / f"sparse {name}.so"
        path.write_bytes(data)
        os.truncate(path, size)
        yield f"a sparse file of {name}", path
    # Every string, section and table of the file runs to its end.
    for offset, what in ((40, "section headers"), (32, "program headers")):
        copy = bytearray(data)
        struct.pack_into("<Q", copy, offset, 2**34 - 64 * 1000)
        path = work / f"far {what}.so"
        path.write_bytes(copy)
        os.truncate(path, 2**34)
        yield f"{what} at the end of 16 GiB", path


def hostile_trees(work: Path) -> Iterator[tuple[str, Path]]:
    """Directories that nobody should upload."""
    names = work / "names" / "build" / VARIANT
    names.mkdir(parents=True)
    (names / "metadata.json").write_bytes(METADATA)
    for raw in (
        b"\xff\xfe.py",
        b"a\nb.py",
        b"a\rb.so",
        b"\x1b[31mred.py",
        b"x" * 255,
        b"-rf",
        b"::error::.py",
        b" .py",
    ):
        Path(os.fsdecode(os.fsencode(names) + b"/" + raw)).write_bytes(b"import \xff\n")
    yield "names that are no text", names

    links = work / "links" / "build" / VARIANT
    links.mkdir(parents=True)
    for name, target in LINKS.items():
        (links / name).symlink_to(target)
    os.mkfifo(links / "pipe.py")
    os.mkfifo(links / "pipe.so")
    yield "links out of the tree, in circles and to devices; pipes", links

    texts = work / "texts" / "build" / VARIANT
    texts.mkdir(parents=True)
    (texts / "metadata.json").write_bytes(b"[" * 200_000)
    for number, source in enumerate(SOURCES):
        (texts / f"m{number}.py").write_bytes(source)
    with (texts / "large.py").open("wb") as file:
        file.truncate(2**33)
    yield "JSON and Python that are too deep or too large", texts

    deep = work / "deep" / "build" / VARIANT
    deep.mkdir(parents=True)
    (deep / "metadata.json").write_bytes(METADATA)
    here = os.open(deep, os.O_RDONLY)
    for _ in range(1200):  # deeper than PATH_MAX allows a path to be
        os.mkdir("dddd", dir_fd=here)
        inner = os.open("dddd", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    yield "1200 nested directories", deep

    many = work / "many" / "build" / VARIANT
    many.mkdir(parents=True)
    (many / "metadata.json").write_bytes(METADATA)
    folder = os.open(many, os.O_RDONLY)
    for number in range(1_000_000):
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    yield "10^6 files in a directory", many
    yield "10^6 files, as a build folder", many.parent


def check_one(what: str, path: Path) -> None:
    """Check a path in a process of its own, and print what it took."""
    start = time.monotonic()
    command = [sys.executable, "-m", "kernel_builder", "check", "--format", "json", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=300)
    took = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(
        f"{what}: exit {process.returncode}, {took:.1f} s, {len(out)} bytes; peak of all so far {peak} MiB", flush=True
    )
    if process.returncode not in {0, 1, 2} or b"Traceback" in err:
        raise SystemExit(err.decode("utf-8", "replace")[-3000:])


def main() -> None:
    """Run everything."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    work = Path(tempfile.mkdtemp(prefix="fuzz-check-"))
    try:
        (work / "fuzz").mkdir()
        fuzz_libraries(work / "fuzz", seconds, random.Random(seed))  # noqa: S311
        for what, path in chain(lying_libraries(work), hostile_trees(work)):
            check_one(what, path)
    finally:
        subprocess.run(["rm", "-rf", str(work)], check=False)  # deeper than shutil can go


if __name__ == "__main__":
    main()
