"""What a driver says that it does becomes chains of steps, or nvcc is left to do it itself.

That the steps make the object that nvcc makes is tested with real compilers, in ``test_toolchain_network.py``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kernel_builder.backends.cuda.driver import CICC, CUDAFE, HOST, PTXAS, Question, UnknownStepError, pipeline

CXX = Path("/usr/bin/c++")


def nvcc(folder: Path, *lines: str, code: int = 0) -> Path:
    """A program that answers ``--dryrun`` with ``lines``: ``@D`` is the folder, ``@S`` source, ``@O`` object."""
    path = folder / "nvcc"
    quoted = "\n".join(
        f'echo {shlex.quote(line)} | sed -e "s#@D#$D#g" -e "s#@S#$S#g" -e "s#@O#$O#g" >&2' for line in lines
    )
    # nvcc --dryrun --keep --keep-dir DIR -ccbin CXX -c SOURCE -o OBJECT ...
    path.write_text(
        f'#!/bin/sh\nD=$4; S=$8; O=${{10}}; N=$(basename "$S" .cu)\n{quoted.replace("@N", "$N")}\nexit {code}\n'
    )
    path.chmod(0o755)
    return path


def lines_of(*, extra: str = "") -> list[str]:
    return [
        "#$ _HERE_=/opt/cuda/bin",
        "#$ CICC_PATH=/opt/cuda/nvvm/bin",
        "#$ NVVMIR_LIBRARY_DIR=/opt/cuda/nvvm/libdevice",
        f'#$ {CXX} -E -x c++ "@S" -o "@D/x.ii"',
        (
            '#$ cudafe++ --gen_c_file_name "@D/x.cpp" --stub_file_name "x.stub.c"'
            ' --module_id_file_name "@D/x.id" "@D/x.ii"'
        ),
        f'#$ {CXX} -E -x c++ -D__CUDA_ARCH__=900 "@S" -o "@D/y.ii"',
        (
            '#$ "$CICC_PATH/cicc" -arch compute_90 --module_id_file_name "@D/x.id" --stub_file_name "@D/x.stub.c"'
            ' "@D/y.ii" -o "@D/y.ptx"'
        ),
        '#$ ptxas "@D/y.ptx" -o "@D/y.cubin"',
        *([extra] if extra else []),
        (
            '#$ fatbinary --create="@D/x.fatbin" "--image3=kind=elf,sm=90,file=@D/y.cubin"'
            ' --embedded-fatbin="@D/x.fatbin.c"'
        ),
        f'#$ {CXX} -c "@D/x.cpp" -o "@O"',
        "#$ rm @D/x.fatbin",
    ]


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
