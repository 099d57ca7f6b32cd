"""The words of an error, out of all that a dying process wrote."""

from __future__ import annotations

import pytest

from kernel_builder.load.cause import cause_of, without_native_frames

FRAMES = """\
Exception raised from checkSchema at /src/aten/OperatorEntry.cpp:98 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7fdf in /env/libc10.so)
frame #1: <unknown function> + 0x1bce79e (0x7fda in /env/libtorch_cpu.so)
<omitting python frames>
frame #39: <unknown function> + 0x2724a (0x7fdf in /lib/libc.so.6)
"""
SCHEMA = """\
Inferred operator schema for a C++ kernel function doesn't match the expected function schema.
  operator: _k::f
  expected schema: _k::f(Tensor x, float n) -> Tensor
    registered at bind.cpp:6
  inferred schema: (Tensor _0, int _1) -> Tensor _0
    registered at bind.cpp:6
  reason: Type mismatch in argument 2: float vs int."""


THROWN = "terminate called after throwing an instance of"
CASES = {
    f"a warning\n{THROWN} 'c10::Error'\n  what():  {SCHEMA}\n{FRAMES}\n": f"c10::Error: {SCHEMA}",
    f"{THROWN} 'torch::jit::ErrorReport'\n  what():  \nunknown:\nf(flot n)\n  ~~~~ <--- HERE\n": (
        "torch::jit::ErrorReport: unknown:\nf(flot n)\n  ~~~~ <--- HERE"
    ),
    f"{THROWN} 'int'\n": "int",
    f"libc++abi: terminating due to uncaught exception of type c10::Error: {SCHEMA}\n{FRAMES}": f"c10::Error: {SCHEMA}",
    'noise\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: one\ntwo\n': (
        "ValueError: one\ntwo"
    ),
    "noise\nFatal Python error: Aborted\n\nThread 1:\n": "Fatal Python error: Aborted\n\nThread 1:",
    "nothing known\n": "nothing known",
    "": "",
}


@pytest.mark.parametrize("written", CASES)
def test_the_cause_is_the_exception(written: str) -> None:
    assert cause_of(written) == CASES[written]


def test_frames_are_dropped_wherever_they_stand() -> None:
    captured = (
        "words\nC++ CapturedTraceback:\n#4 c10::Error::Error(std::string) from ??:0\n#5 main from a.cpp:3\nmore\n"
        "  # 4 is a number"
    )
    assert without_native_frames(captured) == "words\nmore\n  # 4 is a number"
    assert without_native_frames(f"{SCHEMA}\n{FRAMES}") == SCHEMA
