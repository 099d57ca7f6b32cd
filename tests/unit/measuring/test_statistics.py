"""Samples, and what is told of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.measuring.statistics import Ratio, compare, quantile, summarize

Rounds = list[list[float]]


def noisy(seed: int, times: Sequence[float], *, samples: int = 20) -> Rounds:
    """Rounds around ``times``, with the long tail of a real machine: one in ten takes up to ten times as long."""
    source = random.Random(seed)  # noqa: S311 (no secret)
    return [
        [
            time * source.uniform(0.98, 1.02) * (source.uniform(2, 10) if source.random() < 0.1 else 1)
            for _ in range(samples)
        ]
        for time in times
    ]


def test_quartiles_are_interpolated() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], at) for at in (0.0, 0.25, 0.5, 1.0)] == [1.0, 1.75, 2.5, 4.0]
    assert quantile([7.0], 0.25) == 7.0
    with pytest.raises(ValueError, match="no samples"):
        summarize([[], []])


def test_outliers_are_counted_and_shown_and_move_no_median() -> None:
    told = summarize([[1.0, 1.1, 0.9, 1.0], [1.05, 0.95, 1.0, 50.0]])
    assert (told.count, told.outliers, told.most, told.least) == (8, 1, 50.0, 0.9)
    assert told.median == pytest.approx(1.0, abs=0.03)
    assert told.spread < 0.1


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=9), min_size=1, max_size=9))
def test_what_is_told_is_in_order(rounds: Rounds) -> None:
    told = summarize(rounds)
    assert told.least <= told.q1 <= told.median <= told.q3 <= told.most
    assert 0 <= told.outliers <= told.count == sum(map(len, rounds))


def test_a_difference_is_seen_through_noise_and_the_sides_are_symmetric() -> None:
    fast, slow = noisy(1, [1.0] * 20), noisy(2, [1.1] * 20)
    ratio = compare(fast, slow)
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.value == pytest.approx(1 / 1.1, rel=0.02)
    assert (ratio.verdict, compare(slow, fast).verdict) == ("faster", "slower")
    assert compare(slow, fast).value == pytest.approx(1 / ratio.value, rel=0.01)


def test_equal_builds_are_not_told_apart() -> None:
    """A confidence of 95 %: of forty comparisons of the same with itself, few see what is not there."""
    seen = [compare(noisy(seed, [1.0] * 20), noisy(1000 + seed, [1.0] * 20)) for seed in range(40)]
    assert sum(ratio.verdict != "no difference seen" for ratio in seen) <= 5


def test_what_disturbs_both_in_the_same_round_disturbs_no_ratio() -> None:
    """The machine is three times slower for half of the time: the medians alone could say anything."""
    drift = [1.0] * 10 + [3.0] * 10
    ratio = compare(noisy(3, drift), noisy(4, [time * 1.2 for time in drift]))
    assert ratio.value == pytest.approx(1 / 1.2, rel=0.02)
    assert ratio.high < 1


def test_the_same_samples_give_the_same_interval_and_rounds_must_pair() -> None:
    ours, theirs = noisy(5, [1.0] * 8), noisy(6, [1.0] * 8)
    assert compare(ours, theirs) == compare(ours, theirs)
    with pytest.raises(ValueError, match="zip"):
        compare(ours, theirs[:-1])
    with pytest.raises(ValueError, match="no rounds"):
        compare([], [])


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.8, 1.0, "no difference seen"),
        (0.985, 0.99, "no difference seen"),
        (1.003, 1.007, "no difference seen"),
        (0.95, 0.97, "faster"),
        (1.03, 1.05, "slower"),
    ],
)
def test_what_two_processes_of_one_build_may_differ_by_is_no_difference(low: float, high: float, verdict: str) -> None:
    assert Ratio(value=(low + high) / 2, low=low, high=high).verdict == verdict
