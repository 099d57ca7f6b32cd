"""Toolkits on this machine: what is one, and why something else is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel_builder.backends.cuda import identity as identities
from kernel_builder.backends.cuda.local import find_toolkits

_NVCC = r"""#!/bin/sh
case "$*" in
*--dryrun*) printf '#$ TOP=%s\n' "$(dirname "$0")/.." >&2 ;;
*) printf 'Cuda compilation tools, release 12.6, V12.6.77 \351\n' ;;
esac
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with what the scripts need, and no nvcc."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("sh", "dirname"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return str(folder)


def toolkit(root: Path, script: str = _NVCC, mode: int = 0o755) -> Path:
    nvcc = root / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(script)
    nvcc.chmod(mode)
    return root


@pytest.mark.parametrize(
    ("script", "mode", "reason"),
    [
        ("#!/bin/sh\nexit 3\n", 0o755, "it does not run: it ends with code 3"),
        ("#!/bin/sh\nprintf '\\377\\376'\n", 0o755, "it does not respond like nvcc"),
        (_NVCC, 0o644, "it does not run: Permission denied"),
        ("", 0o755, "it does not run"),
    ],
)
def test_what_is_no_toolkit_is_passed_over_with_the_reason(
    tmp_path: Path, path: str, script: str, mode: int, reason: str
) -> None:
    places = (toolkit(tmp_path / "wrong", script, mode), tmp_path / "absent", toolkit(tmp_path / "right"))
    found, refused = find_toolkits({"PATH": path}, places, standard=tmp_path / "nothing")
    assert [(one.root, one.release, one.version) for one in found] == [(tmp_path / "right", "12.6", "12.6.77")]
    assert [entry.candidate for entry in refused] == [str(place / "bin" / "nvcc") for place in places[:2]]
    assert refused[0].reason.startswith(reason)
    assert refused[1].reason == "it does not exist"


def test_of_two_toolkits_of_one_version_the_first_counts(tmp_path: Path, path: str) -> None:
    named, home = toolkit(tmp_path / "named"), toolkit(tmp_path / "home")
    found, refused = find_toolkits({"PATH": path, "CUDA_HOME": str(home)}, (named,), standard=tmp_path / "nothing")
    assert [one.root for one in found] == [named]
    assert [entry.reason for entry in refused] == [f"{named} also has CUDA 12.6 and comes first"]


def test_of_two_toolkits_of_one_version_a_complete_one_goes_before_a_part(tmp_path: Path, path: str) -> None:
    part, complete = toolkit(tmp_path / "part"), toolkit(tmp_path / "complete")
    for name in ("cudafe++", "fatbinary", "ptxas", "cicc"):
        (complete / "bin" / name).touch()
    found, refused = find_toolkits({"PATH": path}, (part, complete), standard=tmp_path / "nothing")
    assert [one.root for one in found] == [complete]
    assert [(entry.candidate, entry.reason) for entry in refused] == [
        (str(part / "bin" / "nvcc"), "it has no cudafe++, fatbinary, ptxas, cicc")
    ]


_FILES = (
    "bin/nvcc.profile",
    "bin/cudafe++",
    "bin/ptxas",
    "bin/fatbinary",
    "nvvm/bin/cicc",
    "nvvm/libdevice/libdevice.10.bc",
    "nvvm/lib64/libnvvm.so.4",
    "include/cuda_runtime.h",
    "include/cccl/thrust/x.h",
)


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """A toolkit with everything that a compile runs or reads."""
    root = toolkit(tmp_path / "cuda")
    for name in (
        *("bin/nvcc.profile", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc"),
        *(
            "nvvm/libdevice/libdevice.10.bc",
            "nvvm/lib64/libnvvm.so.4",
            "include/cuda_runtime.h",
            "lib64/libcublas.so.13",
            "include/cccl/thrust/x.h",
        ),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1")
    return root


@pytest.mark.parametrize(
    "name",
    [
        *("bin/nvcc.profile", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc"),
        *(
            "nvvm/libdevice/libdevice.10.bc",
            "nvvm/lib64/libnvvm.so.4",
            "include/cuda_runtime.h",
            "lib64/libcublas.so.13",
            "include/cccl/thrust/x.h",
        ),
    ],
)
def test_every_file_that_a_compile_runs_or_reads_is_part_of_the_identity(
    tmp_path: Path, path: str, complete: Path, name: str
) -> None:
    def identity() -> str:
        (found,), _ = find_toolkits({"PATH": path}, (complete,), standard=tmp_path / "nothing")
        return found.identity

    before = identity()
    assert identity() == before
    file = complete / name
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    assert identity() != before


def test_a_distributions_compiler_is_known_by_its_own_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries, private = tmp_path / "bin", tmp_path / "lib" / "nvidia-cuda-toolkit"
    headers = [tmp_path / "include" / name for name in ("stdio.h", "cuda_fp16.h", "crt/host_defines.h")]
    programs = (binaries / "nvcc", binaries / "gcc", private / "bin" / "cicc", tmp_path / "etc" / "nvcc.profile")
    for file in (*programs, *headers):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    monkeypatch.setattr(identities, "_SYSTEM_BIN", binaries)

    def identity() -> str:
        places = (private, tmp_path / "etc" / "nvcc.profile")
        return identities.compiler_identity(binaries / "nvcc", (), (), private=places, system=tmp_path / "include")

    before = identity()
    (binaries / "gcc").write_text("another program is updated")
    headers[0].write_text("the C library is updated")
    assert identity() == before
    for file in (private / "bin" / "cicc", tmp_path / "etc" / "nvcc.profile", binaries / "nvcc", *headers[1:]):
        changed = identity()
        file.write_text("updated")
        assert identity() != changed, file


def test_other_programs_of_an_environment_are_no_part_of_the_identity(tmp_path: Path, complete: Path) -> None:
    nvcc, include = complete / "bin" / "nvcc", complete / "include"

    def identity() -> str:
        return identities.compiler_identity(nvcc, [include], (), private=(), system=tmp_path / "nothing")

    before = identity()
    (nvcc.parent / "pip").write_text("a program that was installed beside")
    assert identity() == before
    (nvcc.parent / "crt").mkdir()
    (nvcc.parent / "crt" / "link.stub").write_text("a part of nvcc")
    assert identity() != before
