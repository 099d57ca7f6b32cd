"""The old C++ ABI: proving it, and linking for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kernel_builder.binary.elf import read_elf
from kernel_builder.frameworks.torch_glue import exports_map
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


def build(folder: Path, name: str, source: str, *options: str) -> Path:
    text, out = folder / f"{name}.cpp", folder / f"lib{name}.so"
    text.write_text(source)
    command = ["g++", "-shared", "-fPIC", "-O2", "-D_GLIBCXX_USE_CXX11_ABI=0", str(text), "-o", str(out), *options]
    subprocess.run(command, check=True)
    return out


def run(*libraries: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _LOAD, *map(str, libraries)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_libraries_can_pass_empty_strings_only_when_they_share_the_empty_one(tmp_path: Path) -> None:
    other = build(tmp_path, "other", _OTHER)
    script = tmp_path / "exports.map"
    script.write_text(exports_map(cxx11_abi=False).replace("PyInit_*", "run"))
    common = ("-nodefaultlibs", "-fno-gnu-unique", f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}")
    rest = ("-l:libstdc++.a", "-lother", "-lm", "-lgcc_s", "-lc", "-lgcc")
    apart = build(tmp_path, "apart", _OWN, *common, "-Wl,--exclude-libs,ALL", *rest)
    shared = build(tmp_path, "shared", _OWN, *common, f"-Wl,--version-script,{script}", *rest)
    assert run(other, apart).returncode != 0
    answer = run(other, shared)
    assert (answer.returncode, answer.stdout) == (0, "7\n"), answer.stderr
    elf = read_elf(shared.read_bytes())
    assert "libstdc++.so.6" not in elf.needed
    assert {symbol.name for symbol in elf.exports} == {"run", "_ZNSs4_Rep20_S_empty_rep_storageE"}
