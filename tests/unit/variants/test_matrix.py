"""Which variants a project has, and why it has not the others (interoperability contract 2.5 and 2.6)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import BackendOptions, Framework, FrameworkKind, Project, Section
from kernel_builder.variants.matrix import Matrix, all_variants, choose, unmatched, variants_of_any, why_not_compiled
from kernel_builder.variants.names import ArchVariant, Platform, System, parse_variant
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.versions import Version

LINUX = Platform.parse("x86_64-linux")
TABLE = load_support()


def project(
    *backends: Backend,
    compiled: tuple[Backend, ...] | None = None,
    kind: FrameworkKind = FrameworkKind.TORCH,
    bounds: tuple[str | None, str | None] = (None, None),
    cuda: tuple[str | None, str | None] = (None, None),
    stable: Mapping[Backend, str] | None = None,
) -> Project:
    def version(text: str | None) -> Version | None:
        return Version.parse(text) if text else None

    return Project(
        root=Path("/nowhere"),
        edition=5,
        name="kernel",
        version=1,
        license="MIT",
        backends=backends,
        framework=Framework(
            kind=kind,
            minver=version(bounds[0]),
            maxver=version(bounds[1]),
            stable_abi={backend: Version.parse(text) for backend, text in (stable or {}).items()},
        ),
        sections=tuple(
            Section(id=backend.value, backend=backend, src=())
            for backend in (backends if compiled is None else compiled)
        ),
        backend_options={Backend("cuda"): BackendOptions(minver=version(cuda[0]), maxver=version(cuda[1]))},
    )


def required(matrix: Matrix) -> list[str]:
    return [entry.name for entry in choose(matrix, within=VariantSet.REQUIRED).kept]


def reasons(matrix: Matrix) -> dict[str, str]:
    return {entry.name: entry.reason for entry in matrix.dropped}


def test_a_project_has_the_builds_of_its_backends_on_the_platform() -> None:
    matrix = all_variants(project(Backend("cpu"), Backend("cuda")), TABLE, LINUX)
    assert required(matrix) == [
        "torch212-cxx11-cpu-x86_64-linux",
        "torch213-cxx11-cpu-x86_64-linux",
        *(f"torch{release}-cxx11-cu{toolkit}-x86_64-linux" for release in (212, 213) for toolkit in (126, 130, 132)),
    ]
    assert reasons(matrix)["torch213-cxx11-cpu-aarch64-linux"] == "it is for aarch64-linux"


def test_another_platform_can_be_asked_for() -> None:
    matrix = all_variants(project(Backend("cpu")), TABLE, Platform.parse("aarch64-linux"))
    assert required(matrix) == ["torch212-cxx11-cpu-aarch64-linux", "torch213-cxx11-cpu-aarch64-linux"]
    everywhere = required(all_variants(project(Backend("cpu"), Backend("metal")), TABLE, None))
    assert {"torch213-cpu-aarch64-darwin", "torch213-metal-aarch64-darwin"} < set(everywhere)


def test_bounds_leave_builds_out_with_a_reason() -> None:
    matrix = all_variants(project(Backend("cuda"), bounds=("2.12.1", "2.13"), cuda=("12.8", "13.0")), TABLE, LINUX)
    assert [entry.name for entry in matrix.kept] == ["torch213-cxx11-cu130-x86_64-linux"]
    assert reasons(matrix)["torch212-cxx11-cu130-x86_64-linux"] == "torch 2.12 is below torch.minver = 2.12.1"
    assert reasons(matrix)["torch214-cxx11-cu130-x86_64-linux"] == "torch 2.14 is above torch.maxver = 2.13"
    assert reasons(matrix)["torch213-cxx11-cu126-x86_64-linux"] == "cuda 12.6 is below general.cuda.minver = 12.8"
    assert reasons(matrix)["torch213-cxx11-cu132-x86_64-linux"] == "cuda 13.2 is above general.cuda.maxver = 13.0"


def test_a_stable_backend_has_one_variant_per_toolkit_built_with_the_newest_torch() -> None:
    kernel = project(Backend("cpu"), Backend("cuda"), stable={Backend("cuda"): "2.10"})
    matrix = all_variants(kernel, TABLE, LINUX)
    built_with = {entry.name: str(entry.row.torch) for entry in matrix.kept if entry.row and "stable" in entry.name}
    assert built_with == {
        "torch-stable-abi210-cu126-x86_64-linux": "2.13",
        "torch-stable-abi210-cu128-x86_64-linux": "2.11",
        "torch-stable-abi210-cu130-x86_64-linux": "2.14",
        "torch-stable-abi210-cu132-x86_64-linux": "2.15",
    }
    assert "torch213-cxx11-cpu-x86_64-linux" in {entry.name for entry in matrix.kept}  # not stable: every torch
    assert [name for name in required(matrix) if "stable" in name] == [
        f"torch-stable-abi210-cu{toolkit}-x86_64-linux" for toolkit in (126, 130, 132)
    ]
    why = reasons(matrix)
    assert why["torch213-cxx11-cu130-x86_64-linux"] == (
        "torch-stable-abi210-cu130-x86_64-linux covers it, built with torch 2.14"
    )
    assert why["torch29-cxx11-cu130-x86_64-linux"] == "torch 2.9 is older than 2.10, whose stable ABI is needed"
    assert "torch 2.7 is the newest with cuda 11.8" in why["torch-stable-abi210-cu118-x86_64-linux"]


def test_a_patch_release_in_a_stable_target_is_its_minor_release() -> None:
    kernels = [project(Backend("cuda"), stable={Backend("cuda"): text}) for text in ("2.15.1", "2.15")]
    patched, plain = ([entry.name for entry in all_variants(kernel, TABLE, LINUX).kept] for kernel in kernels)
    assert patched == plain == ["torch-stable-abi215-cu132-x86_64-linux"]


def test_bounds_choose_the_torch_of_a_stable_variant() -> None:
    kernel = project(Backend("cuda"), stable={Backend("cuda"): "2.10"}, bounds=(None, "2.12"), cuda=("13.0", "13.0"))
    (entry,) = all_variants(kernel, TABLE, LINUX).kept
    assert (entry.name, str(entry.row and entry.row.torch)) == ("torch-stable-abi210-cu130-x86_64-linux", "2.12")


def test_a_tvm_ffi_kernel_has_variants_of_paired_builds_alone() -> None:
    matrix = all_variants(project(Backend("cpu"), Backend("cuda"), kind=FrameworkKind.TVM_FFI), TABLE, LINUX)
    assert [(entry.name, str(entry.row and entry.row.torch)) for entry in matrix.kept] == [
        ("tvm-ffi01-cpu-x86_64-linux", "2.12"),
        ("tvm-ffi01-cu126-x86_64-linux", "2.12"),
        ("tvm-ffi01-cu130-x86_64-linux", "2.12"),
        ("tvm-ffi01-cu132-x86_64-linux", "2.13"),
    ]
    assert all(entry.obstacle is None for entry in matrix.kept)
    assert reasons(matrix)["torch213-cxx11-cpu-x86_64-linux"] == "no tvm-ffi release is paired with it"


@pytest.mark.parametrize("platform", [LINUX, None])
def test_without_a_project_there_is_every_variant_that_one_can_have(platform: Platform | None) -> None:
    every = tuple(Backend)
    projects = [
        project(*every),
        project(*every, kind=FrameworkKind.TVM_FFI),
        *(project(*every, stable=dict.fromkeys(every, release)) for release in ("2.7", "2.10", "2.15")),
    ]
    any_project = {entry.name: entry for entry in variants_of_any(TABLE, platform)}
    for kernel in projects:
        own = all_variants(kernel, TABLE, platform).kept
        assert own
        assert {entry.name: any_project.get(entry.name) for entry in own} == {entry.name: entry for entry in own}
    assert len(any_project) == len(variants_of_any(TABLE, platform))
    assert not any("stable-abi26-" in name for name in any_project)


def test_backends_without_a_compiler_are_kept_with_the_obstacle() -> None:
    matrix = all_variants(project(Backend("rocm"), Backend("metal")), TABLE, None)
    obstacles = {entry.name: entry.obstacle or "" for entry in matrix.kept}
    assert obstacles["torch213-cxx11-rocm72-x86_64-linux"] == ""
    assert "only for Linux, not for darwin" in obstacles["torch213-metal-aarch64-darwin"]


def test_a_backend_without_sections_is_python_only_and_belongs_to_every_set() -> None:
    matrix = all_variants(project(Backend("cpu"), Backend("tpu"), compiled=(Backend("cpu"),)), TABLE, LINUX)
    for which in VariantSet:
        assert "torch-tpu" in {entry.name for entry in choose(matrix, within=which).kept}


def test_a_backend_with_nothing_here_says_why() -> None:
    kernel = project(Backend("cpu"), Backend("metal"), Backend("cuda"), cuda=("99", None))
    silent = dict(all_variants(kernel, TABLE, LINUX).silent_backends(kernel))
    assert silent == {
        Backend("metal"): "its variants are for aarch64-darwin",
        Backend("cuda"): "cuda 13.2 is below general.cuda.minver = 99",
    }


def test_choosing_drops_the_rest_with_a_reason() -> None:
    matrix = all_variants(project(Backend("cpu"), Backend("cuda")), TABLE, LINUX)
    chosen = choose(matrix, patterns=("torch213-*-cu13?-*",), backends=(Backend("cuda"),))
    assert [entry.name for entry in chosen.kept] == [f"torch213-cxx11-cu{n}-x86_64-linux" for n in (130, 132)]
    assert reasons(chosen)["torch213-cxx11-cpu-x86_64-linux"] == "its backend was not requested"
    assert reasons(chosen)["torch213-cxx11-cu126-x86_64-linux"] == "no --variant matches it"
    latest = reasons(choose(matrix, within=VariantSet.LATEST))
    assert latest["torch211-cxx11-cpu-x86_64-linux"] == "it does not belong to the set 'latest'"
    assert unmatched(matrix, ("torch213-*", "torch299-*")) == ("torch299-*",)


@pytest.mark.parametrize("text", ["linux", "x86_64", "x86_64-plan9", "sparc-linux", "x86_64-linux-gnu", ""])
def test_other_platforms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a platform"):
        Platform.parse(text)


@pytest.mark.parametrize(
    ("name", "here", "told"),
    [
        ("tvm-ffi01-cpu-aarch64-darwin", System.DARWIN, "tvm-ffi kernels only for Linux, on Linux"),
        ("tvm-ffi01-cpu-aarch64-darwin", System.LINUX, "tvm-ffi kernels only for Linux, on Linux"),
        ("torch213-metal-aarch64-darwin", System.LINUX, "run it on a Mac with Xcode"),
        ("tvm-ffi01-cpu-x86_64-linux", System.DARWIN, "run it on Linux"),
        ("tvm-ffi01-cpu-x86_64-linux", System.LINUX, None),
        ("torch213-cpu-aarch64-darwin", System.DARWIN, None),
        ("torch213-metal-aarch64-darwin", System.DARWIN, None),
        ("torch213-cpu-x86_64-windows", System.WINDOWS, "cannot compile for Windows"),
        ("torch213-cxx11-cpu-x86_64-linux", System.WINDOWS, "run it on Linux (WSL serves)"),
    ],
)
def test_what_a_system_compiles(name: str, here: System, told: str | None) -> None:
    variant = parse_variant(name)
    assert isinstance(variant, ArchVariant)
    reason = why_not_compiled(variant, here)
    assert reason is None if told is None else told in (reason or "")
