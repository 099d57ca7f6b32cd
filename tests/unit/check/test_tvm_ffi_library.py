"""Rules about the libraries of tvm-ffi variants, on real libraries of a few lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.model import Severity
from kernel_libraries import CPU, ID, Workshop, codes, findings, messages

VARIANT = "tvm-ffi01-cpu-x86_64-linux"
CUDA_VARIANT = "tvm-ffi01-cu130-x86_64-linux"
FUNCTION = "int __tvm_ffi_add(void *self, const void *args, int count, void *result) { return 0; }\n"


def using(workshop: Workshop, *names: str, more: str = "") -> Path:
    calls = "".join(f"extern int {name}(void);\nint use_{name}(void) {{ return {name}(); }}\n" for name in names)
    return workshop.library(FUNCTION + calls + more, name=f"{ID}.so")


def test_a_library_that_offers_functions_has_no_findings(workshop: Workshop) -> None:
    assert codes(workshop.variant(VARIANT, using(workshop, "TVMFFIErrorSetRaised"))) == []


@pytest.mark.parametrize("name", [f"{ID}.abi3.so", "relu.so"])
def test_the_library_has_the_name_that_it_is_loaded_by(workshop: Workshop, name: str) -> None:
    library = workshop.library(FUNCTION, name=name)
    assert messages(workshop.variant(VARIANT, library), "KB126") == [
        f"the library of this variant must be named {ID}.so"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "int add(int a) { return a; }\n",
        # Hidden, or what says something of a function that is not there.
        f'__attribute__((visibility("hidden"))) {FUNCTION}',
        FUNCTION.replace("__tvm_ffi_add", "__tvm_ffi__metadata_add"),
    ],
)
def test_a_library_without_functions_is_refused(workshop: Workshop, source: str) -> None:
    library = workshop.library(source, name=f"{ID}.so")
    assert messages(workshop.variant(VARIANT, library), "KB126") == [
        "exports no function for tvm-ffi: no name begins with __tvm_ffi_"
    ]


def test_a_python_module_is_refused(workshop: Workshop) -> None:
    library = using(workshop, "PyLong_FromLong", more=f"void *PyInit_{ID}(void) {{ return 0; }}\n")
    variant = workshop.variant(VARIANT, library)
    assert messages(variant, "KB126") == [
        f"exports PyInit_{ID}, so it is a Python module",
        "PyLong_FromLong: Python's, but a tvm-ffi kernel must load into any program",
    ]
    assert messages(variant, "KB12") == messages(variant, "KB126")  # the rules about Python modules say nothing more


def test_torch_is_refused_by_name_and_by_library(workshop: Workshop) -> None:
    stub = workshop.library("int at_name(void) { return 0; }\n", "-Wl,-soname,libc10.so", name="libc10.so")
    source = FUNCTION + "extern int at_name(void);\nint f(void) { return at_name(); }\n"
    library = workshop.library(source, stub, name=f"{ID}.so")
    (finding,) = findings(workshop.variant(VARIANT, library), "KB106")
    assert finding.message == "needs libc10.so, which neither tvm-ffi nor its dependencies provide"
    assert "must load without torch" in (finding.hint or "")
    named = using(workshop, "_ZN3c105ErrorC1Ev")
    assert ["c10::Error" in text for text in messages(workshop.variant(VARIANT, named), "KB131")] == [True]


def test_the_runtime_of_the_backend_and_tvm_ffis_own_library_are_allowed(workshop: Workshop) -> None:
    source = FUNCTION
    files = []
    for name in ("libtvm_ffi", "libcudart"):
        own = f"{name}_name"
        soname = f"-Wl,-soname,{name}.so{'.13' if name == 'libcudart' else ''}"
        files.append(workshop.library(f"int {own}(void) {{ return 0; }}\n", soname, name=f"{name}.so"))
        source += f"extern int {own}(void);\nint use_{own}(void) {{ return {own}(); }}\n"
    library = workshop.library(source, *files, name=f"{ID}.so")
    assert messages(workshop.variant(CUDA_VARIANT, library), "KB106") == []
    assert messages(workshop.variant(VARIANT, library), "KB106") == [
        "needs libcudart.so.13, which neither tvm-ffi nor its dependencies provide"
    ]


def test_openmp_comes_with_torch_alone(workshop: Workshop) -> None:
    (text,) = messages(workshop.variant(VARIANT, using(workshop, "GOMP_parallel")), "KB131")
    assert text.startswith("GOMP_parallel: it is from GNU's OpenMP runtime, which torch ships")


def test_names_that_tvm_ffi_never_had_are_errors_and_newer_ones_are_warned_of(workshop: Workshop) -> None:
    variant = workshop.variant(VARIANT, using(workshop, "TVMFFIMadeUp", "TVMFFIErrorCreateWithCauseAndExtraContext"))
    assert messages(variant, "KB131") == [
        "neither tvm-ffi01 nor any other library the variant may need defines TVMFFIMadeUp"
    ]
    (finding,) = findings(variant, "KB127")
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        "TVMFFIErrorCreateWithCauseAndExtraContext: missing in tvm-ffi 0.1.0 to 0.1.7, which also loads this variant"
    )
    assert messages(workshop.variant(VARIANT, using(workshop, "TVMFFIFunctionCall")), "KB127") == []


def test_torch_variants_have_none_of_tvm_ffi(workshop: Workshop) -> None:
    library = workshop.library(
        f"void *PyInit_{ID}(void) {{ return 0; }}\nextern int TVMFFIFunctionCall(void);\n"
        "int f(void) { return TVMFFIFunctionCall(); }\n"
    )
    assert any("TVMFFIFunctionCall" in text for text in messages(workshop.variant(CPU, library), "KB13"))
    assert messages(workshop.variant(CPU, library), "KB126") == []
