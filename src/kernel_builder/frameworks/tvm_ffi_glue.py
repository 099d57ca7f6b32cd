"""The generated ``_ops.py`` of tvm-ffi kernels. Reference: interoperability contract 3.3."""

from __future__ import annotations

from kernel_builder.frameworks.torch_glue import filled


def ops_module(ops_id: str, library: str) -> str:
    """``_ops.py`` of a kernel whose compiled functions are in the file ``library`` beside it."""
    return filled("ops_tvm_ffi.py", ops_id=ops_id, library=library)
