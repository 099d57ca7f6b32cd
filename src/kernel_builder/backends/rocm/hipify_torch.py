"""A program: makes ROCm's headers of torch beside CUDA's, in place, with torch's own hipify.

    python -I hipify_torch.py HIPIFY INCLUDE

``HIPIFY`` is the directory ``torch/utils/hipify`` of the release, ``INCLUDE`` its directory of headers. hipify gets
what torch's own build gives it: c10, ATen's parts for CUDA, and torch's own headers. Imports nothing of kernel-builder.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_FOLDERS = (
    *("c10/cuda", "ATen/cuda", "ATen/native/cuda", "ATen/native/cudnn", "ATen/native/nested/cuda"),
    *("ATen/native/quantized/cudnn", "ATen/native/sparse/cuda", "ATen/native/transformers/cuda", "THC", "torch"),
)
_CONFIG, _MADE = "ATen/cuda/CUDAConfig.h", "ATen/hip/HIPConfig.h"
_VALUES = {"AT_CUDNN_ENABLED": "0", "AT_CUSPARSELT_ENABLED": "0", "AT_ROCM_ENABLED": "1"}
_FLAGS = "NVCC_FLAGS_EXTRA"


def main(argv: Sequence[str]) -> int:
    """Run it; the exit code."""
    package, folder = argv
    include = Path(folder).resolve()
    sys.path.insert(0, str(Path(package).parent))
    hipify = importlib.import_module(f"{Path(package).name}.hipify_python")
    with contextlib.redirect_stdout(io.StringIO()):
        hipify.hipify(
            project_directory=str(include),
            output_directory=str(include),
            includes=[f"{include}/{name}/*" for name in _FOLDERS],
            ignores=["*/hip/*", f"{include}/ATen/core/*", f"{include}/{_CONFIG}"],
            show_progress=False,
            hip_clang_launch=True,
        )
    text = (include / _CONFIG).read_text(encoding="utf-8")
    for name, value in _VALUES.items():
        text = re.sub(rf"(#\s*define\s+{name}\(\)\s+).*", rf"\g<1>{value}", text)
    text = re.sub(rf"(#\s*define\s+{_FLAGS}\s+).*", r'\g<1>""', text)
    (include / _MADE).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
