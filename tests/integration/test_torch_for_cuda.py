"""`pip install torch` on Linux brings a build for CUDA, also where there is no GPU. What is built for it is used there.

With such a build the client looks for CUDA variants unless it is told a backend.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

from conftest import BUILD_TOML, CPU, ProjectMaker, Tool, with_torch

pytestmark = [pytest.mark.network, pytest.mark.slow]

CUDA = CPU.replace("cpu", "cu130")
VERSION = "__version__ = '2.13.0+cu130'\ncuda = '13.0'\nhip = None\n"
TOLD = 'get_local_kernel(path, backend="cpu")'
BOTH = BUILD_TOML.format(name="both", sources='"a.cpp"').replace('["cpu"]', '["cpu", "cuda"]') + (
    '\n[kernel.device]\nbackend = "cuda"\ndepends = []\nsrc = ["a.cu"]\n'
)
DRIVER = (
    'extern "C" int cuInit(unsigned) { return 0; }\nextern "C" int cuDeviceGetCount(int *n) { *n = 1; return 0; }\n'
)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter whose torch, as far as can be told without importing it, was built for CUDA 13.0."""
    root = tmp_path / "environment"
    venv.create(root, symlinks=True, with_pip=False)
    (packages,) = root.glob("lib/python3*/site-packages")
    files = {
        "torch/__init__.py": "",
        "torch/version.py": VERSION,
        "kernels/__init__.py": "",
        "kernels-0.17.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: kernels\nVersion: 0.17.2\n",
    }
    for path, text in files.items():
        (packages / path).parent.mkdir(exist_ok=True)
        (packages / path).write_text(text, encoding="ascii")
    return root / "bin" / "python"


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """Variables that give programs a driver with one GPU."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "a.cpp").write_text(DRIVER, encoding="ascii")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "a.cpp"], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


def chosen(
    tool: Tool, root: Path, python: Path, *options: str, env: dict[str, str] | None = None
) -> tuple[set[str], str]:
    """Names of what ``--local`` builds, and what is said about the choice."""
    result = tool.apart("build", root, "--local", "--python", python, "--dry-run", "--json", *options, env=env)
    assert result.code == 0, result.stderr
    variants, remarks = result.json["variants"], result.json["remarks"]
    assert isinstance(variants, list)
    assert isinstance(remarks, list)
    return {variant["name"] for variant in variants}, "\n".join(remarks)


def test_local_means_what_the_client_loads_and_what_can_run_here(
    tool: Tool, make_project: ProjectMaker, python: Path, driver: dict[str, str]
) -> None:
    root = make_project("both", {"a.cpp": "int a;\n", "a.cu": "int b;\n"}, toml=BOTH)
    names, said = chosen(tool, root, python)
    assert names == {CPU, CUDA}
    assert f"{CUDA} is what the kernels client loads by default with torch 2.13.0+cu130" in said
    assert f"{CPU} is what this machine can run; the client loads it only when told to: {TOLD}" in said
    assert chosen(tool, root, python, env=driver) == ({CUDA}, "")
    names, said = chosen(tool, root, python, "--backend", "cpu")
    assert names == {CPU}
    assert "looks for CUDA variants by default, which were not requested" in said


def test_what_the_client_does_not_look_for_is_told(tool: Tool, make_project: ProjectMaker, python: Path) -> None:
    root = make_project("host", {"a.cpp": "int a;\n"})
    names, said = chosen(tool, root, python)
    assert names == {CPU}
    assert said == (
        "with torch 2.13.0+cu130, the kernels client looks for CUDA variants by default, which this kernel does not"
        f" have; load {CPU} with {TOLD}"
    )


@pytest.mark.torch
def test_the_example_finds_what_was_built_locally(init_project: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    code = "import runpy\nrunpy.run_path('example.py')\n"
    completed = subprocess.run(with_torch(code), cwd=init_project, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert "on cpu" in completed.stdout
    other = "from pathlib import Path\nfrom kernels import get_local_kernel\nget_local_kernel(Path.cwd())\n"
    told = subprocess.run(
        with_torch(other),
        cwd=init_project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "does not match selected backend (cu1" in told.stderr, "the test means a client that has to be told"
