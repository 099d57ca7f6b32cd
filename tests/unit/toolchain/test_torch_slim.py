"""Slim headers are torch's own, line by line, with what is optional behind macros."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.store.cache import Store
from kernel_builder.toolchain import torch_slim
from kernel_builder.toolchain.model import FrameworkSdk
from kernel_builder.toolchain.torch_slim import (
    DEFINITIONS,
    SLIM,
    definitions,
    is_proved,
    operators_of,
    provide_slim_headers,
    slim_headers,
    slim_sdk,
)

API = "torch/csrc/api/include"
GUARD = re.compile(r"#if (?:defined\(KERNEL_BUILDER_\w+\)(?: && )?)+\n(.*?)\n#endif\n", re.DOTALL)
HEADERS = {
    "ATen/ATen.h": "#pragma once\n#include <ATen/Functions.h>\n#include <ATen/NativeFunctions.h>\n",
    "ATen/Functions.h": """\
#pragma once
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
namespace at {
inline int
sum(int one) {
  return at::sum(one, 1);
}
}
""",
    "ATen/NativeFunctions.h": "#pragma once\n#include <ATen/ops/sum_native.h>\n",
    "ATen/ops/sum.h": "#pragma once\nnamespace at { inline int sum(int one, int other) { return one + other; } }\n",
    "ATen/ops/zeros.h": "#pragma once\nnamespace at { inline int zeros(int size) { return 0 * size; } }\n",
    "ATen/ops/zeros_symint.h": "",
    "ATen/ops/sum_native.h": "#pragma once\nnamespace at::native { inline int sum() { return 1; } }\n",
    f"{API}/torch/all.h": "#pragma once\n#include <torch/nn.h>\n#include <torch/types.h>\n",
    f"{API}/torch/nn.h": "#error nn\n",
    f"{API}/torch/types.h": """\
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/library.h>
namespace torch {
using namespace at;
}
""",
    f"{API}/torch/utils.h": "#pragma once\n#include <torch/csrc/api/include/torch/types.h>\n",
    "torch/library.h": "#pragma once\n#define TORCH_LIBRARY 1\n",
    "torch/script.h": "#pragma once\n#include <torch/csrc/api/include/torch/types.h>\n",
    "torch/csrc/autograd/generated/variable_factories.h": """\
#pragma once
#ifndef AT_PER_OPERATOR_HEADERS
#error every operator
#endif
#include <ATen/ops/zeros.h>
namespace torch {
inline int zeros(int size, int more) {
  return at::zeros(size) + more;
}
}
""",
}


def sdk(folder: Path) -> FrameworkSdk:
    for name, text in HEADERS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return FrameworkSdk(
        version="2.13.0", include=(folder, folder / API), libraries=folder, exports=(), identity="torch-2.13.0-1"
    )


def complaint(slim: Path, torch: FrameworkSdk, text: str) -> str:
    """What a compiler has against ``text``, with the definitions that its words ask for."""
    operators = operators_of(slim)
    assert operators is not None
    words = frozenset(re.findall(r"[A-Za-z_]\w*", text))
    command = ["g++", "-x", "c++", "-std=c++20", "-fsyntax-only", "-isystem", str(slim)]
    command += [f"-D{name}" for name in definitions(words, operators)]
    command += [word for path in torch.include for word in ("-isystem", str(path))]
    return subprocess.run([*command, "-"], input=text, text=True, capture_output=True, check=False).stderr


def test_a_source_gets_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    store, plain = Store(tmp_path / "store"), sdk(tmp_path / "torch")
    torch = slim_sdk(store, plain)
    assert torch.slim is not None
    assert operators_of(torch.slim) is None
    provide_slim_headers(store, plain)
    assert sorted(operators_of(torch.slim) or ()) == ["sum", "zeros"]
    include = "#include <torch/all.h>\n"
    fine = [
        "",
        "int a = at::sum(1) + torch::sum(1, 2);",
        "int a = torch::zeros(1, 2);",
        "int a = TORCH_LIBRARY;",
        "int a = at::native::sum();",
    ]
    assert [complaint(torch.slim, torch, include + text) for text in fine] == [""] * len(fine)
    # A name that no word of the source gives away is missing: the whole headers are for that.
    text = "#define GLUED(ONE, OTHER) ONE##OTHER\nint a = at::GLUED(su, m)(1, 2);"
    assert "is not a member of" in complaint(torch.slim, torch, include + text)
    both = "#include <torch/csrc/api/include/torch/types.h>\n#include <torch/script.h>\n"
    assert complaint(torch.slim, torch, include + both) == ""


def test_the_installed_torch_loses_nothing_but_its_heavy_parts() -> None:
    """With every macro defined, slim headers say what torch's say, but for a dozen includes."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed")
    include = Path(spec.origin).parent / "include"
    made = slim_headers(include)
    assert made is not None
    assert len(made.operators) > 1000
    for name in SLIM:
        original = (include / name).read_text(encoding="utf-8").splitlines()
        text = made.files[name.removeprefix(f"{API}/")]
        if name != "torch/script.h":
            assert GUARD.search(text) or name.endswith("all.h")
        kept = GUARD.sub(r"\1\n", text).splitlines()
        missing = [line for line in original if line not in set(kept)]
        assert all(re.match(r"#include <torch/", line) for line in missing), name
        assert kept == [line for line in original if line not in missing]


def test_equal_headers_have_one_place(tmp_path: Path) -> None:
    store, torch = Store(tmp_path / "store"), sdk(tmp_path / "torch")
    assert slim_sdk(store, torch) == slim_sdk(store, torch)
    (tmp_path / "torch" / "torch" / "script.h").unlink()
    provide_slim_headers(store, torch)  # a release that is not like those that are known
    slim = slim_sdk(store, torch).slim
    assert slim is not None
    assert operators_of(slim) == frozenset()


def test_only_what_was_proved_is_used_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rocm = Backend("rocm")
    proved = (
        {"torch": "2.12", "cxx": False},
        {"torch": "2.13", "cxx": True},
        {"torch": "2.12", "build": "rocm", "cxx": True},
    )
    monkeypatch.setattr(torch_slim, "_proved", lambda: proved)
    asked = ("2.13.0", "2.13.1", "2.12.0", "2.1.0", "2.130.0")
    assert [is_proved(release) for release in asked] == [True, True, True, False, False]
    assert [is_proved(release, cxx=True) for release in asked] == [True, True, False, False, False]
    assert [is_proved(release, build=rocm) for release in asked] == [False, False, True, False, False]
    assert [is_proved(release, build=rocm, cxx=True) for release in asked] == [False, False, True, False, False]
    assert set(DEFINITIONS) <= set(definitions(frozenset(), frozenset()))
