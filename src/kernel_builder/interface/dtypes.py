"""Which dtypes a kernel's C++ code demands of its tensors, by the names of the parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    return {name: next(iter(dtypes)) for name, dtypes in found.items() if len(dtypes) == 1 and "" not in dtypes}
