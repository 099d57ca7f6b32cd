#!/bin/sh
# The benchmark of builds on a machine without a network: torch, nvcc, CMake and ninja are what is installed there.
#
#     benchmarks/device.sh KERNEL... [options of builds.py]
#
# Needs nothing but this checkout. Python packages that the machine lacks (kernel-builder's own, scikit-build-core) come
# from wheels in .whl/, where that folder is there: pip download -d .whl --only-binary=:all: PACKAGE...
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT INT TERM
if [ -d "$here/.whl" ]; then
    "$python" -m pip install -q --no-index --no-deps --upgrade --target "$site" "$here"/.whl/*.whl
fi
# As pip does with what it installs; what is measured writes no bytecode.
"$python" -m compileall -q "$here/src"
export PYTHONPATH="$here/src:$site${PYTHONPATH:+:$PYTHONPATH}" PATH="$site/bin:$PATH"
export KERNEL_BUILDER_SOURCES="${KERNEL_BUILDER_SOURCES:-local}"
# Where local sources look for torch.
VIRTUAL_ENV=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[4])')
export VIRTUAL_ENV
echo "$(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg), $("$python" -c 'import torch; print("torch", torch.__version__)')"
"$python" "$here/benchmarks/builds.py" --output "${OUT:-$here/benchmark-results}" "$@"
