"""The cuda backend: how its kernels are compiled, and where CUDA toolkits come from."""

from __future__ import annotations

from kernel_builder.backends.cuda.compile import CudaCompiler
from kernel_builder.backends.cuda.kind import CudaToolkit


class Cuda(CudaCompiler):
    """See :class:`~kernel_builder.backends.protocol.BackendRules`."""

    toolkit = CudaToolkit()
    has_torchs_own_headers = True


RULES = Cuda()
