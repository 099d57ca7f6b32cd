"""The host compiler that is fetched: which wheel is taken, when, and from where. The wheels hold a script."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.store.offline import OfflineError
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import Purpose, Rejected, build_machine
from kernel_builder.toolchain.model import Family, HostCompiler, Toolkit
from kernel_builder.toolchain.provide import purpose_of
from kernel_builder.toolchain.zig import ZigCompilers
from kernel_builder.variants.names import Machine

PLAIN = Purpose(torch="2.13")


def for_cuda(version: str) -> Purpose:
    toolkit = Toolkit(backend=Backend("cuda"), version=version)
    return purpose_of(ToolchainRequest(torch="2.13", machine=Machine.X86_64, toolkit=toolkit), toolkit_kinds())


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
