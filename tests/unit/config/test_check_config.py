"""check-config: exit codes and forms of output."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.cli import run

GOOD = """\
[general]
name = "ab"
version = 1
license = "mit"
backends = ["cuda"]
[torch]
[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["a.cu"]
"""


def make(root: Path, text: str) -> Path:
    (root / "torch-ext" / "ab").mkdir(parents=True)
    (root / "build.toml").write_text(text, encoding="utf-8")
    (root / "torch-ext" / "ab" / "__init__.py").touch()
    (root / "a.cu").touch()
    return root


def test_a_good_file_exits_with_0_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", str(make(tmp_path, GOOD))]) == 0
    said = capfd.readouterr()
    assert said.out == "build.toml (edition 4) is valid: ab version 1, for cuda\n"
    assert said.err.startswith(f"{tmp_path}/build.toml:1:1: warning: general: the file uses edition 4")


def test_mistakes_exit_with_3_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", str(make(tmp_path, GOOD.replace("depends", "dependss")))]) == 3
    said = capfd.readouterr()
    assert said.out == ""
    assert "did you mean 'depends'?" in said.err


def test_json_has_the_project_as_it_was_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = GOOD.replace("version = 1\n", "").replace('backends = ["cuda"]\n', "").replace('backend = "cuda"\n', "")
    assert run(["check-config", "--json", str(make(tmp_path, text))]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["ok"], said["edition"]) == (True, 1)
    assert said["project"]["general"] == {
        "name": "ab",
        "version": 1,
        "edition": 5,
        "license": "mit",
        "backends": ["cuda"],
    }
    assert said["project"]["kernel"]["a"]["backend"] == "cuda"
    (warning,) = said["diagnostics"]
    assert (warning["severity"], warning["line"], warning["column"], warning["key"]) == ("warning", 1, 1, "general")


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"]])
def test_json_of_mistakes_exits_with_3(option: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", *option, str(make(tmp_path, GOOD.replace('"cuda"', '"cud"')))]) == 3
    said = json.loads(capfd.readouterr().out)
    assert (said["ok"], said["project"]) == (False, None)
    assert {one["key"] for one in said["diagnostics"]} >= {"general.backends[0]", "kernel.a.backend"}


def test_json_of_no_file_is_json_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check-config", "--json", str(tmp_path)]) == 3
    (one,) = json.loads(capfd.readouterr().out)["diagnostics"]
    assert "does not exist" in one["message"]


def test_github_annotations_are_escaped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, GOOD.replace("a.cu", "50%,a:b.cu"))
    monkeypatch.chdir(tmp_path)
    assert run(["check-config", "--format", "github"]) == 3
    lines = capfd.readouterr().out.splitlines()
    assert [line.split("::")[1] for line in lines] == [
        "warning file=build.toml,line=1,col=1",
        "error file=build.toml,line=10,col=8",
    ]
    assert "file '50%25,a:b.cu' does not exist%0A" in lines[1]


def test_a_directory_that_is_a_file_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert run(["check-config", str(tmp_path / "x")]) == 3


@pytest.mark.slow
def test_a_file_of_thousands_of_sources_is_judged_at_once(tmp_path: Path) -> None:
    """The largest real file has 3,400 sources; reading and checking them takes little longer than a check of one."""
    small = make(tmp_path / "small", GOOD)
    names = [
        f"part_{number % 90}/instance_{number}_of_a_template_with_a_name_of_the_usual_length.cu"
        for number in range(3400)
    ]
    large = make(tmp_path / "large", GOOD.replace('"a.cu"', ", ".join(f'\n  "{name}"' for name in names)))
    for name in names:
        (large / name).parent.mkdir(exist_ok=True)
        (large / name).touch()

    def seconds(*arguments: str) -> float:
        """Of the processor, which a busy machine takes hardly more of; of two runs, since one may write bytecode."""
        took = []
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run([sys.executable, "-m", "kernel_builder", *arguments], check=True, capture_output=True)
            took.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        return min(took)

    assert seconds("check-config", str(large)) < 3 * seconds("check-config", str(small))


def test_names_that_other_systems_cannot_store_are_warned_of_together(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.replace('src = ["a.cu"]', 'src = ["a.cu", "src/aux.h", "src/A.h", "src/a.h", "src/gone. "]')
    root = make(tmp_path, text)
    (root / "src").mkdir()
    for name in ("src/aux.h", "src/A.h", "src/a.h", "torch-ext/ab/nul.py"):
        (root / name).touch()
    assert run(["check-config", str(root)]) == 3
    told = capfd.readouterr().err
    assert (
        "build.toml:10:16: warning: kernel.a.src[1]: 'src/aux.h' cannot be stored on every system: Windows res" in told
    )
    assert (
        "kernel.a.src[3]: 'src/a.h' cannot be stored on every system: macOS and Windows take it and 'src/A.h'" in told
    )
    assert "'torch-ext/ab/nul.py' cannot be stored on every system" in told
    # What is not there has its own message.
    assert "file 'src/gone. ' does not exist" in told
    assert told.count("cannot be stored") == 3
