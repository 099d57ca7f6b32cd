"""Whatever will stop a build stops check-config, a dry run and a build before anything is fetched or compiled."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel_builder.check.engine import check_paths, find_rule
from kernel_builder.check.formats import advice
from kernel_builder.cli import run
from kernel_builder.config.reader import load_project
from kernel_builder.project.output import output_directory
from kernel_trees import write

ERRORS_OF_FILE, ERRORS_OF_RULES, USAGE = 3, 1, 2

OLDEST = """\
[general]
name = "my-kernel"
{more}
[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.relu]
src = ["relu.cu"]
depends = ["torch"]
"""
FOURTH = """\
[general]
name = "my-kernel"
version = 1
backends = ["cuda"]
{more}
[general.hub]
repo-id = "me/my-kernel"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.relu]
backend = "cuda"
src = ["relu.cu"]
depends = ["torch"]
"""
FIFTH = FOURTH.replace("version = 1\n", "version = 1\nedition = 5\n")
LICENSE = 'license = "mit"'
SECRET = "hf_" + "AbCdEfGhIjKlMnOpQr" + "StUvWxYzAbCdEfGh"


def project(root: Path, text: str, **files: str) -> Path:
    named = {f"torch-ext/my_kernel/{name.replace('_py', '.py')}": content for name, content in files.items()}
    return write(
        root,
        {
            "build.toml": text,
            "torch-ext/torch_binding.cpp": "",
            "relu.cu": "",
            "torch-ext/my_kernel/__init__.py": "__all__ = []\n",
            **named,
        },
    )


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Nothing can be fetched, and the store is empty: whoever tries says so instead of what is expected here."""
    return {**os.environ, "KERNEL_BUILDER_CACHE": str(tmp_path / "store"), "KERNEL_BUILDER_OFFLINE": "1"}


def said(root: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], *, code: int) -> list[str]:
    """What each of the three commands says on stderr; all of them refuse and leave the tree alone."""
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    texts = []
    for command in (["check-config"], ["build", "--dry-run"], ["build"]):
        expected = ERRORS_OF_FILE if command == ["check-config"] else code
        assert run([*command, str(root)], environ) == expected, capfd.readouterr().err
        texts.append(capfd.readouterr().err)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    return texts


@pytest.mark.parametrize("text", [OLDEST, FOURTH, FIFTH], ids=["1", "4", "5"])
def test_a_missing_license(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], text: str
) -> None:
    root = project(tmp_path / "k", text.format(more=""))
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert "build.toml:1:1: error: general.license: is missing" in one
        assert 'add: license = "Apache-2.0"' in one
    write(root, {"build.toml": text.format(more=LICENSE)})
    assert run(["check-config", str(root)], environ) == 0


@pytest.mark.parametrize(
    ("code", "rule", "where"),
    [
        ("import scipy\n", "KB312", "__init__.py:1"),
        ("from .gone import x\n", "KB314", "__init__.py:1"),
        ("from my_kernel import x\n", "KB310", "__init__.py:1"),
        ("print(\n", "KB305", "__init__.py:1"),
        ("import sys\n\nsys.exit()\n", "KB350", "__init__.py:3"),
        ("import torch\n\ntorch.ops.vllm.f(1)\n", "KB208", "__init__.py:3"),
        ("import torch\n\ntorch.ops.load_library('x.so')\n", "KB321", "__init__.py:3"),
        (f'TOKEN = "{SECRET}"\n', "KB456", "__init__.py:1"),
    ],
)
def test_python_code_that_rules_forbid(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], code: str, rule: str, where: str
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE), __init___py=code)
    found = check_paths([root], select=[rule]).findings
    remedies = [advice(finding) for finding in found] or [find_rule(rule).remedy]
    for one in said(root, environ, capfd, code=ERRORS_OF_RULES):
        assert rule in one
        assert [text for text in remedies if text.split("\n")[0] not in one] == []  # as check says it
        assert f"torch-ext/my_kernel/{where}: " in one
        assert ("--ignore" in one) == (rule != "KB456" and "hint: " in one)


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ('#include "gone.h"\n', "KB210"),
        ("#define _GLIBCXX_USE_CXX11_ABI 0\n", "KB211"),
        ("PYBIND11_MODULE(k, m) {}\n", "KB206"),
    ],
)
def test_native_code_that_would_not_compile_or_link(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], code: str, rule: str
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE))
    (root / "relu.cu").write_text(code)
    for one in said(root, environ, capfd, code=ERRORS_OF_RULES):
        assert "relu.cu:1: " in one
        assert rule in one


@pytest.mark.parametrize("flags", [["-fsanitize=address"], ["-include", "gone.h"]])
def test_flags_that_cannot_work(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    key = f"cuda-flags = {json.dumps(flags)}\n"
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE).replace('src = ["relu.cu"]', f'{key}src = ["relu.cu"]'))
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert "error: kernel.relu.cuda-flags[" in one


@pytest.mark.parametrize("name", [".env.py", "new\nline.py", "back\\slash.py"])
def test_files_that_cannot_be_published(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], name: str
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE))
    write(root, {f"torch-ext/my_kernel/{name}": "x = 1\n"})
    for one in said(root, environ, capfd, code=ERRORS_OF_RULES):
        assert "KB456" in one or "KB455" in one


def test_a_secret_that_pyext_lets_in_or_a_link_leads_to(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    text = FOURTH.format(more=LICENSE).replace("[torch]\n", '[torch]\npyext = ["py", "txt"]\n')
    root = project(tmp_path / "k", text)
    write(root, {"notes/token": SECRET})
    (root / "torch-ext/my_kernel/data.txt").symlink_to("../../notes/token")
    for one in said(root, environ, capfd, code=ERRORS_OF_RULES):
        assert "torch-ext/my_kernel/data.txt:1: " in one
        assert "contains a Hub token" in one


@pytest.mark.parametrize(
    ("place", "why"),
    [
        (".", "it is the project's own directory"),
        ("torch-ext/my_kernel", "torch-ext in the project contains the Python package"),
        ("torch-ext/my_kernel/new/deep", "contains the Python package"),
        ("torch-ext", "contains the Python package"),
        ("csrc", "contains sources and headers"),
        ("kernels/cuda/out", "kernels in the project contains sources and headers"),
        (".kernel-builder/out", "can be deleted at any time"),
        (".git/out", "version control"),
        ("build/torch-cuda", "is a variant itself"),
        ("build/torch-cuda/deep", "is a variant itself"),
        ("link", "contains the Python package"),
        ("", "the path is empty"),
    ],
)
def test_variants_do_not_go_among_the_files_of_the_kernel(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], place: str, why: str
) -> None:
    text = FOURTH.format(more=LICENSE).replace('src = ["relu.cu"]', 'src = ["kernels/relu.cu"]')
    root = project(tmp_path / "k", text)
    write(root, {"kernels/relu.cu": "", "build/torch-cuda/metadata.json": "{}"})
    (root / "link").symlink_to("torch-ext")
    before = sorted(root.rglob("*"))
    for command in (["build", "--dry-run"], ["build"]):
        assert run([*command, str(root), "--output", str(root / place) if place else ""], environ) == USAGE
        assert why in capfd.readouterr().err
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("place", ["build", "build/mine", "dist", "../elsewhere", ".."])
def test_variants_go_anywhere_else(tmp_path: Path, place: str) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE))
    loaded, _ = load_project(root, to_build=True)
    assert output_directory(loaded, root / place) == root / place


def test_one_mistake_hides_no_other(tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    text = FOURTH.format(more='edition = "5"\nlicence = "mit"').replace('src = ["relu.cu"]', 'src = ["gone.cu"]')
    root = project(tmp_path / "k", text, __init___py="import scipy\n")
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert "general.edition: must be an integer, not the string '5'" in one
        assert "did you mean 'license'?" in one
        assert "file 'gone.cu' does not exist" in one
        assert "torch-ext/my_kernel/__init__.py:1: error: KB312: " in one


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1\n", 'version = "1"\n'),
        ('name = "my-kernel"', 'name = "My Kernel"'),
        ('backends = ["cuda"]', 'backends = ["cuda", "gpu"]'),
        ('repo-id = "me/my-kernel"', 'repo-id = "me my-kernel"'),
        ('repo-id = "me/my-kernel"', "repo-id = me/my-kernel"),
        ('depends = ["torch"]', 'depends = ["torch"]\ncuda-capabilities = ["sm_80"]'),
        ('depends = ["torch"]', 'depends = ["torch"'),
        ("[general.hub]", "[general.hbu]"),
    ],
)
def test_a_mistake_in_the_file_hides_none_in_the_sources(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE).replace(old, new, 1))
    binding = 'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("there(Tensor x) -> Tensor"); }\n'
    module = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    (root / "torch-ext/torch_binding.cpp").write_text(f"{binding}{module}TORCH_LIBRARY(fixed, m) {{}}\n")
    (root / "torch-ext/my_kernel/__init__.py").write_text("from ._ops import ops\n\nf = ops.gone\n")
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert "torch-ext/torch_binding.cpp:2: error: KB206: " in one
        assert "torch-ext/torch_binding.cpp:3: error: KB204: " in one
        assert "torch-ext/my_kernel/__init__.py:3: error: KB207: " in one


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('src = ["torch-ext/torch_binding.cpp"]', 'src = "torch-ext/torch_binding.cpp"'),
        ('src = ["torch-ext/torch_binding.cpp"]', 'srcs = ["torch-ext/torch_binding.cpp"]'),
        ('src = ["torch-ext/torch_binding.cpp"]', 'src = ["torch-ext/binding.cpp"]'),
        ("[torch]", "[pytorch]"),
    ],
)
def test_no_op_is_missed_where_not_all_sources_are_known(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE).replace(old, new, 1))
    (root / "torch-ext/my_kernel/__init__.py").write_text("from ._ops import ops\n\nf = ops.gone\n")
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert "KB207" not in one


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('depends = ["torch"]', 'depends = ["torch"]\ncuda-capabilities = ["12.1"]', "nothing is left"),
        ("[torch]\n", '[torch]\nmaxver = "2.1"\n', "no variant is left"),
        ('backend = "cuda"', 'backend = "cpu"', "'relu.cu' is a CUDA source, which kernels for cpu cannot"),
        (
            '"torch-ext/torch_binding.cpp"',
            '"relu.cu"',
            "'relu.cu' is a CUDA source, which kernels for cpu cannot",
        ),
        (
            'depends = ["torch"]',
            'depends = ["cutlass_3_8"]\n[kernel.b]\nbackend = "cuda"\ndepends = ["cutlass_4_0"]\nsrc = ["./relu.cu"]',
            "'relu.cu' is in [kernel.relu] and [kernel.b], which depend on cutlass_3_8 and cutlass_4_0: ",
        ),
    ],
)
def test_what_no_toolkit_can_do(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    text = FOURTH.format(more=LICENSE).replace('["cuda"]', '["cuda", "cpu"]')
    text += '[kernel.cpu]\nbackend = "cpu"\ndepends = []\nsrc = ["torch-ext/torch_binding.cpp"]\n'
    root = project(tmp_path / "k", text.replace(old, new, 1))
    assert run(["check-config", str(root)], environ) == ERRORS_OF_FILE
    (line,) = [line for line in capfd.readouterr().err.splitlines() if message in line]
    assert line.startswith(f"{root}/build.toml:")
    assert ": error: " in line


def test_a_section_that_older_toolkits_skip_is_fine(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    more = 'depends = ["torch"]\ncuda-capabilities = ["12.1"]\ncuda-minver = "12.9"'
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE).replace('depends = ["torch"]', more))
    assert run(["check-config", str(root)], environ) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("kernel-builder.toml", "sourcess = []\n", "did you mean 'sources'?"),
        ("kernel-builder.toml", 'sources = ["nowhere"]\n', "nowhere"),
        ("kernel-builder.lock", "x(\n", "kernel-builder.lock:1:"),
    ],
)
def test_settings_and_locks_with_mistakes(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str], name: str, text: str, message: str
) -> None:
    root = write(project(tmp_path / "k", FOURTH.format(more=LICENSE)), {name: text})
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert message in one
    write(root, {"build.toml": FOURTH.format(more="")})
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert message in one
        assert "general.license: is missing" in one


def test_a_link_that_leads_out_of_the_project(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    root = write(project(tmp_path / "k", FOURTH.format(more=LICENSE)), {"relu.cu": '#include "common.h"\n'})
    write(tmp_path, {"shared/common.h": ""})
    (root / "common.h").symlink_to("../shared/common.h")
    for one in said(root, environ, capfd, code=ERRORS_OF_FILE):
        assert f"{root}/common.h: error: " in one


def test_a_name_that_is_no_text_hides_no_other_mistake(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path / "k", FOURTH.format(more=LICENSE), __init___py="import scipy\n")
    (root / "torch-ext/my_kernel" / os.fsdecode(b"\xff.py")).touch()
    assert run(["check-config", str(root)], environ) == ERRORS_OF_FILE
    told = capfd.readouterr().err
    assert "not valid UTF-8" in told
    assert "KB312" in told


def test_what_is_ignored_stops_nothing(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    text = FOURTH.format(more=LICENSE).split("[torch]")[0].replace("[general.hub]", "[torch-noarch]\n[general.hub]")
    root = project(tmp_path / "k", text, __init___py="import scipy\n")
    assert run(["build", "--dry-run", str(root)], environ) == ERRORS_OF_RULES
    assert run(["build", "--dry-run", "--ignore", "KB312", str(root)], environ) == 0
    assert "torch-cuda" in capfd.readouterr().out
    assert not (root / ".kernel-builder").exists()
