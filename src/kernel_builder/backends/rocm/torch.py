"""torch's headers for ROCm, made of those of a CUDA build of the same release by that release's own hipify.

PyTorch's ROCm builds are made so from the same sources, so this serves where no index with such a build is at hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kernel_builder.backends.rocm import hipify_torch
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.link_tables import read_table, table_of, write_table

_SECONDS = 300
_TYPES = {
    "11CUstream_st": "12ihipStream_t",
    "10CUevent_st": "11ihipEvent_t",
    "9cudaError": "10hipError_t",
    "14cudaDeviceProp": "20hipDeviceProp_tR0600",
    "17cudaIpcMemHandle_st": "18hipIpcMemHandle_st",
    "13CUgraphExec_st": "12hipGraphExec",
    "10CUgraph_st": "8ihipGraph",
}
"""Types of CUDA's in mangled names, and HIP's in their place. What is not among them, hipify 2 leaves as it is."""
_IN_NAMES = re.compile("|".join(map(re.escape, _TYPES)))


class RocmTorch:
    """See :class:`~kernel_builder.toolchain.kinds.TorchMaker`."""

    def make(self, version: str, entry: Path, environ: Mapping[str, str]) -> None:
        """See :class:`~kernel_builder.toolchain.kinds.TorchMaker`."""
        hipify = entry / "utils" / "hipify"
        if not (hipify / "hipify_python.py").is_file():
            raise ToolchainError(f"torch {version} has no hipify, with which its headers for ROCm would be made")
        program = [sys.executable, "-I", "-B", hipify_torch.__file__, str(hipify), str(entry / "include")]
        try:
            subprocess.run(
                program,
                capture_output=True,
                text=True,
                errors="replace",
                check=True,
                timeout=_SECONDS,
                stdin=subprocess.DEVNULL,
                env=dict(environ),
            )
        except (OSError, subprocess.SubprocessError) as error:
            said = str(getattr(error, "stderr", None) or error).strip().splitlines()
            complaint = said[-1] if said else "it exited without output"
            raise ToolchainError(
                f"the headers of torch {version} for ROCm cannot be made: {complaint}",
                hint="set an index with PyTorch's ROCm builds in kernel-builder.toml",
            ) from error
        for soname in ("libc10_hip.so", "libtorch_hip.so"):
            symbols = read_table(table_of(entry, soname))
            write_table(entry, soname, (replace(one, name=renamed(one.name)) for one in symbols))


def renamed(name: str) -> str:
    """A mangled name of a CUDA build as a ROCm build has it."""
    return _IN_NAMES.sub(lambda match: _TYPES[match[0]], name)
