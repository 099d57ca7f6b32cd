"""Sources are proved by the real compilers, and what a proof finds is known to later builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import ProjectMaker, Result, Tool

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

VARIANT = "torch213-cxx11-cu130-x86_64-linux"
TOML = """\
[general]
name = "kk"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]

[torch]
src = []

[kernel.k]
backend = "cuda"
depends = ["torch"]
src = ["differs.cu", "host.cpp", "same.cpp", "fails.cpp"]
"""
# The header is small, and torch's; the macro is there with slim headers only.
DIFFERS = """\
#include <torch/headeronly/macros/Macros.h>
#ifdef AT_PER_OPERATOR_HEADERS
inline int value() { return 1; }
#else
inline int value() { return 2; }
#endif
static __global__ void add(int *x, int by) { x[threadIdx.x] += by; }
extern "C" void launch(int *x) { add<<<1, 32>>>(x, value()); }
"""
HOST = DIFFERS[: DIFFERS.index("static")].replace("value", "host_value") + "int host() { return host_value(); }\n"
SAME = "#include <torch/headeronly/macros/Macros.h>\nint same(int x) { return x; }\n"
FAILS = SAME.replace("int same", "#ifdef AT_PER_OPERATOR_HEADERS\n#error too slim\n#endif\nint fails")


def headers_of(root: Path) -> tuple[object, object]:
    provenance = json.loads((root / "build" / VARIANT / "metadata.json").read_text(encoding="utf-8"))["provenance"]
    return provenance.get("headers"), provenance.get("full-headers")


def test_host_code_that_differs_is_compiled_with_all_headers(tool: Tool, make_project: ProjectMaker) -> None:
    files = {"differs.cu": DIFFERS, "host.cpp": HOST, "same.cpp": SAME, "fails.cpp": FAILS}
    root = make_project("kk", files, toml=TOML)

    def build(*options: str) -> Result:
        result = tool("build", root, "--variant", VARIANT, "--arch", "9.0", "--no-load", *options)
        assert result.code == 0, result.stderr + result.stdout
        return result

    proved = build("--verify-slim")
    reason = "is compiled with torch's full headers: error: slim headers produce different host code:"
    assert f"differs.cu (host code) {reason} _Z5valuev differs" in proved.stderr
    assert f"host.cpp (host code) {reason} _Z10host_valuev differs" in proved.stderr
    assert "fails.cpp (host code) is compiled with torch's full headers: " in proved.stderr
    assert "#error too slim" in proved.stderr
    assert "same.cpp (host code)" not in proved.stderr
    assert headers_of(root) == ("verify", ["differs.cu", "fails.cpp", "host.cpp"])
    assert "full headers" not in build().stderr
    assert headers_of(root) == ("slim", ["differs.cu", "fails.cpp", "host.cpp"])
    build("--full-headers")
    assert headers_of(root) == (None, None)
