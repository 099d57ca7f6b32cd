"""Kernels on torch's stable ABI, compiled with its headers alone, checked, loaded and called."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD_TOML, ProjectMaker, Tool, with_torch

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]

VARIANT = "torch-stable-abi210-cpu-x86_64-linux"
TOML = BUILD_TOML.replace("src = []", 'src = []\nstable-abi = "2.10"')
SOURCE = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include "registration.h"

static void negate(torch::stable::Tensor &out, const torch::stable::Tensor &input) {
  STD_TORCH_CHECK(input.scalar_type() == torch::headeronly::ScalarType::Float, "only float32 is negated");
  const float *from = static_cast<const float *>(input.data_ptr());
  float *to = static_cast<float *>(out.data_ptr());
  for (int64_t i = 0; i < input.numel(); ++i) to[i] = -from[i];
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("negate(Tensor! out, Tensor input) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("negate", TORCH_BOX(&negate)); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def stable(make_project: ProjectMaker, name: str, source: str) -> Path:
    package = f"torch-ext/{name}/__init__.py"
    files = {"bind.cpp": source, package: "from ._ops import ops\n"}
    return make_project(name, files, toml=TOML.format(name=name, sources='"bind.cpp"'))


def test_a_stable_kernel_is_built_and_computes(tool: Tool, make_project: ProjectMaker) -> None:
    """The torch that it is compiled against is newer than the one that it is loaded with."""
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    root = stable(make_project, "negate", SOURCE)
    result = tool("build", root, "--local", "--json")
    assert result.code == 0, result.stderr
    entry = result.variant(VARIANT)
    assert (entry["status"], entry["load"]["status"], len(entry["load"]["ops"])) == ("built", "loaded", 1)  # type: ignore[index]
    metadata = json.loads((root / "build" / VARIANT / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "cpu"}
    code = f"""
import json, torch, kernels
from pathlib import Path
ops = kernels.get_local_kernel(Path({str(root)!r}), backend="cpu").ops
x = torch.linspace(-2, 2, 101)
y = torch.empty_like(x)
ops.negate(y, x)
try:
    ops.negate(y, x.double())
except RuntimeError as error:
    message = str(error)
print(json.dumps([bool(torch.equal(y, -x)), "only float32 is negated" in message]))
"""
    completed = subprocess.run(with_torch(code), capture_output=True, text=True, check=True)
    assert json.loads(completed.stdout) == [True, True]
    (library,) = (root / "build" / VARIANT).glob("*.so")
    listing = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libc10.so" not in listing


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "#include <torch/all.h>\n",
            ["torch/all.h is not part of torch's stable ABI", "torch/csrc/stable/"],
        ),
        (
            "#include <torch/extension.h>\n",
            ["torch/extension.h is not part of torch's stable ABI", "include torch/csrc/stable/library.h"],
        ),
        (
            'extern "C" int torch_from_blob();\nextern "C" int f() { return torch_from_blob(); }\n',
            [
                "torch_from_blob (used by bind.cpp)\n      cause: torch has it since 2.11",
                "targets the stable ABI of 2.10",
            ],
        ),
        (
            'namespace at { void set_num_threads(int); }\nextern "C" void f() { at::set_num_threads(1); }\n',
            ["at::set_num_threads(int) (used by bind.cpp)\n      cause: torch's C++ interface is not part of"],
        ),
    ],
    ids=["header", "pybind", "too-new", "cxx"],
)
def test_what_is_not_stable_is_refused(tool: Tool, make_project: ProjectMaker, source: str, words: list[str]) -> None:
    root = stable(make_project, "unstable", source)
    result = tool("build", root, "--variant", VARIANT)
    assert result.code == 1
    for text in words:
        assert text in result.stderr, result.stderr
    assert list((root / "build").glob("*")) == []


def test_what_is_available_is_built_and_the_rest_is_said(tool: Tool, make_project: ProjectMaker) -> None:
    toml = BUILD_TOML.format(name="partly", sources='"a.cpp"').replace('["cpu"]', '["cpu", "rocm", "metal"]')
    toml = toml.replace("src = []", 'minver = "2.13"')
    toml += '\n[kernel.hip]\nbackend = "rocm"\ndepends = []\nsrc = ["a.cpp"]\n'
    toml += '\n[kernel.shader]\nbackend = "metal"\ndepends = []\nsrc = ["a.cpp"]\n'
    root = make_project("partly", {"a.cpp": "int a;\n"}, toml=toml)
    refused = tool("build", root, "--complete")
    assert refused.code == 4
    assert "2 of the 3 variants that Hub kernels must have cannot be built here" in refused.stderr
    assert "run kernel-builder build without --complete to build the other 1" in refused.stderr
    assert not (root / "build").exists()
    assert tool("build", root, "--dry-run", "--complete").code == 4
    built = tool("build", root)
    assert built.code == 0, built.stderr
    assert "2 of the 3 variants cannot be built here (listed at the end)" in built.stderr
    figures, *missing = built.stdout.splitlines()[1:]
    assert "1 of 3 variants ready in" in figures
    assert missing[:2] == [f"missing: torch213-cxx11-rocm{version}-x86_64-linux" for version in (71, 72)]
    assert "no source has ROCm 7.2" in missing[2]
    assert "the others lack the same" in missing[-2]
    assert "  to get them: install ROCm 7.2 and set ROCM_PATH" in missing[-1]
    assert "nothing to build for metal: its variants are for aarch64-darwin" in built.stderr
    assert [path.name for path in (root / "build").iterdir()] == ["torch213-cxx11-cpu-x86_64-linux"]
    plan = tool("build", root, "--available", "--dry-run", "--json")
    assert (plan.code, len(plan.json["unavailable"])) == (0, 2)  # type: ignore[arg-type]
    assert "note: --available has no effect" in plan.stderr
    named = tool("build", root, "--variant", "*-cpu-*", "--variant", "torch213-cxx11-rocm72-x86_64-linux")
    assert named.code == 4  # asked for by its full name
    assert (
        "run kernel-builder build without --variant torch213-cxx11-rocm72-x86_64-linux to build the other 3"
        in named.stderr
    )
    assert tool("build", root, "--variant", "torch213-*", "--dry-run").code == 0
