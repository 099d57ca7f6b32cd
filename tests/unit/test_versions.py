from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.versions import Version

numbers = st.lists(st.integers(0, 400), min_size=1, max_size=4)


@pytest.mark.parametrize("text", ["", " ", "1.", ".1", "1..2", "v1", "1.2rc1", "-1", "1,2", "١.٢", "1" * 80])
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version.*2\.10"):
        Version.parse(text)


def test_raw_text_is_kept() -> None:
    assert str(Version.parse(" 13.0 ")) == "13.0"
    assert Version.parse("13.0") == Version.parse("13")


@pytest.mark.parametrize(("low", "high"), [("2.9", "2.10"), ("12.6", "13"), ("2.12", "2.12.1")])
def test_parts_compare_as_numbers(low: str, high: str) -> None:
    assert Version.parse(low) < Version.parse(high)
    assert not Version.parse(high) < Version.parse(low)


@pytest.mark.parametrize(
    ("version", "bound", "inside"),
    [
        ("2.12.1", "2.12", True),
        ("2.13", "2.12", False),
        ("13.0.88", "13.0", True),
        ("13.0", "13", True),
        ("13.2", "13", True),
        ("14.0", "13", False),
        ("2.12", "2.12.1", True),
        ("2.12.2", "2.12.1", False),
        ("2", "2.0.1", True),
    ],
)
def test_an_upper_bound_speaks_of_the_parts_it_writes(version: str, bound: str, inside: bool) -> None:
    assert Version.parse(version).is_at_most(Version.parse(bound)) is inside


@given(numbers, numbers)
def test_order_is_total_and_agrees_with_equality(first: list[int], second: list[int]) -> None:
    a, b = (Version.parse(".".join(map(str, parts))) for parts in (first, second))
    assert (a < b) + (a == b) + (b < a) == 1
    assert a.is_at_most(a)
    assert a.is_at_least(a)
    if a == b:
        assert hash(a) == hash(b)
