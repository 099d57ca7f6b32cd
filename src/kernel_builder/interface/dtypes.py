"""Which dtypes a kernel's C++ code demands of its tensors, or its tests give them, by the names of the parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_builder.interface.native import ReadFile

_DTYPES = {
    **dict.fromkeys(("Float", "Float32", "F32", "float"), "torch.float32"),
    **dict.fromkeys(("Double", "Float64", "F64", "double"), "torch.float64"),
    **dict.fromkeys(("Half", "Float16", "F16", "__half", "half"), "torch.float16"),
    **dict.fromkeys(("BFloat16", "__nv_bfloat16", "nv_bfloat16"), "torch.bfloat16"),
    **dict.fromkeys(("Int", "Int32", "I32", "int", "int32_t"), "torch.int32"),
    **dict.fromkeys(("Long", "Int64", "I64", "long", "int64_t"), "torch.int64"),
    **dict.fromkeys(("Short", "Int16", "int16_t"), "torch.int16"),
    **dict.fromkeys(("Char", "Int8", "int8_t"), "torch.int8"),
    **dict.fromkeys(("Byte", "UInt8", "uint8_t"), "torch.uint8"),
    **dict.fromkeys(("Bool", "bool"), "torch.bool"),
}
"""Names of torch's C++ for dtypes, and types of C++, as Python calls them."""
_COMPARED = re.compile(
    r"\b(\w+)\s*(?:\.|->)\s*(?:scalar_type|dtype)\s*\(\s*\)\s*==\s*(?:\w+\s*::\s*)*k?([A-Z]\w*)\b(?!\s*(?:::|<))"
)
_TAKEN = re.compile(
    r"\b(\w+)\s*(?:\.|->)\s*(?:(?:const_|mutable_)?data_ptr)\s*<\s*(?:const\s+)?(?:\w+\s*::\s*)*(\w+)\s*>\s*\("
)


_GIVEN = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*torch\.\w+\([^\n#]*?\bdtype[ \t]*=[ \t]*([\w.]+)", re.MULTILINE)
_LARGEST = 1 << 20


def tested_dtypes(root: Path) -> Mapping[str, str]:
    """Name of a variable in the tests of the project in ``root`` -> the one dtype that they make such a tensor with."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / "tests").glob("test_*.py")):
        try:
            text = path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST else ""
        except (OSError, UnicodeDecodeError):
            continue
        for match in _GIVEN.finditer(text):
            found.setdefault(match[1], set()).add(match[2] if match[2] in _DTYPES.values() else "")
    return _settled(found)


def demanded_dtypes(files: Iterable[ReadFile]) -> Mapping[str, str]:
    """Name of a tensor -> the one dtype that all of the sources compare it with, or take its data as. Names that go
    with several dtypes are left out.
    """
    found: dict[str, set[str]] = {}
    for file in files:
        for pattern in (_COMPARED, _TAKEN):
            for match in pattern.finditer(file.native.bare):
                # Another type, of a template say, means that the dtype varies.
                found.setdefault(match[1], set()).add(_DTYPES.get(match[2], ""))
    return _settled(found)


def _settled(found: Mapping[str, set[str]]) -> dict[str, str]:
    return {name: next(iter(dtypes)) for name, dtypes in found.items() if len(dtypes) == 1 and "" not in dtypes}
