"""Which headers of torch a source includes before it says anything else."""

from __future__ import annotations

import pytest

from kernel_builder.frameworks.protocol import HEAVY, first_headers
from kernel_builder.frameworks.torch import RULES


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#include <torch/all.h>\n", ["torch/all.h"]),
        ("#include <torch/all.h>", ["torch/all.h"]),
        ("\n// a\n/* b\n#include <ATen/ATen.h>\n*/ #  include <torch/all.h> // c\nint x;", ["torch/all.h"]),
        ("#include <torch/library.h>\r\n\r\n#include <torch/all.h>\r\n", ["torch/library.h", "torch/all.h"]),
        ("#include <torch/all.h>\n#include <ATen/cuda/CUDAContext.h>\n#include <ATen/ATen.h>\n", ["torch/all.h"]),
        ('#include <torch/all.h>\n#include "own.h"\n#include <ATen/ATen.h>\n', ["torch/all.h"]),
        # What comes before may change what they say, or what is found.
        ("#define NDEBUG\n#include <torch/all.h>\n", []),
        ("#pragma once\n#include <torch/all.h>\n", []),
        ("#if 1\n#include <torch/all.h>\n#endif\n", []),
        ("#include <vector>\n#include <torch/all.h>\n", []),
        ('#include "own.h"\n#include <torch/all.h>\n', []),
        ("int x;\n#include <torch/all.h>\n", []),
        # A file of the project may have that name.
        ('#include "torch/all.h"\n', []),
        # Comments that go on, or do not.
        ("// a \\\n#include <torch/all.h>\n", []),
        ("// a \\ \n#include <torch/all.h>\n", []),
        ("/* #include <torch/all.h>\n*/\n", []),
        ("/* a\n#include <torch/all.h>\n", []),
        ("#include <torch/all.h> /* b */ #include <ATen/ATen.h>\n", ["torch/all.h"]),
        ("#include <torch/all.h> int x;\n", []),
        ("#include <torch/extension.h>\n", []),
        ("\ufeff#include <torch/all.h>\n", []),
        ("", []),
    ],
)
def test_only_what_nothing_comes_before_is_first(text: str, names: list[str]) -> None:
    marks = RULES.marks_of(text.encode())
    assert list(first_headers(marks)) == names
    assert (HEAVY in marks) == any(name in text for name in ("torch/all.h", "ATen/ATen.h", "torch/extension.h"))
