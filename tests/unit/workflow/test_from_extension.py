"""``init --from-extension``: a project out of a ``setup.py`` that never runs, and a list of what is left to decide."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_builder.errors import ExitCode
from kernel_builder.interface.extension import read_setup
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
    "my_ext/sub/more.py": "from .. import _C\nimport my_ext._C as native\ntwice = torch.ops.other.twice\n",
    "tests/test_it.py": "import my_ext\n",
}


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
    ],
)
def test_sources_are_read_off(tmp_path: Path, code: str, sources: tuple[str, ...]) -> None:
    write(tmp_path, {"x.cu": "", "z.cu": ""})
    head = "here = os.path.dirname(__file__)\nbase = 'x'\nExtension = CUDAExtension if cuda else CppExtension\n"
    (tmp_path / "setup.py").write_text(f"{head}setup(ext_modules=[{code}])\n")
    (extension,) = read_setup(tmp_path).extensions
    assert extension.sources == sources
    assert len(extension.backends) == (2 if code.startswith("Extension") else 1)
