"""GPU code in libraries, against the metadata: fat binaries made by hand, and by nvcc where there is one."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from kernel_builder.binary.device_code import read_cuda
from kernel_builder.binary.elf import mapped
from kernel_builder.check.subject import LibraryFile
from kernel_libraries import CUDA, ID, INIT, Workshop, messages

PTX, SASS, A, F = 1, 2, 1 << 20, 1 << 21
ROCM = "torch213-cxx11-rocm72-x86_64-linux"


def fatbin(*entries: tuple[int, int, int], version: int = 1) -> bytes:
    """A fat binary with entries (kind, arch, flags), each with a few bytes of contents."""
    body = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, 24, 0, 0, 8, 1, arch, 0, 0, flags, 0, 0) + bytes(24)
        for kind, arch, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body)) + body


def bundle(*targets: str) -> bytes:
    """A bundle of clang's with empty code for targets."""
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(targets))
    return head + b"".join(struct.pack("<QQQ", 4096, 0, len(t)) + t.encode() for t in targets)


def with_section(workshop: Workshop, name: str, contents: bytes) -> Path:
    """A library with a section of these contents."""
    file = workshop.root / "section.bin"
    file.write_bytes(contents)
    source = f'{INIT}__asm__(".section {name},\\"a\\"\\n.incbin \\"{file}\\"\\n.text");\n'
    return workshop.library(source)


def cuda(workshop: Workshop, contents: bytes, *archs: str) -> Path:
    """A CUDA variant with fat binaries, and these archs in its metadata."""
    library = with_section(workshop, ".nv_fatbin", contents)
    return workshop.variant(CUDA, library, backend={"type": "cuda", "archs": list(archs)})


def test_code_for_exactly_the_named_architectures_passes(workshop: Workshop) -> None:
    code = fatbin((SASS, 80, 0x11), (SASS, 90, A), (PTX, 120, 0)) + bytes(8) + fatbin((SASS, 120, 0), (SASS, 100, F))
    assert messages(cuda(workshop, code, "8.0", "9.0a", "10.0f", "12.0+PTX"), "KB14") == []


def test_missing_code_is_refused(workshop: Workshop) -> None:
    variant = cuda(workshop, fatbin((SASS, 80, 0)), "8.0", "9.0a", "12.0+PTX")
    assert messages(variant, "KB141") == ["no GPU code for 12.0, 9.0a, 12.0+PTX; found code for: 8.0"]
    empty = workshop.variant(CUDA, workshop.library(INIT), backend={"type": "cuda", "archs": ["8.0"]})
    assert messages(empty, "KB141") == ["no GPU code for 8.0; found code for: none"]


def test_ordinary_code_is_not_that_of_one_chip_alone(workshop: Workshop) -> None:
    assert len(messages(cuda(workshop, fatbin((SASS, 90, 0)), "9.0a"), "KB141")) == 1


def test_unnamed_code_is_refused(workshop: Workshop) -> None:
    variant = cuda(workshop, fatbin((SASS, 80, 0), (SASS, 86, 0), (PTX, 80, 0)), "8.0")
    assert messages(variant, "KB142") == [
        "the metadata does not list 8.6, 8.0+PTX, but the libraries have GPU code for them"
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        fatbin((SASS, 80, 0), version=2),
        fatbin((SASS, 80, 0))[:40],
        fatbin((SASS, 80, 0))[:12],
        fatbin((SASS, 80, 0)).replace(struct.pack("<Q", 24), struct.pack("<Q", 2**63)),
    ],
)
def test_what_cannot_be_read_is_a_note_and_no_error(workshop: Workshop, damaged: bytes) -> None:
    variant = cuda(workshop, damaged, "9.0")
    assert len(messages(variant, "KB143")) == 1
    assert messages(variant, "KB141") == []


def test_a_cpu_variant_and_malformed_archs_are_not_judged(workshop: Workshop) -> None:
    assert messages(cuda(workshop, fatbin((SASS, 80, 0)), "sm_80"), "KB14") == []


def test_rocm_bundles_are_compared(workshop: Workshop) -> None:
    code = bundle(
        "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", "hip-amdgcn-amd-amdhsa--gfx1100"
    )
    library = with_section(workshop, ".hip_fatbin", code + bytes(64) + bundle("hipv4-amdgcn-amd-amdhsa--gfx942"))
    right = workshop.variant(ROCM, library, backend={"type": "rocm", "archs": ["gfx1100", "gfx90a", "gfx942"]})
    assert messages(right, "KB14") == []
    wrong = workshop.variant(ROCM, library, backend={"type": "rocm", "archs": ["gfx1100", "gfx90a", "gfx950"]})
    assert len(messages(wrong, "KB141")) == len(messages(wrong, "KB142")) == 1
    packed = with_section(workshop, ".hip_fatbin", b"CCOB" + bytes(64))
    unread = workshop.variant(ROCM, packed, backend={"type": "rocm", "archs": ["gfx90a"]})
    assert len(messages(unread, "KB143")) == 1
    assert messages(unread, "KB141") == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="this machine has no nvcc")
def test_what_nvcc_writes_is_read(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) { x[threadIdx.x] += 1; }\n", encoding="ascii")
    library = tmp_path / f"{ID}.abi3.so"
    code = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90a")]
    ptx = "-gencode=arch=compute_90,code=compute_90"
    workshop.run("nvcc", "-shared", "-Xcompiler", "-fPIC", *code, ptx, "-o", library, tmp_path / "k.cu")
    with mapped(library) as data:
        found = read_cuda(data, LibraryFile(library, "").sections)
    assert found is not None
    assert found.machine_code == {"8.0", "9.0a"}
    assert found.ptx == {"9.0"}
    assert found.unread == ()
