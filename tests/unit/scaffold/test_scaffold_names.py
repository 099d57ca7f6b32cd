"""Names of new projects: what is taken, converted and refused."""

import pytest

from kernel_builder.errors import UsageError
from kernel_builder.scaffold.names import ProjectName, nearest, parse_name, parse_repo_id


@pytest.mark.parametrize("text", ["ab", "my-kernel", "relu2d", "a--b", "float"])
def test_a_valid_name_is_kept_as_it_is(text: str) -> None:
    assert parse_name(text) == (text, ())


@pytest.mark.parametrize(
    ("text", "name"), [("My-Kernel", "my-kernel"), ("my_kernel", "my-kernel"), ("ReLU_2D", "relu-2d")]
)
def test_capitals_and_underscores_are_converted_with_a_note(text: str, name: str) -> None:
    converted, notes = parse_name(text)
    assert converted == name
    assert len(notes) == 1
    assert repr(name) in notes[0]
    assert "lowercase" in notes[0]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("a", None),
        ("", None),
        ("2relu", "kernel-2relu"),
        ("relu-", "relu"),
        ("-relu", "relu"),
        ("_relu", "relu"),
        ("re lu", "re-lu"),
        ("..", None),
        ("na\u00efve", "na-ve"),
        ("\u212aernel", "kernel"),
        ("relu\n", "relu"),
    ],
)
def test_an_invalid_name_is_refused_with_the_rule_and_the_nearest_valid_one(text: str, near: str | None) -> None:
    with pytest.raises(UsageError, match="lowercase letters, digits and dashes") as caught:
        parse_name(text)
    assert nearest(text) == near
    assert caught.value.hint is not None
    assert (repr(near) if near else "--name") in caught.value.hint


@pytest.mark.parametrize("text", ["for", "lambda", "torch", "ops", "layers", "name"])
def test_names_that_its_function_cannot_have_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="its function would be called") as caught:
        parse_name(text)
    assert caught.value.hint == f"use '{text}-kernel'"


@pytest.mark.parametrize("text", ["con", "AUX", "nul", "com1"])
def test_names_that_windows_reserves_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Windows reserves") as caught:
        parse_name(text)
    assert caught.value.hint == f"use '{text.lower()}-kernel'"


def test_owner_and_repo_are_read_and_the_owner_keeps_its_spelling() -> None:
    assert parse_repo_id("My_Org/my-kernel") == (ProjectName(name="my-kernel", owner="My_Org"), ())
    assert parse_repo_id("my-kernel") == (ProjectName(name="my-kernel"), ())


@pytest.mark.parametrize("text", ["a/b/c", "/kernel", "me/", "", "./kernel", "a b/kernel", "https://x/me/kernel"])
def test_what_is_no_owner_and_repo_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_repo_id(text)


def test_every_form_of_a_name_follows_from_it() -> None:
    names = ProjectName(name="my-kernel2d", owner="me")
    assert (names.repo_id, names.python_name, names.class_name) == ("me/my-kernel2d", "my_kernel2d", "MyKernel2d")
    assert ProjectName(name="ab").repo_id is None
