"""Check elementwise kernels on a GPU against torch, then compare their bandwidth with that of torch.relu.

    python benchmarks/gpu_bandwidth.py examples/relu PATH/TO/PROJECT

Each PATH holds a ``build/`` with a CUDA variant for the torch in this environment; it is loaded with the
``kernels`` client. It is either ``examples/relu`` or a project as ``kernel-builder init`` writes it
(``x * factor``): both read every element once and write it once, as torch.relu does. A table goes to stdout.
The exit code is 1 if a kernel gives another answer than torch, or has less than ``--minimum-ratio`` times the
bandwidth of torch.relu, and 2 if it cannot be loaded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from kernels import get_local_kernel

Function = Callable[..., torch.Tensor]

CHECKED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
MEASURED = (torch.float32, torch.float16, torch.bfloat16)
SIZES = (0, 1, 2, 3, 7, 8, 9, 255, 4095, 4096, 4097, 65_537, 1_000_003, (1 << 24) + 5)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A loaded kernel: ``call(x)`` and ``call(x, out=...)``, and torch's way to the same result."""

    name: str
    path: str
    call: Function
    reference: Function


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Medians of one kernel and one dtype. Bandwidth counts bytes read and bytes written, in GB/s."""

    kernel: str
    dtype: str
    elements: int
    kernel_ms: float
    relu_ms: float
    kernel_gb_per_s: float
    relu_gb_per_s: float
    ratio: float


def load(path: Path) -> Kernel:
    """Load the CUDA variant below ``path``; raises FileNotFoundError where there is none for this torch."""
    module = get_local_kernel(path, backend="cuda")
    name = next(name for name in module.__all__ if name != "layers")
    reference = torch.relu if name == "relu" else lambda x: x * 2.0
    return Kernel(name=name, path=str(path), call=getattr(module, name), reference=reference)


def cases(dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Inputs that exercise every path through such a kernel, each with a name."""
    for size in SIZES:
        yield f"{size} elements", torch.randn(size, device="cuda", dtype=dtype)
    base = torch.randn(1_000_003, device="cuda", dtype=dtype)
    for offset in (1, 2, 3, 5, 8):
        yield f"view at offset {offset}", base[offset:]
    cube = torch.randn(33, 65, 129, device="cuda", dtype=dtype)
    yield "scalar", cube[0, 0, 0]
    yield "three dimensions", cube
    yield "transposed", cube.transpose(0, 2)
    yield "every second", cube[..., ::2]
    yield "expanded", cube[:, :1].expand(-1, 7, -1)
    yield "channels last", cube[None].contiguous(memory_format=torch.channels_last)
    special = [float("inf"), -float("inf"), float("nan"), 0.0, -0.0, torch.finfo(dtype).tiny]
    yield "special values", torch.tensor(special * 11, device="cuda", dtype=dtype)


def failures(kernel: Kernel) -> list[str]:
    """What this kernel gets wrong: one line each, none if it agrees with torch everywhere, bit for bit."""
    found: list[str] = []

    def compare(what: str, result: torch.Tensor, expected: torch.Tensor) -> None:
        try:
            torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True, check_stride=True)
        except AssertionError as error:
            found.append(f"{kernel.name}: {what}: {' '.join(str(error).split())}")

    for dtype in CHECKED:
        for name, x in cases(dtype):
            expected = kernel.reference(x)
            compare(f"{dtype}, {name}", kernel.call(x), expected)
            # With the input's alignment and with another one than the input's.
            for offset in (0, 1):
                out = torch.empty(x.numel() + offset, device="cuda", dtype=dtype)[offset:].view(x.shape)
                compare(f"{dtype}, {name}, out at {offset}", kernel.call(x, out=out), expected.contiguous())
        y = torch.randn(4099, device="cuda", dtype=dtype)
        expected = kernel.reference(y)
        compare(f"{dtype}, in place", kernel.call(y, out=y), expected)

    stream = torch.cuda.Stream()
    x = torch.randn(1 << 20, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # A kernel on another stream would now read y before it is written.
        torch.cuda._sleep(100_000_000)  # noqa: SLF001
        y = x + 1
        result = kernel.call(y)
    stream.synchronize()
    compare("on another stream", result, kernel.reference(x + 1))

    compiled = torch.compile(lambda x: kernel.call(x + 1) - 1, fullgraph=True)
    compare("torch.compile(fullgraph=True)", compiled(x), kernel.reference(x + 1) - 1)
    return found


def measure(kernel: Kernel, dtype: torch.dtype, *, elements: int, rounds: int) -> Measurement:
    """Time the kernel and torch.relu in turns on one tensor, and compare the medians."""
    x = torch.randn(elements, device="cuda", dtype=dtype)
    functions: tuple[Function, ...] = (kernel.call, torch.relu)
    times: tuple[list[float], ...] = ([], [])
    for round_number in range(rounds + 3):
        order = (0, 1) if round_number % 2 == 0 else (1, 0)
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in functions]
        # The GPU sleeps while Python enqueues, so that what lies between two events is the kernel alone.
        torch.cuda._sleep(10_000_000)  # noqa: SLF001
        for index in order:
            start, end = events[index]
            start.record()
            functions[index](x)
            end.record()
        torch.cuda.synchronize()
        if round_number >= 3:
            for index, (start, end) in enumerate(events):
                times[index].append(start.elapsed_time(end))
    kernel_ms, relu_ms = (statistics.median(each) for each in times)
    moved = 2 * x.numel() * x.element_size()
    return Measurement(
        kernel=kernel.name,
        dtype=str(dtype).removeprefix("torch."),
        elements=elements,
        kernel_ms=round(kernel_ms, 4),
        relu_ms=round(relu_ms, 4),
        kernel_gb_per_s=round(moved / kernel_ms / 1e6, 1),
        relu_gb_per_s=round(moved / relu_ms / 1e6, 1),
        ratio=round(relu_ms / kernel_ms, 4),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Check kernels against torch, and their bandwidth against torch.relu.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="project (or its build/) to load")
    parser.add_argument("--elements", type=int, default=1 << 28, help="elements to time (default 2^28)")
    parser.add_argument("--rounds", type=int, default=50, help="timed calls of each function (default 50)")
    parser.add_argument(
        "--minimum-ratio",
        type=float,
        default=0.97,
        help="least bandwidth, torch.relu's being 1 (default 0.97)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU here", file=sys.stderr)
        return 2
    try:
        kernels = [load(path) for path in arguments.paths]
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2

    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(f"{machine['gpu']}, torch {machine['torch']}, {arguments.elements} elements, {arguments.rounds} rounds")
    wrong = [line for kernel in kernels for line in failures(kernel)]
    for line in wrong:
        print(f"WRONG  {line}")
    if not wrong:
        print(f"all answers are torch's: {', '.join(kernel.name for kernel in kernels)}")

    print(f"{'kernel':<16}{'dtype':<10}{'ms':>9}{'GB/s':>9}{'relu ms':>9}{'GB/s':>9}{'ratio':>8}")
    measurements = []
    for kernel in kernels:
        for dtype in MEASURED:
            one = measure(kernel, dtype, elements=arguments.elements, rounds=arguments.rounds)
            measurements.append(one)
            verdict = "" if one.ratio >= arguments.minimum_ratio else f"  below {arguments.minimum_ratio}"
            print(
                f"{one.kernel:<16}{one.dtype:<10}{one.kernel_ms:>9.4f}{one.kernel_gb_per_s:>9.1f}"
                f"{one.relu_ms:>9.4f}{one.relu_gb_per_s:>9.1f}{one.ratio:>8.4f}{verdict}"
            )
    if arguments.json is not None:
        report = {
            **machine,
            "minimum_ratio": arguments.minimum_ratio,
            "failures": wrong,
            "measurements": [asdict(one) for one in measurements],
        }
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    slow = any(one.ratio < arguments.minimum_ratio for one in measurements)
    return 1 if wrong or slow else 0


if __name__ == "__main__":
    sys.exit(main())
