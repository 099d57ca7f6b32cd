"""What a driver says that it does becomes chains of steps, or nvcc is left to do it itself.

That the steps make the object that nvcc makes is tested with real compilers, in ``test_toolchain_network.py``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driver_answers import CXX, lines_of, nvcc
from kernel_builder.backends.cuda.driver import CICC, CUDAFE, HOST, PTXAS, Question, UnknownStepError, pipeline


def question(program: Path) -> Question:
    return Question(nvcc=program, cxx=CXX, digest=str(program), options=())


def test_steps_are_told_apart_by_what_they_make_and_read(tmp_path: Path) -> None:
    found = pipeline(question(nvcc(tmp_path, *lines_of())), source="{project}/a b.cu", target="t.o", folder="{work}/d")
    assert [step.program for step in found.split] == [HOST, CUDAFE]
    assert [[step.program for step in chain] for chain in found.devices] == [[HOST, CICC, PTXAS]]
    assert "{project}/a b.cu" in found.split[0].arguments
    assert found.passed_on(found.split) == ("{work}/d/x.cpp", "{work}/d/x.id")
    assert found.passed_on(found.devices[0]) == ("{work}/d/x.stub.c", "{work}/d/y.cubin")
    assert found.passed_on(found.compile) == ("t.o",)
    assert found.devices[0][1].path == "/opt/cuda/nvvm/bin/cicc"
    assert found.programs == "/opt/cuda/bin"
    assert found.settings == (("NVVMIR_LIBRARY_DIR", "/opt/cuda/nvvm/libdevice"),)


def test_programs_that_are_run_by_name_are_found_where_the_driver_finds_them(tmp_path: Path) -> None:
    """CUDA 11 and 12 run cicc so, and it is not beside nvcc."""
    places = {"cicc": tmp_path / "nvvm" / "bin", "ptxas": tmp_path / "bin"}
    for name, folder in places.items():
        folder.mkdir(parents=True)
        (folder / name).touch()
    lines = [line.replace('"$CICC_PATH/cicc"', "cicc") for line in lines_of()]
    lines.insert(1, f"#$ PATH={tmp_path}/nowhere:{tmp_path}/bin/../nvvm/bin:{tmp_path}/bin:")
    found = pipeline(question(nvcc(tmp_path, *lines)), source="a.cu", target="a.o", folder="d")
    assert [step.path for step in found.devices[0][1:]] == [
        f"{tmp_path}/bin/../nvvm/bin/cicc",
        f"{tmp_path}/bin/ptxas",
    ]
    assert found.split[-1].path == "cudafe++"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (lines_of(extra='#$ nvlink "@D/y.cubin" -o "@D/z.cubin"'), "nvcc runs nvlink"),
        (["hello"], "prints 'hello'"),
        (lines_of()[:-2], "one object"),
        ([line for line in lines_of() if "y.ii" not in line or "ptx" in line], "preprocessor"),
        (lines_of(extra='#$ ptxas "@D/other.ptx" -o "@D/z.cubin"'), "not known"),
        (["#$ "], "one object"),
    ],
    ids=["an unknown program", "another language", "no object", "no preprocessor", "a step of no chain", "nothing"],
)
def test_what_is_not_known_is_refused(tmp_path: Path, lines: list[str], words: str) -> None:
    with pytest.raises(UnknownStepError, match=words):
        pipeline(question(nvcc(tmp_path, *lines)), source="a.cu", target="a.o", folder="d")


def test_a_driver_that_fails_or_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownStepError, match="bad option"):
        pipeline(question(nvcc(tmp_path, "nvcc fatal: bad option", code=1)), source="a.cu", target="a.o", folder="d")
    with pytest.raises(UnknownStepError, match="No such file"):
        pipeline(question(tmp_path / "none"), source="a.cu", target="a.o", folder="d")


def test_it_is_asked_with_what_a_host_compiler_needs_to_start(tmp_path: Path) -> None:
    program = nvcc(tmp_path, *lines_of())
    needs = '[ "$LD_LIBRARY_PATH" = /here ] || { echo "nvcc fatal: cannot run c++" >&2; exit 1; }'
    program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{needs}\n"))
    with pytest.raises(UnknownStepError, match=r"cannot run c\+\+"):
        pipeline(question(program), source="a.cu", target="a.o", folder="d")
    told = replace(question(program), environ=(("LD_LIBRARY_PATH", "/here"),))
    assert pipeline(told, source="a.cu", target="a.o", folder="d").devices
