"""The include path of a stable variant holds the headers of the stable ABI, and nothing else of torch's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainError
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.model import FrameworkSdk
from kernel_builder.toolchain.stable_headers import provide_stable_headers, stable_sdk

HEADERS = {
    "torch/all.h": "",
    "ATen/ATen.h": "",
    "torch/headeronly/version.h": "#define HEADERONLY 1\n",
    "torch/csrc/stable/library.h": "#include <torch/headeronly/version.h>\n",
    "torch/csrc/inductor/aoti_torch/c/shim.h": "",
    "torch/csrc/inductor/aoti_torch/utils.h": "",
}


def torch_in(folder: Path, headers: dict[str, str]) -> FrameworkSdk:
    for name, text in headers.items():
        path = folder / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return FrameworkSdk(
        version="2.13.0",
        include=(folder / "include", folder / "api"),
        libraries=folder / "stubs",
        exports=(),
        identity=tree_identity([], [folder / "include"]),
    )


def accepts(include: Path, header: str) -> bool:
    """Whether a compiler finds ``header`` (and all that it includes)."""
    return not subprocess.run(
        ["g++", "-x", "c++", "-fsyntax-only", "-isystem", str(include), "-"],
        input=f"#include <{header}>\n",
        text=True,
        capture_output=True,
        check=False,
    ).returncode


def test_stable_headers_stand_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    torch = torch_in(tmp_path / "torch", HEADERS)
    stable = stable_sdk(store, torch)
    provide_stable_headers(store, torch)
    (include,) = stable.include
    assert accepts(include, "torch/csrc/stable/library.h")
    assert accepts(include, "torch/csrc/inductor/aoti_torch/c/shim.h")
    for other in ("torch/all.h", "ATen/ATen.h", "torch/csrc/inductor/aoti_torch/utils.h"):
        assert accepts(torch.include[0], other)
        assert not accepts(include, other)
    assert (stable.libraries, stable.version) == (torch.libraries, torch.version)


def test_a_torch_that_is_changed_in_place_gets_new_headers(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    torch = torch_in(tmp_path / "torch", HEADERS)
    before = stable_sdk(store, torch)
    torch = torch_in(tmp_path / "torch", {"torch/headeronly/version.h": "#define HEADERONLY 2\n"})
    assert stable_sdk(store, torch) != before
    provide_stable_headers(store, torch)
    text = (stable_sdk(store, torch).include[0] / "torch/headeronly/version.h").read_text(encoding="ascii")
    assert text == "#define HEADERONLY 2\n"


def test_any_header_that_changes_in_place_is_copied_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    torch = torch_in(tmp_path / "torch", HEADERS)
    provide_stable_headers(store, torch)
    before = stable_sdk(store, torch)
    torch = torch_in(tmp_path / "torch", {"torch/csrc/stable/library.h": "#define LIBRARY 2\n"})
    provide_stable_headers(store, torch)
    after = stable_sdk(store, torch)
    assert after.identity != before.identity
    assert (after.include[0] / "torch/csrc/stable/library.h").read_text(encoding="ascii") == "#define LIBRARY 2\n"


def test_a_release_without_a_stable_abi_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    torch = torch_in(tmp_path / "torch", {"torch/all.h": ""})
    with pytest.raises(ToolchainError, match=r"torch 2\.13\.0 has no stable ABI"):
        provide_stable_headers(store, torch)
