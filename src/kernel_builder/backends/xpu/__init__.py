"""The xpu backend: how its SYCL kernels are compiled, and where Intel's compiler comes from."""

from __future__ import annotations

from kernel_builder.backends.xpu.compile import SyclCompiler
from kernel_builder.backends.xpu.kind import OneapiToolkit


class Xpu(SyclCompiler):
    """See :class:`~kernel_builder.backends.protocol.BackendRules`."""

    toolkit = OneapiToolkit()
    has_torchs_own_headers = False


RULES = Xpu()
