"""Examples, benchmarks and cards that call what the kernel does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Finding

PACKAGE = """
from ._ops import ops
from . import layers
__all__ = ["scale", "layers"]
LIMIT = 3
def scale(x, factor: float = 2.0, *, out=None): ...
"""
TOML = """[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]
[general.hub]
repo-id = "me/my-kernel"
[torch]
"""
LOCAL = "from kernels import get_local_kernel\nfrom pathlib import Path\nk = get_local_kernel(Path('.'))\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "torch-ext" / "my_kernel"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PACKAGE, encoding="utf-8")
    (package / "layers.py").write_text("class Scale: ...\n", encoding="utf-8")
    (tmp_path / "build.toml").write_text(TOML, encoding="utf-8")
    return tmp_path


def found(root: Path) -> list[Finding]:
    return list(check_paths([root], select=["KB490"], jobs=1).findings)


@pytest.mark.parametrize(
    "code",
    [
        "k.scale(x)\nk.scale(x, 3.0, out=y)\nk.layers.Scale()\nk.LIMIT\nk._ops\nk.__name__\n",
        "k.scale(...)\nk.scale(*args)\nk.scale(x, **more)\n",
        "k = other()\nk.gone(x)\n",
        "from kernels import get_kernel\nother = get_kernel('them/other')\nother.gone(x)\n",
        "def f(:\n",
        "\0",
    ],
)
def test_what_exists_or_cannot_be_told_is_passed_over(root: Path, code: str) -> None:
    (root / "example.py").write_text(LOCAL + code, encoding="utf-8")
    assert found(root) == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("k.scaled(x)\n", "the kernel has no scaled"),
        ("f = k.scaled\n", "the kernel has no scaled"),
        ("k.scale(x, 2.0, y)\n", "takes at most 2 positional arguments, but gets 3"),
        ("k.scale(x, alpha=1)\n", "does not take alpha"),
        ("k.scale(out=y)\n", "also needs x"),
        ("k.layers.Scaler()\n", "the kernel's layers have no Scaler"),
        ("from my_kernel import gone\n", "the kernel has no gone"),
        ("import my_kernel\nmy_kernel.gone()\n", "the kernel has no gone"),
        (
            "import kernels\nname = 'me/my-kernel'\nkernels.get_kernel(name, version=1).gone(x)\n",
            "the kernel has no gone",
        ),
    ],
)
@pytest.mark.parametrize("place", ["example.py", "scripts/demo.py", "README.md", "CARD.md"])
def test_what_fails_is_found_with_its_line(root: Path, code: str, message: str, place: str) -> None:
    (root / "scripts").mkdir()
    text = LOCAL + code
    before = 0
    if place.endswith(".md"):
        text, before = f"# Page\n\n```python\n{text}```\n\n```\nk.anything()\n```\n", 3
    (root / place).write_text(text, encoding="utf-8")
    (finding,) = found(root)
    assert finding.path.endswith(place)
    assert message in finding.message
    assert finding.line == before + (LOCAL + code).count("\n")


def test_a_benchmark_and_a_template_are_read(root: Path) -> None:
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "benchmark.py").write_text(
        "from kernels.benchmark import Benchmark\n"
        "class Mine(Benchmark):\n    def run(self):\n        self.kernel.old(1)\n",
        encoding="utf-8",
    )
    (root / "CARD.md").write_text(
        '{% if functions %}\n```python\nk = get_kernel("{{ repo_id }}", version={{ version }})\n'
        "k.{{ functions[0] }}(x, y, z)\nk.{{ name }}\n```\n{% endif %}\n",
        encoding="utf-8",
    )
    card, benchmark = found(root)
    assert (card.line, benchmark.line) == (4, 4)
    assert card.message.startswith("scale(x, factor: float = 2.0, *, out=None) takes at most 2")


def test_near_names_are_named(root: Path) -> None:
    (root / "example.py").write_text(LOCAL + "k.scal(x)\n", encoding="utf-8")
    assert found(root)[0].hint == "Did you mean scale?"


@pytest.mark.parametrize(
    "package", ["def __getattr__(name): ...\n", "globals()['gone'] = 1\n", "from torch import *\n", "def f(:\n"]
)
def test_a_package_whose_names_cannot_be_told_has_none_that_are_missing(root: Path, package: str) -> None:
    (root / "torch-ext" / "my_kernel" / "__init__.py").write_text(package, encoding="utf-8")
    (root / "example.py").write_text(LOCAL + "k.gone(x)\n", encoding="utf-8")
    assert found(root) == []
