"""The old C++ ABI: proving it, and linking for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.elf import read_elf
from kernel_builder.toolchain.host import find_host_compiler
from kernel_builder.toolchain.sysroot import sysroot_at, write_sysroot
from kernel_builder.toolchain.torch_abi import prove_abi
from kernel_builder.variants.names import Abi

_RUNTIME = ("_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendERKS4_", "_ZNSs6appendERKSs", "_ZSt4endl")


def test_names_of_torch_itself_prove_its_abi() -> None:
    new = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    assert prove_abi([new, *_RUNTIME]) is Abi.CXX11
    assert prove_abi(["_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", *_RUNTIME]) is Abi.CXX98


def test_what_the_runtime_exports_proves_nothing() -> None:
    assert prove_abi([]) is None
    assert prove_abi([*_RUNTIME, "_ZN3c1010get_deviceEv"]) is None
    assert prove_abi(["_ZN3c101fERKSs", "_ZN3c101gENSt7__cxx1112basic_stringIcE"]) is None


_OTHER = """
#include <string>
std::string kept;
void take(std::string text) { kept = std::move(text); }  // leaves an empty string, of this library, to the caller
"""
_OWN = """
#include <string>
void take(std::string text);
extern "C" int run() { take("a text that is long enough not to be stored in place"); return 7; }
"""
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(ctypes.CDLL(sys.argv[2]).run())"


@pytest.fixture(scope="module")
def sysroot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sysroot")
    write_sysroot(directory, find_host_compiler())
    return directory


def build(folder: Path, name: str, source: str, *options: str) -> Path:
    text, out = folder / f"{name}.cpp", folder / f"lib{name}.so"
    text.write_text(source)
    command = ["g++", "-shared", "-fPIC", "-O2", "-D_GLIBCXX_USE_CXX11_ABI=0", str(text), "-o", str(out), *options]
    subprocess.run(command, check=True)
    return out


def run(*libraries: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _LOAD, *map(str, libraries)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_libraries_can_pass_empty_strings_only_with_one_runtime(sysroot: Path, tmp_path: Path) -> None:
    cxx = sysroot_at(sysroot).cxx
    assert cxx is not None
    other = build(tmp_path, "other", _OTHER)
    common = ("-nodefaultlibs", f"-L{cxx}", f"-L{tmp_path}", "-Wl,--exclude-libs,ALL", f"-Wl,-rpath,{tmp_path}")
    rest = ("-lother", "-lm", "-lgcc_s", "-lc", "-lgcc")
    static = build(tmp_path, "static", _OWN, *common, "-l:libstdc++.a", *rest)
    shared = build(tmp_path, "shared", _OWN, *common, "-l:libstdc++.so.6", "-l:libstdc++.a", *rest)
    assert run(other, static).returncode != 0
    answer = run(other, shared)
    assert (answer.returncode, answer.stdout) == (0, "7\n"), answer.stderr


def test_the_shared_runtime_is_of_the_floors_age(sysroot: Path) -> None:
    cxx = sysroot_at(sysroot).cxx
    assert cxx is not None
    limits = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
    exports = read_elf((cxx / "libstdc++.so.6").read_bytes()).exports
    versions = {symbol.version for symbol in exports if symbol.version is not None}
    assert len(exports) > 3000
    for version in versions:
        family, _, number = version.partition("_")
        assert tuple(map(int, number.split("."))) <= limits[family]
