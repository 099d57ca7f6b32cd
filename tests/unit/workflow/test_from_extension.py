"""``init --from-extension``: a project out of a ``setup.py`` that never runs, and a list of what is left to decide."""

from __future__ import annotations

import runpy
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from kernel_builder.cli import run
from kernel_builder.errors import ExitCode
from kernel_builder.interface.extension import ExtensionModule, read_setup
from kernel_trees import write

SETUP = """
import os
from setuptools import setup
from torch.utils import cpp_extension

raise RuntimeError("this file is parsed")
HERE = os.path.dirname(os.path.abspath(__file__))
sources = ["src/binding.cpp"]
sources += [os.path.join("src", "scale.cpp")]
if os.name == "nt":
    sources += ["src/windows.cpp"]
setup(name="my_ext", version="3.1", license="MIT",
      ext_modules=[cpp_extension.CppExtension("my_ext._C", sources, include_dirs=[os.path.join(HERE, "include")],
                   extra_compile_args={"cxx": ["-O3", "-fopenmp"]}, define_macros=[("FACTOR", "2")])])
"""
FILES = {
    "setup.py": SETUP,
    "include/scale.h": "#pragma once\n#include <torch/extension.h>\ntorch::Tensor scale(at::Tensor x, float by);\n",
    "src/scale.cpp": '#include "scale.h"\ntorch::Tensor scale(at::Tensor x, float by) { return x * by; }\n',
    "src/binding.cpp": '#include "scale.h"\nnamespace py = pybind11;\n'
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("scale", &scale);\n  m.attr("x") = 1;\n}\n',
    "my_ext/__init__.py": "import torch\nfrom my_ext._C import scale\nfrom my_ext.sub import more\n",
    "my_ext/sub/__init__.py": "",
    "my_ext/testing.py": "",
    "my_ext/test_here.py": "",
    "my_ext/sub/more.py": "from .. import _C\nimport my_ext._C as native\ntwice = torch.ops.other.twice\n",
    "tests/test_it.py": "import my_ext\n",
}


@pytest.mark.parametrize(("included", "include"), [("scale.h", ["."]), ("../scale.h", None)])
def test_headers_in_the_top_are_found_where_setup_says_so(
    tmp_path: Path, included: str, include: list[str] | None
) -> None:
    files = {
        "setup.py": SETUP.replace('os.path.join(HERE, "include")', "HERE"),
        "scale.h": FILES["include/scale.h"],
        **{path: FILES[path].replace("scale.h", included) for path in ("src/scale.cpp", "src/binding.cpp")},
    }
    root = tmp_path / "my-ext"
    assert run(["init", str(root), "--from-extension", str(write(tmp_path / "ext", files))]) == ExitCode.OK
    (section,) = tomllib.loads((root / "build.toml").read_text())["kernel"].values()
    assert section.get("include") == include
    assert run(["check-config", str(root)]) == ExitCode.OK


def test_what_is_written_out_is_converted_and_the_rest_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = write(tmp_path / "ext", FILES), tmp_path / "my-ext"
    assert run(["init", str(root), "--from-extension", str(source)]) == ExitCode.OK
    out = capsys.readouterr().out
    config = tomllib.loads((root / "build.toml").read_text())
    assert config["general"] | {"hub": None} == {
        "name": "my-ext", "version": 3, "edition": 5, "license": "MIT", "backends": ["cpu"], "hub": None,
    }  # fmt: skip
    (section,) = config["kernel"].values()
    assert section["src"] == ["include/scale.h", "src/binding.cpp", "src/scale.cpp"]
    assert section["include"] == ["include"]
    assert section["cxx-flags"] == ["-fopenmp", "-DFACTOR=2"]
    binding = (root / "torch-ext/torch_binding.cpp").read_text()
    assert 'ops.def("scale(Tensor x, float by) -> Tensor");' in binding
    assert "::scale(x, static_cast<float>(by))" in binding
    assert "PYBIND11" not in (root / "src/binding.cpp").read_text()
    assert "pybind11" not in (root / "src/binding.cpp").read_text()
    assert "torch/extension.h" not in (root / "include/scale.h").read_text()
    package = root / "torch-ext" / "my_ext"
    assert (package / "testing.py").is_file()
    assert sorted(file.name for file in (root / "tests").glob("test*")) == ["test_here.py", "test_it.py"]
    assert (package / "__init__.py").read_text().splitlines()[1:] == [
        "from ._ops import ops; scale = ops.scale",
        "from .sub import more",
    ]
    assert (package / "sub/more.py").read_text().splitlines()[:2] == [
        "from .._ops import ops as _C",
        "from .._ops import ops as native",
    ]
    for said in ("['src/windows.cpp'] under a condition", "m.attr", "torch.ops.other"):
        assert said in out
        assert said in (root / "CONVERSION.md").read_text()
    assert run(["check-config", str(root)]) == ExitCode.OK


def test_the_directory_may_be_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one/ext", FILES)
    monkeypatch.chdir(tmp_path / "one")
    for number, name in enumerate(("ext", "./ext", "../one/ext")):
        assert run(["init", f"new-{number}", "--from-extension", name]) == ExitCode.OK
        config = tomllib.loads(Path(f"new-{number}/build.toml").read_text())
        assert config["kernel"][f"new_{number}_cpu"]["include"] == ["include"]
        assert "src/scale.cpp" in config["kernel"][f"new_{number}_cpu"]["src"]
        assert "missing or empty" not in Path(f"new-{number}/CONVERSION.md").read_text()


def test_what_check_config_finds_is_left_to_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import math\n\nfrom pkg_resources import get_distribution\n"
    source = write(tmp_path / "ext", {**FILES, "my_ext/__init__.py": code})
    native = source / "src/scale.cpp"
    native.write_text('#include "absent.h"\n' + native.read_text())
    root = tmp_path / "new"
    assert run(["init", str(root), "--from-extension", str(source)]) == ExitCode.OK
    out = capsys.readouterr().out
    listed = (root / "CONVERSION.md").read_text()
    assert run(["check-config", str(root)]) == ExitCode.CONFIG
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith(str(root))]
    assert len(said) >= 2
    for line in said:
        place = line.removeprefix(f"{root}/")
        assert place in listed
        assert place in out
    assert "- src/scale.cpp:1: error: KB210: absent.h is neither" in listed
    assert "/__init__.py:3: error: KB312: from pkg_resources" in listed
    assert str(tmp_path) not in listed


def test_packages_that_a_kernel_may_declare_are_declared(tmp_path: Path) -> None:
    code = "import torch\nfrom einops.layers import torch as layers\nimport numpy\n"
    source, root = write(tmp_path / "ext", {**FILES, "my_ext/sub/__init__.py": code}), tmp_path / "new"
    assert run(["init", str(root), "--from-extension", str(source)]) == ExitCode.OK
    assert tomllib.loads((root / "build.toml").read_text())["general"]["python-depends"] == ["einops"]
    listed = (root / "CONVERSION.md").read_text()
    assert "KB312: import numpy" in listed
    assert "einops" not in listed


def test_the_extension_itself_stays_as_it_is(tmp_path: Path) -> None:
    source = write(tmp_path / "ext", FILES)
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert run(["init", str(source), "--overwrite", "--from-extension", str(source)]) == ExitCode.USAGE
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", [None, "setup(", "from setuptools import setup\nsetup(name='a')\n"])
def test_a_directory_without_an_extension_is_refused(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ext").mkdir()
    if text is not None:
        (tmp_path / "ext/setup.py").write_text(text)
    assert run(["init", str(tmp_path / "new"), "--from-extension", str(tmp_path / "ext")]) == ExitCode.USAGE
    assert "setup.py" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("code", "sources"),
    [
        ("CUDAExtension('a', ['x.cu'] + ['y.cpp'])", ("x.cu", "y.cpp")),
        ("CUDAExtension(name='a', sources=glob.glob(os.path.join(here, '*.cu')))", ("x.cu", "z.cu")),
        ("Extension(name='a', sources=[f'{base}.cu'])", ("x.cu",)),
        ("CUDAExtension(name='a', sources=[str(Path(__file__).parent)])", ()),
        ("CUDAExtension(name='a', sources=list(glob.glob(os.path.join(os.curdir, '*.cu'))))", ("x.cu", "z.cu")),
        ("CUDAExtension(name='a', sources=[str(Path(__file__).parent / 'x.cu')])", ("x.cu",)),
        ("CUDAExtension(name='a', sources=appended)", ("y.cpp", "x.cu")),
        ("CUDAExtension(name='a', sources=[*appended, 'z.cu'])", ("y.cpp", "x.cu", "z.cu")),
    ],
)
def test_sources_are_read_off(tmp_path: Path, code: str, sources: tuple[str, ...]) -> None:
    write(tmp_path, {"x.cu": "", "z.cu": ""})
    head = "here = os.path.dirname(__file__)\nbase, appended = 'x', ['y.cpp']\nappended.append('x.cu')\n"
    head += "Extension = CUDAExtension if cuda else CppExtension\n"
    (tmp_path / "setup.py").write_text(f"{head}setup(ext_modules=[{code}])\n")
    (extension,) = read_setup(tmp_path).extensions
    assert extension.sources == sources
    assert len(extension.backends) == (2 if code.startswith("Extension") else 1)


def read(tmp_path: Path, text: str) -> ExtensionModule:
    (tmp_path / "setup.py").write_text(text)
    (extension,) = read_setup(tmp_path).extensions
    return extension


def test_flags_that_are_computed_in_part_are_read_in_part(tmp_path: Path) -> None:
    text = """
flags = []
if version > 12:
    flags.append("-gencode")
    flags.append("arch=compute_90,code=sm_90")
if hip:
    args = {"cxx": ["-fhip"]}
else:
    args = {"cxx": ["-fa", unknown], "nvcc": with_threads(["--use_fast_math", "-I" + here + "third_party"] + flags)}
setup(ext_modules=[CUDAExtension("a", ["a.cu"], extra_compile_args=args, extra_link_args=["-s"], py_limited_api=yes,
                                 include_dirs=[Path(here) / "csrc"], library_dirs=["/usr/lib"])])
"""
    found = read(tmp_path, f"here = os.path.dirname(os.path.abspath(__file__)) + '/'\n{text}")
    assert found.flags["cxx"] == ("-fa",)
    assert found.flags["nvcc"][0] == "--use_fast_math"
    assert found.include == ("csrc", "third_party")
    assert found.unknown == ()
    assert found.foreign == ("library_dirs",)
    assert any("with_threads" in text for text in found.assumed)
    assert any("args is set in 2 places" in text for text in found.assumed)
    assert "unknown" in found.conditional


def test_sources_of_a_device_that_are_added_under_a_condition_are_taken(tmp_path: Path) -> None:
    write(tmp_path, {"b.cu": "", "windows.cpp": ""})
    text = "s: list[str] = ['a.cpp']\nif use_cuda:\n    s += ['b.cu']\nif os.name == 'nt':\n    s += ['windows.cpp']\n"
    found = read(tmp_path, f"{text}setup(ext_modules=[CUDAExtension('a', s)])\n")
    assert found.sources == ("a.cpp", "b.cu")
    assert found.assumed == ("['b.cu'] is added under a condition: it was used",)
    assert found.conditional == ("['windows.cpp']",)


REGISTERED = {
    "setup.py": """
sources, macros = ["csrc/ops.cpp"], [("A", None)]
Extension = CppExtension
if torch.cuda.is_available():
    Extension = CUDAExtension
    sources += ["csrc/ops.cu"]
    macros += [("WITH_CUDA", None)]
setup(name="ext", classifiers=["License :: OSI Approved :: MIT License"],
      ext_modules=[Extension("ext._C", sources, define_macros=macros)])
""",
    "csrc/ops.cpp": """#include <Python.h>
#include <torch/library.h>
extern "C" {
PyObject *PyInit__C(void) { return nullptr; }
}
at::Tensor old(at::Tensor x) { return x; }
TORCH_LIBRARY(ext, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(ext, CPU, m) { m.impl("twice", &twice); }
static auto registry = torch::RegisterOperators().op("ext::old", &old);
""",
    "csrc/ops.cu": '#include <torch/library.h>\nTORCH_LIBRARY_IMPL(ext, CUDA, m) { m.impl("twice", &twice); }\n'
    "TORCH_LIBRARY_IMPL(aten, CUDA, m) { }\n",
    "ext/__init__.py": '"""Text."""\nfrom __future__ import annotations\nimport torch\nfrom . import _C, more\n',
    "ext/more.py": 'import torch\n@torch.library.register_fake("ext::twice")\ndef _(x):\n    return x\n'
    'é = "é", torch.ops.ext.twice.default, torch.ops.ext.old\ntorch.ops.load_library("x.so")\n',
}


def test_ops_that_sources_register_go_to_the_namespace_of_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = write(tmp_path / "ext", REGISTERED), tmp_path / "my-ext"
    assert run(["init", str(root), "--from-extension", str(source)]) == ExitCode.OK
    out = capsys.readouterr().out
    cpp = (root / "csrc/ops.cpp").read_text()
    assert cpp.splitlines()[0] == '#include "registration.h"'
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m)" in cpp
    assert "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m)" in cpp
    for gone in ("PyInit", "extern", "Python.h", "RegisterOperators"):
        assert gone not in cpp
    assert "TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m)" in (root / "csrc/ops.cu").read_text()
    assert "csrc/ops.cu changes ops of torch (aten)" in out
    assert "2 ops\n  old(Tensor x) -> Tensor\n  twice(Tensor x) -> Tensor\n" in out
    # One library of a namespace defines it, and that is in the sources.
    assert (
        "TORCH_LIBRARY_FRAGMENT_EXPAND(TORCH_EXTENSION_NAME, ops)" in (root / "torch-ext/torch_binding.cpp").read_text()
    )
    config = tomllib.loads((root / "build.toml").read_text())
    assert config["general"]["license"] == "MIT"
    assert config["kernel"]["my_ext_cpu"]["cxx-flags"] == ["-DA"]
    assert config["kernel"]["my_ext_cuda"]["cxx-flags"] == ["-DA", "-DWITH_CUDA"]
    assert "csrc/ops.cu" not in config["kernel"]["my_ext_cpu"]["src"]
    package = root / "torch-ext" / "my_ext"
    assert (package / "__init__.py").read_text().splitlines()[2:] == [
        "import torch",
        "from ._ops import ops as _C; from . import more",
    ]
    assert (package / "more.py").read_text().splitlines() == [
        "from ._ops import add_op_namespace_prefix, ops",
        "import torch",
        '@torch.library.register_fake(add_op_namespace_prefix("twice"))',
        "def _(x):",
        "    return x",
        'é = "é", ops.twice.default, ops.old',
        'torch.ops.load_library("x.so")',
    ]
    assert "torch-ext/my_ext/more.py:6 loads a library itself" in out


IMPORTING = {
    **REGISTERED,
    "ext/typing.py": "FLAG = 1\n",
    "ext/deep/__init__.py": "",
    "ext/deep/more.py": "import ext.typing; import os; import ext.deep.other\nx = ext.typing.FLAG + ext.deep.other.y\n",
    "ext/deep/other.py": "import ext.typing\ny = ext.typing.FLAG, ext\n",
    "ext/deep/renamed.py": "import ext.deep.other as o\nimport ext.typing as typing\nx = o.y, typing.FLAG, ext\n",
    "ext/ops.py": """SPACE = "Shared"
import torch
@torch.library.custom_op(f"{SPACE}::_half", mutates_args={"x"})
def half(x: torch.Tensor) -> None:
    x /= 2
torch.library.register_fake("Shared::_half")
again = torch.ops.Shared._half, f"{SPACE}::{half}", "Other::_half"
""",
}


def test_imports_of_its_own_name_and_ops_of_python_are_those_of_the_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, root = write(tmp_path / "ext", IMPORTING), tmp_path / "my-ext"
    assert run(["init", str(root), "--from-extension", str(source)]) == ExitCode.OK
    package = root / "torch-ext" / "my_ext"
    assert (package / "deep" / "more.py").read_text().splitlines() == [
        "from .. import typing as _typing; import os; from ..deep import other as _deep_other",
        "x = _typing.FLAG + _deep_other.y",
    ]
    # Where the package itself is used, a person must say what for.
    assert (package / "deep" / "other.py").read_text() == IMPORTING["ext/deep/other.py"]
    assert "deep/other.py:1: make this import relative" in capsys.readouterr().out
    assert (package / "deep" / "renamed.py").read_text().splitlines()[:2] == [
        "from ..deep import other as o",
        "from .. import typing as typing",
    ]
    assert (package / "ops.py").read_text().splitlines() == [
        "from ._ops import add_op_namespace_prefix, ops",
        'SPACE = "Shared"',
        "import torch",
        '@torch.library.custom_op(add_op_namespace_prefix("_half"), mutates_args={"x"})',
        "def half(x: torch.Tensor) -> None:",
        "    x /= 2",
        'torch.library.register_fake(add_op_namespace_prefix("_half"))',
        'again = ops._half, f"{SPACE}::{half}", "Other::_half"',
    ]


@pytest.mark.parametrize(
    ("files", "license_id"),
    [
        ({"LICENSE": "Permission is hereby granted, free of charge, to any person obtaining a copy\nThe above copyright"
          " notice"}, "MIT"),
        ({"LICENSE.txt": "Redistributions of source code must retain\n in binary form must reproduce"}, "BSD-2-Clause"),
        ({"pyproject.toml": '[project]\nlicense = "ISC"\n'}, "ISC"),
        ({"pyproject.toml": '[project]\nlicense = {text = "BSD-3-Clause"}\n'}, "BSD-3-Clause"),
        ({"LICENSE": "Ask us."}, "other"),
    ],
)  # fmt: skip
def test_the_license_is_found_where_it_is_said(tmp_path: Path, files: dict[str, str], license_id: str) -> None:
    setup = "setup(ext_modules=[CppExtension('ext', ['a.cpp'])])\n"
    source = write(tmp_path / "ext", {"setup.py": setup, "a.cpp": "", **files})
    assert run(["init", str(tmp_path / "new"), "--name", "me/ext", "--from-extension", str(source)]) == ExitCode.OK
    assert tomllib.loads((tmp_path / "new/build.toml").read_text())["general"]["license"] == license_id


def test_tests_find_the_variant_of_the_cpu_where_torch_was_built_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that, like the real one with such a torch, finds nothing until it is told a backend."""
    root = tmp_path / "my-ext"
    assert run(["init", str(root), "--from-extension", str(write(tmp_path / "ext", FILES))]) == ExitCode.OK
    kernel = ModuleType("_my_ext_cpu_1")

    def get_local_kernel(path: Path, *, backend: str | None = None) -> ModuleType:
        if backend is None:
            raise FileNotFoundError(path)
        return kernel

    client = ModuleType("kernels")
    client.get_local_kernel = get_local_kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernels", client)
    monkeypatch.setitem(sys.modules, kernel.__name__, kernel)
    monkeypatch.delitem(sys.modules, "my_ext", raising=False)
    try:
        assert runpy.run_path(str(root / "tests" / "conftest.py"))["KERNEL"] is kernel
        assert sys.modules["my_ext"] is kernel
    finally:
        sys.modules.pop("my_ext", None)
