"""Which wheel is taken from a page."""

from __future__ import annotations

import random

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename

from kernel_builder.errors import ToolchainError
from kernel_builder.store.index import Choice, IndexFile, choose_wheel


def files(*names: str, yanked: tuple[str, ...] = ()) -> list[IndexFile]:
    found = []
    for filename in names:
        project, version, _, tags = parse_wheel_filename(filename)
        found.append(
            IndexFile(
                project=project,
                version=version,
                filename=filename,
                tags=tags,
                url=f"https://user:secret@host/{filename}",
                yanked="broken" if filename in yanked else None,
            )
        )
    return found


def choose(found: list[IndexFile], allowed: str = "==2.13.*", machine: str = "x86_64") -> Choice:
    return choose_wheel(found, project="torch", allowed=SpecifierSet(allowed), machine=machine)


def torch(version: str, python: str = "cp312-cp312", platform: str = "manylinux_2_28_x86_64") -> str:
    return f"torch-{version}-{python}-{platform}.whl"


def test_newest_patch_of_the_minor_is_taken() -> None:
    found = files(torch("2.13.0"), torch("2.13.2"), torch("2.13.10"), torch("2.14.0"))
    assert str(choose(found).file.version) == "2.13.10"


def test_order_of_the_page_does_not_matter() -> None:
    found = files(*(torch("2.13.0", p) for p in ("cp313-cp313t", "cp313-cp313", "cp310-cp310", "cp314-cp314")))
    results = set()
    for seed in range(20):
        random.Random(seed).shuffle(found)  # noqa: S311
        results.add(choose(found).file.filename)
    assert results == {torch("2.13.0", "cp313-cp313")}


def test_preferred_python_wins_and_unknown_ones_still_serve() -> None:
    assert choose(files(torch("2.13.0", "cp310-cp310"), torch("2.13.0"))).file.filename == torch("2.13.0")
    assert choose(files(torch("2.13.0", "cp399-cp399"))).file.filename == torch("2.13.0", "cp399-cp399")


def test_other_machines_and_systems_are_refused_with_their_name() -> None:
    found = files(torch("2.13.0", platform="manylinux_2_28_aarch64"), torch("2.13.0", platform="win_amd64"))
    with pytest.raises(ToolchainError) as caught:
        choose(found)
    assert "torch ==2.13.* for Linux on x86_64" in caught.value.message
    assert caught.value.hint is not None
    assert "win_amd64" in caught.value.hint
    assert choose(found, machine="aarch64").file.filename.endswith("aarch64.whl")


def test_pure_wheels_fit_every_machine() -> None:
    assert choose(files("torch-2.13.0-py3-none-any.whl"), machine="aarch64").file.filename.endswith("any.whl")


def test_pre_releases_are_never_taken() -> None:
    with pytest.raises(ToolchainError):
        choose(files(torch("2.13.0rc1")))


def test_yanked_is_taken_only_when_nothing_else_is_left() -> None:
    bad = torch("2.13.1")
    both = choose(files(torch("2.13.0"), bad, yanked=(bad,)))
    assert str(both.file.version) == "2.13.0"
    assert [(r.filename, r.reason) for r in both.rejections] == [(bad, "yanked: broken")]
    assert choose(files(bad, yanked=(bad,))).file.filename == bad


def test_local_versions_belong_to_their_release() -> None:
    assert str(choose(files(torch("2.13.0+cu130"))).file.version) == "2.13.0+cu130"


def test_without_a_match_the_newest_versions_are_named() -> None:
    with pytest.raises(ToolchainError) as caught:
        choose(files(torch("2.9.0"), torch("2.14.0")))
    assert caught.value.hint == "newest versions available: 2.14.0, 2.9.0"


def test_repr_of_a_file_shows_no_address() -> None:
    assert "secret" not in repr(files(torch("2.13.0")))
