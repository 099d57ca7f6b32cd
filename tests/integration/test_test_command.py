"""``test`` and ``ci-test`` with the real client and pytest, on a kernel of Python alone: nothing is compiled."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conftest import Tool

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("test command")]

TOML = """\
[general]
name = "double-it"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "me/double-it"

[torch-noarch]
"""
KERNEL = "def double(x):\n    return x + x\n"
TESTS = """\
import os

import kernels
import pytest

double_it = kernels.get_kernel("me/double-it", version=1)


def test_it_is_the_build():
    import double_it as by_name

    assert double_it.double(2) == by_name.double(2) == 4
    assert os.path.dirname(double_it.__file__) == os.environ["LOCAL_KERNELS"].split("=")[1]


@pytest.mark.kernels_ci
def test_quick():
    assert double_it.double(3) == 6
"""
VARIANT = "torch-cpu"


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds one project for all, so that it is built and loaded once."""
    return tmp_path_factory.mktemp("test-command")


@pytest.fixture
def project(parent: Path) -> Path:
    root = parent / "double-it"
    shutil.rmtree(root / "tests", ignore_errors=True)
    (root / "kernel-builder.toml").unlink(missing_ok=True)
    files = {
        "build.toml": TOML,
        "torch-ext/double_it/__init__.py": KERNEL,
        "tests/test_double.py": TESTS,
        "tests/__init__.py": "",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def write(project: Path, text: str) -> None:
    (project / "tests" / "test_double.py").write_text(text, encoding="utf-8")


def test_the_default_variant_is_built_and_tested_through_the_client(tool: Tool, project: Path) -> None:
    """There is no GPU (tests hide it), so it is the processor's; the active environment has all that it takes."""
    done = tool.apart("test", project, "--", "-q")
    assert done.code == 0, done.stderr + done.stdout
    assert "2 passed" in done.stdout
    assert f"testing {VARIANT} with torch 2.13" in done.stderr
    assert not list((project / "build").rglob("__pycache__"))  # else it would be uploaded
    edited = (project / "torch-ext/double_it/__init__.py").write_text(
        "def double(x):\n    return x\n", encoding="utf-8"
    )
    assert edited
    failed = tool.apart("test", project, "--json", "--", "-q", "-p", "no:cacheprovider")
    assert failed.code == 1
    report = json.loads(failed.stdout[failed.stdout.index("\n{\n") :])["variants"][0]
    assert (report["status"], report["passed"], report["failed"]) == ("failed", 0, 2)
    assert report["failures"] == [
        "tests/test_double.py::test_it_is_the_build",
        "tests/test_double.py::test_quick",
    ]


def test_quick_tests_alone_and_none_at_all(tool: Tool, project: Path) -> None:
    quick = tool.apart("ci-test", project, "--", "-q")
    assert (quick.code, "1 passed, 1 deselected" in quick.stdout) == (0, True), quick.stdout + quick.stderr
    write(project, "def test_slow():\n    pass\n")
    none = tool.apart("ci-test", project)
    assert none.code == 0
    assert "no test is marked kernels_ci, so nothing was tested" in none.stdout
    selected = tool.apart("test", project, "--", "-k", "nothing")
    assert selected.code == 1
    assert f"error: {VARIANT}: no test was selected" in selected.stderr


def test_a_test_that_ends_the_process_is_named(tool: Tool, project: Path) -> None:
    write(project, "import os\ndef test_a():\n    pass\ndef test_b():\n    os.abort()\n")
    done = tool.apart("test", project, "--", "-q", "-p", "no:faulthandler")
    assert done.code == 1
    assert "Python was killed by SIGABRT in tests/test_double.py::test_b" in done.stderr


def test_all_that_can_run_in_one_table_with_a_junit_file_for_each(tool: Tool, project: Path) -> None:
    done = tool.apart("test", project, "--all", "-q", "--", "-q", "--junitxml=report.xml")
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    table = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[-2:]}
    assert table["torch-cuda"] == "not run - no CUDA device was found here"
    assert re.fullmatch(r"passed torch 2\.13\S+ 2 passed; [\d.]+ s", table[VARIANT])
    suite = next(ElementTree.parse(project / f"report-{VARIANT}.xml").getroot().iter("testsuite"))  # noqa: S314
    assert (suite.attrib["name"], suite.attrib["tests"]) == (VARIANT, "2")
    named = tool.apart("test", project, "--variant", "torch-cuda")
    assert named.code == 2
    assert "cannot run torch-cuda: no CUDA device was found here" in named.stderr


def test_what_the_tests_need_is_looked_for_before_they_run(tool: Tool, project: Path) -> None:
    (project / "kernel-builder.toml").write_text('[test]\nrequires = ["no-such-package-here>=2"]\n', encoding="utf-8")
    done = tool.apart("test", project, "--python", sys.executable)
    assert done.code == 2
    assert f"{sys.executable} lacks no-such-package-here>=2" in done.stderr
    (project / "kernel-builder.toml").write_text('[test]\nrequires = ["torch==2.12", "=="]\n', encoding="utf-8")
    wrong = tool.apart("test", project)
    assert wrong.code == 3
    assert "kernel-builder.toml:2:13: error: test.requires[0]: torch is the variant's own" in wrong.stderr
    assert "kernel-builder.toml:2:28: error: test.requires[1]: '==' is not a requirement" in wrong.stderr


def test_a_project_without_tests(tool: Tool, project: Path) -> None:
    (project / "tests" / "test_double.py").unlink()
    (project / "tests" / "__init__.py").unlink()
    (project / "tests").rmdir()
    done = tool.apart("test", project)
    assert (done.code, "tests does not exist, so there is nothing to test" in done.stderr) == (3, True)
    quick = tool.apart("ci-test", project)
    assert (quick.code, "no tests/ directory, so nothing is tested" in quick.stderr) == (0, True)


def test_ctrl_c_ends_the_tests_and_what_they_started(tool: Tool, project: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    write(
        project,
        "import os, subprocess, time\ndef test_a():\n"
        "    child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "    time.sleep(600)\n",
    )
    process = tool.start("test", project)
    try:
        deadline = time.monotonic() + 120
        while not (pids.exists() and len(pids.read_text().split()) == 2):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
