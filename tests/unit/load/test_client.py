"""What a torch can load, told from the facts about it; and how the probe asks a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.version import Version

from kernel_builder.config.backends import Backend
from kernel_builder.load.child import platform_of
from kernel_builder.load.client import Environment, find_environment, why_not_loadable
from kernel_builder.load.confinement import Sandbox
from kernel_builder.load.evidence import LoadedOp, LoadResult, LoadStatus
from kernel_builder.load.probe.facts import devices
from kernel_builder.load.proofs import Proofs
from kernel_builder.variants.names import Abi, Machine, Platform, System, parse_variant

LINUX = Platform(machine=Machine.X86_64, system=System.LINUX)


def environment(toolkits: dict[str, str] | None = None, *, devices: dict[str, int] | None = None) -> Environment:
    """An environment of torch 2.13, with these backends besides the host's."""
    return Environment(
        python=Path("/env/bin/python"),
        torch="2.13.0",
        toolkits={Backend("cpu"): ""} | {Backend(name): version for name, version in (toolkits or {}).items()},
        devices={Backend(name): count for name, count in (devices or {}).items()},
        abi=Abi.CXX11,
        platform=LINUX,
    )


@pytest.mark.parametrize(
    ("variant", "toolkits", "reason"),
    [
        ("torch213-cxx11-cpu-x86_64-linux", {}, None),
        ("torch-cpu", {}, None),
        ("torch213-cxx11-cu130-x86_64-linux", {"cuda": "13.0"}, None),
        ("torch213-cxx11-cu130-x86_64-linux", {"cuda": "13.2"}, None),
        ("torch213-cxx11-cpu-x86_64-linux", {"cuda": "13.2"}, None),
        ("torch213-cxx11-cu130-x86_64-linux", {}, "it needs torch with CUDA, but torch 2.13.0 is installed here"),
        ("torch213-cxx11-cu130-x86_64-linux", {"rocm": "7.1"}, "it needs torch with CUDA"),
        (
            "torch213-cxx11-cu132-x86_64-linux",
            {"cuda": "13.0"},
            "it needs CUDA 13.2, but torch 2.13.0 is installed here",
        ),
        ("torch213-cxx11-cu126-x86_64-linux", {"cuda": "13.0"}, "it needs CUDA 12.6"),
        ("torch213-cxx11-rocm71-x86_64-linux", {"rocm": "7.1.25424"}, None),
        ("torch213-cxx11-rocm71-x86_64-linux", {"rocm": "7.2.53211-e1a6bc5663"}, "it needs ROCm 7.1, but torch 2.13.0"),
        ("torch213-cxx11-rocm71-x86_64-linux", {"cuda": "13.0"}, "it needs torch with ROCm"),
        ("torch213-cxx11-xpu20260-x86_64-linux", {"xpu": "20260000"}, None),
        ("torch213-cxx11-xpu20253-x86_64-linux", {"xpu": "20250302"}, None),
        ("torch213-cxx11-xpu20253-x86_64-linux", {"xpu": "20260000"}, "it needs XPU 2025.3"),
        ("torch-cann", {}, "it needs torch with CANN"),
        ("torch212-cxx11-cpu-x86_64-linux", {}, "it needs torch 2.12"),
        ("torch213-cxx98-cpu-x86_64-linux", {}, "it needs the cxx98 ABI"),
        ("torch-stable-abi214-cpu-x86_64-linux", {}, "it needs torch 2.14 or newer"),
        ("torch213-cxx11-cpu-aarch64-linux", {}, "it is built for aarch64-linux"),
    ],
)
def test_why_a_variant_cannot_be_loaded(variant: str, toolkits: dict[str, str], reason: str | None) -> None:
    found = why_not_loadable(parse_variant(variant), environment(toolkits))
    assert found is None if reason is None else (found or "").startswith(reason)


def test_devices_are_there_unless_a_driver_says_otherwise() -> None:
    here = environment(devices={"cuda": 0})
    assert not here.has_device(Backend("cuda"))
    assert here.has_device(Backend("cpu"))
    assert here.has_device(Backend("xpu"))
    assert environment(devices={"cuda": 2}).has_device(Backend("cuda"))


LOADED = LoadResult(status=LoadStatus.LOADED, ops=(LoadedOp(name="my::op", keys=("CPU",)),))


def test_a_proof_holds_for_all_that_loaded_it(tmp_path: Path) -> None:
    def seen(size: int) -> dict[str, object]:
        return {"files": {"/env/torch/version.py": [[33188, 7, size, 1, 1], None], "/env/none": None}}

    here = replace(environment({"cuda": "13.0"}), seen=seen(10), environ={"CUDA_HOME": "/a", "SSH_AUTH_SOCK": "/1"})
    proofs = Proofs(tmp_path / "proofs")
    proofs.keep(here.proof_key("print"), LOADED)
    assert Proofs(tmp_path / "proofs").recall(here.proof_key("print")) == LOADED
    # What loading is not told of does not count.
    assert proofs.recall(replace(here, environ={"CUDA_HOME": "/a"}).proof_key("print")) == LOADED
    for other in (
        replace(here, toolkits={**here.toolkits, Backend("cuda"): "13.2"}),
        replace(here, toolkits={}),
        replace(here, devices={Backend("cuda"): 1}),
        replace(here, python=Path("/other/bin/python")),
        replace(here, torch="2.13.1"),
        replace(here, client="2"),
        replace(here, seen=seen(11)),
        replace(here, seen=None),
        replace(here, environ={"CUDA_HOME": "/b"}),
        replace(here, sandbox=Sandbox(program=Path("/usr/bin/bwrap"))),
    ):
        assert proofs.recall(other.proof_key("print")) is None
    assert proofs.recall(here.proof_key("another")) is None


def test_proofs_are_few_and_damaged_ones_are_none(tmp_path: Path) -> None:
    proofs = Proofs(tmp_path / "proofs", most=2)
    for number, name in enumerate("abc"):
        proofs.keep([name], LOADED)
        file = max((tmp_path / "proofs").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        os.utime(file, (number, number))
    assert [proofs.recall([name]) is not None for name in "abc"] == [False, True, True]
    proofs.keep(["failed"], replace(LOADED, status=LoadStatus.FAILED))
    assert proofs.recall(["failed"]) is None
    for file in (tmp_path / "proofs").glob("*.json"):
        file.write_text("[]", encoding="ascii")
    assert proofs.recall(["b"]) is None
    locked = Proofs(tmp_path / "proofs" / "file.json" / "below")
    (tmp_path / "proofs" / "file.json").write_text("", encoding="ascii")
    locked.keep(["a"], LOADED)  # it only saves time
    assert locked.recall(["a"]) is None


def test_the_python_is_looked_for_with_the_variables_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    seen = tmp_path / "seen"
    answer = (
        '{"problem": null, "torch": "2.13.0+x", "versions": {"cuda": "13.0", "hip": null, "xpu": ""},'
        ' "plugins": ["torch_npu"],'
        ' "devices": {"cuda": 1}, "client": "1", "tvm_ffi": "", "cxx11": true, "paths": [], "free_threaded": false,'
        ' "rests_on": {"files": [], "folders": []}}'
    )
    python.write_text(f"#!/bin/sh\nprintf '%s' \"$TZ$HIDDEN\" > {seen}\necho 'kernel-builder-probe: {answer}'\n")
    python.chmod(0o755)
    monkeypatch.setenv("HIDDEN", "from the process")
    environ = {"VIRTUAL_ENV": str(tmp_path / "env"), "TZ": "given", "PATH": os.defpath}
    found = find_environment(None, environ)
    assert isinstance(found, Environment)
    assert (found.python, found.torch, found.environ) == (python, "2.13.0+x", environ)
    wanted = {"cann": "", "cpu": "", "cuda": "13.0"} | (
        {"metal": ""} if platform_of(python).system is System.DARWIN else {}
    )
    assert (found.toolkits, found.devices) == (wanted, {"cuda": 1})
    assert seen.read_text() == "given"


@pytest.mark.parametrize(("status", "count"), [(0, 3), (100, 0)])
def test_a_driver_is_asked_by_the_names_that_come_in_the_request(tmp_path: Path, status: int, count: int) -> None:
    library = tmp_path / f"libdriver-{status}.so"  # libraries are known by their paths, which come again
    code = f"int start(unsigned flags) {{ return {status}; }} int number(int *count) {{ *count = 3; return 0; }}"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=code, text=True, check=True)
    assert devices({"library": str(library), "init": "start", "count": "number"}) == count
    assert devices({"library": str(tmp_path / "none.so"), "init": "start", "count": "number"}) == 0


@pytest.mark.parametrize(
    "toolkits",
    [
        {},
        {"cuda": "13.0"},
        {"rocm": "7.2.53211-e1a6bc5663"},
        {"xpu": "20250302"},
        {"xpu": "20260000"},
        {"cuda": "13.0", "neuron": ""},
        {"cuda": "12.6", "tpu": ""},
    ],
    ids=str,
)
def test_the_backend_and_the_variants_are_those_that_the_client_takes(
    toolkits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backends = pytest.importorskip("kernels.backends")
    variants = pytest.importorskip("kernels.variants")
    monkeypatch.setattr(backends, "has_torch", True)
    monkeypatch.setitem(sys.modules, "torch", like_a_torch(toolkits))
    here = environment(toolkits)
    selected = backends._select_backend(None)
    assert here.default_backend == selected.name
    for compute in ("cpu", "cu126", "cu130", "cu132", "rocm71", "rocm72", "xpu20253", "xpu20260"):
        name = f"torch213-cxx11-{compute}-x86_64-linux"
        accepted, _ = variants._resolve_variant_for_system(
            [variants.parse_variant(name)], selected, "x86_64", "linux", Version("2.13"), True, None
        )
        ours = parse_variant(name)
        if ours.backend == here.default_backend:
            assert (why_not_loadable(ours, here) is None) == bool(accepted), name
        else:
            assert not accepted


def like_a_torch(toolkits: dict[str, str]) -> ModuleType:
    """As much of torch as the client looks at."""
    torch = ModuleType("torch")
    attributes = {"cuda": "cuda", "rocm": "hip", "xpu": "xpu"}
    versions = {attribute: toolkits.get(name) for name, attribute in attributes.items()}
    vars(torch)["version"] = SimpleNamespace(**versions)
    vars(torch)["backends"] = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False))
    vars(torch)["_C"] = SimpleNamespace()
    if "tpu" in toolkits:
        vars(torch)["backends"].tpu = object()
    if "neuron" in toolkits:
        vars(torch)["neuron"] = object()
    return torch
