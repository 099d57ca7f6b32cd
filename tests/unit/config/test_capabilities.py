"""CUDA capabilities: grammar (cases T4) and selection (contract 2.7, cases T5)."""

from __future__ import annotations

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import (
    names,
    parse_architecture,
    parse_capability,
    running_on,
    select_capabilities,
    why_dropped,
)
from kernel_builder.config.model import Capability, Suffix


def capabilities(text: str) -> tuple[Capability, ...]:
    return tuple(parse_capability(word) for word in text.split())


CUDA_12_6 = capabilities("7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX")
CUDA_12_8 = capabilities("7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX")
CUDA_13_0 = capabilities("7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX")


def selected(requested: str, supported: tuple[Capability, ...]) -> str:
    return " ".join(map(str, select_capabilities(capabilities(requested), supported).effective))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0", Capability(8, 0)),
        ("9.0a", Capability(9, 0, Suffix.ARCH)),
        ("9.0+PTX", Capability(9, 0, ptx=True)),
        ("10.0f", Capability(10, 0, Suffix.FAMILY)),
        ("12.0f", Capability(12, 0, Suffix.FAMILY)),
        ("9.0a+PTX", Capability(9, 0, Suffix.ARCH, ptx=True)),
        ("12.1", Capability(12, 1)),
    ],
)
def test_reads_every_form_and_writes_it_back(text: str, expected: Capability) -> None:
    assert parse_capability(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90", "9.0"),
        ("sm_90", "9.0"),
        ("sm_90a", "9.0a"),
        ("compute_100f", "10.0f"),
        ("9", "9.0"),
        ("9.0 PTX", "9.0+PTX"),
        ("9.0+ptx", "9.0+PTX"),
        ("9.0A", "9.0a"),
        (" 8.0", "8.0"),
        ("", None),
        ("9.", None),
        ("9.00", None),
        ("9.0b", None),
        ("09.0", None),
        ("99999.0", None),
        ("9.0+PTX+PTX", None),
        ("٩.0", None),
        ("9.0\n", "9.0"),
        ("x" * 10_000, None),
    ],
)
def test_refuses_what_is_no_capability_and_says_what_was_meant(text: str, meant: str | None) -> None:
    with pytest.raises(ValueError, match="is not a CUDA capability; write ") as caught:
        parse_architecture(Backend("cuda"), text)
    said = str(caught.value)
    assert len(said) < 250
    assert said.endswith(f"write '{meant}'") if meant else "write major.minor" in said


@pytest.mark.parametrize(
    ("requested", "on_12_6", "on_12_8", "on_13_0"),
    [
        ("8.0+PTX", "8.0+PTX", "8.0+PTX", "8.0+PTX"),
        ("8.0", "8.0", "8.0", "8.0"),
        ("10.0f", "", "10.0f", "10.0f"),
        ("10.3a", "", "", ""),
        ("5.0 7.5", "7.5", "7.5", "7.5"),
        ("11.8", "", "", ""),
        ("9.0a+PTX", "9.0a+PTX", "9.0a+PTX", "9.0a+PTX"),
        # One more than the reference, which drops the plain 9.0.
        ("9.0 9.0a", "9.0 9.0a", "9.0 9.0a", "9.0 9.0a"),
        # T5.
        ("7.0", "7.0", "7.0", ""),
        ("7.0 8.0", "7.0 8.0", "7.0 8.0", "8.0"),
        ("10.1", "", "10.1", ""),
        # Duplicates merge, order is natural, 10.0 comes after 9.0.
        ("10.0 9.0 8.0 8.0+PTX 8.0", "8.0+PTX 9.0", "8.0+PTX 9.0 10.0", "8.0+PTX 9.0 10.0"),
        ("7.0 7.2 7.5 8.0 8.6 9.0 10.0 10.1 11.8 12.0", "7.0 7.2 7.5 8.0 8.6 9.0",
         "7.0 7.2 7.5 8.0 8.6 9.0 10.0 10.1 12.0", "7.5 8.0 8.6 9.0 10.0 12.0"),
    ],
)  # fmt: skip
def test_selects_what_list_and_toolkit_have_in_common(requested: str, on_12_6: str, on_12_8: str, on_13_0: str) -> None:
    assert selected(requested, CUDA_12_6) == on_12_6
    assert selected(requested, CUDA_12_8) == on_12_8
    assert selected(requested, CUDA_13_0) == on_13_0


def test_without_a_list_everything_is_selected_with_the_default_ptx() -> None:
    selection = select_capabilities(None, CUDA_13_0)
    assert selection.effective == CUDA_13_0
    assert selection.dropped == ()


def test_what_is_dropped_is_told_in_the_order_of_the_request() -> None:
    selection = select_capabilities(capabilities("12.1 7.0 8.0 11.8 7.0 10.3a"), CUDA_13_0)
    assert selection.effective == capabilities("8.0 12.1")
    assert selection.dropped == capabilities("7.0 11.8 10.3a")


def test_an_old_capability_stands_in_for_newer_ones_where_nvcc_compiles_it() -> None:
    requested = capabilities("5.0+PTX 6.1 7.3")
    assert select_capabilities(requested, CUDA_12_6).effective == ()
    compilable = capabilities("5.0 5.2 6.0 6.1 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0")
    assert select_capabilities(requested, CUDA_12_6, compilable=compilable).effective == capabilities("5.0+PTX")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10.1", "calls it 11.0"),
        ("7.0", "older than 7.5"),
        ("12.3", "newer than 12.1"),
        ("8.1", "does not support it"),
    ],
)
def test_says_why_one_was_dropped(text: str, reason: str) -> None:
    assert reason in why_dropped(parse_capability(text), CUDA_13_0)


def test_says_the_old_name_to_an_old_toolkit() -> None:
    assert "calls it 10.1" in why_dropped(parse_capability("11.0"), CUDA_12_8)


@pytest.mark.parametrize(
    ("asked", "compiled", "meant"),
    [
        ("9.0", "8.0 9.0 9.0a 10.0", "9.0 9.0a"),
        ("9.0a", "9.0 9.0a", "9.0a"),
        ("9.0+PTX", "9.0 9.0a", ""),
        ("12.0", "8.0 12.0+PTX", "12.0+PTX"),
        ("12.0+PTX", "8.0 12.0+PTX", "12.0+PTX"),
        ("8.9", "8.0 9.0", ""),
    ],
)
def test_who_asks_for_a_chip_means_all_code_for_it(asked: str, compiled: str, meant: str) -> None:
    found = [one for one in capabilities(compiled) if names(parse_capability(asked), one)]
    assert " ".join(map(str, found)) == meant


def test_names_of_architectures_mean_themselves() -> None:
    assert names("gfx90a", "gfx90a")
    assert not names("gfx90a", "gfx942")


@pytest.mark.parametrize(
    ("devices", "compiled", "run"),
    [
        ("9.0", "8.0 9.0 9.0a", "9.0 9.0a"),
        ("8.9", "8.0 8.6 9.0", "8.6"),
        ("8.0 9.0", "7.5 8.0 9.0a", "8.0 9.0a"),
        ("12.1", "8.0 10.0a 12.0+PTX", "12.0+PTX"),
        ("9.0", "8.0+PTX 10.0", "8.0+PTX"),
        ("7.0", "8.0 9.0", ""),
        ("", "8.0 9.0", ""),
    ],
)
def test_a_device_runs_the_best_code_that_it_takes(devices: str, compiled: str, run: str) -> None:
    assert " ".join(map(str, running_on(capabilities(devices), capabilities(compiled)))) == run
