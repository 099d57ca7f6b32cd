"""A program that answers as nvcc does when it is asked what it would run."""

from __future__ import annotations

import shlex
from pathlib import Path

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
            ' --gen_module_id_file --module_id_file_name "@D/x.id" "@D/x.ii"'
        ),
        f'#$ {CXX} -E -x c++ -D__CUDA_ARCH__=900 "@S" -o "@D/y.ii"',
        (
            '#$ "$CICC_PATH/cicc" --orig_src_path_name "@S" -arch compute_90 --module_id_file_name "@D/x.id"'
            ' --stub_file_name "@D/x.stub.c"'
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
