"""Which architectures ROCm kernels are compiled for, and what their sources become."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.actions.headers import Headers
from kernel_builder.actions.model import SLIM, Action, ActionKind
from kernel_builder.actions.slim import PLAINLY
from kernel_builder.backends.rocm.compile import RocmCompiler
from kernel_builder.binary import device_proof
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ConfigError
from kernel_builder.plan.model import BuildPlan
from kernel_builder.plan.slim import covers_cxx, uses_slim
from kernel_builder.toolchain.model import Toolkit, ToolkitSdk
from kernel_builder.toolchain.torch_slim import OPERATORS
from kernel_builder.variants.support import load_support
from planned import FILES, FOR_ROCM, GXX, ROCM_NAMES, STORE, TORCH, amd, make_plan

EVERY = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201")
"""Interoperability contract 2.8."""


def sdk(codes: Path | None = None) -> ToolkitSdk:
    return ToolkitSdk(
        toolkit=Toolkit(backend=Backend("rocm"), version="7.2"),
        compiler=Path("/rocm/clang++"),
        include=(),
        libraries=Path("/stubs"),
        exports=(),
        identity="rocm",
        gpu_codes=codes,
    )


def test_without_a_list_every_architecture_counts_that_the_compiler_knows(tmp_path: Path) -> None:
    rules, table = RocmCompiler(), load_support()
    assert rules.supported(sdk(), table) == EVERY
    assert rules.supported(None, table) == ()
    codes = tmp_path / "codes"
    codes.write_text("gfx90a\ngfx1100\ngfx600\n", encoding="ascii")
    assert rules.supported(sdk(codes), table) == ("gfx90a", "gfx1100")
    assert rules.unknown(("gfx90a", "gfx950"), sdk(codes)) == ("gfx950",)


@pytest.mark.parametrize(
    ("requested", "effective", "dropped"),
    [
        (None, tuple(sorted(EVERY)), ()),
        (("gfx942", "gfx90a"), ("gfx90a", "gfx942"), ()),
        (("gfx940", "gfx941", "gfx942"), ("gfx942",), ("gfx940", "gfx941")),
        (("gfx90a", "gfx90a"), ("gfx90a",), ()),
        (("gfx1151",), (), ("gfx1151",)),
    ],
)
def test_a_list_is_an_exact_intersection(
    requested: tuple[str, ...] | None, effective: tuple[str, ...], dropped: tuple[str, ...]
) -> None:
    selected = RocmCompiler().select(requested, EVERY)
    assert (selected.effective, selected.dropped) == (effective, dropped)


def planned(make_project: ProjectMaker, toml: str = FOR_ROCM, **files: str) -> BuildPlan:
    root = make_project("two-halves", {**FILES, **files}, toml=toml)
    return make_plan(root, ROCM_NAMES, GXX, toolkits=[amd()])


def actions(plan: BuildPlan, kind: ActionKind, source: str) -> list[Action]:
    (variant,) = plan.variants
    return [action for action in variant.actions if action.kind is kind and action.source == source]


def test_nothing_in_common_names_both_lists(make_project: ProjectMaker) -> None:
    toml = FOR_ROCM.replace('["gfx942", "gfx940", "gfx90a", "gfx1100"]', '["gfx1151", "gfx940"]')
    with pytest.raises(ConfigError) as caught:
        planned(make_project, toml)
    assert "kernel.amd.rocm-archs lists gfx1151, gfx940, but ROCm 7.2 builds for gfx906, gfx908" in caught.value.message


def test_cuda_sources_are_made_hip_with_the_headers_that_they_may_include(make_project: ProjectMaker) -> None:
    files = {"src/device.cu": '#include "a.cuh"\n', "src/a.cuh": '#include "../csrc/shared.h"\n'}
    plan = planned(make_project, FOR_ROCM, **files)
    (made,) = actions(plan, ActionKind.TRANSLATE, "src/device.cu")
    mirror = f"{{work}}/{ROCM_NAMES[0]}/hipified"
    assert made.outputs == tuple(f"{mirror}/{name}" for name in ("csrc/shared.h", "src/a.cuh", "src/device.cu"))
    (device, *_) = actions(plan, ActionKind.DEVICE, "src/device.cu")
    assert f"{mirror}/src/device.cu" in device.command
    words = list(device.command)
    assert words.index(f"-I{mirror}/src") + 1 == words.index("-I{project}/src")
    (own, *_) = actions(plan, ActionKind.DEVICE, "src/own.hip")
    assert "{project}/src/own.hip" in own.command
    assert not any("hipified" in word for word in own.command)


def test_hipify_comes_out_of_the_whole_package_where_headers_are_a_part_of_it(make_project: ProjectMaker) -> None:
    root = make_project("two-halves", FILES, toml=FOR_ROCM)
    apart = replace(TORCH, include=(STORE / "stable",), package=STORE / "torch")
    plan = make_plan(root, ROCM_NAMES, GXX, toolkits=[amd()], torch=apart)
    (made,) = actions(plan, ActionKind.TRANSLATE, "src/device.cu")
    assert "{store}/torch/utils/hipify" in made.command


def test_host_sources_get_the_definitions_and_none_of_the_devices_flags(make_project: ProjectMaker) -> None:
    (host,) = actions(planned(make_project), ActionKind.COMPILE, "src/launch.cc")
    assert {"-DROCM_KERNEL", "-DUSE_ROCM=1", "-D__HIP_PLATFORM_AMD__=1", "-DHIPBLAS_V2"} <= set(host.command)
    assert "-munsafe-fp-atomics" not in host.command
    (variant,) = planned(make_project).variants
    assert variant.metadata["backend"] == {"type": "rocm", "archs": ["gfx1100", "gfx90a", "gfx942"]}


def test_names_of_a_files_own_follow_its_place_in_the_project(make_project: ProjectMaker) -> None:
    plan = planned(make_project)
    found = {
        source: {word for action in actions(plan, kind, source) for word in action.command if word.startswith("-cuid=")}
        for kind in (ActionKind.DEVICE,)
        for source in ("src/device.cu", "src/own.hip")
    }
    assert all(len(words) == 1 for words in found.values())
    assert found["src/device.cu"] != found["src/own.hip"]


@pytest.mark.parametrize(("flags", "compressed"), [("", False), ('"--offload-compress", ', True)])
def test_compression_is_the_bundlers_affair(flags: str, compressed: bool, make_project: ProjectMaker) -> None:
    toml = FOR_ROCM.replace('"-munsafe-fp-atomics", "--offload-compress"', f'{flags}"-munsafe-fp-atomics"')
    plan = planned(make_project, toml)
    (bundle,) = actions(plan, ActionKind.BUNDLE, "src/device.cu")
    assert ("-compress" in bundle.command) is compressed
    for action in actions(plan, ActionKind.DEVICE, "src/device.cu"):
        assert "--offload-compress" not in action.command


@pytest.mark.parametrize("flag", ["-fgpu-rdc", "-fcuda-rdc", "--offload-arch=gfx90a"])
def test_flags_that_a_build_cannot_honour_are_told_in_build_toml(flag: str, make_project: ProjectMaker) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(make_project, FOR_ROCM.replace("-munsafe-fp-atomics", flag))
    assert [flag in diagnostic.render() for diagnostic in caught.value.diagnostics] == [True]


def test_a_build_to_be_tried_is_told_and_recorded(make_project: ProjectMaker) -> None:
    root = make_project("two-halves", FILES, toml=FOR_ROCM)
    plan = make_plan(root, ROCM_NAMES, GXX, toolkits=[amd("its parts are from everywhere")])
    (variant,) = plan.variants
    provenance = variant.metadata["provenance"]
    assert isinstance(provenance, dict)
    assert provenance["trial"] == {"reason": "its parts are from everywhere"}
    told = f"{ROCM_NAMES[0]}: built for trying out only, so upload refuses it: its parts are from everywhere"
    assert told in plan.warnings
    plain = make_plan(root, ROCM_NAMES, GXX, toolkits=[amd()])
    assert "trial" not in str(plain.variants[0].metadata)
    assert replace(plain, variants=()).warnings == ()


def slim_plan(root: Path, folder: Path, headers: Headers) -> BuildPlan:
    """A plan with slim headers in ``folder``, of a build of torch for ROCm."""
    (folder / OPERATORS).write_text("abs\nsum\n", encoding="ascii")
    torch = replace(TORCH, slim=folder, build=Backend("rocm"))
    return make_plan(root, ROCM_NAMES, GXX, toolkits=[amd()], headers=headers, torch=torch)


def test_slim_headers_come_before_torchs_and_all_headers_are_the_fallback(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    text = "#include <torch/all.h>\nat::Tensor f(at::Tensor t) { return at::abs(t); }\n"
    root = make_project("two-halves", {**FILES, "src/device.cu": text}, toml=FOR_ROCM)
    whole = slim_plan(root, tmp_path, Headers.FULL)
    proved = slim_plan(root, tmp_path, Headers.VERIFY)
    for kind in (ActionKind.DEVICE, ActionKind.COMPILE):
        plain, proof = (actions(plan, kind, "src/device.cu")[0] for plan in (whole, proved))
        assert plain.fallback == ()
        assert proof.fallback == plain.steps
        assert (proof.outputs, proof.inputs, proof.depfile) == (plain.outputs, plain.inputs, plain.depfile)
        *_, last = (step for step in proof.steps if step.writes == plain.outputs)
        words = list(last.command)
        at = words.index("-DKERNEL_BUILDER_OP_abs")
        assert words.index(str(tmp_path)) < at < words.index("{store}/torch/include")
        assert [word for word in words if word not in plain.command] == [str(tmp_path), *words[at - 1 : at + 1]]
        assert SLIM in {tree.name for tree in proof.trees}
        assert actions(proved, kind, "src/own.hip")[0] == actions(whole, kind, "src/own.hip")[0]
    device, host = (actions(proved, kind, "src/device.cu")[0] for kind in (ActionKind.DEVICE, ActionKind.COMPILE))
    full, _, same = device.steps
    assert same.reads == (*full.writes, *device.outputs)
    assert [step.command[-len(PLAINLY) :] == PLAINLY for step in host.steps] == [True, True, False, False]


def test_by_default_device_sources_of_a_proved_release_have_slim_headers(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    text = "#include <torch/all.h>\nat::Tensor f(at::Tensor t) { return at::abs(t); }\n"
    root = make_project("two-halves", {**FILES, "src/device.cu": text, "torch-ext/bind.cpp": text}, toml=FOR_ROCM)
    plans = {headers: slim_plan(root, tmp_path, headers) for headers in Headers}
    for kind in (ActionKind.DEVICE, ActionKind.COMPILE):
        whole, slim = (actions(plans[one], kind, "src/device.cu")[0] for one in (Headers.FULL, Headers.SLIM))
        assert (slim.fallback, whole.fallback) == (whole.steps, ())
        (step,) = slim.steps
        assert "-DKERNEL_BUILDER_OP_abs" in step.command
        assert (SLIM in str(slim.trees), SLIM in str(whole.trees)) == (True, False)
    # C++ sources wait for a proof of their own.
    bindings = [actions(plans[one], ActionKind.COMPILE, "torch-ext/bind.cpp")[0] for one in Headers]
    assert [bool(binding.fallback) for binding in bindings] == [one is Headers.VERIFY for one in Headers]
    used = [plans[one].variants[0].metadata["provenance"] for one in (Headers.SLIM, Headers.FULL)]
    assert [isinstance(told, dict) and told.get("headers") for told in used] == ["slim", None]


@pytest.mark.parametrize(("release", "used"), [("2.13.0", Headers.SLIM), ("2.12.1", Headers.FULL)])
def test_slim_headers_of_a_build_for_rocm_have_their_own_proof(release: str, used: Headers) -> None:
    torch = replace(TORCH, version=release)
    rocm = replace(torch, build=Backend("rocm"))
    assert uses_slim(Headers.SLIM, torch) is Headers.SLIM
    assert uses_slim(Headers.SLIM, rocm) is used
    assert uses_slim(Headers.SLIM, rocm, complete=True) is (Headers.VERIFY if used is Headers.SLIM else used)
    assert covers_cxx(Headers.SLIM, torch)
    assert not covers_cxx(Headers.SLIM, rocm)
    assert uses_slim(Headers.VERIFY, rocm) is Headers.VERIFY


@pytest.mark.parametrize(("other", "code"), [(b"code", 0), (b"cod", 1)])
def test_the_proof_of_device_code_wants_the_same_bytes(tmp_path: Path, other: bytes, code: int) -> None:
    (tmp_path / "full-k.co").write_bytes(b"code")
    (tmp_path / "k.co").write_bytes(other)
    command = [sys.executable, "-P", device_proof.__file__, "full-k.co", "k.co"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == code
    assert said.stderr == ("error: slim headers produce a different k.co\n" if code else "")
