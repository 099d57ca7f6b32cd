"""``create-pyproject`` and ``clean-pyproject``: what is written, and that nothing else is ever removed."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_builder.config.python_project import read_python_project
from kernel_builder.errors import ConfigError, ExitCode
from kernel_trees import source


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return source(tmp_path, {})


def test_it_names_the_backend_and_leaves_the_rest_to_build_toml(root: Path) -> None:
    assert run(["create-pyproject", str(root)]) == ExitCode.OK
    written = tomllib.loads((root / "pyproject.toml").read_text())
    assert written["build-system"]["build-backend"] == "kernel_builder.cli.pep517"
    assert written["build-system"]["requires"][0].startswith("kernel-builder")
    assert written["project"]["name"] == "my-kernel"
    assert set(written["project"]["dynamic"]) == {"version", "license", "dependencies"}
    assert written["tool"]["pytest"]["ini_options"]["markers"][0].startswith("kernels_ci:")


@pytest.mark.parametrize("existing", ["[tool.ruff]\n", ""])
def test_nothing_is_overwritten_unless_forced(root: Path, existing: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = root / "pyproject.toml"
    file.write_text(existing)
    assert run(["create-pyproject", str(root)]) == ExitCode.USAGE
    assert "already exists" in capsys.readouterr().err
    assert file.read_text() == existing
    assert run(["create-pyproject", "--force", str(root)]) == ExitCode.OK
    assert "kernel_builder.cli.pep517" in file.read_text()


def test_clean_removes_what_was_written_once_it_is_told_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(["create-pyproject", str(root)])
    before = {path for path in root.rglob("*") if path.name != "pyproject.toml"}
    monkeypatch.setattr("click.confirm", lambda _: False)
    assert run(["clean-pyproject", str(root)]) == ExitCode.OK
    assert (root / "pyproject.toml").exists()
    assert run(["clean-pyproject", "--dry-run", "--force", str(root)]) == ExitCode.OK
    assert (root / "pyproject.toml").exists()
    monkeypatch.setattr("click.confirm", lambda _: True)
    assert run(["clean-pyproject", str(root)]) == ExitCode.OK
    assert set(root.rglob("*")) == before


def test_where_nobody_can_answer_nothing_is_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["create-pyproject", str(root)])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert run(["clean-pyproject", str(root)]) == ExitCode.USAGE
    assert (root / "pyproject.toml").exists()
    assert "hint: run kernel-builder clean-pyproject --force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "removed_by_force"),
    [
        (lambda text: text.replace("kernels_ci", "other"), True),
        (lambda text: text + "\n[tool.ruff]\n", True),
        (lambda text: text.splitlines()[-1] + "\n" + text, True),
        (lambda _: "[project]\n", False),
        (lambda _: "", False),
    ],
)
def test_clean_keeps_what_was_changed(root: Path, change: object, removed_by_force: bool) -> None:
    file = root / "pyproject.toml"
    run(["create-pyproject", str(root)])
    file.write_text(change(file.read_text()))  # type: ignore[operator]
    assert run(["clean-pyproject", str(root)]) == ExitCode.USAGE
    assert file.exists()
    expected = ExitCode.OK if removed_by_force else ExitCode.USAGE
    assert run(["clean-pyproject", "--force", str(root)]) == expected
    assert file.exists() is not removed_by_force


def test_a_link_is_not_what_was_written(root: Path, tmp_path: Path) -> None:
    run(["create-pyproject", str(root)])
    (root / "pyproject.toml").rename(root / "other.toml")
    (root / "pyproject.toml").symlink_to("other.toml")
    assert run(["clean-pyproject", "--force", str(root)]) == ExitCode.USAGE
    assert (root / "other.toml").exists()


def test_what_a_person_adds_is_taken_or_refused(root: Path) -> None:
    file = root / "pyproject.toml"
    file.write_text(
        '[project]\nname = "my-kernel"\ndescription = "Fast."\nauthors = [{name = "A", email = "a@b.c"}]\n'
        'dependencies = ["einops>=0.7"]\n[project.optional-dependencies]\nx = ["numpy; python_version > \'3\'"]\n'
    )
    read = read_python_project(root)
    assert read.dependencies == ("einops>=0.7",)
    assert ("Summary", "Fast.") in read.fields
    assert ("Author-email", "A <a@b.c>") in read.fields
    assert ("Requires-Dist", "numpy ; (python_version > \"3\") and extra == 'x'") in read.fields
    file.write_text('[project]\nversion = "2"\nscripts = {a = "b:c"}\ndependencies = ["not a requirement"]\n')
    with pytest.raises(ConfigError) as error:
        read_python_project(root)
    told = "\n".join(diagnostic.render() for diagnostic in error.value.diagnostics)
    assert "project.version" in told
    assert "project.scripts" in told
    assert "not a requirement" in told
