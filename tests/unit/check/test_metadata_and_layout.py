"""Rules about metadata.json, names and files: each with what breaks it and what does not."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Settings
from kernel_builder.interface.read import ops_of_library
from kernel_trees import COMMIT, codes, findings, source, variant, write

CLEAN = {"commit": COMMIT, "dirty": False}

ARCH = "torch213-cxx11-cu130-x86_64-linux"
DIGEST = {"algorithm": "sha256", "files": {}}


def test_a_conforming_variant_is_clean(tmp_path: Path) -> None:
    assert codes(variant(tmp_path)) == []


@pytest.mark.parametrize("key", ["name", "id", "version", "license", "python-depends", "backend"])
def test_a_key_that_the_client_requires(tmp_path: Path, key: str) -> None:
    missing: dict[str, Any] = {key: None}
    root = variant(tmp_path, **missing)
    assert [(f.rule.code, f.symbol) for f in findings(root, "KB41")] == [("KB411", key)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": "1"}, ["KB411"]),
        ({"version": True}, ["KB411"]),
        ({"backend": {}}, ["KB411"]),
        ({"python_depends": "einops"}, ["KB411"]),
        ({"name": "My_Kernel"}, ["KB412"]),
        ({"version": -1}, ["KB412"]),
        ({"license": ""}, ["KB412"]),
        ({"python_depends": ["numpy"]}, ["KB412"]),
        ({"python_depends": ["einops", "nvidia-cutlass-dsl"]}, []),
        ({"kernel_depends": [{"repo-id": "a/b"}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "version": 1}, {"repo-id": "a/c", "revision": "x"}]}, []),
        ({"kernel_depends": [{"repo-id": "a/b", "version": 1, "revision": None}]}, []),
        ({"kernel_depends": [{"repo-id": "../b", "version": 1}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "/a/b", "version": 1}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b/c", "version": 1}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": ["a/b"], "version": 1}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "version": -1}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "version": 99999999999}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "version": True}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "revision": "../../x"}]}, ["KB412"]),
        ({"kernel_depends": [{"repo-id": "a/b", "revision": "x; rm"}]}, ["KB412"]),
        ({"version": 99999999999}, ["KB412"]),
        ({"something": 1}, ["KB413"]),
        ({"backend": {"type": "cuda", "archs": ["9.0", "sm_90"]}}, ["KB416"]),
        ({"backend": {"type": "cuda", "archs": ["9.0", "9.0"]}}, ["KB416"]),
        ({"backend": {"type": "cuda", "archs": ["9.0a", "10.0f", "8.0+PTX"]}}, []),
        ({"backend": {"type": "cpu"}}, ["KB415"]),
        ({"backend": {"type": "vulkan"}}, ["KB412", "KB415"]),
        ({"digest": None}, ["KB420"]),
        ({"digest": {"algorithm": "md5", "files": {}}}, ["KB421"]),
        ({"digest": {"algorithm": "sha256", "files": {"a": "b"}}}, ["KB421"]),
        (
            {"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "partial": {"left-out": ["8.0"]}}},
            ["KB434"],
        ),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "partial": {"left-out": []}}}, []),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "partial": "8.0"}}, []),
        (
            {"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "build-type": {"debug": "full"}}},
            ["KB436"],
        ),
        (
            {
                "provenance": {
                    "kernel-builder": {"version": "1"},
                    "kernel": CLEAN,
                    "build-type": {"sanitize": ["thread"]},
                }
            },
            ["KB436"],
        ),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "build-type": {"debug": 1}}}, []),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "build-type": "debug"}}, []),
        ({"provenance": None}, ["KB432"]),
        ({"provenance": {}}, ["KB430"]),
        ({"provenance": {"kernel-builder": {"version": "1", "commit": COMMIT}}}, ["KB430"]),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": {"commit": "abc", "dirty": False}}}, ["KB430"]),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT, "dirty": "no"}}}, ["KB430"]),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": {"commit": COMMIT, "dirty": True}}}, ["KB431"]),
        ({"provenance": {"kernel-builder": {"version": "1"}, "kernel": {"sha": COMMIT, "dirty": False}}}, []),
        ({"provenance": {"kernel-builder": {"version": "1"}}}, ["KB432"]),
    ],
)
def test_values(tmp_path: Path, changes: dict[str, Any], expected: list[str]) -> None:
    assert sorted(codes(variant(tmp_path, **changes), "KB41", "KB42", "KB43")) == expected


def test_an_id_that_is_no_identifier(tmp_path: Path) -> None:
    assert "KB412" in codes(variant(tmp_path, ops_id="_my-kernel"), "KB41")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, "{}".encode("utf-16")])
def test_metadata_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    """What follows from that alone is not told."""
    root = variant(tmp_path)
    (root / "metadata.json").write_bytes(content)
    assert codes(root, "KB2", "KB3", "KB4") == ["KB410"]
    (root / "_ops.py").write_text("import torch\nops = torch.ops._own\nother = torch.ops._own2.f\n", encoding="ascii")
    (root / "part.py").write_text("import torch\n\ntorch.ops._own.f(1)\ntorch.ops.foreign.f(1)\n", encoding="ascii")
    assert [found.symbol for found in findings(root, "KB208")] == ["foreign"]


def test_the_id_names_the_library_and_the_ops(tmp_path: Path) -> None:
    own = "_my_kernel_cuda_1a2b3c4"
    assert codes(variant(tmp_path / "a", ARCH, {f"{own}.abi3.so": b""}), "KB414") == []
    assert codes(variant(tmp_path / "b", ARCH, {"_my_kernel_cuda_0000000.abi3.so": b""}), "KB414") == ["KB414"]
    assert codes(variant(tmp_path / "c", ARCH), "KB414") == ["KB414"]
    ops = {"_ops.py": "import torch\nops = torch.ops._my_kernel_cuda_0000000\n"}
    assert [f.line for f in findings(variant(tmp_path / "d", files=ops), "KB414")] == [2]


def test_digests_file_by_file(tmp_path: Path) -> None:
    root = variant(tmp_path, files={"a.py": "", "b.py": "", "c.py": ""})
    (root / "a.py").write_text("changed = 1\n", encoding="utf-8")
    (root / "b.py").unlink()
    (root / "d.py").touch()
    (root / "metadata.json.sigstore").touch()
    found = [(f.symbol, f.message) for f in findings(root, "KB422")]
    assert found == [
        ("a.py", "does not match the digest"),
        ("b.py", "listed in the digest, but missing"),
        ("d.py", "not in the digest"),
    ]
    assert codes(root, "KB422", hash_files=False) == ["KB422", "KB422"]


def test_a_variant_disagrees_with_build_toml(tmp_path: Path) -> None:
    root = source(tmp_path, {})
    variant(root / "build")
    assert codes(root, "KB415") == []
    text = (root / "build.toml").read_text(encoding="utf-8")
    (root / "build.toml").write_text(text.replace("version = 1", "version = 2"), encoding="utf-8")
    assert [f.symbol for f in findings(root, "KB415")] == ["version"]


def test_variants_of_a_folder(tmp_path: Path) -> None:
    other = {"kernel-builder": {"version": "1"}, "kernel": {"commit": "f" * 40, "dirty": False}}
    variant(tmp_path, "torch-cuda")
    same = variant(tmp_path, "torch-rocm", backend={"type": "rocm"})
    assert codes(tmp_path, "KB440", "KB415") == []
    shutil.rmtree(same)
    variant(tmp_path, "torch-rocm", backend={"type": "rocm"}, provenance=other)
    assert codes(tmp_path, "KB440") == ["KB440"]
    variant(tmp_path, "torch-xpu", backend={"type": "xpu"}, version=2)
    assert codes(tmp_path, "KB415") == ["KB415"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [(ARCH, []), ("torch-cuda", []), ("torch-universal", ["KB402"]), ("torch213-cuda", ["KB401"]), ("x", ["KB401"])],
)
def test_names_of_variants(tmp_path: Path, name: str, expected: list[str]) -> None:
    assert codes(variant(tmp_path, name), "KB401", "KB402") == expected


def test_the_package_and_the_one_of_the_kernels_name(tmp_path: Path) -> None:
    def nested(text: str | None, flat: str = "__all__ = ['a']\n") -> list[str]:
        shutil.rmtree(tmp_path / "torch-cuda", ignore_errors=True)
        root = variant(tmp_path, files={"__init__.py": flat})
        if text is None:
            shutil.rmtree(root / "my_kernel")
        else:
            (root / "my_kernel/__init__.py").write_text(text, encoding="utf-8")
        return codes(root, "KB403", "KB404", "KB405")

    assert nested("from .. import *\n") == []
    assert nested("__all__ = ['a']\n") == []
    assert nested("__all__ = ['b']\n") == ["KB405"]
    assert nested(None) == ["KB404"]
    root = variant(tmp_path / "none")
    (root / "__init__.py").unlink()
    shutil.rmtree(root / "my_kernel")
    assert codes(root, "KB40") == ["KB403"]


def _link(target: str, name: str = "link.py") -> Callable[[Path], None]:
    return lambda root: (root / name).symlink_to(target)


def _loaded(root: Path, mode: py_compile.PycInvalidationMode = py_compile.PycInvalidationMode.TIMESTAMP) -> None:
    """What Python leaves when the kernel is loaded from where it was built."""
    py_compile.compile(str(root / "__init__.py"), doraise=True, invalidation_mode=mode)


def _loaded_then_changed(root: Path) -> None:
    _loaded(root)
    (root / "__init__.py").write_text("changed = 1\n")


def _fifo(root: Path) -> None:
    os.mkfifo(root / "pipe")


def _odd_name(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.py")).touch()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_link("__init__.py"), "KB453"),
        (_link("/etc/passwd"), "KB452"),
        (_link("nowhere"), "KB452"),
        (_link("my_kernel", "folder"), "KB452"),
        (_fifo, "KB454"),
        (_odd_name, "KB455"),
        (lambda root: (root / "new\nline.py").touch(), "KB455"),
        (lambda root: write(root, {"__pycache__/a.pyc": b""}), "KB451"),
        (lambda root: write(root, {"a.pyc": b""}), "KB451"),
        (lambda root: write(root, {"__pycache__/__init__.cpython-311.nbi": b"x"}), "KB451"),
        (_loaded, None),
        (lambda root: _loaded(root, py_compile.PycInvalidationMode.UNCHECKED_HASH), "KB451"),
        (_loaded_then_changed, "KB451"),
        (lambda root: write(root, {".DS_Store": b""}), "KB450"),
        (lambda root: write(root, {"kernel.o": b""}), "KB450"),
        (lambda root: write(root, {".git/config": b""}), "KB450"),
        (lambda root: write(root, {"configs/a [1],b.json": "{}", "LICENSE": "", "py.typed": ""}), None),
    ],
)
def test_files_that_do_not_belong(tmp_path: Path, make: Callable[[Path], object], expected: str | None) -> None:
    root = variant(tmp_path)
    make(root)
    assert codes(root, "KB45") == ([] if expected is None else [expected])


def test_files_that_only_some_systems_can_store(tmp_path: Path) -> None:
    root = variant(tmp_path)
    assert codes(root, "KB462") == []
    for name in ("aux.py", "__Init__.py", "notes: 1.txt"):
        (root / name).touch()
    assert sorted(f.message.partition(" cannot")[0] for f in findings(root, "KB462")) == [
        "'__init__.py'",
        "'aux.py'",
        "'notes: 1.txt'",
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (".env", "A=1\n", ["KB456"]),
        ("id_rsa", "", ["KB456"]),
        ("key.txt", "x\n-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow\n", ["KB456"]),
        ("use.py", "token = 'hf_" + "aBcDeFgHiJ" * 3 + "abcd'\n", ["KB456"]),
        ("use.py", "token = 'ghp_" + "0aBcDeFgHi" * 3 + "012345'\n", ["KB456"]),
        ("use.py", "key = 'AKIA" + "ABCDEFGHIJKLMNOP'\n", ["KB456"]),
        (".env.example", "A=\n", []),
        ("use.py", "hf_kernel_forward = 1\nghp_x = 'AKIA'\nPEM = '-----BEGIN PRIVATE KEY-----'\n", []),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nMIIE\n", []),
    ],
)
def test_secrets(tmp_path: Path, name: str, content: str, expected: list[str]) -> None:
    assert codes(variant(tmp_path, files={name: content}), "KB456") == expected


def test_limits_of_the_hub(tmp_path: Path) -> None:
    root = variant(tmp_path)
    with (root / "large.bin").open("wb") as file:
        file.truncate(51 * 10**9)
    for number in range(10_001):
        (root / "my_kernel" / f"{number}.json").touch()
    assert sorted(codes(root, "KB457", "KB458")) == ["KB457", "KB458"]
    assert codes(variant(tmp_path / "small"), "KB457", "KB458") == []


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\x01", b"", b"MZ", b"\xcf\xfa\xed\xfe"])
def test_nobody_reads_a_file_that_the_hub_does_not_take(tmp_path: Path, content: bytes) -> None:
    """Nearly a terabyte, and it is in the digest: every rule looks at it, and the loader would."""
    files = {"_my_kernel_cuda_1a2b3c4.abi3.so": content, "part.py": b"", "data.bin": b""}
    root = variant(tmp_path / "build", ARCH, files)
    for name in files:
        with (root / name).open("r+b") as file:
            file.truncate(900 * 10**9)
    begun = time.monotonic()
    report = check_paths([root], Settings(required=False, load=True))
    assert time.monotonic() - begun < 10
    found = {(finding.rule.code, finding.path.rpartition("/")[2]) for finding in report.findings}
    assert {("KB457", name) for name in files} | {("KB101", "_my_kernel_cuda_1a2b3c4.abi3.so")} <= found
    assert not {"KB421", "KB422"} & {code for code, _ in found}
    with pytest.raises(OSError, match="900 GB, but the Hub takes at most 50 GB"):
        ops_of_library(root / "_my_kernel_cuda_1a2b3c4.abi3.so")


def test_required_variants_that_are_missing(tmp_path: Path) -> None:
    root = source(tmp_path / "noarch", {}, backends='"cuda", "rocm"')
    variant(root / "build")
    (found,) = findings(root, "KB46", required=True)
    assert (found.rule.code, "torch-rocm" in found.message) == ("KB460", True)
    variant(root / "build", "torch-rocm", backend={"type": "rocm"})
    assert codes(root, "KB46", required=True) == []
    published = tmp_path / "published"
    variant(published / "build", ARCH, {"_my_kernel_cuda_1a2b3c4.abi3.so": b""})
    (missing,) = findings(published, "KB46", required=True)
    assert missing.rule.code == "KB461"
    assert "torch212-cxx11-cu130-x86_64-linux" in missing.message
    assert ARCH not in missing.message


def test_what_lies_beside_variants(tmp_path: Path) -> None:
    variant(tmp_path / "build")
    write(tmp_path / "build", {"CARD.md": "", "benchmarks/benchmark.py": ""})
    assert codes(tmp_path, "KB459") == []
    write(tmp_path / "build", {"old/_ops.py": ""})
    assert codes(tmp_path, "KB459") == ["KB459"]


COMPILED = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]

[kernel.main]
backend = "cpu"
depends = []
src = ["kernel.cpp"]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void f() { exit(1); }\n", ["KB470"]),
        ("#define CHECK(x) do { if (!(x)) { std::abort(); } } while (0)\n", ["KB470"]),
        ("void f() { ::_exit(1); std::terminate(); }\n", ["KB470"]),
        ('// exit(1)\n/* abort() */ const char *s = "exit(1)";\n', []),
        ("void f(G g) { g.exit(1); g->abort(); my::exit(2); early_exit(1); }\n", []),
        ("void exit(int code);\nvoid terminate(); void f() { terminate(); }\n", []),
    ],
)
def test_ends_of_the_process_in_c_plus_plus(tmp_path: Path, text: str, expected: list[str]) -> None:
    root = source(tmp_path, {}, toml=COMPILED)
    write(root, {"kernel.cpp": text})
    assert codes(root, "KB470") == expected


def test_a_rule_reads_metadata_with_its_line(tmp_path: Path) -> None:
    root = variant(tmp_path, name="Bad_Name")
    (found,) = findings(root, "KB412")
    assert found.line is not None
    assert "Bad_Name" in (root / "metadata.json").read_text(encoding="utf-8").splitlines()[found.line - 1]
    assert json.loads((root / "metadata.json").read_text(encoding="utf-8"))["name"] == "Bad_Name"


@pytest.mark.parametrize(
    ("name", "tool", "told"),
    [
        (ARCH, {"name": "CUDA", "version": "13.0"}, []),
        (ARCH, {"name": "CUDA", "version": "13.0.88"}, []),
        (ARCH, {"name": "CUDA", "version": "13.2"}, ["CUDA 13.2, but the directory is for CUDA 13.0"]),
        (ARCH, {"name": "torch", "version": "2.13.1"}, []),
        (ARCH, {"name": "torch", "version": "2.12.0"}, ["torch 2.12.0, but the directory is for torch 2.13"]),
        ("torch-stable-abi211-cu130-x86_64-linux", {"name": "torch", "version": "2.13.0"}, []),
        (
            "torch213-cxx11-rocm71-x86_64-linux",
            {"name": "ROCm", "version": "7.2"},
            ["ROCm 7.2, but the directory is for ROCm 7.1"],
        ),
        ("torch213-cxx11-xpu20260-x86_64-linux", {"name": "XPU", "version": "2026.0"}, []),
        ("tvm-ffi01-cpu-x86_64-linux", {"name": "tvm-ffi", "version": "0.1.15.post2"}, []),
        (
            "tvm-ffi01-cpu-x86_64-linux",
            {"name": "tvm-ffi", "version": "0.2.0"},
            ["tvm-ffi 0.2.0, but the directory is for tvm-ffi 0.1"],
        ),
        (ARCH, {"name": ["CUDA"], "version": 13}, []),
        (ARCH, "CUDA 12", []),
    ],
)
def test_a_variant_is_named_for_what_it_was_built_with(
    tmp_path: Path, name: str, tool: object, told: list[str]
) -> None:
    provenance = {"kernel-builder": {"version": "1"}, "kernel": CLEAN, "tools": [tool]}
    backend = {"type": next(one for one in ("cpu", "rocm", "xpu", "cuda") if one in f"{name}cuda")}
    root = variant(tmp_path, name, backend=backend, provenance=provenance)
    said = [finding.message for finding in findings(root, "KB415")]
    assert said == [f"it was built with {text}" for text in told]
