"""The build and the check judge alike what a library leaves undefined."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.binary.elf import read_elf_file
from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Settings, Severity
from kernel_builder.engine.undefined import UndefinedPolicy, find_missing
from kernel_builder.versions import Version
from kernel_libraries import CPU, CUDA, INIT, Workshop

CXX = "_ZN3c105ErrorC1Ev"
STD = "_ZNSt6detail4workEv"
TORCH = (CXX, "uv_run", "torch_call_dispatcher", "aoti_torch_delete_tensor_object")
GPU = ("cudaMalloc",)
RULES = ("KB121", "KB122", "KB131", "KB133")
OLDEST = (3, 9)


def using(workshop: Workshop, symbol: str, *flags: str, weak: bool = False) -> Path:
    """A library that leaves ``symbol`` undefined."""
    attribute = " __attribute__((weak))" if weak else ""
    code = f"{INIT}extern int {symbol}(void){attribute};\nvoid *use(void) {{ return (void *){symbol}; }}\n"
    return workshop.library(code, "-fno-builtin", *flags)


def refused_by_build(
    library: Path, workshop: Workshop, python: tuple[int, int], stable: tuple[int, int] | None
) -> list[str]:
    torch, gpu = workshop.root / "torch.txt", workshop.root / "gpu.txt"
    torch.write_text("\n".join(TORCH), encoding="ascii")
    gpu.write_text("\n".join(GPU), encoding="ascii")
    target = None if stable is None else Version.parse(f"{stable[0]}.{stable[1]}")
    policy = UndefinedPolicy(tables=(gpu,), exports=(torch,), python=python, stable=target)
    return [entry.symbol for entry in find_missing(read_elf_file(library), policy)]


def refused_by_check(
    library: Path, workshop: Workshop, python: tuple[int, int], stable: tuple[int, int] | None
) -> list[str]:
    settings = Settings(
        python_floor=python, torch_stable_abi=stable, torch_exports=lambda _: frozenset(TORCH), hash_files=False
    )
    report = check_paths([workshop.variant(CUDA, library)], settings, select=RULES)
    return [finding.symbol or "" for finding in report.findings if finding.rule.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("symbol", "is_refused"),
    [
        ("GOMP_parallel", False),
        ("omp_get_num_threads", False),
        ("__kmpc_fork_call", True),
        ("kmpc_malloc", True),
        ("PyLong_FromLong", False),
        ("PyObject_Vectorcall", True),  # from 3.12 on
        ("PyFrame_GetBack", True),
        ("_PyObject_GetState", True),
        ("cudaMalloc", False),
        ("printf", False),  # the C library's, in a version
        (CXX, False),
        ("uv_run", False),
        ("_ZN3c106NobodyEv", True),
        ("aoti_torch_nobody", True),
        (STD, True),
        ("my_kernel_launch", True),
    ],
)
def test_the_build_and_the_check_refuse_the_same(workshop: Workshop, symbol: str, *, is_refused: bool) -> None:
    library = using(workshop, symbol)
    expected = [symbol] if is_refused else []
    assert refused_by_build(library, workshop, OLDEST, None) == expected
    assert refused_by_check(library, workshop, OLDEST, None) == expected


@pytest.mark.parametrize(
    ("symbol", "is_refused"),
    [("my_kernel_launch", False), ("__kmpc_fork_call", False), (CXX, False), ("_PyObject_GetState", True)],
)
def test_they_refuse_the_same_weak_names(workshop: Workshop, symbol: str, *, is_refused: bool) -> None:
    library = using(workshop, symbol, weak=True)
    expected = [symbol] if is_refused else []
    assert refused_by_build(library, workshop, OLDEST, None) == expected
    assert refused_by_check(library, workshop, OLDEST, None) == expected


@pytest.mark.parametrize(
    ("python", "is_refused"), [((3, 9), True), ((3, 11), True), ((3, 12), False), ((3, 13), False)]
)
def test_they_know_the_same_limited_api(workshop: Workshop, python: tuple[int, int], *, is_refused: bool) -> None:
    library = using(workshop, "PyObject_Vectorcall")
    assert bool(refused_by_build(library, workshop, python, None)) is is_refused
    assert bool(refused_by_check(library, workshop, python, None)) is is_refused


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize(
    ("symbol", "target", "is_refused"),
    [
        ("aoti_torch_delete_tensor_object", (2, 9), False),
        ("torch_call_dispatcher", (2, 9), True),
        ("torch_call_dispatcher", (2, 10), False),
        (CXX, (2, 10), True),
        ("uv_run", (2, 10), True),  # torch exports it, for itself
        ("cudaMalloc", (2, 10), False),
    ],
)
def test_they_know_the_same_stable_abi(
    workshop: Workshop, symbol: str, target: tuple[int, int], *, weak: bool, is_refused: bool
) -> None:
    library = using(workshop, symbol, weak=weak)
    expected = [symbol] if is_refused else []
    assert refused_by_build(library, workshop, OLDEST, target) == expected
    assert refused_by_check(library, workshop, OLDEST, target) == expected


def test_they_leave_names_of_the_cxx_runtime_to_it_where_it_is_needed(workshop: Workshop) -> None:
    library = using(workshop, STD, "-Wl,--no-as-needed", "-lstdc++")
    assert refused_by_build(library, workshop, OLDEST, None) == refused_by_check(library, workshop, OLDEST, None) == []


def test_llvms_openmp_is_an_error_of_the_check_wherever_torch_is(workshop: Workshop) -> None:
    library = using(workshop, "__kmpc_fork_call")
    for place in (library, workshop.variant(CPU, library), workshop.variant("torch25-cxx11-cpu-x86_64-linux", library)):
        (finding,) = check_paths([place], Settings(), select=["KB13"]).findings
        assert (finding.rule.code, finding.symbol) == ("KB131", "__kmpc_fork_call")
        assert finding.message == "__kmpc_fork_call: part of LLVM's OpenMP runtime, but torch ships GNU's"
