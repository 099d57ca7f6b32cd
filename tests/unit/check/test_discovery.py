"""What a path is taken for, and how trees are walked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.check.engine import check_paths, select_rules
from kernel_builder.check.subject import EntryKind, discover, walk
from kernel_builder.errors import UsageError
from kernel_builder.toml.nodes import printable

CPU, CUDA = "torch213-cxx11-cpu-x86_64-linux", "torch-cuda"
BUILD = '[general]\nname = "sample"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch]\n'


def _variant(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "metadata.json").write_text('{"name": "sample", "id": "_sample_cpu_1"}', encoding="ascii")
    (folder / name / "__init__.py").write_text("", encoding="ascii")
    return folder / name


def _project(root: Path) -> Path:
    (root / "torch-ext" / "sample").mkdir(parents=True)
    (root / "torch-ext" / "sample" / "__init__.py").write_text("", encoding="ascii")
    (root / "build.toml").write_text(BUILD, encoding="ascii")
    return root


def test_a_source_tree_is_checked_with_its_build(tmp_path: Path) -> None:
    _variant(_project(tmp_path) / "build", CPU)
    found = discover(tmp_path)
    (source,) = found.sources
    assert source.project is not None
    assert source.python is not None
    assert source.python.name == "sample"
    assert [variant.name for variant in found.variants] == [CPU]
    assert found.variants[0].source is source


def test_build_wins_over_a_result_and_says_so(tmp_path: Path) -> None:
    project = _project(tmp_path / "project")
    _variant(tmp_path / "store", CUDA)
    (project / "result").symlink_to(tmp_path / "store")
    assert [variant.name for variant in discover(project).variants] == [CUDA]
    _variant(project / "build", CPU)
    found = discover(project)
    assert [variant.name for variant in found.variants] == [CPU]
    assert "result is ignored" in found.notes[0]


def test_repositories_folders_and_variants_are_known(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    variant = _variant(folder, CPU)
    _variant(folder, CUDA)
    (folder / "stray").mkdir()
    (repository,) = discover(tmp_path).folders
    assert repository.repository
    assert [v.name for v in repository.variants] == [CUDA, CPU]
    assert repository.strays == ("stray",)
    assert [v.name for v in discover(folder).variants] == [CUDA, CPU]
    assert [v.path for v in discover(variant).variants] == [variant]


def test_a_variant_or_folder_of_a_project_knows_the_project(tmp_path: Path) -> None:
    variant = _variant(_project(tmp_path) / "build", CPU)
    for path in (variant, variant.parent):
        source = discover(path).variants[0].source
        assert source is not None
        assert source.project is not None
        assert discover(path).sources == ()


def test_the_current_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_variant(tmp_path, CPU))
    (variant,) = discover(Path()).variants
    assert variant.name == CPU
    assert variant.variant is not None


def test_what_holds_no_kernel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        with pytest.raises(UsageError):
            discover(path)


def test_links_are_not_followed_out_of_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "secret.py").write_text("outside")
    (tree / "real.py").write_text("inside")
    (tree / "inner.py").symlink_to("real.py")
    (tree / "outer.py").symlink_to("../secret.py")
    (tree / "gone.py").symlink_to("nowhere")
    (tree / "loop").symlink_to(".")
    entries = {entry.relative: entry for entry in walk(tree).entries}
    assert entries["inner.py"].kind is EntryKind.FILE
    assert (entries["outer.py"].kind, entries["outer.py"].inside) == (EntryKind.LINK, False)
    assert entries["gone.py"].dangling
    assert (entries["loop"].kind, entries["loop"].inside) == (EntryKind.LINK, True)
    assert [entry.relative for entry in walk(tree).files] == ["inner.py", "real.py"]


def test_the_files_of_a_hub_cache_are_files(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    variant = _variant(snapshot / "build", CPU)
    (blobs / "1234").write_text("__all__ = []\n", encoding="ascii")
    (variant / "more.py").symlink_to("../../../../blobs/1234")
    files = [file.relative for file in discover(snapshot).variants[0].python.files]
    assert files == ["__init__.py", "more.py"]


def test_a_listing_is_bounded_and_says_so(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}").touch()
    assert not walk(tmp_path, limit=10).complete
    assert len(walk(tmp_path, limit=10).entries) == 10
    assert walk(tmp_path, limit=20).complete


@pytest.mark.skipif(os.name != "posix", reason="names are bytes there alone")
def test_names_that_are_no_text_are_listed_and_shown_on_one_line(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff\nb")).mkdir()
    (entry,) = walk(tmp_path).entries
    assert os.fsencode(entry.relative) == b"a\xff\nb"
    assert printable(entry.relative) == "a\\udcff\\nb"
    assert printable("plain é") == "plain é"


@pytest.mark.parametrize(
    "source", ["x = (" * 50_000, "\0", "def f(:\n", "é = 'ü'\n".encode("latin-1").decode("latin-1")]
)
def test_python_files_that_do_not_parse_are_facts(tmp_path: Path, source: str) -> None:
    variant = _variant(tmp_path, CPU)
    (variant / "bad.py").write_text(source, encoding="latin-1")
    (file,) = [file for file in discover(variant).variants[0].python.files if file.relative == "bad.py"]
    assert file.tree is None
    assert file.error


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a": 1e99999}', "null", "\xff"])
def test_metadata_of_any_kind_is_a_fact(tmp_path: Path, text: str) -> None:
    variant = _variant(tmp_path, CPU)
    (variant / "metadata.json").write_text(text, encoding="latin-1")
    (found,) = discover(variant).variants
    assert (found.metadata is None) == (found.metadata_error is not None)
    assert found.id is None


def test_rules_are_selected_by_code_beginning_and_slug() -> None:
    assert select_rules(["KB107"]) == select_rules(["run-path"]) == select_rules(["kb107"]) == {"KB107"}
    assert {"KB103", "KB107"} <= select_rules(["KB1"])
    assert "KB107" not in select_rules(["KB1"], ["run-path"])
    for name in ("KB107x", "", "run-pth", "KB9"):
        with pytest.raises(UsageError):
            select_rules([name])


def test_findings_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for name in (CPU, CUDA):
        (_variant(tmp_path, name) / "lib.so").write_text("no library")
    one, four = (check_paths([tmp_path], jobs=jobs).findings for jobs in (1, 4))
    assert one == four
    assert sum(finding.rule.code == "KB101" for finding in one) == 2
