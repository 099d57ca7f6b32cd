"""Libraries of macOS and Windows, assembled byte by byte from the formats' documents."""

from __future__ import annotations

import random
import runpy
import shutil
import struct
from pathlib import Path

import pytest

from kernel_builder.binary.macho import MachOError, read_macho
from kernel_builder.binary.pe import PeError, read_pe
from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Settings
from kernel_libraries import ID, Workshop, codes, messages

ARM = 0x0100000C
MAC, METAL = "torch213-cpu-aarch64-darwin", "torch213-metal-aarch64-darwin"
WINDOWS = "torch213-cpu-x86_64-windows"


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _dylib(path: str, command: int = 0xC) -> bytes:
    body = struct.pack("<IIII", 24, 0, 0, 0) + path.encode() + b"\0"
    return struct.pack("<II", command, 8 + len(_padded(body))) + _padded(body)


def _rpath(path: str) -> bytes:
    body = struct.pack("<I", 12) + path.encode() + b"\0"
    body += bytes(-(8 + len(body)) % 8)
    return struct.pack("<II", 0x8000001C, 8 + len(body)) + body


def macho(
    *commands: bytes,
    exports: tuple[str, ...] = (f"PyInit_{ID}",),
    undefined: tuple[str, ...] = (),
    macos: int | None = 15,
) -> bytes:
    """A library for Apple's processors."""
    parts = list(commands)
    if macos is not None:
        parts.append(struct.pack("<IIIIII", 0x32, 24, 1, macos << 16, macos << 16, 0))
    names, table = b"\0", b""
    for name, kind in [*((n, 0x0F) for n in exports), *((n, 0x01) for n in undefined)]:
        table += struct.pack("<IBBHQ", len(names), kind, 1, 0, 16 if kind == 0x0F else 0)
        names += b"_" + name.encode() + b"\0"
    size = 32 + sum(map(len, parts)) + 24
    parts.append(struct.pack("<IIIIII", 2, 24, size, len(table) // 16, size + len(table), len(names)))
    head = b"\xcf\xfa\xed\xfe" + struct.pack("<IIIIIII", ARM, 0, 6, len(parts), sum(map(len, parts)), 0, 0)
    return head + b"".join(parts) + table + names


def fat(*parts: bytes) -> bytes:
    """A file with several parts."""
    head, body = struct.pack(">II", 0xCAFEBABE, len(parts)), b""
    start = 8 + 20 * len(parts)
    for part in parts:
        head += struct.pack(">iiIII", ARM, 0, start + len(body), len(part), 0)
        body += part
    return head + body


def pe(
    needed: dict[str, tuple[str, ...]], exports: tuple[str, ...] = (f"PyInit_{ID}",), machine: int = 0x8664
) -> bytes:
    """A library for Windows with one section."""
    base, raw = 0x1000, 0x400
    data = bytearray()

    def put(content: bytes) -> int:
        at = base + len(data)
        data.extend(_padded(content))
        return at

    rows = []
    for library, names in needed.items():
        hints = [put(b"\0\0" + name.encode() + b"\0") for name in names]
        lookup = put(b"".join(struct.pack("<Q", hint) for hint in hints) + bytes(8))
        rows.append(struct.pack("<IIIII", lookup, 0, 0, put(library.encode() + b"\0"), lookup))
    imports = put(b"".join(rows) + bytes(20))
    pointers = put(b"".join(struct.pack("<I", put(name.encode() + b"\0")) for name in exports) or bytes(4))
    directory = put(struct.pack("<IIIIIIIIII", 0, 0, 0, 0, 1, len(exports), len(exports), 0, pointers, 0))
    head = bytearray(raw)
    head[0:2] = b"MZ"
    struct.pack_into("<I", head, 60, 64)
    struct.pack_into("<4sHHIIIHH", head, 64, b"PE\0\0", machine, 1, 0, 0, 0, 240, 0x2022)
    struct.pack_into("<H", head, 88, 0x20B)
    struct.pack_into("<I", head, 88 + 108, 16)
    struct.pack_into("<IIII", head, 88 + 112, directory, 40, imports, 20)
    struct.pack_into("<8sIIII", head, 88 + 240, b".data", len(data), base, len(data), raw)
    return bytes(head) + bytes(data)


def _in_variant(workshop: Workshop, tmp_path: Path, name: str, data: bytes, file: str = f"{ID}.abi3.so") -> Path:
    library = tmp_path / file
    library.write_bytes(data)
    return workshop.variant(name, library, backend={"type": "metal" if "metal" in name else "cpu"})


GOOD = macho(
    _dylib("/usr/lib/libSystem.B.dylib"), _dylib("@rpath/libtorch_cpu.dylib"), _dylib("/usr/lib/libc++.1.dylib")
)


@pytest.mark.parametrize("data", [GOOD, fat(GOOD, GOOD)])
def test_a_good_mac_library_has_no_findings(workshop: Workshop, tmp_path: Path, data: bytes) -> None:
    assert codes(_in_variant(workshop, tmp_path, MAC, data)) == []


def test_the_oldest_macos_is_compared(workshop: Workshop, tmp_path: Path) -> None:
    newer = _in_variant(workshop, tmp_path, MAC, macho(macos=26))
    assert messages(newer, "KB161") == ["its aarch64 part needs macOS 26.0; at most 15.0 is allowed"]
    assert messages(newer, "KB161", Settings(macos=(26, 0))) == []
    assert messages(_in_variant(workshop, tmp_path, METAL, macho(macos=26)), "KB161") == []
    assert "does not declare" in messages(_in_variant(workshop, tmp_path, MAC, macho(macos=None)), "KB161")[0]
    older = macho(struct.pack("<IIII", 0x24, 16, 14 << 16, 0), macos=None)
    assert messages(_in_variant(workshop, tmp_path, MAC, older), "KB161") == []


def shaders(
    *, major: int = 0x8001, patch: int = 7, system: int = 0x81, macos: int = 26, size: int = 88, body: int = 88
) -> bytes:
    """A library of Metal shaders that says it has ``size`` bytes, and has ``body``."""
    head = struct.pack("<4sHHHBBHBBQ", b"MTLB", major, 2, patch, 0, system, macos, 1, 0, size)
    return head + bytes(body - len(head))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (shaders(macos=25), []),
        (shaders(macos=26), ["its Metal library needs macOS 26.1; at most 26.0 is allowed"]),
        (shaders(system=0x82), ["its Metal library is for iOS"]),
        (shaders(system=0xFF), ["its Metal library is for system 127"]),
        (shaders(macos=25, size=1 << 40), [f"its Metal library is truncated: it should have {1 << 40} bytes"]),
        (
            shaders(macos=25) + shaders(macos=27),
            ["its Metal library number 2 needs macOS 27.1; at most 26.0 is allowed"],
        ),
        (shaders(patch=3, macos=99), []),
        (shaders(major=1, patch=3), []),
        (b"MTLB is no library" + bytes(80), []),
        (b"MTLB", []),
    ],
)
def test_embedded_shaders_are_for_the_macos_that_the_variant_is_for(
    workshop: Workshop, tmp_path: Path, data: bytes, told: list[str]
) -> None:
    assert messages(_in_variant(workshop, tmp_path, METAL, macho(macos=26) + data), "KB162") == told


def test_a_metal_variant_without_shaders_is_told(workshop: Workshop, tmp_path: Path) -> None:
    bare = macho(macos=26)
    said = ["there is no Metal code in the libraries of this variant"]
    assert messages(_in_variant(workshop, tmp_path, METAL, bare), "KB145") == said
    for data in (shaders(), shaders(patch=3), fat(bare + shaders(), bare)):
        whole = data if data.startswith(bytes.fromhex("cafebabe")) else bare + data
        assert messages(_in_variant(workshop, tmp_path, METAL, whole), "KB145") == []
    assert messages(_in_variant(workshop, tmp_path, MAC, GOOD), "KB145") == []


def test_libraries_and_run_paths_of_mac_libraries_are_judged(workshop: Workshop, tmp_path: Path) -> None:
    data = macho(
        _dylib("/opt/homebrew/lib/libomp.dylib"),
        _dylib("@rpath/libfoo.1.dylib"),
        _rpath("/Users/a/lib"),
        _rpath("@loader_path/lib"),
    )
    variant = _in_variant(workshop, tmp_path, MAC, data)
    assert [m.split(",")[0] for m in messages(variant, "KB106")] == [
        "needs /opt/homebrew/lib/libomp.dylib",
        "needs @rpath/libfoo.1.dylib",
    ]
    assert messages(variant, "KB107") == ["its run path contains /Users/a/lib"]


def test_python_and_init_function_of_mac_libraries_are_judged(workshop: Workshop, tmp_path: Path) -> None:
    data = macho(exports=("PyInit_other",), undefined=("_PyObject_GetState", "PyObject_Vectorcall"))
    assert codes(_in_variant(workshop, tmp_path, MAC, data)) == ["KB121", "KB122", "KB125"]
    assert codes(_in_variant(workshop, tmp_path, MAC.replace("aarch64", "x86_64"), GOOD)) == ["KB102"]


def test_a_good_windows_library_has_no_findings(workshop: Workshop, tmp_path: Path) -> None:
    needed = {"python3.dll": ("PyLong_FromLong",), "KERNEL32.dll": ("Sleep",), "torch_cpu.dll": ("f",),
              "VCRUNTIME140_1.dll": (), "api-ms-win-crt-math-l1-1-0.dll": (), "MSVCP140.dll": ()}  # fmt: skip
    assert codes(_in_variant(workshop, tmp_path, WINDOWS, pe(needed), f"{ID}.pyd")) == []


def test_windows_libraries_are_judged(workshop: Workshop, tmp_path: Path) -> None:
    needed = {"python313.dll": ("PyLong_FromLong",), "zlib1.dll": (), "python3.dll": ("PyObject_Vectorcall",)}
    variant = _in_variant(workshop, tmp_path, WINDOWS, pe(needed, machine=0xAA64), "_C.pyd")
    assert codes(variant) == ["KB102", "KB106", "KB121", "KB122", "KB123"]
    free = pe({"python313t.dll": ()})
    assert len(messages(_in_variant(workshop, tmp_path, WINDOWS, free, f"{ID}.pyd"), "KB124")) == 1


@pytest.mark.parametrize(
    ("name", "needed", "told"),
    [
        ("torch213-cu130-x86_64-windows", "cudart64_13.dll", []),
        ("torch213-cu126-x86_64-windows", "CUDART64_12.DLL", []),
        ("torch213-cu130-x86_64-windows", "c10_cuda.dll", []),
        ("torch213-cu130-x86_64-windows", "cudart64_12.dll", ["KB114"]),
        ("torch213-cu118-x86_64-windows", "cudart64_110.dll", []),
        ("torch213-cu118-x86_64-windows", "cudart64_12.dll", ["KB114"]),
        ("torch213-xpu20260-x86_64-windows", "sycl9.dll", []),
        ("torch213-xpu20260-x86_64-windows", "sycl8.dll", ["KB114"]),
        ("torch213-xpu20260-x86_64-windows", "cudart64_13.dll", ["KB106"]),
        (WINDOWS, "cudart64_13.dll", ["KB106"]),
        (WINDOWS, "nvcuda.dll", ["KB106"]),
        (WINDOWS, "torch_cpu.dll", []),
        ("tvm-ffi01-cpu-x86_64-windows", "tvm_ffi.dll", []),
        ("tvm-ffi01-cpu-x86_64-windows", "torch_cpu.dll", ["KB106"]),
        ("tvm-ffi01-cu130-x86_64-windows", "cudart64_13.dll", []),
        ("tvm-ffi01-cu130-x86_64-windows", "c10_cuda.dll", ["KB106"]),
    ],
)
def test_what_a_windows_library_needs_is_of_its_toolkit_and_framework(
    workshop: Workshop, tmp_path: Path, name: str, needed: str, told: list[str]
) -> None:
    variant = _in_variant(workshop, tmp_path, name, pe({needed: ()}), f"{ID}.dll" if "tvm" in name else f"{ID}.pyd")
    assert [code for code in codes(variant) if code in {"KB106", "KB114"}] == told


def test_a_tvm_ffi_library_for_macos_needs_nothing_of_torch(workshop: Workshop, tmp_path: Path) -> None:
    torch, own = (macho(_dylib(f"@rpath/{name}.dylib")) for name in ("libtorch_cpu", "libtvm_ffi"))
    found = messages(_in_variant(workshop, tmp_path, "tvm-ffi01-cpu-aarch64-darwin", torch, f"{ID}.dylib"), "KB106")
    assert found == ["needs @rpath/libtorch_cpu.dylib, which tvm-ffi does not provide"]
    assert messages(_in_variant(workshop, tmp_path, "tvm-ffi01-cpu-aarch64-darwin", own, f"{ID}.dylib"), "KB106") == []


@pytest.mark.parametrize("data", [GOOD, fat(GOOD), pe({"python3.dll": ("PyLong_FromLong",)})])
def test_truncated_files_are_errors_and_never_another_exception(data: bytes) -> None:
    read, error = (read_pe, PeError) if data[:2] == b"MZ" else (read_macho, MachOError)
    failed = 0
    for length in range(len(data)):
        try:
            read(data[:length])
        except error:
            failed += 1
    assert failed > len(data) // 2


def test_a_short_fuzz_run_ends_in_findings_alone(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("this machine has no gcc")
    fuzz = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "fuzz_check.py"))
    chance, known = random.Random(5), fuzz["seeds"](tmp_path)  # noqa: S311
    library = tmp_path / f"{ID}.so"
    found = 0
    for number in range(100):
        library.write_bytes(fuzz["damaged"](known[sorted(known)[number % len(known)]], chance))
        found += bool(check_paths([library], select=["KB0", "KB1"], jobs=1).findings)
    assert found > 30
