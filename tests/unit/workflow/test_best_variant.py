"""Which variant ``test``, ``watch``, ``bench`` and shells work on where none is named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import load_project
from kernel_builder.events import Silent
from kernel_builder.load.client import Environment
from kernel_builder.store.cache import Store
from kernel_builder.variants.names import Abi
from kernel_builder.workflow.environments import EnvironmentRequest, Here, best_variant
from kernel_builder.workflow.run import Run


def best(root: Path, tmp_path: Path, torch: str, python: str, **options: object) -> str:
    active = Environment(
        python=Path(python),
        torch=torch,
        toolkits={Backend("cpu"): "", Backend("cuda"): "13.0"},
        devices={},
        abi=Abi.CXX11,
    )
    run = Run(environ=os.environ, store=Store(tmp_path / "store"), reporter=Silent())
    request = EnvironmentRequest(root=root, **options)  # type: ignore[arg-type]
    return best_variant(load_project(root)[0], request, Here(active=active, devices={}), run).name.split("-")[0]


@pytest.mark.torch
def test_the_torch_at_hand_comes_first_whether_or_not_the_hub_asks_for_it(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    root = make_project("at-hand", {"a.cpp": ""})
    pytest.importorskip("kernels")
    for torch, variant in (("2.12.1", "torch212"), ("2.14.1+cu130", "torch214"), ("2.5.1", "torch213")):
        assert best(root, tmp_path, torch, sys.executable) == variant, torch
    # It lacks what tests need; it is not to be used; another variant was named.
    assert best(root, tmp_path, "2.14.1", "/nowhere/python") == "torch213"
    assert best(root, tmp_path, "2.14.1", sys.executable, isolated=True) == "torch213"
    assert best(root, tmp_path, "2.14.1", sys.executable, patterns=("torch212-*",)) == "torch212"
