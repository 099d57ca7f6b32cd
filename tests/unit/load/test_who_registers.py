"""Who registered what, whenever it happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed in this environment")

pytestmark = pytest.mark.torch

KERNEL = """\
import torch

import bystander

made = torch.library.Library("aten", "IMPL")
made.impl("sinc", lambda x: x, "QuantizedXPU")
behind = torch._C._dispatch_library("IMPL", "aten", "", "elsewhere.cpp", 7)


def on_call():
    behind.impl("relu6", "QuantizedXPU", lambda x: x)
    bystander.on_call()


@torch.library.custom_op("kernel_own::f", mutates_args=())
def f(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


fallback = torch.library.Library("_", "IMPL")
fallback.fallback(lambda op, *values, **named: None, "AutogradPrivateUse3")
"""
BYSTANDER = """\
import torch

made = torch.library.Library("aten", "IMPL")
made.impl("hardswish", lambda x: x, "QuantizedXPU")
other = torch.library.Library("bystander", "DEF")
other.define("f(Tensor x) -> Tensor")


def on_call():
    made.impl("hardtanh", lambda x, a, b: x, "QuantizedXPU")
"""
RUN = """\
import json, sys
from kernel_builder.load.probe.registrations import Registrations
root, beside = sys.argv[1:]
seen = Registrations(root)
seen.watch()
sys.path += [root, beside]
import kernel
first = seen.foreign("kernel_own")
kernel.on_call()
print(json.dumps([first, seen.foreign("kernel_own")]))
"""


def test_what_changes_and_nobody_else_registers_is_the_kernels(tmp_path: Path) -> None:
    for name, text in (("root/kernel.py", KERNEL), ("beside/bystander.py", BYSTANDER)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="ascii")
    command = [sys.executable, "-c", RUN, str(tmp_path / "root"), str(tmp_path / "beside")]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    first, later = json.loads(completed.stdout.splitlines()[-1])
    assert first == [
        {"kind": "fallback", "namespace": "_", "name": "AutogradPrivateUse3", "place": "kernel.py:21"},
        {"kind": "kernel", "namespace": "aten", "name": "aten::sinc (QuantizedXPU)", "place": "kernel.py:6"},
    ]
    (new,) = [one for one in later if one not in first]
    assert (new["kind"], new["name"]) == ("kernel", "aten::relu6 (QuantizedXPU)")
