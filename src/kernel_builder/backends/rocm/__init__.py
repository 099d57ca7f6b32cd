"""The rocm backend: how its kernels are compiled, and where ROCm toolkits come from."""

from __future__ import annotations

from kernel_builder.backends.rocm.compile import RocmCompiler
from kernel_builder.backends.rocm.kind import RocmToolkit


class Rocm(RocmCompiler):
    """See :class:`~kernel_builder.backends.protocol.BackendRules`."""

    toolkit = RocmToolkit()
    has_torchs_own_headers = False


RULES = Rocm()
