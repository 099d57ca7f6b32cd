"""Builds for debuggers and sanitizers: what compilers are told, and what keeps them apart from those for users."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from conftest import ProjectMaker, Tool
from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.plan.model import VariantPlan
from kernel_builder.variants.build_type import RELEASE, BuildType, Debug, Sanitizer
from planned import FILES, GXX, NAMES, TOML, make_plan

DEBUG, LINES = BuildType(debug=Debug.FULL), BuildType(debug=Debug.LINES)
ADDRESS = BuildType(sanitizers=(Sanitizer.ADDRESS,))
ALL = (RELEASE, DEBUG, LINES, ADDRESS, BuildType(debug=Debug.FULL, sanitizers=(Sanitizer.THREAD, Sanitizer.UNDEFINED)))


@pytest.fixture
def root(make_project: ProjectMaker) -> Path:
    toml = TOML.replace('"-mavx2"', '"-mavx2", "-O2", "-DNDEBUG"')  # what a release may ask for
    return make_project("two-halves", FILES, toml=toml)


def planned(root: Path, build_type: BuildType, name: str = NAMES[0]) -> VariantPlan:
    return make_plan(root, (name,), GXX, build_type=build_type).variants[0]


def compile_of(plan: VariantPlan, source: str) -> Action:
    return next(one for one in plan.actions if one.source == source and one.kind is ActionKind.COMPILE)


def last(words: tuple[str, ...], *of: str) -> str:
    """The one of those words that comes last, and so holds."""
    return next(word for word in reversed(words) if word in of)


def test_debugging_overrides_what_the_project_asks_for(root: Path) -> None:
    words = compile_of(planned(root, DEBUG), "src/host.cpp").command
    assert last(words, "-O0", "-O1", "-O2", "-O3") == "-O0"
    assert last(words, "-UNDEBUG", "-DNDEBUG") == "-UNDEBUG"
    assert {"-g", "-D_GLIBCXX_ASSERTIONS", "-fno-omit-frame-pointer", "-mavx2"} <= set(words)
    assert "-D_GLIBCXX_DEBUG" not in words  # it changes the ABI, and torch is built without it


def test_lines_alone_leave_the_code_as_it_is(root: Path) -> None:
    released = compile_of(planned(root, RELEASE), "src/host.cpp").command
    words = compile_of(planned(root, LINES), "src/host.cpp").command
    assert last(words, "-O0", "-O2", "-O3") == last(released, "-O0", "-O2", "-O3") == "-O2"
    assert "-UNDEBUG" not in words
    assert {word for word in words if not word.startswith("-ffile-prefix-map")} - set(released) == {
        "-g",
        "-fno-omit-frame-pointer",
    }


@pytest.mark.parametrize(
    ("build_type", "has", "lacks"),
    [(DEBUG, "-G", "-lineinfo"), (LINES, "-lineinfo", "-G"), (ADDRESS, "-lineinfo", "-G")],
)
def test_device_code_has_its_lines_too(root: Path, build_type: BuildType, has: str, lacks: str) -> None:
    words = compile_of(planned(root, build_type, NAMES[1]), "src/device.cu").command
    assert has in words
    assert lacks not in words
    assert not {"-G", "-lineinfo"} & set(compile_of(planned(root, RELEASE, NAMES[1]), "src/device.cu").command)
    # Only the host's compiler knows sanitizers.
    instrumenting = [word for word in words if "-fsanitize" in word]
    assert all(word.startswith("-Xcompiler=") for word in instrumenting)
    assert bool(instrumenting) == bool(build_type.sanitizers)


def test_what_is_undefined_ends_the_process(root: Path) -> None:
    wanted = BuildType(sanitizers=(Sanitizer.ADDRESS, Sanitizer.UNDEFINED))
    words = compile_of(planned(root, wanted), "src/host.cpp").command
    assert {"-fsanitize=address", "-fsanitize=undefined", "-fno-sanitize-recover=undefined"} <= set(words)


def test_a_debugger_finds_the_sources_and_another_checkout_is_another_command(root: Path, tmp_path: Path) -> None:
    words = compile_of(planned(root, DEBUG), "src/host.cpp").command
    assert f"-ffile-prefix-map={{project}}={root}" in words
    elsewhere = root.rename(tmp_path / "elsewhere")
    moved = compile_of(planned(elsewhere, DEBUG), "src/host.cpp").command
    assert moved != words  # the action cache would give this one the other's paths
    released = compile_of(planned(elsewhere, RELEASE), "src/host.cpp").command
    assert not any(str(elsewhere) in word for word in released)


def test_no_two_kinds_share_an_action_a_work_directory_or_metadata(root: Path) -> None:
    plans = [planned(root, build_type) for build_type in ALL]
    for one, other in combinations(plans, 2):
        commands = [
            {action.command for action in plan.actions if action.source == "src/host.cpp"} for plan in (one, other)
        ]
        assert not commands[0] & commands[1]
        assert one.metadata != other.metadata
    works = [make_plan(root, NAMES[:1], GXX, build_type=build_type).places.work for build_type in ALL]
    assert len(set(works)) == len(ALL)
    assert works[0] == root / ".kernel-builder"


@pytest.mark.parametrize("build_type", ALL, ids=lambda one: one.options or "release")
def test_metadata_say_what_it_is(root: Path, build_type: BuildType) -> None:
    provenance = planned(root, build_type).metadata["provenance"]
    assert isinstance(provenance, dict)
    assert ("build-type" in provenance) == (not build_type.is_release)
    assert BuildType.of(provenance.get("build-type", {})) == build_type


@pytest.mark.parametrize(
    "told", [{}, {"debug": 1}, {"debug": ["full"]}, {"sanitize": "address"}, {"sanitize": [["address"], None]}]
)
def test_what_nobody_wrote_is_a_release(told: dict[str, object]) -> None:
    assert BuildType.of(told) == RELEASE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--debug", "--lineinfo"), "--debug does not optimize, and --lineinfo does"),
        (("--sanitize", "address", "--sanitize", "thread"), "cannot be combined"),
        (("--debug", "--complete"), "--complete is for builds to publish, but builds with --debug"),
        (("--sanitize", "leak"), "'leak' is not one of 'address', 'thread', 'undefined'"),
    ],
)
def test_what_contradicts_itself_is_refused(options: tuple[str, ...], said: str, tool: Tool, root: Path) -> None:
    result = tool("build", root, *options)
    assert result.code == 2
    assert said in " ".join(result.stderr.split())
