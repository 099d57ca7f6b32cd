"""What two builds of one variant were made of, and what of that differs."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_builder.artifact.tools import HEADERS, flag_differences, source_differences, tool_differences
from kernel_builder.project.digests import DIGITS, by_folder, by_path

A, B = "a" * 64, "b" * 64
NAMES = {
    "build.toml": A,
    "src/a b.h": B,
    "src/one, two.h": A,
    "src/deep/x.cuh": B,
    "vendor": "-> ../other place, too",
    "/usr/include/c++/12/vector": A,
}


def test_digests_are_read_as_they_were_written() -> None:
    record = by_folder(NAMES)
    assert set(record) == {".", "src", "src/deep", "/usr/include/c++/12"}
    expected = {name: A[:DIGITS] if digest == A else B[:DIGITS] for name, digest in NAMES.items()}
    assert by_path(record) == {**expected, "vendor": "->../other place, too"}


@pytest.mark.parametrize("record", [None, [], "x", {"src": 3}, {"src": ""}, {"src": "a.h"}, {3: "a.h " + A}])
def test_what_is_no_record_of_files_says_nothing_wrong(record: object) -> None:
    assert all(isinstance(name, str) for name in by_path(record))


def of(files: dict[str, str] | None, digest: str = A, scheme: str = "s") -> dict[str, Any]:
    sources: dict[str, Any] = {"scheme": scheme, "sha256": digest}
    if files is not None:
        sources["files"] = by_folder(files)
    return {"provenance": {"sources": sources}}


def test_files_that_are_others_are_named() -> None:
    before, after = {"src/a.h": A, "src/gone.h": A, "x.py": A}, {"src/a.h": B, "src/new.h": A, "x.py": A}
    assert source_differences(of(before), of(after, B)) == (
        f"built from another src/a.h: {A[:DIGITS]}, here {B[:DIGITS]}",
        "built from src/gone.h, here without",
        "built without src/new.h, here with it",
    )
    many = source_differences(of({f"{at}.h": A for at in range(14)}), of({f"{at}.h": B for at in range(14)}, B))
    assert (len(many), many[-1]) == (11, "and 4 more files")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (of({"a": A}), of({"a": A}), ""),
        (of(None), of({"a": A}, B), "older versions do not record"),
        (of({"a": A}, scheme="other"), of({"a": B}, B), ""),
        ({}, of({"a": A}), ""),
        ({"provenance": {"sources": "x"}}, of({"a": A}), ""),
        (of({"a": A}), of({"a": A}, B), "beginnings of digests"),
    ],
)
def test_older_and_odd_records_are_no_failure(one: dict[str, Any], other: dict[str, Any], said: str) -> None:
    found = source_differences(one, other)
    assert said in "".join(found)
    assert bool(found) == bool(said)


def test_a_header_of_the_system_is_named() -> None:
    def built(digests: dict[str, str] | None) -> dict[str, Any]:
        tool: dict[str, Any] = {"name": "g++", "version": "12.2.0"}
        if digests is not None:
            tool[HEADERS] = by_folder(digests)
        return {"provenance": {"tools": [tool]}}

    before, after = built({"/usr/include/math.h": A, "/usr/include/x.h": A}), built({"/usr/include/math.h": B})
    assert tool_differences(before, after) == (
        f"built with another /usr/include/math.h: {A[:DIGITS]}, here {B[:DIGITS]}",
        "built with /usr/include/x.h, here without",
    )
    assert tool_differences(built(None), after) == ()
    assert tool_differences(before, before) == ()


def given(flags: object, digest: str = A) -> dict[str, Any]:
    return {"provenance": {"sources": {"scheme": "s", "sha256": digest}, "flags": flags}}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            given({"a.cpp": "-O1 -g", "b.cpp": "-O1"}),
            given({"a.cpp": "-O3 -g"}, B),
            ("a.cpp was compiled with -O1, here with -O3", "b.cpp was compiled with -O1, here without"),
        ),
        (given({}), given({"k.cu": "-DX='a b'"}, B), ("k.cu was compiled without '-DX=a b', here with",)),
        (given({"a": "-Ua -Da"}), given({"a": "-Da -Ua"}, B), ("a was compiled with -Ua -Da, here with -Da -Ua",)),
        (given({"a": "-O1"}), given({"a": "-O1"}, B), ()),
        # The same sources have the same flags: one build does not tell them.
        (given({"a": "-O1"}), given({}), ()),
        (given({"a": "-D'"}), given({"a": 3}, B), ("a was compiled with '-D'\"'\"'', here without",)),
        (given("x"), {}, ()),
    ],
)
def test_flags_of_the_project_are_named(one: dict[str, Any], other: dict[str, Any], said: tuple[str, ...]) -> None:
    assert flag_differences(one, other) == said
