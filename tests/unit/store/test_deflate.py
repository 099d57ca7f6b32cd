"""Reading the end of a deflate stream without its beginning."""

from __future__ import annotations

import hashlib
import random
import zlib

import pytest

from kernel_builder.store.deflate import inflate_end


def deflate(data: bytes, level: int = 6) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def names(count: int, seed: int = 0) -> bytes:
    """Text like a string table."""
    rng = random.Random(seed)  # noqa: S311
    words = [hashlib.sha256(str(rng.random()).encode()).hexdigest()[: rng.randint(3, 12)] for _ in range(400)]
    return b"".join(b"\0_ZN" + "".join(rng.choices(words, k=4)).encode() for _ in range(count))


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("seed", range(4))
def test_the_end_comes_out_as_it_went_in(level: int, seed: int) -> None:
    before, after = names(16_000, seed), names(10_000, seed + 100)
    noise = random.Random(seed).randbytes(100_000)  # noqa: S311  (like the hash table before a string table)
    packed = deflate(before + noise + after, level)
    tail = packed[len(deflate(before, level)) // 5 :]
    assert inflate_end(tail, len(after)) == after


def test_a_tail_that_is_too_short_gives_nothing() -> None:
    packed = deflate(names(20_000))
    assert inflate_end(packed[-20_000:], 2_000_000) is None


def test_bytes_that_depend_on_what_came_before_are_not_made_up() -> None:
    # Each 30,000 bytes repeat the ones before, so everything hangs on the beginning, which the tail lacks.
    unit = random.Random(5).randbytes(30_000)  # noqa: S311
    data = unit * 200
    packed = deflate(data)
    found = inflate_end(packed[len(packed) // 2 :], 1_000_000)
    assert found is None or found == data[-1_000_000:]


def test_noise_gives_nothing() -> None:
    assert inflate_end(random.Random(1).randbytes(30_000), 1000) is None  # noqa: S311


def test_another_end_of_stream_gives_nothing() -> None:
    packed = deflate(names(20_000))
    assert inflate_end(packed[: len(packed) - 5000], 100_000) is None
