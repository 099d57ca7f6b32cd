"""Device code is compiled beside the host's half, by an id that is guessed, and every id is the same in each build."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from driver_answers import CXX, lines_of, nvcc
from kernel_builder.backends.cuda.driver import CICC, CUDAFE, SHELL, Invocation, Pipeline, Question, pipeline
from kernel_builder.backends.cuda.module_id import Guess, ahead, given, guess, settled

KERNEL = "static __global__ void k(float *x) { x[0] = 1; }\n"


@pytest.mark.parametrize(
    "text",
    [
        KERNEL + "void launch(float *x) { k<<<1, 1>>>(x); }",
        KERNEL + "namespace a::b { namespace { int x; } torch::Tensor f(at::Tensor const& x) { return x; } }",
        '#include "own.cuh"\nextern "C" int f() { return 1; }',
        'extern "C" { void f(int x) { if (x) { return; } } }',
        "struct S { void f(); };\nvoid S::f() {}",
        "__global__ void __launch_bounds__(256) k(float *x) { x[0] = 1; }",
        "/* static */ // {\nvoid f() {}",
        "template <typename T> T g(T x) { return x; }\nstd::vector<at::Tensor> f(int *x)\n{\n}",
    ],
)
def test_what_is_defined_for_others_gives_the_name(text: str) -> None:
    assert guess(text) is Guess.NAME


@pytest.mark.parametrize(
    "text",
    [
        "",
        KERNEL,
        "namespace {\n__global__ void k(float *x) { x[0] = 1; }\nstruct R { R() { k<<<1, 1>>>(nullptr); } } r;\n}",
        "#include <a.h>\ntemplate <int N> __global__ void k(float *x) {}\ntemplate __global__ void k<1>(float *);",
        "template <typename T> void f(T);\ntemplate <> void f<int>(int x) { }",
        "inline void f() {}\nusing namespace at;\ntypedef int I;",
        "void declared(int);\nextern int there;\n__constant__ int c;\nconst int one = 1;",
        'namespace {\nvoid f() {}\n}\nTORCH_LIBRARY_IMPL(a, CUDA, m) { m.impl("f", f); }',
        'class C { public: void f() {} };\nenum E { A, B };\nstatic const char *name = R"(void f() {})";',
    ],
)
def test_what_is_local_gives_nothing(text: str) -> None:
    assert guess(text) is Guess.NOTHING


@pytest.mark.parametrize(
    "text",
    [
        '#include "own.cuh"\n' + KERNEL,
        KERNEL + "MAKE_LAUNCHER(launch)",
        KERNEL + "MAKE_LAUNCHER(launch);",
        KERNEL + "DEFINE(f) { return 1; }",
        "int table[4];",
        "int x = 1;",
        "int x{1};",
        "struct S { S(); };\nS::S() {}",
        "struct { int x; } both;",
        "bool operator==(S const &a, S const &b) { return true; }",
    ],
)
def test_what_the_text_does_not_tell_is_not_guessed(text: str) -> None:
    assert guess(text) is None


def model(folder: Path, lines: list[str] | None = None) -> Pipeline:
    question = Question(nvcc=nvcc(folder, *(lines or lines_of())), cxx=CXX, digest="", options=())
    return pipeline(question, source="{project}/k.cu", target="{work}/k.o", folder="{work}/k.d", shown="/k.cu")


def of(group: tuple[Invocation, ...], program: str) -> Invocation:
    (one,) = (step for step in group if step.program == program)
    return one


@pytest.mark.parametrize("guessed", Guess)
def test_device_code_waits_for_nothing_and_an_assembly_for_both(tmp_path: Path, guessed: Guess) -> None:
    plain = model(tmp_path)
    found = ahead(plain, guessed)
    (device,), (assembly,) = found.devices, found.assemblies
    made_by_split = {name for step in found.split for name in step.made}
    assert not made_by_split & {name for step in device for name in (*step.read, *step.arguments, *step.before)}
    assert found.again == plain.devices
    assert [step.program for step in assembly] == [SHELL, "ptxas"]
    assert set(assembly[0].read) == {"{work}/k.d/x.id", *found.passed_on(device)}
    assert found.passed_on(assembly) == plain.passed_on(plain.devices[0])
    assert assembly[1:] == plain.devices[0][2:]
    compiler = of(device, CICC)
    assert ("--gen_module_id_file" in compiler.arguments) == (guessed is Guess.NAME)
    assert ("_35f8e9f7_4_k_cu_00000000_0" in compiler.before) == (guessed is Guess.NOTHING)


def test_device_code_that_makes_the_id_itself_stays_as_it_is(tmp_path: Path) -> None:
    lines = [line.replace('--module_id_file_name "@D/x.id" --stub', "--stub") for line in lines_of()]
    plain = model(tmp_path, lines)
    assert ahead(plain, Guess.NAME) is plain


PROGRAM = """\
#!/bin/sh
# Writes an id as cudafe++ does, and what it was told. Its own process is in some ids.
echo "called $*" >> @D/calls
case $1 in --gen_module_id_file) printf %s "@ID" | sed "s/PID/$$/" > @D/x.id;; esac
cat @D/x.id > @D/x.cpp
exit @CODE
"""


def made_with(folder: Path, text: str, *, code: int = 0) -> tuple[int, str, int]:
    """Exit code, the id in the half, and how often the program ran."""
    program = folder / "cudafe++"
    program.write_text(PROGRAM.replace("@D", str(folder)).replace("@ID", text).replace("@CODE", str(code)))
    program.chmod(0o755)
    step = Invocation(
        program=CUDAFE,
        path=str(program),
        arguments=("--gen_module_id_file", "--module_id_file_name", f"{folder}/x.id", "a b"),
        made=(f"{folder}/x.cpp", f"{folder}/x.id"),
    )
    step = settled(step)
    words = [word.replace("{{", "{").replace("}}", "}") for word in step.before]
    ended = subprocess.run([*words, program, *step.arguments], check=False)
    calls = (folder / "calls").read_text().splitlines()
    return ended.returncode, (folder / "x.cpp").read_text(), len(calls)


@pytest.mark.parametrize(
    "text", ["_3db6f33a_4_a_cu_0123abcd", "_3db6f33a_4_a_cu__Z1kPf", "_1_4_a_cu_f_1", "_1_4_a_cu_abcdefgh"]
)
def test_an_id_with_a_name_in_it_stays(tmp_path: Path, text: str) -> None:
    assert made_with(tmp_path, text) == (0, text, 1)


def test_an_id_of_time_and_process_becomes_one_of_the_path(tmp_path: Path) -> None:
    assert made_with(tmp_path, "_3db6f33a_6_a_b_cu_76a4f015_PID") == (0, "_3db6f33a_6_a_b_cu_00000000_0", 2)


def test_a_program_that_fails_ends_the_step(tmp_path: Path) -> None:
    assert made_with(tmp_path, "_3db6f33a_4_a_cu_76a4f015_PID", code=3)[::2] == (3, 1)


def test_another_half_takes_the_id_that_is_there(tmp_path: Path) -> None:
    plain = model(tmp_path)
    half = given(settled(plain.split[1]))
    assert half == replace(
        plain.split[1],
        arguments=tuple(word for word in plain.split[1].arguments if word != "--gen_module_id_file"),
        made=("{work}/k.d/x.cpp",),
        read=("{work}/k.d/x.ii", "{work}/k.d/x.id"),
    )
