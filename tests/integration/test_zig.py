"""The host compiler that is fetched: which wheel is taken, when, and from where. The wheels hold a script, except in
the test of a machine without any compiler.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from conftest import CPU, ROOT, ProjectMaker, Tool
from kernel_builder.backends import toolkit_kinds
from kernel_builder.binary.elf import read_elf
from kernel_builder.config.backends import Backend
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.offline import OfflineError
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.debian import apt_mirrors
from kernel_builder.toolchain.host import Purpose, Rejected, build_machine
from kernel_builder.toolchain.model import Family, HostCompiler, Toolkit
from kernel_builder.toolchain.provide import purpose_of
from kernel_builder.toolchain.zig import ZigCompilers
from kernel_builder.variants.names import Machine

BARE = """\
#include <sstream>
#include <stdexcept>
#include <string>
std::string shown(double value) {
  std::ostringstream out;
  out << value;
  if (out.str().empty()) throw std::runtime_error("nothing");
  return out.str();
}
"""
PLAIN = Purpose(release="2.13")


def for_cuda(version: str) -> Purpose:
    toolkit = Toolkit(backend=Backend("cuda"), version=version)
    return purpose_of(ToolchainRequest(release="2.13", machine=Machine.X86_64, toolkit=toolkit), toolkit_kinds())


def publish(index: LoopbackIndex, version: str, clang: str, **more: str) -> None:
    """A wheel whose ``zig`` answers as that clang does."""
    answers = {
        "*--version": f"clang version {clang}",
        "*-dumpversion": clang,
        "*-dumpmachine": f"{build_machine()}-unknown-linux-gnu",
        "*-dM*": "#define _GLIBCXX_RELEASE 12",
    }
    cases = "".join(f"{pattern}) echo '{answer}';; " for pattern, answer in answers.items())
    files = {
        "ziglang/zig": f'#!/bin/sh\ncase "$*" in {cases}*) exit 1;; esac\n'.encode(),
        "ziglang/lib/include/immintrin.h": b"",
        "ziglang/lib/libcxx/include/vector": b"not taken",
    }
    data = make_wheel("ziglang", version, files, executable=("ziglang/zig",), **more)  # type: ignore[arg-type]
    index.add(f"ziglang-{version}-py3-none-manylinux_2_12_{build_machine()}.whl", data)


@pytest.fixture
def server() -> Iterator[LoopbackIndex]:
    with serve() as index:
        publish(index, "0.15.2", "20.1.2")
        publish(index, "0.16.0", "21.1.0")
        publish(index, "0.17.1", "22.1.8")
        yield index


def compilers(server: LoopbackIndex, root: Path, **changes: object) -> ZigCompilers:
    found = ZigCompilers(
        indexes=[SimpleIndex(server.settings(), Silent())],
        store=Store(root),
        reporter=Silent(),
        environ={"PATH": os.environ["PATH"]},
        machine=build_machine(),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def provided(found: HostCompiler | Rejected) -> HostCompiler:
    assert isinstance(found, HostCompiler), found
    return found


def test_it_is_a_clang_in_the_store_with_its_tools_and_no_more_of_the_wheel(
    server: LoopbackIndex, tmp_path: Path
) -> None:
    host = provided(compilers(server, tmp_path).provide(PLAIN))
    assert str(host) == "clang++ 22.1.8 (ziglang 0.17.1)"
    assert (host.family, host.library, host.machine) == (Family.CLANG, 12, build_machine())
    (package,) = host.packages
    entry = Store(tmp_path).path(package.key)
    assert host.cxx.parent == entry / "bin"
    assert {path.name for path in host.cxx.parent.iterdir()} >= {"ld", "ar", "as", host.cxx.name}
    assert sorted(path.name for path in (entry / "ziglang" / "lib").iterdir()) == ["include"]
    assert package.artefacts[0].record_sha256 is not None
    assert not any((tmp_path / "parts").iterdir())


def test_what_is_in_the_store_is_used_without_asking_and_renewed_on_demand(
    server: LoopbackIndex, tmp_path: Path
) -> None:
    first = provided(compilers(server, tmp_path).provide(PLAIN))
    publish(server, "0.17.2", "22.1.9")
    before = len(server.requests)
    assert compilers(server, tmp_path).provide(PLAIN) == first
    assert compilers(server, tmp_path, offline=True).provide(PLAIN) == first
    assert len(server.requests) == before
    assert provided(compilers(server, tmp_path).provide(PLAIN, fresh=True)).version == "22.1.9"
    assert provided(compilers(server, tmp_path).provide(PLAIN)).version == "22.1.9"


def test_what_the_lock_lists_is_used_whatever_else_there_is(server: LoopbackIndex, tmp_path: Path) -> None:
    old = provided(compilers(server, tmp_path / "elsewhere").provide(for_cuda("13.1")))
    compilers(server, tmp_path).provide(PLAIN)
    locked = old.packages[0].artefacts
    assert provided(compilers(server, tmp_path).provide(PLAIN, locked=locked)).version == "21.1.0"
    other = [replace(locked[0], sha256="0" * 64)]
    with pytest.raises(IntegrityError, match="is not the file that was locked"):
        compilers(server, tmp_path / "third").provide(PLAIN, locked=other)


def test_a_toolkit_gets_the_newest_that_it_accepts(server: LoopbackIndex, tmp_path: Path) -> None:
    assert provided(compilers(server, tmp_path).provide(PLAIN)).version == "22.1.8"
    assert provided(compilers(server, tmp_path).provide(for_cuda("13.0"))).version == "20.1.2"
    assert provided(compilers(server, tmp_path / "other").provide(for_cuda("13.2"))).version == "21.1.0"
    refused = compilers(server, tmp_path).provide(for_cuda("11.8"))
    assert isinstance(refused, Rejected)
    assert "newer clang than 14" in refused.reason


def test_where_there_is_none_it_is_said_what_to_do(server: LoopbackIndex, tmp_path: Path) -> None:
    with pytest.raises(OfflineError, match=r"ziglang>=0\.11 is not in the store") as offline:
        compilers(server, tmp_path, offline=True).provide(PLAIN)
    assert "toolchain fetch --host-compiler zig" in str(offline.value.hint)
    server.pages.clear()
    with pytest.raises(ToolchainError, match=r"no package index has ziglang>=0\.11: the package index has no project"):
        compilers(server, tmp_path).provide(PLAIN)
    with pytest.raises(ToolchainError, match="no index is among the sources"):
        compilers(server, tmp_path, indexes=[]).provide(PLAIN)


def test_a_wheel_that_lies_leaves_nothing(server: LoopbackIndex, tmp_path: Path) -> None:
    server.pages.clear()
    publish(server, "0.17.1", "22.1.8", lie_about="ziglang/zig")
    with pytest.raises(IntegrityError):
        compilers(server, tmp_path).provide(PLAIN)
    assert [path for path in Store(tmp_path).entries.iterdir() if path.name.startswith("ziglang")] == []


SYSTEM = Path("/usr/lib") / f"{build_machine()}-linux-gnu"


def without_compilers(folder: Path, *seen: Path) -> list[str]:
    """A command before another that runs it on a machine without compilers, linkers, and their headers and libraries:
    with this Python, the C library, a shell and ``seen`` alone.
    """
    libraries = folder / "lib"
    libraries.mkdir()
    for path in SYSTEM.glob("*.so.*"):
        if path.is_file():
            (libraries / path.name).symlink_to(Path("/system") / path.name)
    words = ["bwrap", "--dev", "/dev", "--proc", "/proc", "--tmpfs", tempfile.gettempdir()]
    words += ["--ro-bind", "/etc", "/etc"]
    words += ["--ro-bind", str(SYSTEM), "/system", "--ro-bind", str(libraries), str(SYSTEM)]
    for name in ("sh", "env", "gpgv"):
        program = shutil.which(name)
        assert program is not None
        words += ["--ro-bind", str(Path(program).resolve()), f"/usr/bin/{name}"]
    words += ["--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    words += ["--symlink", f"usr/lib/{SYSTEM.name}", "/lib64"]
    words += ["--ro-bind", "/usr/share/keyrings", "/usr/share/keyrings", "--setenv", "PATH", "/usr/bin"]
    paths = {Path(sys.base_prefix), Path(sys.prefix), ROOT, *(Path(path) for path in sys.path if Path(path).is_dir())}
    for path in sorted({*paths, *seen}):
        words += ["--bind" if path in seen else "--ro-bind", str(path), str(path)]
    return words


@pytest.mark.network
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bwrap (bubblewrap)")
@pytest.mark.skipif(shutil.which("gpgv") is None or not apt_mirrors(), reason="needs gpgv and a mirror of Debian")
def test_a_machine_without_any_compiler_builds(
    tool: Tool, session_store: Path, make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("bare", {"a.cpp": BARE, "c.c": "int c(void) { return 1; }\n"})
    session_store.mkdir(parents=True, exist_ok=True)
    before = without_compilers(tmp_path, session_store, root)
    shell = "command -v g++ gcc cc clang clang++ ld as ar; echo /usr/include* /usr/lib/gcc*"
    looked = subprocess.run([*before, "/bin/sh", "-c", shell], capture_output=True, text=True, check=False)
    if "/usr/include" not in looked.stdout:
        pytest.skip(f"bwrap does not work here: {looked.stderr}")
    assert looked.stdout == "/usr/include* /usr/lib/gcc*\n"  # a pattern that nothing matches
    command = [sys.executable, "-m", "kernel_builder", "build", str(root), "--variant", CPU, "--no-load", "--json"]
    built = subprocess.run([*before, *command], capture_output=True, text=True, env=tool.environment, check=False)
    assert built.returncode == 0, built.stderr
    (variant,) = json.loads(built.stdout)["variants"]
    assert sorted(variant["compiled"]) == ["a.cpp", "c.c"]
    (entry,) = (session_store / "store").glob("clang-*")
    assert "--sysroot=" in (entry / f"{build_machine()}-linux-gnu-clang++").read_text(encoding="ascii")
    (library,) = (root / "build" / CPU).glob("*.so")
    needed = {name for name in read_elf(library.read_bytes()).needed if not name.startswith("ld-linux")}
    assert needed <= {"libtorch.so", "libgcc_s.so.1", "libc.so.6", "libm.so.6"}
