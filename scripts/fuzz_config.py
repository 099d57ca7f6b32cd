"""Feed mutated build.toml files to the reader and to update-build: no input may make them crash, hang or lie.

Run it as: python scripts/fuzz_config.py --count 1000000 --seconds 600. Every input must end in a project or in a
ConfigError whose places lie in the file; an update must be stable. The first one that does not is printed, with the
seed that makes it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.config.migrate import update
from kernel_builder.config.reader import read_project
from kernel_builder.errors import ConfigError

ROOT = Path(__file__).parent.parent
FILE = Path("build.toml")
SLOW = 2.0
"""Seconds that one input may take."""

PIECES = [
    *(b"[ ] { } [[ ]] = , . \" ' # + - _ 0 9".split()),
    *(b'"""', b"'''", b"\\", b"\\u0000", b"\r\n", b"\n", b"\t", b"\0", b"\r"),
    *(b"true", b"1e9", b"inf", b"nan", b"0x7f", b"2024-01-01", b"99999999999999999999", b"2.10", b"5", b"6", b"4"),
    *(b"general", b"torch", b"torch-noarch", b"tvm-ffi", b"kernel", b"universal", b"language", b"edition", b"backends"),
    *(b"cuda", b"cpu", b'"cuda-hipify"', b"stable-abi", b"cuda-minver", b"kernel-depends", b"cutlass_sycl", b"license"),
    *("é".encode(), "\ufeff".encode(), "\u202e".encode(), b"\xff", b"\xc3", b"[" * 40, b"a." * 40, b"{ a = " * 40),
]


GOOD = [
    b"""[general]
name = "scale"
[torch] # binding
src = ["b.cpp"]
[kernel.a] # both
cuda-capabilities = ["8.0", "9.0a"]
language = "cuda-hipify"
rocm-archs = ["gfx942"]
src = ["a.cu"]
depends = ["torch"]
""",
    b"""[general]
name = "scale"
cuda-minver = "12.4"
python-depends = ["einops", "nvidia-cutlass-dsl"]
[general.hub]
repo-id = "me/scale"
[torch]
[kernel.a]
backend = "cuda"
src = ["a.cu"]
depends = ["torch"]
""",
    b'[general]\r\nname = "scale"\r\nuniversal = true\r\n',
    b'general = { name = "ab", version = 1, license = "mit", backends = ["cpu"] }\ntorch.src = []\n',
    b"""[general]
name = "scale"
version = 1
license = "mit"
backends = ["cuda", "cpu"]
kernel-depends = [{ repo-id = "a/b", version = 1 }]
[torch]
stable-abi = { cuda = "2.10" }
pyext = ["py", "json"]
[kernel."a b"]
backend = "cpu"
src = ["a.cpp", "b.cpp"]
depends = []
cxx-flags = ["-O3"]
""",
]
"""Files of every edition without mistakes."""


@dataclass
class Tally:
    """What came of the inputs so far, and the slowest of them."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    slowest_seed: int = 0


def corpus() -> list[bytes]:
    """Files to begin with: those of the tests and examples."""
    found = sorted({*ROOT.glob("tests/**/build.toml"), *ROOT.glob("examples/*/build.toml")})
    return [path.read_bytes() for path in found] + 4 * GOOD


def mutated(seeds: list[bytes], random_: random.Random) -> bytes:
    """One of ``seeds``, changed in one to eight places."""
    data = bytearray(random_.choice(seeds))
    for _ in range(random_.choice([1, 1, 1, 2, 2, 3, 5, 8])):
        start = random_.randint(0, len(data))
        end = min(len(data), start + random_.choice([0, 1, 1, 4, 16, 64]))
        match random_.randrange(6):
            case 0:
                del data[start:end]
            case 1:
                data[start:start] = random_.choice(PIECES)
            case 2:
                data[start:end] = random_.choice(PIECES)
            case 3:
                data[start:start] = data[random_.randint(0, len(data)) :][: random_.choice([8, 64, 512])]
            case 4:
                lines = bytes(data).split(b"\n")
                random_.shuffle(lines)
                data = bytearray(b"\n".join(lines))
            case _:
                lines = bytes(data).split(b"\n")
                other = random_.choice(seeds).split(b"\n")
                lines[random_.randint(0, len(lines)) :] = other[random_.randint(0, len(other)) :]
                data = bytearray(b"\n".join(lines))
    return bytes(data[:20_000])


def judge(data: bytes) -> str:
    """Read and update one input. Returns what came of it; raises ``AssertionError`` when that is not right."""
    try:
        project, _ = read_project(data, file=FILE, root=ROOT, tree=False)
    except ConfigError as error:
        _judge_refusal(data, error)
        return "refused"
    try:
        change = update(data, file=FILE, root=ROOT, license_=project.license or "mit")
    except ConfigError:
        return "read, not updated"
    _expect(not update(change.after, file=FILE, root=ROOT).is_due, "an update that is never done")
    return "updated" if change.is_due else "read"


def _judge_refusal(data: bytes, error: ConfigError) -> None:
    _expect(bool(error.diagnostics), "a refusal without a reason")
    lines = data.count(b"\n") + 1
    for one in error.diagnostics:
        _expect(one.line is None or 1 <= one.line <= lines, f"line {one.line} of {lines}")
        _expect("\n" not in one.message, "a message of several lines")
        _expect(len(one.message) < 2000, "an endless message")


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def main() -> int:
    """Run until ``--count`` inputs or ``--seconds`` are through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    seeds = corpus()
    tally = Tally()
    begin = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() - begin > options.seconds:
            break
        data = mutated(seeds, random.Random(seed))  # noqa: S311  (repeatable, not secret)
        start = time.monotonic()
        try:
            outcome = judge(data)
        except BaseException:
            print(f"seed {seed}: {data!r}", file=sys.stderr)
            raise
        took = time.monotonic() - start
        tally.outcomes[outcome] += 1
        if took > tally.slowest:
            tally.slowest, tally.slowest_seed = took, seed
    total = tally.outcomes.total()
    print(f"{total} inputs in {time.monotonic() - begin:.0f} s: {dict(sorted(tally.outcomes.items()))}")
    print(f"slowest: {tally.slowest * 1000:.0f} ms (seed {tally.slowest_seed})")
    return int(tally.slowest > SLOW)


if __name__ == "__main__":
    sys.exit(main())
