from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from kernel_builder.binary.elf import ElfError, Symbol, read_elf, read_leading_exports
from kernel_builder.toolchain.host import compiler_file, find_host_compiler
from kernel_builder.toolchain.stubs import write_stub

SOURCE = """
__attribute__((visibility("default"))) int data = 3;
__attribute__((visibility("hidden"))) int hidden(void) { return 1; }
__thread int local_to_thread;
extern int strange(void);
extern int maybe(void) __attribute__((weak));
extern int puts(const char *);
int function(void) { return strange() + hidden() + (maybe ? maybe() : 0) + puts("x"); }
"""


@pytest.fixture(scope="module", params=["bfd", "gold"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elf") / f"{request.param}.so"
    (path.parent / "a.c").write_text(SOURCE, encoding="ascii")
    rest = ["-Wl,-rpath,/some/where", "-Wl,-soname,libsample.so.1", "-o", str(path), str(path.parent / "a.c")]
    completed = subprocess.run(
        ["g++", "-x", "c", "-shared", "-fPIC", f"-fuse-ld={request.param}", *rest],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        pytest.skip(f"this machine has no {request.param} linker: {completed.stderr.strip()}")
    return path


def test_exports_undefined_names_and_run_paths_are_read(library: Path) -> None:
    elf = read_elf(library.read_bytes())
    assert elf.soname == "libsample.so.1"
    assert "libc.so.6" in elf.needed
    assert elf.run_paths == ("/some/where",)
    exports = {symbol.name: symbol for symbol in elf.exports}
    assert {"data", "function", "local_to_thread"} <= exports.keys()
    assert "hidden" not in exports
    assert (exports["data"].kind, exports["data"].size) == ("object", 4)
    assert exports["local_to_thread"].kind == "tls"
    undefined = {symbol.name: symbol for symbol in elf.undefined}
    assert undefined["strange"].version is None
    assert undefined["maybe"].binding == "weak"
    assert undefined["puts"].version is not None
    assert ("libc.so.6", undefined["puts"].version) in elf.required_versions()


def test_the_beginning_of_a_file_gives_the_same_exports(library: Path) -> None:
    data = library.read_bytes()
    whole = {(symbol.name, symbol.kind) for symbol in read_elf(data).exports}
    assert {(symbol.name, symbol.kind) for symbol in read_leading_exports(data[:0x2000])} >= whole


def test_program_headers_elsewhere_are_no_reason_to_read_on(library: Path) -> None:
    data = bytearray(library.read_bytes())
    data[32:40] = (1 << 29).to_bytes(8, "little")
    with pytest.raises(ElfError, match="read the whole file instead"):
        read_leading_exports(bytes(data))


@pytest.mark.parametrize("length", [0, 3, 63, 100, 0x238, 0x300])
def test_too_short_a_beginning_is_an_error_and_never_another_exception(library: Path, length: int) -> None:
    with pytest.raises(ElfError):
        read_leading_exports(library.read_bytes()[:length])
    with pytest.raises(ElfError):
        read_elf(library.read_bytes()[:length])


@pytest.mark.parametrize("data", [b"", b"not elf", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(64), bytes(100)])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ElfError):
        read_elf(data)


def test_the_c_library_agrees_with_an_independent_reader() -> None:
    path = compiler_file(find_host_compiler(os.environ), "libc.so.6", os.environ)
    mine = {(symbol.name, symbol.version, symbol.default) for symbol in read_elf(path.read_bytes()).exports}
    elf = ELFFile(io.BytesIO(path.read_bytes()))
    versions = elf.get_section_by_name(".gnu.version")
    definitions = elf.get_section_by_name(".gnu.version_d")
    assert isinstance(versions, GNUVerSymSection)
    assert isinstance(definitions, GNUVerDefSection)
    names = {}
    for definition, auxiliary in definitions.iter_versions():
        names[definition["vd_ndx"]] = next(auxiliary).name
    theirs = set()
    table = elf.get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    for index, symbol in enumerate(table.iter_symbols()):
        number = versions.get_symbol(index)["ndx"]
        if symbol["st_shndx"] == "SHN_UNDEF" or not symbol.name or not isinstance(number, int):
            continue
        version = names[number & 0x7FFF]
        if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol.name != version:
            theirs.add((symbol.name, version, not number & 0x8000))
    assert mine == theirs


def test_a_stub_offers_what_it_was_told_to(tmp_path: Path) -> None:
    symbols = (
        Symbol(name="plain"),
        Symbol(name="_ZN1a1bEv", binding="weak"),
        Symbol(name="table", kind="object", size=40),
        Symbol(name="per_thread", kind="tls", size=8),
        Symbol(name="old", version="LIB_1.0"),
        Symbol(name="new", version="LIB_2.0"),
    )
    path = tmp_path / "libthing.so"
    write_stub(path, soname="libthing.so.7", symbols=symbols, host=find_host_compiler(os.environ), environ=os.environ)
    elf = read_elf(path.read_bytes())
    assert elf.soname == "libthing.so.7"
    assert elf.needed == ()
    found = {symbol.name: symbol for symbol in elf.exports}
    assert set(found) == {symbol.name for symbol in symbols}
    assert (found["old"].version, found["new"].version, found["plain"].version) == ("LIB_1.0", "LIB_2.0", None)
    assert (found["table"].kind, found["table"].size, found["per_thread"].kind) == ("object", 40, "tls")
    assert found["_ZN1a1bEv"].binding == "weak"
