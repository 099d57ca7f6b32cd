"""Words of other build tools, and lists as other tools write them: the answer says what does the same here."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kernel_builder.cli import COMMANDS, cli, run
from kernel_builder.config.backends import Backend
from kernel_builder.config.intents import _document, idle_variables
from kernel_builder.config.reader import load_project, read_project
from kernel_builder.config.schema import TABLES
from kernel_builder.errors import ConfigError, Diagnostic
from kernel_trees import write

PROJECT = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "mit"
backends = ["cuda"]
{general}
[torch]
{torch}
[kernel.a]
backend = "{backend}"
depends = {depends}
src = ["a.cu"]
{kernel}
"""


def text(general: str = "", torch: str = "", kernel: str = "", depends: str = "[]", backend: str = "cuda") -> str:
    return PROJECT.format(general=general, torch=torch, kernel=kernel, depends=depends, backend=backend)


def mistakes(content: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(ConfigError) as caught:
        read_project(content.encode(), file=Path("build.toml"), root=Path(), tree=False)
    return caught.value.diagnostics


def hint(content: str) -> str:
    (one,) = mistakes(content)
    return str(one.hint)


@pytest.mark.parametrize(
    "written",
    ['"8.0 9.0+PTX"', '"8.0;9.0+PTX"', '"8.0,9.0+PTX"', '["8.0 9.0+PTX"]', '["8.0;9.0+PTX"]', '["8.0; 9.0 + PTX"]'],
)
def test_a_list_of_capabilities_as_torch_writes_it(written: str) -> None:
    told = hint(text(kernel=f"cuda-capabilities = {written}"))
    assert '"8.0", "9.0+PTX"' in told


def test_other_spellings_and_other_backends_in_one_string() -> None:
    assert '"8.0", "9.0a"' in hint(text(kernel='cuda-capabilities = ["80;sm_90a"]'))
    rocm = text(backend="rocm", kernel='rocm-archs = ["gfx90a;gfx942"]').replace(
        'backends = ["cuda"]', 'backends = ["rocm"]'
    )
    assert '"gfx90a", "gfx942"' in hint(rocm)


@pytest.mark.parametrize("word", ["ld-flags", "ldflags", "libraries", "link-libraries", "extra-link-args", "LIBRARIES"])
def test_keys_for_the_linker(word: str) -> None:
    for place in ("general", "torch", "kernel"):
        content = text(**{place: f'{word} = ["x"]'})
        assert hint(content).startswith("remove it: ")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("include_dirs", "'include'"),
        ("sources", "'src'"),
        ("extra_compile_args", "'cxx-flags'"),
        ("extra-cuda-cflags", "'cuda-flags'"),
        ("define_macros", "-DNAME=VALUE"),
        ("cuda_arch_list", "'cuda-capabilities'"),
        ("install_requires", "'python-depends'"),
        ("package_data", "'pyext'"),
    ],
)
def test_keys_of_setuptools_and_the_like(word: str, meant: str) -> None:
    assert meant in hint(text(kernel=f'{word} = ["x"]'))


def test_no_word_of_the_table_is_a_key_of_ours() -> None:
    ours = {key.name for table in TABLES for key in table.keys}
    elsewhere = {"repo-id"}  # a key of one table, written in another
    assert set(_document()["keys"]) & ours <= elsewhere
    assert not set(_document()["commands"]) & set(COMMANDS)


@pytest.mark.parametrize("word", ["cub", "thrust", "CUB", "libcudacxx"])
def test_what_comes_with_the_toolkit_is_no_dependency(word: str) -> None:
    assert "come" in hint(text(depends=f'["torch", "{word}"]'))
    assert "remove it" in hint(text(depends=f'["torch", "{word}"]'))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("triton", "comes with torch"),
        ("torch", "every kernel may import torch"),
        ("numpy", "use torch's tensors"),
        ("cutlass", "nvidia-cutlass-dsl"),
        ("apache-tvm-ffi", "tvm-ffi"),
    ],
)
def test_python_packages_that_need_not_or_cannot_be_declared(word: str, meant: str) -> None:
    assert meant in hint(text(general=f'python-depends = ["{word}"]'))


@pytest.mark.parametrize(
    ("table", "meant"), [("project", "[general]"), ("cuda", "[general.cuda]"), ("hub", "[general.hub]")]
)
def test_tables_of_other_tools(table: str, meant: str) -> None:
    assert any(meant in str(one.hint) for one in mistakes(text() + f"[{table}]\n") if one.key == table)


INCLUDES = '#include <torch/all.h>\n#include "cutlass/cutlass.h"\n'


def judged(root: Path, content: str, source: str, **files: str) -> list[Diagnostic]:
    write(root, {"build.toml": content, "a.cu": source, "torch-ext/my_kernel/__init__.py": "", **files})
    try:
        return list(load_project(root)[1])
    except ConfigError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize(
    "line", ['#include "cutlass/cutlass.h"', "#include <cute/tensor.hpp>", " #  include <cutlass/gemm/a.h>"]
)
def test_headers_of_a_library_that_is_not_listed(tmp_path: Path, line: str) -> None:
    (one,) = judged(tmp_path, text(depends='["torch"]'), f"// text\n{line}\n")
    assert one.key == "kernel.a.depends"
    assert one.message.startswith("line 2 of 'a.cu' includes cut")
    assert str(one.hint).startswith("add \"cutlass_4_5\" to 'depends' (or an older release: cutlass_2_10, ")


@pytest.mark.parametrize(
    ("source", "depends", "files"),
    [
        (INCLUDES, '["torch", "cutlass_3_8"]', {}),
        ("#ifdef WITH_CUTLASS\n" + INCLUDES + "#endif\n", "[]", {}),
        ("/*\n" + INCLUDES + "*/", "[]", {}),
        ("// " + INCLUDES.splitlines()[1], "[]", {}),
        (INCLUDES, "[]", {"cutlass/cutlass.h": ""}),
        (INCLUDES, "[]", {"csrc/cutlass/cutlass.h": ""}),
    ],
)
def test_headers_that_are_there_or_may_not_be_needed(
    tmp_path: Path, source: str, depends: str, files: dict[str, str]
) -> None:
    assert judged(tmp_path, text(depends=depends), source, **files) == []


def test_a_file_that_another_section_lists_with_the_library(tmp_path: Path) -> None:
    other = '[kernel.b]\nbackend = "cuda"\ndepends = ["cutlass_3_8"]\nsrc = ["./a.cu"]\n'
    assert judged(tmp_path, text() + other, INCLUDES) == []


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("tests", "Use 'test'"),
        ("run", "python example.py"),
        ("install", "'upload' publishes"),
        ("clean", ".kernel-builder"),
        ("publish", "'upload'"),
        ("push", "'upload'"),
        ("lint", "'check'"),
        ("new", "'init'"),
        ("compile", "'build'"),
    ],
)
def test_commands_of_other_tools(typed: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([typed]) == 2
    said = capfd.readouterr().err
    assert told in said
    assert "Did you mean" not in said


def test_a_typing_mistake_is_still_answered_with_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["uplod"]) == 2
    assert "Did you mean 'upload'?" in capfd.readouterr().err
    assert run(["toolchain", "test"]) == 2
    assert "pytest" not in capfd.readouterr().err


def test_commands_that_are_named_exist() -> None:
    """Every word in quotes is a command with the options that follow it."""
    for answer in _document()["commands"].values():
        for words in (part.split() for part in answer.split("'")[1::2]):
            command: click.Command | None = cli
            for word in words[1:] if words[0] == "kernel-builder" else words:
                if word.startswith("--"):
                    assert command is not None
                    options = [name for one in command.get_params(click.Context(command)) for name in one.opts]
                    assert word in options, answer
                else:
                    assert isinstance(command, click.Group)
                    command = command.get_command(click.Context(command), word)
                    assert command is not None, answer


def test_variables_that_change_nothing() -> None:
    cuda, cpu = Backend("cuda"), Backend("cpu")
    environ = {
        "TORCH_CUDA_ARCH_LIST": "8.0",
        "CFLAGS": "-O2",
        "CXXFLAGS": "-O2",
        "MAX_JOBS": "2",
        "CXX": "g++",
        "CUDA_HOME": "/x",
    }
    first, second = idle_variables(environ, {cuda})
    assert first.startswith(
        "TORCH_CUDA_ARCH_LIST has no effect: 'cuda-capabilities' in each [kernel.<id>] section counts"
    )
    assert second.startswith("CFLAGS and CXXFLAGS have no effect: ")
    assert idle_variables(environ, {cpu}) == (second,)
    assert idle_variables(environ, set()) == ()
    assert idle_variables({"TORCH_CUDA_ARCH_LIST": " "}, {cuda}) == ()


def test_they_are_named_once_by_a_build_that_compiles(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"build.toml": text(), "a.cu": "", "torch-ext/my_kernel/__init__.py": "__all__ = []\n"})
    environ = {"PATH": "/usr/bin", "KERNEL_BUILDER_OFFLINE": "1", "KERNEL_BUILDER_CACHE": str(tmp_path / "store")}
    run(["build", "--dry-run", str(tmp_path)], {**environ, "TORCH_CUDA_ARCH_LIST": "8.0;9.0"})
    assert capfd.readouterr().err.count("TORCH_CUDA_ARCH_LIST has no effect") == 1


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("torch213", "did you mean --variant 'torch213-*'? It matches torch213-cxx11-cu126-x86_64-linux, "),
        ("torch2.13", "did you mean --variant 'torch213-*'?"),
        ("2.13", "did you mean --variant 'torch213-*'?"),
        ("cu130", "did you mean --variant '*cu130-*'?"),
        ("x86_64", "did you mean --variant '*x86_64-*'?"),
        ("cuda", "run the same command with --backend cuda"),
        ("local", "run the same command with --local"),
    ],
)
def test_a_part_of_a_variants_name(tmp_path: Path, capfd: pytest.CaptureFixture[str], typed: str, told: str) -> None:
    write(tmp_path, {"build.toml": text(), "a.cu": "", "torch-ext/my_kernel/__init__.py": "__all__ = []\n"})
    options = ["--platform", "x86_64-linux", "--variant", typed]
    assert (
        run(["build", "--dry-run", *options, str(tmp_path)], {"PATH": "/usr/bin", "KERNEL_BUILDER_OFFLINE": "1"}) == 2
    )
    assert f"hint: {told}" in capfd.readouterr().err


@pytest.mark.parametrize("word", ["repo_id", "Repo-Id", "REPO_ID"])
def test_a_key_of_this_table_in_another_spelling_is_not_sent_elsewhere(word: str) -> None:
    assert hint(text(general=f'[general.hub]\n{word} = "me/k"\n')) == "did you mean 'repo-id'?"
    assert hint(text(general=f'{word} = "me/k"')) == "put it in [general.hub]"
