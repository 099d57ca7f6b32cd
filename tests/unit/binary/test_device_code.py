"""GPU code in libraries, against the metadata: fat binaries made by hand, and by nvcc where there is one."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import sys
import zlib
from pathlib import Path

import pytest

from kernel_builder.binary.device_code import read_fatbin
from kernel_builder.binary.elf import mapped
from kernel_builder.check.subject import LibraryFile
from kernel_libraries import CUDA, ID, INIT, Workshop, messages

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PTX, SASS, A, F = 1, 2, 1 << 20, 1 << 21
ROCM = "torch213-cxx11-rocm72-x86_64-linux"


def fatbin(*entries: tuple[int, int, int], version: int = 1) -> bytes:
    """A fat binary with entries (kind, arch, flags), each with a few bytes of contents."""
    body = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, 24, 0, 0, 8, 1, arch, 0, 0, flags, 0, 0) + bytes(24)
        for kind, arch, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(body)) + body


MACH = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx950": 0x4F, "gfx1100": 0x41}


def code_object(arch: str, abi: int = 4, machine: int = 224) -> bytes:
    """An ELF file for a chip, of one segment; ``abi`` 2 is code object version 4, 4 is version 6."""
    ident = b"\x7fELF" + bytes([2, 1, 1, 64, abi]) + bytes(7)
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 64, 0, MACH.get(arch, 0), 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 128, 128, 4096) + bytes(8)


def bundle(*targets: str, abi: int = 4, codes: tuple[bytes, ...] = ()) -> bytes:
    """A bundle of clang's with code for targets; the host's is empty."""
    made = codes or tuple(
        b"" if target.startswith("host-") else code_object(re.findall(r"gfx[0-9a-f]+", target)[0], abi)
        for target in targets
    )
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(targets))
    at = len(head) + sum(24 + len(target) for target in targets)
    for target, code in zip(targets, made, strict=True):
        head += struct.pack("<QQQ", at, len(code), len(target)) + target.encode()
        at += len(code)
    return head + b"".join(made)


def compressed(inner: bytes, version: int, method: int) -> bytes:
    """The same, packed as the bundler packs it."""
    packed = zlib.compress(inner) if method == 0 else zstd.compress(inner)
    digest = int.from_bytes(hashlib.md5(inner, usedforsecurity=False).digest()[:8], "little")
    form = {1: "<4sHHIQ", 2: "<4sHHIIQ", 3: "<4sHHQQQ"}[version]
    total = () if version == 1 else (struct.calcsize(form) + len(packed),)
    return struct.pack(form, b"CCOB", version, method, *total, len(inner), digest) + packed


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


def test_what_cannot_be_read_is_a_note_and_no_error(workshop: Workshop) -> None:
    variant = cuda(workshop, fatbin((SASS, 80, 0), version=2), "9.0")
    assert len(messages(variant, "KB143")) == 1
    assert [*messages(variant, "KB141"), *messages(variant, "KB146")] == []


@pytest.mark.parametrize(
    "damaged",
    [
        fatbin((SASS, 80, 0))[:40],
        fatbin((SASS, 80, 0))[:12],
        fatbin((SASS, 80, 0)).replace(struct.pack("<Q", 24), struct.pack("<Q", 2**63)),
    ],
)
def test_damaged_code_is_refused(workshop: Workshop, damaged: bytes) -> None:
    variant = cuda(workshop, damaged, "9.0")
    assert len(messages(variant, "KB146")) == 1
    assert [*messages(variant, "KB141"), *messages(variant, "KB143")] == []


def test_a_cpu_variant_and_malformed_archs_are_not_judged(workshop: Workshop) -> None:
    assert messages(cuda(workshop, fatbin((SASS, 80, 0)), "sm_80"), "KB14") == []


def rocm(workshop: Workshop, contents: bytes, *archs: str, name: str = ROCM) -> Path:
    """A ROCm variant with bundles, and these archs in its metadata."""
    library = with_section(workshop, ".hip_fatbin", contents)
    return workshop.variant(name, library, backend={"type": "rocm", "archs": list(archs)})


THREE = (
    bundle(
        "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", "hip-amdgcn-amd-amdhsa--gfx1100"
    ),
    bundle("hipv4-amdgcn-amd-amdhsa--gfx942"),
)
PACKED = [(version, method) for version in (1, 2, 3) for method in (0, 1)]


def test_rocm_bundles_are_compared(workshop: Workshop) -> None:
    code = THREE[0] + bytes(4096) + THREE[1]
    assert messages(rocm(workshop, code, "gfx1100", "gfx90a", "gfx942"), "KB14") == []
    wrong = rocm(workshop, code, "gfx1100", "gfx90a", "gfx950")
    assert messages(wrong, "KB141") == ["no GPU code for gfx950; found code for: gfx1100, gfx90a, gfx942"]
    assert messages(wrong, "KB142") == ["the metadata does not list gfx942, but the libraries have GPU code for it"]


@pytest.mark.parametrize(("version", "method"), PACKED)
def test_compressed_bundles_are_read_behind_each_other(version: int, method: int, workshop: Workshop) -> None:
    code = compressed(THREE[0], version, method) + bytes(100) + compressed(THREE[1], version, method) + THREE[1]
    assert messages(rocm(workshop, code, "gfx1100", "gfx90a", "gfx942"), "KB14") == []
    assert len(messages(rocm(workshop, code, "gfx1100"), "KB142")) == 1


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (THREE[0][:30], "a bundle of GPU code that is truncated"),
        (THREE[0][:-70], "a bundle of GPU code that is truncated: hip-amdgcn-amd-amdhsa--gfx1100 ends behind it"),
        (
            THREE[0].replace(struct.pack("<Q", 3), struct.pack("<Q", 2**40)),
            "1099511627776 entries, which is implausible",
        ),
        (bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", codes=(b"",)), "no code for gfx90a, but an entry for it"),
        (bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", codes=(bytes(128),)), "for gfx90a that is not a code object"),
        (bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", codes=(code_object("gfx90a", machine=62),)), "not a code object"),
        (bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", codes=(code_object("gfx90a")[:-1],)), "gfx90a that is truncated"),
        (
            bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", codes=(code_object("gfx942"),)),
            "for gfx90a whose code is for gfx942",
        ),
        (compressed(THREE[0], 3, 1)[:20], "a compressed bundle of GPU code that is truncated"),
        (compressed(THREE[0], 3, 1)[:-9], "a compressed bundle of GPU code that is truncated"),
        (compressed(THREE[0], 2, 0)[:-6] + b"damage", "a compressed bundle of GPU code that is damaged"),
        (compressed(THREE[0], 2, 1)[:-6] + b"damage", "a compressed bundle of GPU code that is damaged"),
        (compressed(b"not a bundle", 3, 0), "a compressed bundle that holds something else"),
    ],
)
def test_damaged_bundles_are_refused(damaged: bytes, said: str, workshop: Workshop) -> None:
    variant = rocm(workshop, damaged, "gfx90a", "gfx1100")
    (error,) = messages(variant, "KB146")
    assert said in error
    assert [*messages(variant, "KB141"), *messages(variant, "KB143")] == []


@pytest.mark.parametrize(
    ("strange", "said"),
    [
        (bundle("hipv4-amdgcn-amd-amdhsa--gfx90a", abi=9), "a code object for gfx90a of an unknown version"),
        (
            bundle("openmp-nvptx64--sm_80", codes=(bytes(64),)),
            "code for openmp-nvptx64--sm_80, which is not an AMD GPU",
        ),
        (b"something else" + bytes(50), "contents that are not bundles of GPU code"),
        (compressed(THREE[0], 3, 0).replace(b"CCOB\3", b"CCOB\7"), "version 7, which is not known"),
        (struct.pack("<4sHHQQQ", b"CCOB", 3, 5, 40, 8, 0) + bytes(8), "compressed by method 5, which is not known"),
    ],
)
def test_what_is_not_known_is_a_note_and_no_error(strange: bytes, said: str, workshop: Workshop) -> None:
    variant = rocm(workshop, strange, "gfx90a", "gfx1100")
    (note,) = messages(variant, "KB143")
    assert said in note
    assert [*messages(variant, "KB141"), *messages(variant, "KB146")] == []


def test_what_follows_a_damaged_bundle_is_read(workshop: Workshop) -> None:
    broken = compressed(THREE[0], 3, 1)[:-6] + b"damage"
    for damaged in (b"something else", compressed(b"not a bundle", 3, 0), broken):
        variant = rocm(workshop, damaged + bytes(16) + THREE[1], "gfx90a")
        assert len([*messages(variant, "KB143"), *messages(variant, "KB146")]) == 1
        assert messages(variant, "KB142") == [
            "the metadata does not list gfx942, but the libraries have GPU code for it"
        ]


@pytest.mark.parametrize(
    ("abi", "name", "expected"),
    [
        (4, ROCM, []),
        (2, ROCM, []),
        (4, ROCM.replace("rocm72", "rocm63"), ["its GPU code is of version 6, which came with 6.4; it is for 6.3"]),
        (3, ROCM.replace("rocm72", "rocm63"), []),
        (1, ROCM, ["its GPU code is of version 3, which is no longer made"]),
    ],
)
def test_versions_of_code_objects_fit_the_release(abi: int, name: str, expected: list[str], workshop: Workshop) -> None:
    variant = rocm(workshop, bundle("hipv4-amdgcn-amd-amdhsa--gfx942", abi=abi), "gfx942", name=name)
    assert messages(variant, "KB144") == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="this machine has no nvcc")
def test_what_nvcc_writes_is_read(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) { x[threadIdx.x] += 1; }\n", encoding="ascii")
    library = tmp_path / f"{ID}.abi3.so"
    code = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ("80", "90a")]
    ptx = "-gencode=arch=compute_90,code=compute_90"
    workshop.run("nvcc", "-shared", "-Xcompiler", "-fPIC", *code, ptx, "-o", library, tmp_path / "k.cu")
    with mapped(library) as data:
        found = read_fatbin(data, LibraryFile(library, "").sections)
    assert found is not None
    assert found.machine_code == {"8.0", "9.0a"}
    assert found.ptx == {"9.0"}
    assert found.unread == ()


XPU = "torch213-cxx11-xpu20260-x86_64-linux"
SYCL = """\
void __sycl_register_lib(void *);
__attribute__((constructor)) static void made(void) { __sycl_register_lib(0); }
"""


@pytest.mark.parametrize(
    ("name", "backend", "has"),
    [
        (XPU, {"type": "xpu"}, SYCL),
        (CUDA, {"type": "cuda"}, fatbin((SASS, 80, 0))),
        (CUDA, {"type": "cuda", "archs": []}, fatbin((PTX, 80, 0))),
        (ROCM, {"type": "rocm"}, THREE[0]),
    ],
)
def test_a_variant_for_gpus_without_any_code_for_them_is_told(
    workshop: Workshop, name: str, backend: dict[str, object], has: str | bytes
) -> None:
    empty = workshop.variant(name, workshop.library(INIT), backend=backend)
    label = {"xpu": "XPU", "cuda": "CUDA", "rocm": "ROCm"}[str(backend["type"])]
    assert messages(empty, "KB145") == [f"there is no {label} code in the libraries of this variant"]
    if isinstance(has, str):
        library = workshop.library(INIT + has)
    else:
        library = with_section(workshop, ".hip_fatbin" if name == ROCM else ".nv_fatbin", has)
    assert messages(workshop.variant(name, library, backend=backend), "KB145") == []


def test_code_in_one_of_several_libraries_is_enough(workshop: Workshop) -> None:
    variant = workshop.variant(XPU, workshop.library(INIT), backend={"type": "xpu"})
    workshop.library(SYCL, name="libshaders.so", into=variant)
    assert messages(variant, "KB145") == []


def test_where_metadata_names_architectures_and_for_processors_nothing_more_is_said(workshop: Workshop) -> None:
    named = workshop.variant(CUDA, workshop.library(INIT), backend={"type": "cuda", "archs": ["8.0"]})
    assert (len(messages(named, "KB141")), messages(named, "KB145")) == (1, [])
    host = workshop.variant("torch213-cxx11-cpu-x86_64-linux", workshop.library(INIT))
    assert messages(host, "KB145") == []
