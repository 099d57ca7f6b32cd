"""What loads a variant is ready for that variant alone, and goes with it, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.load.child import Standby
from kernel_builder.load.client import Environment, NoEnvironment
from kernel_builder.plan.model import VariantPlan
from kernel_builder.variants.names import parse_variant
from kernel_builder.workflow.ahead import Ahead

HERE = Environment(python=Path("/python"), torch="2.13.0", toolkits={}, devices={}, abi=None)


def plan(backend: str) -> VariantPlan:
    return VariantPlan(
        variant=parse_variant(f"torch-{backend}"),
        ops_id=f"_k_{backend}_1",
        generated=(),
        actions=(),
        library=None,
        installed=(),
        metadata={},
    )


CPU, CUDA = plan("cpu"), plan("cuda")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What began and ended to wait, and where."""
    found: list[tuple[str, Path]] = []

    @contextmanager
    def ahead_of(self: Environment, folder: Path) -> Iterator[Environment]:
        assert folder.is_dir()
        found.append(("began", folder))
        try:
            yield replace(self, ahead=Standby.__new__(Standby))
        finally:
            found.append(("ended", folder))

    monkeypatch.setattr(Environment, "ahead_of", ahead_of)
    return found


def test_it_is_there_for_the_variant_and_gone_with_it(tmp_path: Path, started: list[tuple[str, Path]]) -> None:
    output = tmp_path / "build"
    with Ahead(HERE, output) as ahead:
        ahead.begin(CPU)
        ahead.begin(CUDA)  # one at a time
        ahead.begin(CPU)
        with ahead.place_for(CUDA) as (other, environment):
            assert environment is HERE
            assert other.is_dir()
        with ahead.place_for(CPU) as (stage, environment):
            assert isinstance(environment, Environment)
            assert environment.ahead is not None
            assert started == [("began", stage)]
        assert started == [("began", stage), ("ended", stage)]
        assert list(output.iterdir()) == []
        ahead.begin(CUDA)
        assert len(started) == 3
    assert [what for what, _ in started] == ["began", "ended", "began", "ended"]
    assert list(output.iterdir()) == []


def test_a_variant_that_failed_leaves_nothing(tmp_path: Path, started: list[tuple[str, Path]]) -> None:
    output = tmp_path / "build"
    with Ahead(HERE, output) as ahead:
        ahead.begin(CPU)
        ahead.give_up(CUDA.name)
        assert len(started) == 1
        ahead.give_up(CPU.name)
        assert [what for what, _ in started] == ["began", "ended"]
        assert not output.exists()
        ahead.begin(CUDA)
        assert len(started) == 3
    assert not output.exists()
    output.mkdir()
    with Ahead(HERE, output) as ahead:
        ahead.begin(CPU)
    assert list(output.iterdir()) == []  # it was there


def test_an_interrupt_leaves_nothing(tmp_path: Path, started: list[tuple[str, Path]]) -> None:
    def interrupted() -> None:
        with Ahead(HERE, tmp_path) as ahead:
            ahead.begin(CPU)
            with ahead.place_for(CPU):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [what for what, _ in started] == ["began", "ended"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "variant"),
    [(NoEnvironment(reason="no torch"), "torch-cpu"), (HERE, "torch212-cxx11-cpu-x86_64-linux")],
)
def test_where_nothing_can_be_loaded_nothing_starts(
    tmp_path: Path, started: list[tuple[str, Path]], environment: Environment | NoEnvironment, variant: str
) -> None:
    with Ahead(environment, tmp_path) as ahead:
        ahead.begin(replace(CPU, variant=parse_variant(variant)))
        assert started == []
        with ahead.place_for(CPU) as (_, given):
            assert given is environment
