"""What ``init`` writes, and ``examples/relu``, work as they stand: built for the CPU, loaded, tested, measured."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Tool, copy_project
from warm_python import WarmPython

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.torch, pytest.mark.xdist_group("warm torch")]

# The runner of `kernels benchmark` without its tables, which need packages of their own.
BENCHMARK = """
import json
from pathlib import Path
from kernels.cli.benchmark import discover_benchmark_classes, run_benchmark_class

verified = {}
for cls in discover_benchmark_classes(Path("benchmarks/benchmark.py"), Path.cwd()):
    results, _ = run_benchmark_class(cls, iterations=3, warmup=1, repo_id=".", is_local=True, revision="local")
    verified.update({name: timing.verified for name, timing in results.items()})
print(json.dumps(verified))
"""


@dataclass(frozen=True, kw_only=True)
class Project:
    """What is in ``root``, with its CPU variant built for the torch of this environment."""

    root: Path
    python: WarmPython

    def run(self, *command: str) -> str:
        """Run Python with ``command`` there; return its stdout, and show everything if it fails."""
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        done = self.python.run(command, cwd=self.root, environ=environ)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(params=["init", "relu"])
def project(request: pytest.FixtureRequest, warm_torch: WarmPython) -> Project:
    if request.param == "init":
        found: Path = request.getfixturevalue("init_project")
    else:
        found = request.getfixturevalue("built_relu")["first"]
    (variant,) = (found / "build").glob("torch*")
    assert "-cpu-" in variant.name
    return Project(root=found, python=warm_torch)


def test_the_example_agrees_with_torch(project: Project) -> None:
    kernel, torch = project.run("example.py").splitlines()
    values = kernel.removeprefix("kernel:").split("(")[0]
    assert json.loads(values) == json.loads(torch.removeprefix("torch:"))


def test_its_own_tests_pass(project: Project) -> None:
    summary = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider").splitlines()[-1]
    passed = int(summary.split(" passed")[0].split()[-1])
    assert passed > 60
    assert "failed" not in summary


def test_its_quick_tests_are_marked_for_ci(project: Project) -> None:
    summary = project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "kernels_ci", "--collect-only")
    assert "test_agrees_with_torch" in summary
    assert "test_compiles_in_one_graph" not in summary


def test_its_benchmark_verifies(project: Project) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda and not torch.cuda.is_available():
        pytest.skip(
            "the client's benchmark asks for a CUDA variant as soon as torch has CUDA, and there is no GPU here"
        )
    verified = json.loads(project.run("-c", BENCHMARK).splitlines()[-1])
    assert {name.partition("_")[0] for name in verified} == {"bfloat16", "float32"}
    assert set(verified.values()) == {True}


def test_editors_get_the_commands_that_a_build_runs(init_project: Path, tool: Tool, tmp_path: Path) -> None:
    root = copy_project(init_project, tmp_path / "my-scale")
    written = tool("compile-commands", root)
    assert written.code == 0, written.stderr
    entries = json.loads((root / "compile_commands.json").read_text())
    assert {Path(entry["file"]).name for entry in entries} == {"my_scale_cpu.cpp", "torch_binding.cpp"}
    for entry in entries:
        words = entry["arguments"]
        assert {"-DCPU_KERNEL", entry["file"]} <= set(words)
        folders = [words[at + 1] for at, word in enumerate(words) if word == "-isystem"]
        folders += [word[2:] for word in words if word.startswith("-I")]
        assert len(folders) > 2
        assert [folder for folder in folders if not Path(folder).is_dir()] == []
    assert not list(root.rglob("*.o"))
