"""Variants that several jobs built are put together if they are of one tree, and never half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.errors import BuildError, KernelBuilderError, UsageError
from kernel_builder.workflow.merge import merge
from kernel_trees import source, variant

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch213-cxx11-cu130-x86_64-linux"
OTHER = "0" * 40


def built_by(job: Path, name: str, /, **changes: Any) -> Path:
    """A job's directory with one variant."""
    backend = {"type": "cpu"} if "cpu" in name else {"type": "cuda", "archs": ["9.0"]}
    variant(job / "build", name, **{"backend": backend, **changes})
    return job


def provenance(
    commit: str | None = OTHER, sources: str | None = None, *, dirty: bool = False, **more: object
) -> dict[str, Any]:
    """A record of that name."""
    document: dict[str, Any] = {"kernel-builder": {"version": "1.0"}}
    if commit is not None:
        document["kernel"] = {"commit": commit, "dirty": dirty}
    if sources is not None:
        document["sources"] = {"scheme": "s", "sha256": sources, **more}
    return document


def content(folder: Path) -> dict[str, bytes]:
    """All files below ``folder``."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_variants_of_all_jobs_are_there_and_the_same(tmp_path: Path) -> None:
    first, second = built_by(tmp_path / "a", CPU), built_by(tmp_path / "b", CUDA)
    output = tmp_path / "out"
    merged = merge([first, second / "build"], output)
    assert merged.taken == (CPU, CUDA)
    assert content(output) == {**content(first / "build"), **content(second / "build")}
    assert sorted(path.name for path in output.iterdir()) == [CPU, CUDA]
    again = merge([second], output)
    assert (again.taken, again.present) == ((), (CUDA,))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "another"}, "name another"),
        ({"version": 2}, "version 2"),
        ({"license": "Apache-2.0"}, "license Apache-2.0"),
        ({"provenance": provenance()}, f"commit {OTHER}"),
        ({"provenance": provenance(sources="cafe" * 16)}, "sources cafecafecafe"),
        ({"provenance": provenance(commit=None)}, "does not record what it was built from"),
        ({"provenance": provenance(dirty=True)}, "does not record what it was built from"),
        ({"provenance": None}, "does not record what it was built from"),
    ],
)
@pytest.mark.parametrize("is_there", [False, True], ids=["of two jobs", "there already"])
def test_two_trees_are_refused(tmp_path: Path, changes: dict[str, Any], said: str, is_there: bool) -> None:
    jobs = [built_by(tmp_path / "a", CPU), built_by(tmp_path / "b", CUDA, **changes)]
    output = tmp_path / "out"
    if is_there:
        variant(output, CPU, backend={"type": "cpu"})
        jobs = jobs[1:]
    before = content(output)
    with pytest.raises(BuildError) as caught:
        merge(jobs, output)
    assert said in caught.value.message
    assert CUDA in caught.value.message
    assert content(output) == before


def test_uncommitted_sources_that_are_the_same_may_be_merged(tmp_path: Path) -> None:
    same = provenance(commit=None, sources="beef" * 16)
    jobs = [built_by(tmp_path / "a", CPU, provenance=same), built_by(tmp_path / "b", CUDA, provenance=same)]
    assert merge(jobs, tmp_path / "out").taken == (CPU, CUDA)


def test_two_builds_of_one_variant_are_refused_with_the_files_that_differ(tmp_path: Path) -> None:
    first = built_by(tmp_path / "a", CPU)
    second = built_by(tmp_path / "b", CPU, files={"my_kernel/__init__.py": "x = 1\n"})
    with pytest.raises(BuildError, match=r"(?s)built several times.*my_kernel/__init__\.py") as caught:
        merge([first, second], tmp_path / "out")
    assert "_ops.py" not in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_variant_that_was_changed_is_refused(tmp_path: Path) -> None:
    job = built_by(tmp_path / "a", CPU)
    (job / "build" / CPU / "_ops.py").write_text("import os\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"_ops\.py was changed after the build"):
        merge([job, built_by(tmp_path / "b", CUDA)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_where_a_variant_was_changed_in_the_output_the_built_one_takes_its_place(tmp_path: Path) -> None:
    job, output = built_by(tmp_path / "a", CPU), tmp_path / "out"
    merge([job], output)
    (output / CPU / "_ops.py").write_text("import os\n", encoding="utf-8")
    assert merge([job], output).taken == (CPU,)
    assert content(output) == content(job / "build")


@pytest.mark.parametrize("name", ["nothing", "empty", "out"])
def test_a_directory_without_variants_and_the_output_itself_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    variant(tmp_path / "out", CPU, backend={"type": "cpu"})
    with pytest.raises(UsageError):
        merge([tmp_path / name], tmp_path / "out")


def test_nothing_is_half_written_where_the_disk_takes_one_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [built_by(tmp_path / "a", CPU), built_by(tmp_path / "b", CUDA)]
    metadata = jobs[1] / "build" / CUDA / "metadata.json"

    def copy(origin: Path, target: Path) -> None:
        if origin == metadata:
            raise OSError(28, "No space left on device")
        target.write_bytes(origin.read_bytes())

    monkeypatch.setattr("shutil.copyfile", copy)
    with pytest.raises(KernelBuilderError, match="is full"):
        merge(jobs, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_several_versions_of_the_builder_are_told(tmp_path: Path) -> None:
    newer = json.loads((built_by(tmp_path / "a", CPU) / "build" / CPU / "metadata.json").read_text(encoding="utf-8"))
    newer["provenance"]["kernel-builder"]["version"] = "2.0"
    second = built_by(tmp_path / "b", CUDA, provenance=newer["provenance"])
    assert merge([tmp_path / "a", second], tmp_path / "out").notes == (
        "built by different versions of kernel-builder: 1.0, 2.0",
    )


def test_what_made_a_variant_may_differ_where_the_variant_does_not(tmp_path: Path) -> None:
    """Two jobs with other compilers that make the same; where they do not, the compilers are named."""
    tools = [[{"name": "g++", "version": version}] for version in ("12.2.0", "13.1.0")]
    jobs = [
        built_by(tmp_path / name, CPU, provenance={**provenance(), "tools": told}, **{"python-depends": depends})
        for name, told, depends in (("a", tools[0], []), ("b", tools[1], []), ("c", tools[1], ["einops"]))
    ]
    assert merge(jobs[:2], tmp_path / "out").taken == (CPU,)
    with pytest.raises(BuildError) as caught:
        merge([jobs[0], jobs[2]], tmp_path / "other")
    assert "    built with g++ 12.2.0, here 13.1.0" in caught.value.message
    assert not (tmp_path / "other" / CPU).exists()


def test_the_files_that_two_trees_differ_in_are_named(tmp_path: Path) -> None:
    a, b = "a" * 64, "b" * 64
    trees = [provenance(sources=digest, files={"src": f"same.h {a[:12]}, scale.h {digest[:12]}"}) for digest in (a, b)]
    jobs = [built_by(tmp_path / name, CPU, provenance=tree) for name, tree in zip("xy", trees, strict=True)]
    with pytest.raises(BuildError) as caught:
        merge(jobs, tmp_path / "out")
    assert f"built from another src/scale.h: {a[:12]}, here {b[:12]}" in caught.value.message
    assert "same.h" not in caught.value.message


def test_all_variants_that_are_not_as_they_were_built_are_named(tmp_path: Path) -> None:
    """One was changed, of one a file is missing, one has no metadata."""
    jobs = [built_by(tmp_path / name, CPU) for name in ("changed", "half", "bare")]
    (jobs[0] / "build" / CPU / "_ops.py").write_text("import os\n", encoding="utf-8")
    (jobs[1] / "build" / CPU / "_ops.py").unlink()
    with pytest.raises(BuildError, match=r"(?s)_ops\.py was changed.*_ops\.py is missing"):
        merge(jobs[:2], tmp_path / "out")
    (jobs[2] / "build" / CPU / "metadata.json").unlink()
    variant(jobs[2] / "build", CUDA, backend={"type": "cuda", "archs": ["9.0"]})
    with pytest.raises(BuildError, match=r"is incomplete: it has no metadata\.json"):
        merge(jobs[2:], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_card_tells_of_all_variants_or_is_left_out(tmp_path: Path) -> None:
    jobs = [built_by(tmp_path / "a", CPU), built_by(tmp_path / "b", CUDA)]
    for job, text in zip(jobs, ("cpu alone", "cuda alone"), strict=True):
        (job / "build" / "CARD.md").write_text(text, encoding="utf-8")
    merged = merge(jobs, tmp_path / "out")
    assert not (tmp_path / "out" / "CARD.md").exists()
    assert ["CARD.md differs between the jobs" in note for note in merged.notes] == [True]
    merge(jobs[:1], tmp_path / "one")
    assert (tmp_path / "one" / "CARD.md").read_text(encoding="utf-8") == "cpu alone"
    project = source(
        tmp_path / "project", {}, backends='"cpu", "cuda"', general='[general.hub]\nrepo-id = "me/my-kernel"'
    )
    (project / "CARD.md").write_text("# A card\n", encoding="utf-8")
    assert merge(jobs, project / "build").notes == ()
    card = (project / "build" / "CARD.md").read_text(encoding="utf-8")
    assert CPU in card
    assert CUDA in card
