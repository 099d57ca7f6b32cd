"""``kernel-builder init`` as its user sees it: exit codes, what is printed, what lies on disk afterwards."""

import subprocess
from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_builder.errors import ExitCode


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory in no repository, with a git that knows no user and no settings."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def test_a_name_alone_makes_a_directory_of_that_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--name", "me/my-kernel"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"Initialized `me/my-kernel` at {here / 'my-kernel'}"
    assert "  cd my-kernel" in out.splitlines()
    assert err == ""
    assert 'repo-id = "me/my-kernel"' in (here / "my-kernel" / "build.toml").read_text()
    assert (here / "my-kernel" / "my_kernel_cpu" / "my_kernel_cpu.cpp").is_file()
    assert (here / "my-kernel" / "my_kernel_cuda" / "my_kernel.cu").is_file()


def test_a_path_alone_names_the_kernel_after_its_last_part(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "kernels/My_Kernel", "--backends", "cpu"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == f"Initialized `my-kernel` at {here / 'kernels' / 'My_Kernel'}"
    assert err.startswith("note: the kernel is called 'my-kernel'")
    assert "for the repository kernels/My_Kernel of the Hub, run kernel-builder init --name" in err
    text = (here / "kernels" / "My_Kernel" / "build.toml").read_text()
    assert 'name = "my-kernel"' in text
    assert '# repo-id = "OWNER/my-kernel"' in text
    assert not (here / "kernels" / "My_Kernel" / "my_kernel_cuda").exists()


def test_path_and_name_together_say_where_and_what(here: Path) -> None:
    assert run(["init", "./some where", "--name", "me/scale"]) == ExitCode.OK
    assert 'name = "scale"' in (here / "some where" / "build.toml").read_text()


def test_without_either_the_current_directory_becomes_the_project(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "scale").mkdir()
    monkeypatch.chdir(here / "scale")
    assert run(["init"]) == ExitCode.OK
    assert (here / "scale" / "build.toml").is_file()
    assert "cd " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("backends", "written"),
    [
        (["--backends", "cuda", "cpu"], {"cpu", "cuda"}),
        (["--backends", "cpu,cuda"], {"cpu", "cuda"}),
        (["--backends", "cpu", "--backends", "cuda"], {"cpu", "cuda"}),
        (["--backends=cuda"], {"cuda"}),
        (["--backends", "all"], {"cpu", "cuda", "metal", "xpu"}),
        ([], {"cpu", "cuda"}),
    ],
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value),
)
@pytest.mark.parametrize("before", [True, False], ids=["before --name", "after --name"])
def test_every_spelling_of_backends_gives_a_project_that_check_config_accepts(
    here: Path, backends: list[str], written: set[str], before: bool
) -> None:
    name = ["--name", "me/scale"]
    assert run(["init", *backends, *name] if before else ["init", *name, *backends]) == ExitCode.OK
    assert {path.name for path in (here / "scale").glob("scale_*")} == {f"scale_{each}" for each in written}
    assert run(["check-config", "scale"]) == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "me/scale", "--backends", "tpu", "cpu"], ["tpu", "yet", "rocm and xpu"]),
        (["--name", "me/scale", "--backends", "vulkan"], ["'vulkan'", "rocm and xpu", "tpu"]),
        (["--name", "me/scale", "--backends", "cpu", "cude"], ["'cude' is not a backend", "cuda"]),
        (["--name", "me/re lu"], ["'re lu'", "lowercase", "'re-lu'"]),
        (["2relu"], ["'2relu'", "begins with a letter"]),
        (["--name", "me/scale", "--license", " "], ["license"]),
        (["--name", "me/scale", "--license", "foo"], ["'foo' is neither on the Hub's list", "--license other"]),
        (["--name", "me/scale", "--license", "Apache 2.0"], ["did you mean Apache-2.0?"]),
        (["--name", "me/scale", "--license", "MIT or nothing"], ["'MIT or nothing'"]),
        (["one", "two"], ["two"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_named_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    assert run(["init", *arguments]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert list(here.iterdir()) == []


def test_a_second_run_needs_overwrite_and_lists_every_clash(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--name", "me/scale"]) == ExitCode.OK
    (here / "scale" / "build.toml").write_text("mine")
    (here / "scale" / "example.py").unlink()
    capsys.readouterr()
    assert run(["init", "--name", "me/scale"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "build.toml" in err
    assert "tests/test_scale.py" in err
    assert "example.py" not in err
    assert "--overwrite" in err
    assert (here / "scale" / "build.toml").read_text() == "mine"
    assert run(["init", "--name", "me/scale", "--overwrite"]) == ExitCode.OK
    assert 'name = "scale"' in (here / "scale" / "build.toml").read_text()


@pytest.mark.parametrize("license_id", ["mit", "BSD-3-Clause", "openrail", "MIT OR Apache-2.0", "LicenseRef-mine"])
def test_licenses_of_the_hub_and_of_spdx_are_taken(here: Path, license_id: str) -> None:
    assert run(["init", "--name", "me/scale", "--license", license_id]) == ExitCode.OK
    assert f'license = "{license_id}"' in (here / "scale" / "build.toml").read_text()


def test_overwriting_leaves_nothing_of_the_old_backends_and_takes_nothing_of_the_user(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = here / "scale"
    assert run(["init", "--name", "me/scale"]) == ExitCode.OK
    assert run(["init", "--name", "me/scale", "--backends", "cpu", "--overwrite"]) == ExitCode.OK
    assert not (root / "scale_cuda").exists()
    assert "kept" not in capsys.readouterr().err

    assert run(["init", "--name", "me/scale", "--backends", "cuda", "--overwrite"]) == ExitCode.OK
    assert not (root / "scale_cpu").exists()
    with (root / "scale_cuda" / "scale.cu").open("a") as file:
        file.write("// mine\n")
    assert run(["init", "--name", "me/scale", "--backends", "cpu", "--overwrite"]) == ExitCode.OK
    assert (root / "scale_cuda" / "scale.cu").read_text().endswith("// mine\n")
    assert "scale_cuda/scale.cu belongs to the earlier project, but was changed since" in capsys.readouterr().err


def test_overwriting_leaves_nothing_of_the_old_name(here: Path) -> None:
    assert run(["init", "--name", "me/old-name"]) == ExitCode.OK
    root = here / "old-name"
    (root / "old_name_cpu" / "mine.h").write_text("// mine\n")
    assert run(["init", str(root), "--name", "me/scale", "--overwrite"]) == ExitCode.OK
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*old_name*") if ".git" not in path.parts)
    assert left == ["old_name_cpu"]
    assert [path.name for path in (root / "old_name_cpu").iterdir()] == ["mine.h"]


def test_the_project_is_a_repository_with_everything_staged_and_nothing_committed(here: Path) -> None:
    assert run(["init", "--name", "me/scale"]) == ExitCode.OK
    staged = set(git(here / "scale", "diff", "--cached", "--name-only").splitlines())
    assert {"build.toml", ".gitignore", "torch-ext/scale/__init__.py"} <= staged
    assert git(here / "scale", "status", "--porcelain", "--untracked-files") == "\n".join(
        f"A  {path}" for path in sorted(staged)
    )
    assert git(here / "scale", "rev-list", "--all") == ""


def test_a_project_in_a_repository_is_left_for_its_owner_to_add(here: Path) -> None:
    git(here, "init", "--quiet")
    assert run(["init", "--name", "me/scale"]) == ExitCode.OK
    assert not (here / "scale" / ".git").exists()
    assert git(here, "diff", "--cached", "--name-only") == ""


def test_git_is_not_needed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(here))
    assert run(["init", "--name", "me/scale"]) == ExitCode.OK
    assert (here / "scale" / "build.toml").is_file()
    assert not (here / "scale" / ".git").exists()
