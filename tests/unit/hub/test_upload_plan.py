"""The plan of an upload: what is sent, replaced and deleted, and in which commits. No Hub is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_builder.hub.local import git_blob, text_file
from kernel_builder.hub.plan import (
    COMMIT_BYTES,
    SMALL,
    BranchPlan,
    ChangeKind,
    FileChange,
    LocalFile,
    RemoteFile,
    Snapshot,
    is_same,
    plan_branch,
    split,
    staging_branch,
    stale_files,
)

CPU, CUDA = "torch-cpu", "torch-cuda"


def here(path: str, text: str = "x") -> LocalFile:
    return text_file(path, text)


def there(*files: LocalFile | str, large: Iterable[str] = ()) -> Snapshot:
    """A revision with these files; those of ``large`` are stored apart."""
    made = [here(file) if isinstance(file, str) else file for file in files]
    return Snapshot(
        commit="c" * 40,
        files={
            file.path: RemoteFile(
                path=file.path,
                size=file.size,
                blob="0" * 40 if file.path in large else file.blob or "",
                sha256=file.sha256 if file.path in large else None,
            )
            for file in made
        },
    )


def actions(plan: BranchPlan) -> dict[str, str]:
    return {change.path: change.action.value for change in plan.changes}


def test_what_the_branch_holds_is_not_sent_again() -> None:
    local = [here("build/a/same"), here("build/a/large", "l"), here("build/a/new"), here("build/a/other", "2")]
    remote = there("build/a/same", here("build/a/large", "l"), here("build/a/other", "1"), large=["build/a/large"])
    plan = plan_branch("v1", local, remote, stale=["build/a/gone", "build/a/same"])
    assert actions(plan) == {"build/a/new": "add", "build/a/other": "replace"}
    assert plan.unchanged == 2
    assert plan.sent == 2


def test_only_files_that_are_there_are_deleted() -> None:
    plan = plan_branch("v1", [here("build/a/x")], there("build/a/x", "build/a/y"), stale=["build/a/y", "build/a/z"])
    assert actions(plan) == {"build/a/y": "delete"}


@pytest.mark.parametrize("text", ["", "one\n", "é" * 4000])
def test_a_file_is_the_same_by_the_name_that_git_gives_it(text: str) -> None:
    data = text.encode()
    name = hashlib.sha1(b"blob " + str(len(data)).encode() + b"\0" + data, usedforsecurity=False).hexdigest()
    assert git_blob(data) == name
    local = text_file("a", text)
    assert is_same(local, RemoteFile(path="a", size=len(data), blob=name))
    assert not is_same(local, RemoteFile(path="a", size=len(data), blob="0" * 40))
    assert is_same(local, RemoteFile(path="a", size=len(data), blob="0" * 40, sha256=local.sha256))
    assert not is_same(local, RemoteFile(path="a", size=len(data) + 1, blob=name, sha256=local.sha256))


def stale(remote: Snapshot, local: list[LocalFile], *, is_new: bool, has_benchmarks: bool = True) -> set[str]:
    return stale_files(remote, variants=[CPU], local=local, is_new=is_new, has_benchmarks=has_benchmarks)[0]


REMOTE = there(
    f"build/{CPU}/__init__.py",
    f"build/{CPU}/old/deep.py",
    f"build/{CUDA}/__init__.py",
    "build/README",
    "benchmarks/benchmark_old.py",
    "benchmarks/data.csv",
    "benchmarks/more/benchmark.py",
    "README.md",
)


def test_on_a_branch_that_exists_only_the_uploaded_variants_lose_files() -> None:
    local = [here(f"build/{CPU}/__init__.py"), here("benchmarks/benchmark.py")]
    assert stale(REMOTE, local, is_new=False) == {f"build/{CPU}/old/deep.py", "benchmarks/benchmark_old.py"}


def test_on_a_new_branch_nothing_of_other_builds_is_left() -> None:
    local = [here(f"build/{CPU}/__init__.py"), here("benchmarks/benchmark.py")]
    assert stale(REMOTE, local, is_new=True) == {
        path for path in REMOTE.files if path not in {local[0].path, "README.md"}
    }


@pytest.mark.parametrize("is_new", [True, False])
def test_without_a_folder_of_benchmarks_those_on_the_hub_stay(is_new: bool) -> None:
    gone = stale(REMOTE, [here(f"build/{CPU}/__init__.py")], is_new=is_new, has_benchmarks=False)
    assert not any(path.startswith("benchmarks/") for path in gone)


@pytest.mark.parametrize(("metadata", "is_void"), [("same", False), ("other", True)])
def test_a_signature_stays_as_long_as_what_it_signs(metadata: str, is_void: bool) -> None:
    signature, signed = f"build/{CPU}/metadata.json.sigstore", f"build/{CPU}/metadata.json"
    remote = there(here(signed, "same"), here(signature, "bundle"))
    gone, void = stale_files(remote, variants=[CPU], local=[here(signed, metadata)], is_new=False, has_benchmarks=False)
    assert (signature in gone) is is_void
    assert (signature in void) is is_void
    renewed = [here(signed, metadata), here(signature, "another bundle")]
    assert not stale_files(remote, variants=[CPU], local=renewed, is_new=False, has_benchmarks=False)[0]


def change(path: str, size: int = 1, action: ChangeKind = ChangeKind.ADD) -> FileChange:
    file = LocalFile(path=path, size=size, sha256="0" * 64, blob=None)
    return FileChange(action=action, path=path, size=size, file=None if action is ChangeKind.DELETE else file)


def test_a_variant_stays_in_one_commit() -> None:
    changes = [change(f"build/{name}/{number}.py") for name in "abcd" for number in range(4)]
    batches = split(changes, 10)
    assert [len(batch) for batch in batches] == [8, 8]
    for name in "abcd":
        assert sum(any(f"build/{name}/" in c.path for c in batch) for batch in batches) == 1


def test_of_a_variant_that_takes_several_commits_the_metadata_comes_last() -> None:
    changes = [
        *(change(f"build/a/{number}.py") for number in range(25)),
        change("build/a/__old__.py", action=ChangeKind.DELETE),
        change("build/a/metadata.json"),
    ]
    batches = split(changes, 10)
    assert [len(batch) for batch in batches] == [10, 10, 7]
    assert batches[-1][-1].path == "build/a/metadata.json"
    assert batches[-1][-2].action is ChangeKind.DELETE


def test_commits_do_not_grow_beyond_what_a_request_can_carry() -> None:
    batches = split([change(f"build/a/{number}.txt", SMALL) for number in range(20)])
    assert len(batches) > 1
    assert all(sum(c.size for c in batch) <= COMMIT_BYTES for batch in batches)
    apart = [change(f"build/a/{number}.so", SMALL) for number in range(20)]
    assert len(split(apart)) == 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["build/a/", "build/b/", "build/c/d/", "benchmarks/", ""]),
            st.integers(0, 40),
            st.sampled_from([1, 5 << 20, SMALL, SMALL + 1]),
            st.sampled_from(list(ChangeKind)),
        ),
        unique_by=lambda row: (row[0], row[1]),
        max_size=80,
    ),
    st.integers(1, 20),
)
def test_every_change_is_in_exactly_one_commit(rows: list[tuple[str, int, int, ChangeKind]], limit: int) -> None:
    changes = [change(f"{folder}{number}.py", size, action) for folder, number, size, action in rows]
    batches = split(changes, limit)
    assert sorted(c.path for batch in batches for c in batch) == sorted(c.path for c in changes)
    assert all(0 < len(batch) <= limit for batch in batches)


def test_a_new_branch_that_takes_several_commits_grows_elsewhere_first() -> None:
    local = [here(f"build/a/{number}") for number in range(5)]
    assert plan_branch("v2", local, there(), made_from="main", commit_operations=2).staging == staging_branch("v2")
    assert plan_branch("v2", local, there(), made_from="main").staging is None
    assert plan_branch("v2", local, there(), commit_operations=2).staging is None
    assert plan_branch("v2", local, there(), made_from="main", staged=True).staging == staging_branch("v2")
    proposed = plan_branch("v2", local, there(), made_from="main", may_stage=False, commit_operations=2)
    assert proposed.staging is None


def test_no_branch_for_staging_looks_like_a_version() -> None:
    assert not staging_branch("v2").startswith("v")
    assert "/" not in staging_branch("feature/x")
