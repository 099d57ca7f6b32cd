"""What a build would do, and what it cannot: told by sources, and by reasons that variants share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.model import ActionKind
from kernel_builder.workflow.forecast import forecast
from kernel_builder.workflow.outcome import Unavailable, grouped
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.toolchains import Chosen
from planned import FILES, FOR_ROCM, GXX, ROCM_NAMES, amd, make_plan

LIKEWISE = "(for the last one; the others lack the same in their own versions)"


def test_what_makes_several_sources_is_no_source(make_project: ProjectMaker, tmp_path: Path) -> None:
    toml = FOR_ROCM.replace('"src/device.cu"', '"src/device.cu", "src/second.cu"')
    root = make_project("two-halves", {**FILES, "src/second.cu": "int second;"}, toml=toml)
    plan = make_plan(root, ROCM_NAMES, GXX, toolkits=[amd()])
    assert [action.source for action in plan.actions if action.kind is ActionKind.TRANSLATE] == ["2 sources"]
    prepared = cast("Prepared", SimpleNamespace(plan=plan, chosen=Chosen()))
    (found,) = forecast(prepared, {"HOME": str(tmp_path)})
    assert {"src/device.cu", "src/second.cu", "src/own.hip"} < set(found.compiled)
    assert all((root / source).is_file() for source in found.compiled)


def lacking(
    name: str, version: str, *, wheel: str = "torch-2.9-1.whl", remedy: str | None = "install {}"
) -> Unavailable:
    reason = f"no source has X {version}\n  index: {wheel}: X {version} is none"
    return Unavailable(name=name, reason=reason, remedy=remedy and remedy.format(version))


def test_reasons_that_differ_in_versions_and_wheels_alone_are_told_once() -> None:
    first, second = lacking("a", "7.1"), lacking("b", "7.2", wheel="torch-2.13.0-cp312-x86_64.whl and 2 more")
    (reason, remedy), names = next(iter(grouped([first, second]).items()))
    assert (reason, remedy, names) == (f"{second.reason}\n{LIKEWISE}", "install 7.2", ["a", "b"])
    same = lacking("c", "7.1")
    assert grouped([first, same]) == {(first.reason, first.remedy): ["a", "c"]}


def test_a_command_that_would_help_names_all_variants() -> None:
    remedy = "run: fetch 'torch{}-cpu'; 'fetch again' goes on"
    entries = [lacking(version, version, remedy=remedy) for version in ("2.12", "2.13", "2.13")]
    (found,) = grouped(entries)
    assert found[1] == "run: fetch 'torch2.12-cpu' 'torch2.13-cpu'; 'fetch again' goes on"


@pytest.mark.parametrize(
    "other",
    [
        Unavailable(
            name="b", reason="no source has Y 7.1\n  index: torch-2.9-1.whl: Y 7.1 is none", remedy="install 7.1"
        ),
        lacking("b", "7.1", remedy="ask for {}"),
        lacking("b", "7.1", remedy=None),
    ],
)
def test_what_differs_in_more_is_told_apart(other: Unavailable) -> None:
    assert list(grouped([lacking("a", "7.1"), other]).values()) == [["a"], ["b"]]
    assert LIKEWISE not in str(grouped([lacking("a", "7.1"), other]))


def test_numbers_that_are_no_versions_count() -> None:
    entries = [
        Unavailable(name=name, reason=f"/x answered {code}", remedy=None) for name, code in (("a", 404), ("b", 503))
    ]
    assert grouped(entries) == {("/x answered 404", None): ["a"], ("/x answered 503", None): ["b"]}


def test_a_reason_that_is_the_same_is_told_as_it_is() -> None:
    entries = [
        Unavailable(name=name, reason="it is off", remedy=f"run: fetch '{name}'") for name in ("torch212", "torch213")
    ]
    assert grouped(entries) == {("it is off", "run: fetch 'torch212' 'torch213'"): ["torch212", "torch213"]}
