"""Sources are compiled with slim headers that have what they mention; whatever needs more gets the whole headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.headers import Headers
from kernel_builder.actions.model import ActionKind
from kernel_builder.actions.precompile import without_launcher
from kernel_builder.config.reader import load_project
from kernel_builder.frameworks.protocol import included_names
from kernel_builder.frameworks.torch import RULES
from kernel_builder.plan import compiled, slim
from kernel_builder.plan.slim import covers_cxx, slim_definitions, uses_slim
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.survey import survey
from kernel_builder.toolchain.model import Family, FrameworkSdk, HostCompiler
from kernel_builder.toolchain.torch_slim import OPERATORS
from planned import GXX, NAMES, STORE, TORCH, make_plan

TOML = """\
[general]
name = "kk"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
src = ["bind.cpp"]

[kernel.k]
backend = "cuda"
depends = ["torch"]
src = [{sources}]
"""
OWN = "AT_PER_OPERATOR_HEADERS"
CLANG = replace(GXX, family=Family.CLANG)


def sdk(folder: Path, operators: str | None) -> FrameworkSdk:
    if operators is not None:
        (folder / OPERATORS).write_text(operators, encoding="ascii")
    return FrameworkSdk(
        version="2.13.0", include=(folder,), libraries=folder, exports=(), identity="torch-2.13.0-1", slim=folder
    )


def found(make_project: ProjectMaker, torch: FrameworkSdk, files: dict[str, str]) -> dict[str, tuple[str, ...]]:
    sources = sorted(name for name in files if name.endswith(".cu"))
    listed = ", ".join(f'"{name}"' for name in sources)
    root = make_project("kk", {"bind.cpp": "", **files}, toml=TOML.format(sources=listed))
    project, _ = load_project(root)
    return dict(
        slim_definitions(survey(project, build_inputs(project), RULES.marks_of, RULES.needs_of), sources, torch)
    )


def test_definitions_follow_from_the_words_of_a_source_and_its_headers(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    files = {
        "a/one.cu": '#include "shared.h"\nvoid one(at::Tensor t) { at::abs(t); }',
        "a/two.cu": "#include <torch/all.h>\nTORCH_LIBRARY(k, m) {}\nstatic int zeros_like;",
        "a/plain.cu": "#include <cuda_runtime.h>\n__global__ void sum() {}",
        "inc/shared.h": "#pragma once\n#include <ATen/ATen.h>\n#include <deep/deeper.cuh>\n",
        "inc/deep/deeper.cuh": "inline void deeper() { torch::NoGradGuard guard; zeros(); }",
    }
    made = found(make_project, sdk(tmp_path, "abs\nsum\nzeros\nzeros_like\n"), files)
    assert made == {
        "a/one.cu": (OWN, "KERNEL_BUILDER_PART_utils", "KERNEL_BUILDER_OP_abs", "KERNEL_BUILDER_OP_zeros"),
        "a/two.cu": (OWN, "KERNEL_BUILDER_PART_library", "KERNEL_BUILDER_OP_zeros_like"),
    }


def test_files_are_read_once_however_many_sources_include_them(
    make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[frozenset[str]] = []

    def counted(marks: frozenset[str]) -> frozenset[str]:
        read.append(marks)
        return included_names(marks)

    monkeypatch.setattr(slim, "included_names", counted)
    headers = {
        f"inc/h{number}.h": f'#include "h{(number + 1) % 9}.h"\nint f{number}(); // in a ring\n' for number in range(9)
    }
    headers["inc/h4.h"] += "#include <torch/all.h>\ninline void g() { at::abs(); }"
    sources = {f"k{number}.cu": f'#include "h{number % 3}.h"\nint k{number};' for number in range(60)}
    made = found(make_project, sdk(tmp_path, "abs\nsum\n"), {**headers, **sources})
    assert made == dict.fromkeys(sources, (OWN, "KERNEL_BUILDER_OP_abs"))
    assert len(read) == 60 + 9 + 1  # the binding, too


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/all.h>\ntorch::nn::Linear layer(1, 2);",
        "#include <torch/all.h>\nnamespace F = torch :: nn::functional;",
        "#include <torch/nn/functional.h>",
        '#  include "torch/csrc/jit/ir/ir.h"',
        "#include <torch/all.h>\nauto x = torch::fft::fft(y);",
    ],
)
def test_what_needs_most_of_torch_gets_all_of_it(make_project: ProjectMaker, tmp_path: Path, text: str) -> None:
    assert found(make_project, sdk(tmp_path, "abs\n"), {"a.cu": text}) == {}


@pytest.mark.parametrize("operators", [None, ""])
def test_without_slim_headers_there_are_no_definitions(
    make_project: ProjectMaker, tmp_path: Path, operators: str | None
) -> None:
    assert found(make_project, sdk(tmp_path, operators), {"a.cu": "#include <torch/all.h>"}) == {}


@pytest.mark.parametrize(
    ("asked", "complete", "proved", "used"),
    [
        (Headers.SLIM, False, True, Headers.SLIM),
        (Headers.SLIM, False, False, Headers.FULL),
        (Headers.SLIM, True, True, Headers.VERIFY),
        (Headers.SLIM, True, False, Headers.FULL),
        (Headers.VERIFY, False, False, Headers.VERIFY),
        (Headers.FULL, True, True, Headers.FULL),
    ],
)
def test_what_is_used_is_proved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: Headers, complete: bool, proved: bool, used: Headers
) -> None:
    monkeypatch.setattr(slim, "is_proved", lambda _release, **asked_for: proved and not asked_for.get("cxx"))
    assert uses_slim(asked, sdk(tmp_path, ""), complete=complete) is used
    assert covers_cxx(used, sdk(tmp_path, "")) is (used is Headers.VERIFY)


@pytest.mark.parametrize(
    ("headers", "host", "asked"),
    [
        (Headers.SLIM, GXX, [("bind.cpp", "b.cu")]),
        (Headers.VERIFY, GXX, [("bind.cpp", "a.cu", "b.cu")]),
        (Headers.FULL, GXX, []),
        (Headers.SLIM, CLANG, [("b.cu",)]),  # which keeps precompiled headers
    ],
)
def test_what_a_proof_found_to_differ_is_only_tried_by_the_next_proof(
    make_project: ProjectMaker,
    monkeypatch: pytest.MonkeyPatch,
    headers: Headers,
    host: HostCompiler,
    asked: list[tuple[str, ...]],
) -> None:
    seen: list[tuple[str, ...]] = []

    def nothing(_survey: object, sources: Iterable[str], _torch: object) -> dict[str, tuple[str, ...]]:
        seen.append(tuple(sources))
        return {}

    monkeypatch.setattr(slim, "is_proved", lambda _release, **_: True)
    monkeypatch.setattr(compiled, "slim_definitions", nothing)
    files = {"bind.cpp": "", "a.cu": "", "b.cu": ""}
    root = make_project("kk", files, toml=TOML.format(sources='"a.cu", "b.cu"'))
    make_plan(root, NAMES[1:2], host, headers=headers, differing=frozenset({"a.cu"}))
    assert seen == asked


CPU_TOO = '[kernel.c]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["c.cpp"]\n'
TWO = TOML.replace('["cuda"]', '["cpu", "cuda"]').replace("[kernel.k]", f"{CPU_TOO}\n[kernel.k]")


@pytest.mark.parametrize(
    ("headers", "variant", "shared", "launched"),
    [
        (Headers.SLIM, NAMES[0], True, True),
        (Headers.VERIFY, NAMES[0], True, False),  # what is proved is what is built
        (Headers.SLIM, NAMES[1], False, False),
    ],
)
def test_sources_that_share_precompiled_slim_headers_see_what_any_of_them_needs(
    make_project: ProjectMaker,
    monkeypatch: pytest.MonkeyPatch,
    headers: Headers,
    variant: str,
    shared: bool,
    launched: bool,
) -> None:
    needs = {"bind.cpp": (OWN, "OP_abs"), "c.cpp": (OWN, "OP_sum"), "d.cpp": (OWN, "OP_sum"), "k.cu": (OWN,)}
    monkeypatch.setattr(slim, "is_proved", lambda _release, **_: True)
    monkeypatch.setattr(compiled, "slim_definitions", lambda _survey, own, _torch: {s: needs[s] for s in own})
    text = "#include <torch/all.h>\n"
    files = {"bind.cpp": text, "c.cpp": text, "d.cpp": text, "k.cu": ""}
    root = make_project("kk", files, toml=TWO.format(sources='"k.cu", "d.cpp"'))
    torch = replace(TORCH, slim=STORE / "store" / "torch-2.13.0-slim-1")
    plan = make_plan(root, (variant,), GXX, headers=headers, torch=torch)
    own = {"bind.cpp", "c.cpp", "d.cpp"}
    actions = [one for one in plan.actions if one.kind is ActionKind.COMPILE and one.source in own]
    assert len(actions) == 2
    for action in actions:
        command = action.steps[-1].command
        other = {"bind.cpp": "OP_sum"}.get(action.source, "OP_abs")
        assert (f"-D{other}" in command) is shared
        assert (without_launcher(command) != command) is launched
