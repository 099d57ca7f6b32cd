"""A kernel compiled by a CUDA compiler out of NVIDIA's archives, which the test packs from what the wheels hold."""

from __future__ import annotations

import hashlib
import json
import platform
import tarfile
from pathlib import Path

import pytest

from conftest import ProjectMaker, Tool, assert_proven
from kernel_builder.backends.cuda.redistrib import redist_platform
from published import serve_folder

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

VARIANT = f"torch213-cxx11-cu130-{platform.machine()}-linux"
TOML = """\
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[general.hub]
repo-id = "someone/scale"

[torch]
src = []

[kernel.main]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["9.0"]
src = ["scale.cu"]
"""
KERNEL = """\
#include <cuda_runtime.h>
__global__ void scale(float *x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = sinf(x[i]) * a;
}
"""


def pack(root: Path, component: str, tree: Path, *places: str) -> dict[str, object]:
    """Write one archive as NVIDIA does, and return its part of the manifest."""
    name = f"{component}-{redist_platform(platform.machine())}-13.0.88-archive"
    path = Path(component) / redist_platform(platform.machine()) / f"{name}.tar.gz"
    (root / path).parent.mkdir(parents=True)
    with tarfile.open(root / path, "w:gz", compresslevel=1) as archive:
        for place in places:
            archive.add(tree / place, f"{name}/{place}")
    with (root / path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    entry = {"relative_path": str(path), "sha256": digest, "size": str((root / path).stat().st_size)}
    return {"name": component, "version": "13.0.88", redist_platform(platform.machine()): entry}


def _sources(entry: Path) -> set[str]:
    manifest = json.loads((entry / ".manifest.json").read_text(encoding="utf-8"))
    return {source.get("source", "index") for source in manifest["sources"]}


@pytest.mark.loaded
def test_a_kernel_is_compiled_out_of_archives_from_a_server(
    tool: Tool, session_store: Path, make_project: ProjectMaker, tmp_path: Path
) -> None:
    project = make_project("scale", {"scale.cu": KERNEL}, toml=TOML)
    fetched = tool("toolchain", "fetch", VARIANT, cwd=project)
    assert fetched.code == 0, fetched.stderr
    trees = (session_store / "store").glob("cuda-13.0-*")
    tree = next(
        path for path in trees if (path / "include/fatbinary_section.h").is_file() and "redistrib" not in _sources(path)
    )
    root = tmp_path / "redist"
    root.mkdir()
    manifest = {
        "release_label": "13.0.2",
        "cuda_nvcc": pack(root, "cuda_nvcc", tree, "bin", "include/fatbinary_section.h"),
        "libnvvm": pack(root, "libnvvm", tree, "nvvm"),
    }
    (root / "redistrib_13.0.2.json").write_text(json.dumps(manifest), encoding="utf-8")
    with serve_folder(root) as site:
        (project / "kernel-builder.toml").write_text(
            f'sources = ["redistrib", "index"]\n[redistrib]\nurl = "{site.url}"\n', encoding="utf-8"
        )
        result = tool("build", project, "--variant", VARIANT, "--json")
        assert result.code == 0, result.stderr
        assert result.variant(VARIANT)["compiled"] == ["scale.cu"]
        assert_proven(result.variant(VARIANT)["load"])
        served = [path.rpartition("/")[2].partition("-")[0] for path in site.paths() if path.endswith(".tar.gz")]
        assert sorted(set(served)) == ["cuda_nvcc", "libnvvm"]
        explained = tool("toolchain", "explain", VARIANT, cwd=project)
        assert "redistrib" in explained.stdout
    again = tool("build", project, "--variant", VARIANT, "--json")  # the server is gone, the store has it all
    assert again.code == 0, again.stderr
