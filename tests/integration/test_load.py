"""Kernels that are built, loaded with the real client and called: the end of the chain."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_abi_check import ObjectFile
from kernels_data import Digest, DigestAlgorithm, Metadata

from conftest import CPU, PROJECTS, ProjectMaker, Result, Tool, assert_proven, commit, copy_project, with_torch

torch = pytest.importorskip("torch", reason="torch is not installed in this environment")

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]


def checked(result: Result) -> Result:
    assert result.code == 0, result.stderr + result.stdout
    return result


def python(code: str, *, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter, in ``cwd``, with ``path`` as PYTHONPATH."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        with_torch(code),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def answers(code: str, *, cwd: Path, path: Path | None = None) -> object:
    """The JSON that ``code`` prints as its last line."""
    completed = python(code, cwd=cwd, path=path)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.parametrize("compiler", ["g++", "clang++", "zig"])
def test_the_c_plus_plus_runtime_answers_right(compiler: str, tool: Tool, tmp_path: Path) -> None:
    """Case T17 and DESIGN.md F7: torch comes first, then everything that a wrong link breaks.

    On a PATH with that compiler and binutils alone, and for zig without any: no other one helps.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "c++filt", *(() if compiler == "zig" else (compiler, "as", "ld", "ar"))):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"needs {name}")
        (programs / name).symlink_to(found)
    root = copy_project(PROJECTS / "cxx-runtime", tmp_path / "cxx-runtime")
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "file").touch()
    choice = ("--host-compiler", "zig") if compiler == "zig" else ()
    checked(tool("build", root, "--local", *choice, env={"PATH": str(programs)}))
    if compiler == "clang++":
        assert_as_without_precompiled_headers(root / ".kernel-builder" / CPU, "torch-ext/torch_binding.cpp", tool)
    code = f"""
import json, torch, kernels
from pathlib import Path
ops = kernels.get_local_kernel(Path({str(root)!r}), backend="cpu").ops
try:
    ops.fail_with_number(41)
except RuntimeError as error:
    message = str(error).splitlines()[0]
names = ("unwind_through_destructors catch_torch_error nested_exceptions throw_in_thread format_numbers"
         " random_numbers_differ").split()
found = {{name: getattr(ops, name)() for name in names}}
found["match"] = ops.match_words("ab-12 x cd-7")
found["message"] = message
found["walk"] = ops.walk_directory({str(tmp_path / "tree")!r})
found["waited"] = ops.wait_until_timeout() >= 30
print(json.dumps(found))
"""
    assert answers(code, cwd=tmp_path) == {
        "unwind_through_destructors": 10,
        "catch_torch_error": "expected a negative number, got 41 and 2.5",
        "nested_exceptions": "outer/inner",
        "throw_in_thread": 11,
        "format_numbers": "3.14 42 ff true 8 5 word",
        "random_numbers_differ": True,
        "match": "ab:13;cd:8;",
        "message": "expected a negative number, got 41 and 2.5",
        "walk": "file;inner/;",
        "waited": True,
    }
    assert_conforms(root)


def assert_as_without_precompiled_headers(work: Path, source: str, tool: Tool) -> None:
    """The object of ``source`` was made with precompiled headers, and is what it is without them, byte for byte."""
    (line,) = (work / "log" / f"{source}.log").read_text(encoding="utf-8").splitlines()
    command = shlex.split(line)
    at = command.index("--words")
    plain = command[at + 2 + int(command[at + 1]) :]
    assert any((Path(tool.environment["KERNEL_BUILDER_CACHE"]) / "store").glob("headers-torch-*/first.h.pch"))
    made = (work / "obj" / f"{source}.o").read_bytes()
    subprocess.run(plain, check=True)
    assert (work / "obj" / f"{source}.o").read_bytes() == made


def assert_conforms(root: Path) -> None:
    """The published requirements, judged by the reference's own tools."""
    variant = root / "build" / CPU
    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert metadata.digest is not None
    assert dict(metadata.digest.files) == dict(Digest.hash_variant(DigestAlgorithm.SHA256, variant).files)
    (path,) = variant.glob("*.so")
    assert path.name == f"{metadata.id}.abi3.so"
    library = ObjectFile(path)
    assert library.check_python_abi("3.9") == []
    assert library.check_manylinux("manylinux_2_27") == []


def test_the_example_conforms_and_says_who_it_is(built_relu: dict[str, Path]) -> None:
    assert_conforms(built_relu["first"])
    sha = commit(built_relu["first"])  # the id is of the commit that was built, not of a later one
    document = json.loads((built_relu["first"] / "build" / CPU / "metadata.json").read_text(encoding="utf-8"))
    assert document["name"] == "relu"
    assert document["backend"] == {"type": "cpu"}
    assert document["provenance"]["kernel"]["dirty"] is False
    assert document["id"] == f"_relu_cpu_{document['provenance']['kernel']['commit'][:7]}"
    assert document["provenance"]["kernel"]["commit"] != sha
    keys = ["name", "id", "version", "license", "python-depends", "kernel-depends", "backend", "digest", "provenance"]
    assert [key for key in document if key not in {"upstream", "source"}] == keys


def test_two_commits_load_and_compile_side_by_side(built_relu: dict[str, Path], tmp_path: Path) -> None:
    """Case T13; and the compatibility package does not disturb flat loading."""
    variant = built_relu["first"] / "build" / CPU
    code = f"""
import json, sys, torch, kernels
from pathlib import Path
flat = kernels.get_local_kernel(Path({str(variant)!r}), backend="cpu")
found = [flat.__file__, "relu" in sys.modules]
x = torch.linspace(-2, 2, 101)
modules = [kernels.get_local_kernel(Path(path), backend="cpu") for path in {list(map(str, built_relu.values()))!r}]
assert modules[0] is not modules[1]
namespaces = sorted(module._ops.ops.name for module in modules)
right = [bool(torch.equal(module.relu(x), torch.relu(x))) for module in modules]
compiled = [torch.compile(module.relu, fullgraph=True, backend="eager") for module in modules]
right += [bool(torch.equal(function(x), torch.relu(x))) for function in compiled]
print(json.dumps([found, right, len(set(namespaces))]))
"""
    assert answers(code, cwd=tmp_path) == [[str(variant / "__init__.py"), False], [True] * 4, 2]


def test_pythonpath_makes_a_plain_import_work(built_relu: dict[str, Path], tmp_path: Path) -> None:
    code = """
import json, torch, relu, relu.layers
x = torch.randn(7)
print(json.dumps([bool(torch.equal(relu.relu(x), torch.relu(x))), relu.__name__, relu.layers.__name__]))
"""
    variant = built_relu["first"] / "build" / CPU
    assert answers(code, cwd=tmp_path, path=variant) == [True, "relu", "relu.layers"]


NOARCH = """\
[general]
name = "double-it"
version = 3
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]

[torch-noarch]
pyext = ["json"]
cuda-capabilities = ["9.0"]
"""
NOARCH_PACKAGE = """\
import torch
from torch.library import custom_op, register_fake
from ._ops import add_op_namespace_prefix, ops

@custom_op(add_op_namespace_prefix("double"), mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@register_fake(add_op_namespace_prefix("double"))
def _(x):
    return torch.empty_like(x)

def call(x):
    return ops.double(x)
"""


def test_python_only_kernels_need_no_toolchain(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project(
        "double-it",
        {"torch-ext/double_it/__init__.py": NOARCH_PACKAGE, "torch-ext/double_it/a [1],b.json": "{}"},
        toml=NOARCH,
    )
    nowhere = {
        "KERNEL_BUILDER_CACHE": str(tmp_path / "store"),
        "KERNEL_BUILDER_INDEX_URL": "http://127.0.0.1:9/",
        "CXX": "/no/such/compiler",
    }
    result = checked(tool("build", root, "--json", env=nowhere))
    assert {path.name for path in (tmp_path / "store").glob("*")} <= {
        "builds.key",
        "answers",
        "proofs",
    }  # nothing was fetched
    assert str(result.json["confinement"]).startswith("loaded ")
    load = result.variant("torch-cpu")["load"]
    double = f"{result.variant('torch-cpu')['ops-id']}::double"
    assert isinstance(load, dict)
    assert load["implemented"].keys() == {double}
    assert (load["status"], load["reason"], load["ops"]) == ("loaded", None, [double])
    assert not load["unimplemented"] + load["foreign"] + load["stood-in"] + load["frames"]
    for backend in ("cpu", "cuda"):
        variant = root / "build" / f"torch-{backend}"
        ops_id = result.variant(f"torch-{backend}")["ops-id"]
        assert str(ops_id).startswith(f"_double_it_{backend}_")
        # The namespace is that of the variant, whatever machine loads it (contract, sharp edge 11).
        assert f"ops = torch.ops.{ops_id}\n" in (variant / "_ops.py").read_text(encoding="utf-8")
        assert (variant / "a [1],b.json").read_text(encoding="utf-8") == "{}"
        metadata = Metadata.read_from_file(variant / "metadata.json")
        assert (metadata.id, metadata.version, str(metadata.name)) == (ops_id, 3, "double-it")
        assert metadata.backend.archs == (["9.0"] if backend == "cuda" else None)


@pytest.mark.parametrize(
    ("package", "words"),
    [
        (
            "from my_kernel.part import value\n",
            "imports itself by its absolute name, 'my_kernel'; use a relative import\n    __init__.py, line 1",
        ),
        ("import importlib\nimportlib.import_module('my_kernel')\n", "absolute name, 'my_kernel'"),
        ("import no_such_module_anywhere\n", "no_such_module_anywhere"),
        ("raise RuntimeError('at import')\n", "at import"),
        ("import os\nos.abort()\n", "was killed by signal 6"),
    ],
)
def test_a_kernel_that_does_not_load_is_not_installed(
    tool: Tool, make_project: ProjectMaker, package: str, words: str
) -> None:
    """Case T10, where a package of the same name is installed and would be imported instead."""
    toml = NOARCH.replace("double-it", "my-kernel")
    root = make_project(
        "my-kernel",
        {"torch-ext/my_kernel/__init__.py": package, "torch-ext/my_kernel/part.py": "value = 1\n"},
        toml=toml,
    )
    installed = root.parent / "installed" / "my_kernel"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("", encoding="ascii")
    (installed / "part.py").write_text("value = 'of the wrong package'\n", encoding="ascii")
    wrong = {"PYTHONPATH": str(installed.parent)} if "my_kernel" in package else {}
    arguments: list[str | Path] = ["build", root, "--variant", "torch-cpu"]
    if package.startswith(("from", "import")):
        refused = tool(*arguments)
        assert refused.code == 1
        assert "the kernel breaks the rules for Hub kernels" in refused.stderr
        assert not (root / "build").exists()
    # Code that no rule can see through must not be installed, either.
    result = tool(*arguments, "--ignore", "KB3", env=wrong)
    assert result.code == 1
    assert words in result.stderr
    assert list((root / "build").iterdir()) == []


def test_an_op_without_implementation_is_refused(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T20 (b)."""
    binding = (
        # A sixth of what torch/library.h takes to compile.
        '#include <torch/csrc/stable/library.h>\n#include "registration.h"\n'
        "static int64_t same(int64_t x) { return x; }\n"
        "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {\n"
        '  ops.def("there(int x) -> int");\n  ops.def("forgotten(int x) -> int");\n}\n'
        "STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, ops) {\n"
        '  ops.impl("there", TORCH_BOX(&same));\n}\n'
        "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
    )
    root = make_project("half", {"bind.cpp": binding})
    result = tool("build", root, "--local")
    assert result.code == 1
    assert "KB504 op-unimplemented: " in result.stderr
    assert "::forgotten has no implementation, but the variant is for CPU" in result.stderr
    assert "::there" not in result.stderr
    assert list((root / "build").iterdir()) == []


def test_a_declared_dependency_that_is_not_installed_is_named(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T20 (j): the variant is made, and the summary says why it was not loaded."""
    toml = NOARCH.replace('license = "MIT"', 'license = "MIT"\npython-depends = ["helion"]')
    root = make_project("double-it", {"torch-ext/double_it/__init__.py": "import helion\n"}, toml=toml)
    result = checked(tool("build", root, "--variant", "torch-cpu"))
    assert "not loaded here: its Python dependency helion is not installed" in result.stdout


VENDORED = """\
#pragma once
#include <Python.h>
#define INIT_(NAME) PyInit_##NAME
#define INIT(NAME) INIT_(NAME)
#define REGISTER_EXTENSION(NAME) \\
  PyMODINIT_FUNC INIT(NAME)() { \\
    static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "the project's own", nullptr, 0, nullptr}; \\
    return PyModule_Create(&module); }
"""


def test_a_vendored_registration_header_wins(tool: Tool, make_project: ProjectMaker) -> None:
    """Of sources in any directory, by any path to it; where there is none, the generated one is found the same way."""
    sources = {
        "src/beside.cpp": '#include "../torch-ext/registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n',
        "src/by_name.cpp": '#include "registration.h"\n#ifndef REGISTER_EXTENSION\n#error\n#endif\n',
    }
    for name, vendored in (("own", {"torch-ext/registration.h": VENDORED}), ("generated", {})):
        root = make_project(name, {**sources, **vendored})
        built = checked(tool("build", root, "--local", "--json"))
        assert_proven(built.variant()["load"])
        (library,) = (root / "build" / CPU).glob("*.so")
        assert (b"the project's own" in library.read_bytes()) == (name == "own")


def test_pybind_is_one_clear_error(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T18 (c): directly included, or through a header."""
    root = make_project(
        "bound",
        {"a.cpp": '#include "a.h"\nvoid f(const torch::Tensor &) {}\n', "a.h": "#include <torch/extension.h>\n"},
    )
    result = tool("build", root, "--local")
    assert result.code == 1
    assert result.stderr.count("error:") <= 3  # our line, the compiler's, and no cascade
    assert "torch/extension.h needs pybind11" in result.stderr
    assert "a.h" in result.stderr


def test_a_real_cuda_kernel_is_built_without_cuda(tool: Tool, make_project: ProjectMaker) -> None:
    """Cases T5 and T6 with nvcc: architectures and macros reach their own files, and the binary holds just those."""
    toml = """\
[general]
name = "device"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
src = []

[kernel.a]
backend = "cuda"
depends = []
src = ["a/k.cu", "a/k.cuh"]
include = ["a"]
cuda-flags = ["-DONLY_A", "-std=c++17"]
cuda-capabilities = ["7.0", "8.0"]

[kernel.b]
backend = "cuda"
depends = []
src = ["b/k.cu"]
cuda-flags = ["-DONLY_B", "-fno-strict-aliasing"]
cuda-capabilities = ["9.0a"]
"""
    root = make_project(
        "device",
        {
            "a/k.cuh": "#define FACTOR 2.0f\n",
            "a/k.cu": "#include <k.cuh>\n#if !defined(ONLY_A) || defined(ONLY_B) || __cplusplus < 202002L\n#error\n"
            "#endif\n"
            "__global__ void scale(float *x) { auto f = [=] __device__(float v) { return v * FACTOR; }; *x = f(*x); }\n"
            'extern "C" void run_a(float *x) { scale<<<1, 1>>>(x); }\n',
            "b/k.cu": "#include <cuda_fp16.h>\n#if defined(ONLY_A) || !defined(ONLY_B)\n#error\n#endif\n"
            "__global__ void add(half *x) { *x = *x + *x; }\n"
            'extern "C" void run_b(half *x) { add<<<1, 1>>>(x); }\n',
        },
        toml=toml,
    )
    name = "torch213-cxx11-cu130-x86_64-linux"
    result = checked(tool("build", root, "--variant", name, "--json"))
    assert result.compiled(name) == ["a/k.cu", "b/k.cu"]
    load = result.variant(name)["load"]
    assert isinstance(load, dict)
    assert load["status"] == ("loaded" if torch.version.cuda else "loaded with stand-ins")
    assert any("7.0 dropped" in str(note) for note in list(result.json["notes"]))  # type: ignore[call-overload]
    assert any("raised to C++20" in str(text) for text in list(result.json["warnings"]))  # type: ignore[call-overload]
    metadata = json.loads((root / "build" / name / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0", "9.0a"]}
    (library,) = (root / "build" / name).glob("*.so")
    content = library.read_bytes()
    assert content.count(b"sm_80") > 0
    assert content.count(b"sm_90a") > 0
    assert b"sm_75" not in content
    dynamic = subprocess.run(["readelf", "-dW", library], check=True, capture_output=True, text=True).stdout
    assert "libcudart.so.13" in dynamic
    assert "RUNPATH" not in dynamic

    (root / "a/k.cuh").write_text("#define FACTOR 3.0f\n", encoding="ascii")
    assert tool("build", root, "--variant", name, "--json", "--no-load").compiled(name) == ["a/k.cu"]
    text = (root / "build.toml").read_text(encoding="ascii").replace('["9.0a"]', '["9.0a", "10.0f"]')
    (root / "build.toml").write_text(text, encoding="ascii")
    assert tool("build", root, "--variant", name, "--json", "--no-load").compiled(name) == ["b/k.cu"]


def found_by_loading(tool: Tool, path: Path) -> dict[str, str]:
    """Rule -> message of what ``check --load`` finds by loading."""
    result = tool("check", path, "--load", "--select", "KB5", "--format", "json")
    findings = result.json["findings"]
    assert isinstance(findings, list)
    assert result.code == (1 if any(finding["severity"] == "error" for finding in findings) else 0)
    return {finding["code"]: finding["message"] for finding in findings}


def test_check_load_finds_nothing_wrong_with_a_good_kernel(tool: Tool, built_relu: dict[str, Path]) -> None:
    """Cases T12 and T13: its own namespace alone, another version beside it, ops compiled with fullgraph."""
    assert found_by_loading(tool, built_relu["first"] / "build" / CPU).keys() <= {"KB504", "KB508"}


HIDDEN = """\
import os

import torch

from . import _ops

__all__ = ["twice", "thrice", "plain"]


def register(name):
    return torch.library.custom_op(name, mutates_args=())


@register("myns::double")
def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@register(_ops.add_op_namespace_prefix("plain"))
def plain(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@plain.register_fake
def _(x):
    return torch.empty_like(x)


@register(_ops.add_op_namespace_prefix("twice"))
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@twice.register_fake
def _(x):
    return x.new_empty(x.sum().item())


@register(_ops.add_op_namespace_prefix("thrice"))
def thrice(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


@thrice.register_fake
def _(x):
    os.abort()
"""


def test_check_load_sees_what_no_reading_of_the_code_can(tool: Tool, make_project: ProjectMaker) -> None:
    """Case T12: a wrapper hides the registration. What dies is the process that loads it, not ours."""
    root = make_project("double-it", {"torch-ext/double_it/__init__.py": HIDDEN}, toml=NOARCH)
    checked(
        tool("build", root, "--variant", "torch-cpu", "--ignore", "KB351", "--ignore", "KB503", "--ignore", "KB513")
    )
    found = found_by_loading(tool, root / "build" / "torch-cpu")
    assert "'myns'" in found["KB503"]
    assert "::twice does not compile" in found["KB506"]
    assert "::thrice" in found["KB507"]
    assert not {"KB500", "KB501", "KB502"} & found.keys()
