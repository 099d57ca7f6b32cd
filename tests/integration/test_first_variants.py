"""The twelve variants that were recommended first: each is planned, or it is said what is missing and how to get it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ProjectMaker, Tool

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

TOML = """\
[general]
name = "older"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
src = ["bind.cpp"]

[kernel.device]
backend = "cuda"
depends = ["torch"]
src = ["device.cu"]
"""
FIRST = {
    f"torch{release}-{abi}-{compute}-x86_64-linux"
    for release, toolkits in (("25", ("cu118", "cu121", "cu124")), ("26", ("cu118", "cu124", "cu126")))
    for compute in toolkits
    for abi in ("cxx11", "cxx98")
}


def test_each_is_planned_or_says_what_is_missing(tool: Tool, make_project: ProjectMaker) -> None:
    root: Path = make_project("older", {"bind.cpp": "int a;\n", "device.cu": "__global__ void k() {}\n"}, toml=TOML)
    result = tool("build", root, "--set", "legacy", "--dry-run", "--json")
    answer = json.loads(result.stdout)
    planned = {variant["name"]: variant["toolchain"] for variant in answer["variants"]}
    missing = {entry["name"]: entry for entry in answer["unavailable"]}
    assert planned.keys() | missing.keys() == FIRST
    assert not planned.keys() & missing.keys()
    for name, toolchain in planned.items():
        digits = name.split("-")[2].removeprefix("cu")
        assert toolchain["cuda"] == f"{digits[:-1]}.{digits[-1]}"
        assert toolchain["torch"].startswith(f"2.{name[6]}.")
    for name, entry in missing.items():
        assert entry["reason"].startswith(("no source has ", "no C++ compiler ")), (name, entry)
        assert entry["remedy"].startswith(("set ", "install ", "name an index ")), (name, entry)
