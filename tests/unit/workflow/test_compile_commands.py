"""``compile_commands.json``: real commands for C++, and what clang takes for a backend's own language."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernel_builder.actions.model import Action, ActionKind, Step
from kernel_builder.actions.places import Places
from kernel_builder.plan.model import VariantPlan
from kernel_builder.variants.names import parse_variant
from kernel_builder.workflow.compile_commands import entries_of

NAME = "torch213-cxx11-cu130-x86_64-linux"


def action(kind: ActionKind, source: str, *commands: str) -> Action:
    steps = tuple(Step(command=tuple(command.split())) for command in commands)
    return Action(
        id=f"{source}:{kind}:{len(commands)}",
        kind=kind,
        variant=NAME,
        source=source,
        steps=steps,
        inputs=(),
        outputs=(),
        log="l",
        memory=0,
    )


def entries(*actions: Action) -> dict[str, list[str]]:
    plan = VariantPlan(
        variant=parse_variant(NAME),
        ops_id="_k",
        generated=(),
        actions=actions,
        library="lib",
        installed=(),
        metadata={},
    )
    places = Places(root=Path("/p"), work=Path("/p/.w"), output=Path("/p/build"), store=Path("/s"))
    toolchain: Any = SimpleNamespace(toolkit=SimpleNamespace(compiler=Path("/s/toolkit/bin/nvcc")))
    found = list(entries_of(plan, places, toolchain))
    assert {entry["directory"] for entry in found} <= {"/p"}
    return {str(entry["file"]): entry["arguments"] for entry in found}  # type: ignore[misc]


def test_what_a_build_runs_is_written_for_cxx_but_for_what_clang_does_not_know() -> None:
    command = "g++ -fno-gnu-unique -isystem {store}/torch -DA=1 -c {project}/a.cpp -o {work}/a.o"
    assert entries(action(ActionKind.COMPILE, "a.cpp", command)) == {
        "/p/a.cpp": ["g++", "-isystem", "/s/torch", "-DA=1", "-c", "/p/a.cpp", "-o", "/p/.w/a.o"]
    }


def test_a_compile_with_precompiled_headers_is_the_compilers_command() -> None:
    launched = "{tool:python} -P {tool:launcher} --store {store} --clang --header a.h --words 4"
    command = f"{launched} clang++ -x c++-header -DB clang++ -DA=1 -c {{project}}/a.cpp -o {{work}}/a.o"
    assert entries(action(ActionKind.COMPILE, "a.cpp", command)) == {
        "/p/a.cpp": ["clang++", "-DA=1", "-c", "/p/a.cpp", "-o", "/p/.w/a.o"]
    }


def test_device_code_is_read_by_clang_with_the_same_definitions_and_headers() -> None:
    preprocess = (
        "g++ -std=c++20 -E -x c++ -D__CUDACC__ -D__CUDA_ARCH__=750 -fPIC -I{work}/generated -I {project}/inc -isystem"
        " {store}/torch -D CUDA_KERNEL -D A=1 -include cuda_runtime.h {project}/k.cu -o {work}/k.ii -MMD -MF d"
    )
    later = "g++ -I{work} -c {work}/k.cudafe1.cpp -o {work}/k.o"
    found = entries(
        action(ActionKind.DEVICE, "k.cu", preprocess, "ptxas {work}/k.ptx"), action(ActionKind.COMPILE, "k.cu", later)
    )
    (words,) = found.values()
    assert list(found) == ["/p/k.cu"]
    assert words[:3] == ["clang++", "-x", "cuda"]
    assert "--cuda-path=/s/toolkit" in words
    own = words[words.index("-std=c++20") :]
    assert own == [
        "-std=c++20",
        "-I/p/.w/generated",
        "-I/p/inc",
        "-isystem",
        "/s/torch",
        "-DCUDA_KERNEL",
        "-DA=1",
        "/p/k.cu",
    ]


def test_editors_see_all_headers_where_a_build_has_slim_ones() -> None:
    rest = "-DA=1 {project}/k.cu -o {work}/k.ii"
    slim = action(ActionKind.SPLIT, "k.cu", f"g++ -E -isystem {{store}}/slim -DOP_sum {rest}")
    full = (Step(command=tuple(f"g++ -E {rest}".split())),)
    (words,) = entries(replace(slim, fallback=full)).values()
    assert "-DA=1" in words
    assert not {"/s/slim", "-DOP_sum"} & set(words)
