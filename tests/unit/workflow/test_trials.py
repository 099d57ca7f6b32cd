"""Trial compiles of smaller includes: how often one is done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine_actions import VARIANT, action, plan_of
from kernel_builder.engine.cache import ActionCache
from kernel_builder.workflow.trials import TrialCompiles


@pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")
def test_nothing_is_compiled_oftener_than_it_was_asked_to_be_measured(tmp_path: Path) -> None:
    one = action("a.cpp", "cd ..; echo . >> count; exec g++ -c a.cpp -o .kernel-builder/a.cpp.out")
    count = tmp_path / "project" / "count"
    plan = plan_of(tmp_path / "project", one)

    def tried(text: str, times: int) -> float:
        # Each time as another command would, which has nothing but the cache.
        trials = TrialCompiles(plan.places, os.environ, "inputs", ActionCache(tmp_path / "cache"))
        found = trials.of("a.cpp", text, {VARIANT: (one,)}, times=times)[VARIANT]
        return -1.0 if found.complaint is not None else found.seconds

    def done() -> int:
        return len(count.read_text(encoding="ascii").split())

    first = tried("int f() { return 1; }\n", 1)
    assert done() == 1
    least = tried("int f() { return 1; }\n", 2)
    assert done() == 2
    assert 0 < least <= first
    assert tried("int f() { return 1; }\n", 2) == tried("int f() { return 1; }\n", 1) == least
    assert done() == 2
    assert tried("int f() { return ; }\n", 2) == tried("int f() { return ; }\n", 2) == -1  # once: it will not do
    assert done() == 3
