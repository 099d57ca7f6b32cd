"""check, check-abi, check-builds and hash, as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_builder.artifact.digest import hash_variant
from kernel_builder.cli import run
from kernel_builder.errors import ExitCode
from kernel_libraries import CPU, CUDA, ID, INIT, Workshop


@pytest.fixture
def folder(workshop: Workshop) -> Path:
    """A build folder with a good library, and one with a run path."""
    good = workshop.variant(CPU, workshop.library(INIT))
    workshop.variant(CUDA, workshop.library(INIT, "-Wl,-rpath,/opt"), backend={"type": "cuda"}).rename(
        good.parent / CUDA
    )
    return good.parent


def test_exit_codes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder / CPU), "--select", "KB1"]) == ExitCode.OK
    assert "No errors, no warnings in 1 variant, 1 library and 1 Python file." in capsys.readouterr().out
    assert run(["check", str(folder), "--select", "KB1"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "error KB107 run-path" in out
    assert "its run path contains /opt" in out
    assert run(["check", str(folder), "--select", "KB1", "--ignore", "run-path"]) == ExitCode.OK
    assert run(["check", str(folder / "missing")]) == ExitCode.USAGE
    assert run(["check", str(folder), "--select", "KB7"]) == ExitCode.USAGE
    assert run(["check", str(folder), "--policy", "manylinux_9"]) == ExitCode.USAGE
    assert run(["check", str(folder), "--python-floor", "three"]) == ExitCode.USAGE
    assert run(["check", str(folder), "--torch-stable-abi", "2"]) == ExitCode.USAGE


def test_warnings_fail_only_a_strict_check(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    library = str(workshop.library(INIT, "-g"))
    assert run(["check", library]) == ExitCode.OK
    assert "0 errors, 2 warnings" in capsys.readouterr().out
    assert run(["check", library, "--strict"]) == ExitCode.FAILED


@pytest.mark.parametrize("form", ["json", "sarif"])
def test_machine_output_is_all_of_stdout(folder: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(folder), "--select", "KB107", "--format", form])
    captured = capsys.readouterr()
    assert "KB107" in json.dumps(json.loads(captured.out))
    assert captured.err == ""


def test_github_output_is_one_annotation_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(folder), "--select", "KB107", "--format", "github"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"::error file={folder}/{CUDA}/{ID}.abi3.so,title=KB107 run-path::")


def test_options_reach_the_rules(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    code = f"{INIT}int PyModule_AddType(void);\nint torch_call_dispatcher(void);\n"
    code += "int f(void) { return PyModule_AddType() + torch_call_dispatcher(); }\n"
    library = str(workshop.library(code))
    assert run(["check", library, "--select", ["KB121", "KB133"][0], "--python-floor", "3.10"]) == ExitCode.OK
    assert run(["check", library, "--select", "KB121"]) == ExitCode.FAILED
    assert run(["check", library, "--select", "KB133", "--torch-stable-abi", "2.9"]) == ExitCode.FAILED
    assert run(["check", library, "--select", "KB133", "--torch-stable-abi", "2.10"]) == ExitCode.OK
    capsys.readouterr()


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--list"]) == ExitCode.OK
    assert "KB107  error    run-path" in capsys.readouterr().out
    assert run(["check", "--explain", "kb107"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert all(title in out for title in ("KB107 run-path (error)", "Required", "Why", "How to fix it", "Source"))
    assert run(["check", "--explain", "KB17"]) == ExitCode.USAGE
    assert "did you mean" in capsys.readouterr().err


def test_the_same_finding_of_several_variants_is_said_once(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    library = workshop.library(INIT, "-Wl,-rpath,/opt")
    folder = workshop.variant(CPU, library).parent
    workshop.variant(CPU.replace("213", "212"), library).rename(folder / CPU.replace("213", "212"))
    run(["check", str(folder), "--select", "KB107"])
    out = capsys.readouterr().out
    assert out.count("its run path contains") == 1
    assert "and the same in 1 other variant" in out
    assert "2 errors" in out


def test_check_abi_has_the_options_of_the_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-abi", str(folder / CPU), "-m", "manylinux_2_28", "--macos", "15.0", "-p", "3.9"]) == ExitCode.OK
    assert run(["check-abi", str(folder)]) == ExitCode.FAILED
    assert "KB107" in capsys.readouterr().out
    assert run(["check-abi", str(folder), "-m", "glibc"]) == ExitCode.USAGE


def test_check_builds_looks_at_metadata_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / CPU / "metadata.json").write_text("{", encoding="ascii")
    assert run(["check-builds", str(folder)]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "metadata.json" in out
    assert "KB107" not in out


def test_hash_writes_digests_and_keeps_everything_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / CPU / "metadata.json"
    before = json.loads(file.read_text()) | {"future-key": [1, {"é": None}], "provenance": {"x": 1}}
    file.write_text(json.dumps(before), encoding="utf-8")
    file.chmod(0o600)
    assert run(["hash", str(folder)]) == ExitCode.OK
    assert "digest written" in capsys.readouterr().out
    after = json.loads(file.read_text(encoding="utf-8"))
    assert after.pop("digest") == {"algorithm": "sha256", "files": hash_variant(folder / CPU)}
    assert after == before
    assert list(json.loads(file.read_text(encoding="utf-8")))[-2:] == ["digest", "provenance"]
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.stat().st_mtime_ns
    assert run(["hash", str(folder)]) == ExitCode.OK
    assert "already correct" in capsys.readouterr().out
    assert file.stat().st_mtime_ns == written
    assert sorted(path.name for path in (folder / CPU).iterdir()) == sorted(
        ["__init__.py", f"{ID}.abi3.so", "metadata.json"]
    )


def test_hash_changes_nothing_when_one_variant_is_damaged(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (folder / CPU / "metadata.json").read_bytes()
    (folder / CUDA / "metadata.json").write_text("[]", encoding="ascii")
    assert run(["hash", str(folder)]) == ExitCode.FAILED
    assert "is not a JSON object" in capsys.readouterr().err
    assert (folder / CPU / "metadata.json").read_bytes() == good
    assert run(["hash", str(folder.parent / "missing")]) == ExitCode.USAGE


def test_notes_are_shown_by_every_check_that_points_to_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes").mkdir()
    for command in ("check", "check-builds"):
        run([command, str(folder)])
        assert "run 'kernel-builder check --verbose' to show" in capsys.readouterr().out
        run([command, str(folder), "--verbose"])
        assert "notes is not a variant" in capsys.readouterr().out


def test_the_summary_ends_with_a_full_stop(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("--select", "KB2"), ("--verbose",)):
        run(["check", str(folder), *options])
        assert capsys.readouterr().out.rstrip().endswith(".")
