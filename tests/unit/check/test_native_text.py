"""What sources say to the preprocessor, told before a compiler or a linker stumbles over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_trees import compiled_toml, findings, source, write

TOML = compiled_toml("torch-ext/torch_binding.cpp", "my_kernel_cpu/op.cpp") + 'include = ["headers"]\n'


def kernel(root: Path, op: str, **files: str) -> Path:
    source(root, {}, toml=TOML)
    others = {
        "headers/listed.h": "",
        "headers/deep/listed.h": "",
        "csrc/always.h": "",
        "torch-ext/torch_binding.h": "",
        "my_kernel_cpu/beside.h": "",
        "cuda/elsewhere.h": "",
        "third_party/lib/include/lib/core.h": "",
    }
    return write(root, {"torch-ext/torch_binding.cpp": "", "my_kernel_cpu/op.cpp": op, **others, **files})


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("gone.h", "add the file to the project"),
        ("elsewhere.h", 'it is in cuda; add that directory to the section: include = ["cuda"]'),
        ("cuda/elsewhere.h", 'it is in the project\'s top; add that directory to the section: include = ["."]'),
        ("lib/core.h", 'include = ["third_party/lib/include"]'),
        ("../elsewhere.h", "is it cuda/elsewhere.h?"),
        ("other/listed.h", "is it headers/deep/listed.h or headers/listed.h?"),
        ("besides.h", "did you mean my_kernel_cpu/beside.h?"),
        ("gone/deep/x.cuh", "add the file to the project"),
        ("Listed.h", "did you mean headers/"),
    ],
)
def test_a_header_that_is_nowhere_that_compilers_look(tmp_path: Path, path: str, hint: str) -> None:
    root = kernel(tmp_path, f'#include "listed.h"\n  #  include "{path}" // why\n')
    (one,) = findings(root, "KB210")
    assert (one.path, one.line, one.symbol) == (f"{tmp_path}/my_kernel_cpu/op.cpp", 2, path)
    assert one.hint is not None
    assert hint in one.hint


def test_a_header_that_a_header_includes(tmp_path: Path) -> None:
    root = kernel(tmp_path, '#include "beside.h"\n', **{"my_kernel_cpu/beside.h": '#pragma once\n#include "gone.h"\n'})
    assert [(one.path, one.line) for one in findings(root, "KB210")] == [(f"{tmp_path}/my_kernel_cpu/beside.h", 2)]


@pytest.mark.parametrize(
    "line",
    [
        *(f'#include "{path}"' for path in ("listed.h", "deep/listed.h", "always.h", "torch_binding.h", "beside.h")),
        '#include "../headers/listed.h"',
        '#include "registration.h"',
        '#include "../torch-ext/registration.h"',
        *(f'#include "{path}"' for path in ("torch/all.h", "ATen/ATen.h", "c10/util/Half.h", "cub/cub.cuh", "vector")),
        *(f'#include "{path}"' for path in ("cuda_runtime.h", "cuda_fp16.h", "cublas_v2.h", "cuda/std/array", "mma.h")),
        *(f'#include "{path}"' for path in ("hip/hip_runtime.h", "sycl/sycl.hpp", "Metal/Metal.hpp", "cutlass/half.h")),
        *(f'#include "{path}"' for path in ("math.h", "arm_neon.h", "immintrin.h", "omp.h", "sys/mman.h", "Python.h")),
        "#include <gone.h>",
        "#include NAMED",
        '#if 0\n#include "gone.h"\n#endif',
        '#ifdef USE_GONE\n#include "gone.h"\n#endif',
        '#if __has_include("gone.h")\n#include "gone.h"\n#endif',
        '#ifdef __CUDACC__\n#else\n#include "gone.h"\n#endif',
        '// #include "gone.h"\n/*\n#include "gone.h"\n*/',
        'const char *text = R"(\n#include "gone.h"\n)";',
        '#include_next "gone.h"',
    ],
)
def test_headers_that_are_found_or_may_be(tmp_path: Path, line: str) -> None:
    assert not findings(kernel(tmp_path, line + "\n"), "KB210")


@pytest.mark.parametrize(
    "line",
    [
        "#define _GLIBCXX_USE_CXX11_ABI 0",
        "#undef _GLIBCXX_USE_CXX11_ABI\n  # define _GLIBCXX_USE_CXX11_ABI (0)",
        "#define _GLIBCXX_DEBUG",
        "#define TORCH_EXTENSION_NAME mine",
        "#define Py_LIMITED_API 0x030d0000",
    ],
)
@pytest.mark.parametrize("place", ["my_kernel_cpu/op.cpp", "headers/listed.h"])
def test_macros_of_the_build_in_sources(tmp_path: Path, line: str, place: str) -> None:
    root = kernel(tmp_path, '#include "listed.h"\n')
    (root / place).write_text(f"{line}\n")
    (one,) = findings(root, "KB211")
    assert (one.path, one.line) == (f"{tmp_path}/{place}", 1 + line.count("\n"))
    assert one.hint is not None
    assert one.hint.startswith("remove it")


@pytest.mark.parametrize(
    "line",
    [
        "#ifndef _GLIBCXX_USE_CXX11_ABI\n#define _GLIBCXX_USE_CXX11_ABI 0\n#endif",
        "#ifndef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME mine\n#endif",
        "#ifdef OLD\n#define _GLIBCXX_USE_CXX11_ABI 0\n#endif",
        "#define MY_DEBUG 1",
        "// #define _GLIBCXX_DEBUG",
    ],
)
def test_macros_that_sources_may_define(tmp_path: Path, line: str) -> None:
    assert not findings(kernel(tmp_path, line + "\n"), "KB211")
