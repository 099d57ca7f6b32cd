"""Every rule about ELF libraries, failing and passing, on real libraries of a few lines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel_builder.backends import toolkit_kinds
from kernel_builder.binary.libraries import load_allowed
from kernel_builder.check.model import Settings
from kernel_builder.errors import BuildError, UsageError
from kernel_builder.events import Recorder
from kernel_builder.hub.gate import Proving, check_source
from kernel_builder.hub.local import find_source
from kernel_builder.variants.names import Variant
from kernel_libraries import CPU, CUDA, ID, INIT, Workshop, codes, findings, messages
from kernel_trees import variant

ADD = INIT + "int add(int a, int b) { return a + b; }\n"
THROWS = """
#include <iostream>
#include <stdexcept>
extern "C" void *PyInit__sample_cpu_1a2b3c4() { return nullptr; }
extern "C" int run(int n) {
  try { if (n) throw std::runtime_error("no"); } catch (std::exception &e) { std::cerr << e.what(); return 1; }
  return 0;
}
"""
STATIC_CXX = ("-static-libstdc++", "-Wl,--exclude-libs,ALL")
LINUX = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sources hold x86_64 assembly")


@pytest.fixture(scope="session")
def clean(workshop: Workshop) -> Path:
    return workshop.library(ADD)


@pytest.fixture(scope="session")
def cxx(workshop: Workshop) -> Path:
    return workshop.library(THROWS, *STATIC_CXX, language="cpp")


# The file itself.


def test_a_plain_library_has_no_findings(clean: Path, workshop: Workshop) -> None:
    assert codes(clean) == []
    assert codes(workshop.variant(CPU, clean)) == []


@pytest.mark.parametrize("keep", [0, 4, 63, 300, 0x1000])
def test_a_library_that_is_cut_short_cannot_be_read(clean: Path, tmp_path: Path, keep: int) -> None:
    library = tmp_path / clean.name
    library.write_bytes(clean.read_bytes()[:keep])
    assert codes(library) == ["KB101"]


def test_what_is_no_library_but_named_like_one_cannot_be_read(workshop: Workshop, tmp_path: Path) -> None:
    for name in ("text.so", "text.pyd", "text.dylib", "text.dll"):
        (tmp_path / name).write_text("not a library")
        assert messages(tmp_path / name, "KB101") == ["cannot read the library: not a Linux, macOS or Windows library"]
    workshop.run("gcc", "-c", "-x", "c", "-o", tmp_path / "object.so", _source(tmp_path))
    assert "no dynamic section" in messages(tmp_path / "object.so", "KB101")[0]


def _source(directory: Path) -> Path:
    file = directory / "source.c"
    file.write_text(ADD, encoding="ascii")
    return file


def test_a_library_for_another_processor_or_system_is_refused(clean: Path, workshop: Workshop) -> None:
    variant = workshop.variant(CPU.replace("x86_64", "aarch64"), clean)
    assert messages(variant, "KB102") == ["the variant is for aarch64, but the library for x86_64"]
    mac = workshop.variant("torch213-cpu-x86_64-darwin", clean)
    assert messages(mac, "KB102") == ["the variant is for darwin, but this file is for linux"]
    assert messages(workshop.variant(CPU, clean), "KB102") == []


# Versions of the runtimes.


def _needing(workshop: Workshop, version: str, symbol: str = "function", flags: tuple[str, ...] = ()) -> Path:
    provider = workshop.provider("libc.so.6", f"{version}:{symbol}")
    source = f"{INIT}extern int {symbol}(void);\nint call(void) {{ return {symbol}(); }}\n"
    return workshop.library(source, "-nostdlib", "-Wl,--no-as-needed", provider, *flags)


@pytest.mark.parametrize(
    ("version", "policy", "limit"),
    [
        ("GLIBC_2.28", "glibc-2.27-static", "2.27"),
        ("GLIBC_2.34", "manylinux_2_28", "2.28"),
        ("GLIBC_2.100", "manylinux_2_34", "2.34"),
        ("GCC_12.0.0", "glibc-2.27-static", "7.0.0"),
        ("GLIBCXX_3.4.29", "manylinux_2_28", "3.4.24"),
        ("CXXABI_1.3.13", "manylinux2014", "1.3.7"),
    ],
)
def test_a_version_beyond_the_policy_is_refused(workshop: Workshop, version: str, policy: str, limit: str) -> None:
    (finding,) = findings(_needing(workshop, version), "KB103", Settings(policy=policy))
    assert finding.symbol == "function"
    assert version.partition("_")[2] in finding.message
    assert f"allows {limit} at most" in finding.message


@pytest.mark.parametrize(
    ("version", "policy"),
    [
        ("GLIBC_2.27", "glibc-2.27-static"),
        ("GLIBC_2.9", "glibc-2.27-static"),
        ("GLIBC_2.28", "manylinux_2_28"),
        ("GLIBCXX_3.4.9", "manylinux_2_28"),
        ("CXXABI_TM_1", "manylinux_2_28"),
        ("libcudart.so.12", "glibc-2.27-static"),
        ("VERS_abc", "glibc-2.27-static"),
    ],
)
def test_versions_are_compared_as_numbers_and_those_of_others_are_not(
    workshop: Workshop, version: str, policy: str
) -> None:
    assert messages(_needing(workshop, version), "KB10", Settings(policy=policy)) == []


def test_stripping_and_other_linkers_change_nothing(workshop: Workshop) -> None:
    for linker in ("bfd", "gold", "lld", "mold"):
        if shutil.which(f"ld.{linker}") is None:
            continue
        library = _needing(workshop, "GLIBC_2.34", flags=(f"-fuse-ld={linker}",))
        before = messages(library, "KB103")
        assert len(before) == 1
        workshop.run("strip", "--strip-all", library)
        assert messages(library, "KB103") == before


@pytest.mark.parametrize(
    ("name", "policy", "message"),
    [
        ("close_range", "glibc-2.27-static", "glibc has it since 2.34, but kernels must run with 2.27"),
        ("strlcpy", "manylinux_2_34", "glibc has it since 2.38, but kernels must run with 2.34"),
        ("close_range", "manylinux_2_34", None),
        ("malloc", "glibc-2.27-static", None),
    ],
)
def test_names_without_a_version_are_judged_by_the_table_of_glibc(
    workshop: Workshop, name: str, policy: str, message: str | None
) -> None:
    source = f"{INIT}extern int {name}(int); int call(void) {{ return {name}(1); }}\n"
    library = workshop.library(source, "-nostdlib", "-fno-builtin", "-w")
    found = messages(library, "KB103", Settings(policy=policy))
    assert found == ([] if message is None else [f"{name} has no version; {message}"])
    assert messages(library, "KB134", Settings(policy=policy)) == []


@pytest.mark.parametrize(
    ("name", "soname"),
    [("pthread_create", "libpthread.so.0"), ("dlopen", "libdl.so.2"), ("timer_create", "librt.so.1")],
)
@pytest.mark.parametrize("version", ["GLIBC_2.2.5", None])
def test_the_library_of_an_older_glibc_is_needed_where_it_has_a_function(
    workshop: Workshop, name: str, soname: str, version: str | None
) -> None:
    source = f"{INIT}extern int {name}(int); int call(void) {{ return {name}(1); }}\n"
    libc = workshop.provider("libc.so.6", f"{version}:{name}") if version else None
    flags: tuple[str | Path, ...] = ("-nostdlib", "-fno-builtin", "-w", *([libc] if libc else []))
    (message,) = messages(workshop.library(source, *flags), "KB113")
    assert message == f"{name}: in {soname} where glibc is 2.27, but the library does not need that"
    assert messages(workshop.library(source, *flags), "KB113", Settings(policy="manylinux_2_34")) == []
    other = workshop.provider(soname, f"GLIBC_2.2.5:other_{name}")
    assert messages(workshop.library(source, *flags, "-Wl,--no-as-needed", other), "KB113") == []
    weak = source.replace("extern", "__attribute__((weak)) extern")
    assert messages(workshop.library(weak, *flags), "KB113") == []


def test_weak_symbols_count(workshop: Workshop) -> None:
    provider = workshop.provider("libc.so.6", "GLIBC_2.34:function")
    source = f"{INIT}extern int function(void) __attribute__((weak));\nint call(void) {{ return function(); }}\n"
    assert len(messages(workshop.library(source, "-nostdlib", "-Wl,--no-as-needed", provider), "KB103")) == 1


@pytest.mark.parametrize("version", ["GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "CXXABI_TM_1"])
def test_private_and_optional_versions_are_refused(workshop: Workshop, version: str) -> None:
    (finding,) = findings(_needing(workshop, version), "KB104")
    assert version in finding.message


def test_optional_versions_that_a_policy_names_are_allowed(workshop: Workshop) -> None:
    assert messages(_needing(workshop, "GLIBC_ABI_DT_RELR"), "KB104", Settings(policy="manylinux_2_38")) == []


def test_an_unknown_policy_is_refused_with_the_nearest(clean: Path) -> None:
    with pytest.raises(UsageError, match="manylinux_228") as error:
        codes(clean, Settings(policy="manylinux_228"))
    assert "did you mean manylinux_2_28" in str(error.value.hint)


# Needed libraries.


def test_a_dynamic_libstdcxx_is_refused_by_the_static_policy_alone(workshop: Workshop, cxx: Path) -> None:
    dynamic = workshop.library(THROWS, language="cpp")
    assert messages(dynamic, "KB105") == ["libstdc++.so.6 is linked dynamically"]
    assert messages(dynamic, "KB105", Settings(policy="manylinux_2_38")) == []
    assert messages(cxx, "KB105") == []
    libcxx = workshop.provider("libc++.so.1", "V1:function")
    other = workshop.library(ADD, "-Wl,--no-as-needed", libcxx)
    assert messages(other, "KB105", Settings(policy="manylinux_2_38")) == ["libc++.so.1 is linked dynamically"]


@pytest.mark.parametrize("soname", ["libz.so.1", "libgomp.so.1", "libtorch_cpu_extra.so", "libcudart.so.13"])
def test_other_libraries_are_refused(workshop: Workshop, soname: str) -> None:
    library = workshop.library(ADD, "-Wl,--no-as-needed", workshop.provider(soname, "V1:function"))
    (finding,) = findings(workshop.variant(CPU, library), "KB106")
    assert finding.symbol == soname
    if soname == "libgomp.so.1":
        assert "OpenMP" in str(finding.hint)
    if soname == "libcudart.so.13":
        assert "cuda variants" in str(finding.hint)


@pytest.mark.parametrize(
    ("name", "own", "other", "said"),
    [
        (CUDA, ("libcudart.so.13", "libcudart.so.13.0"), "libcudart.so.12", "CUDA 13.0, which has libcudart.so.13"),
        ("cu118", ("libcudart.so.11.0",), "libcudart.so.12", "CUDA 11.8, which has libcudart.so.11"),
        (
            "rocm72",
            ("libamdhip64.so.7", "libamdhip64.so"),
            "libamdhip64.so.6",
            "ROCm 7.2, which has libamdhip64.so.7",
        ),
        ("xpu20260", ("libsycl.so.9",), "libsycl.so.8", "XPU 2026.0, which has libsycl.so.9"),
        ("xpu20253", ("libsycl.so.8",), "libsycl.so.9", "XPU 2025.3, which has libsycl.so.8"),
        ("xpu20270", ("libsycl.so.8", "libsycl.so.10"), None, ""),
        ("cpu", ("libcudart.so.12",), None, ""),
    ],
)
def test_the_runtime_is_that_of_the_toolkit_in_the_variants_name(
    workshop: Workshop, name: str, own: tuple[str, ...], other: str | None, said: str
) -> None:
    name = name if "-" in name else f"torch213-cxx11-{name}-x86_64-linux"

    def told(soname: str) -> list[str]:
        library = workshop.library(ADD, "-Wl,--no-as-needed", workshop.provider(soname, "V1:function"))
        return messages(workshop.variant(name, library), "KB114")

    assert [told(soname) for soname in own] == [[]] * len(own)
    if other is not None:
        assert told(other) == [f"needs {other}, but the variant is for {said}"]


def test_the_runtimes_of_the_table_are_those_that_kernels_are_linked_with() -> None:
    """``data/libraries.toml`` and ``data/toolchains.toml`` say it, each for its own readers."""
    for backend, kind in toolkit_kinds().items():
        runtime = load_allowed().runtimes[backend.value]
        for major in kind.recipe.majors:
            components = kind.recipe.components(f"{major}.0")
            sonames = [library.soname for component in components for library in component.libraries]
            numbers = {runtime.number_in(soname) for soname in sonames} - {None}
            assert numbers == {runtime.number(major)}, (backend, major)


@pytest.mark.parametrize("soname", ["libtorch.so", "libcudart.so.13", "libcublas.so.5", "libgcc_s.so.1", "libm.so.6"])
def test_libraries_of_torch_cuda_and_the_c_runtime_are_allowed_whatever_their_version(
    workshop: Workshop, soname: str
) -> None:
    library = workshop.library(ADD, "-Wl,--no-as-needed", workshop.provider(soname, "V1:function"))
    variant = workshop.variant(CUDA, library, id=ID, backend={"type": "cuda"})
    assert messages(variant, "KB106") == []
    assert messages(library, "KB106") == []


@pytest.mark.parametrize("kind", ["--disable-new-dtags", "--enable-new-dtags"])
def test_run_paths_are_refused(workshop: Workshop, clean: Path, kind: str) -> None:
    library = workshop.library(ADD, f"-Wl,{kind},-rpath,/opt/lib")
    assert messages(library, "KB107") == ["its run path contains /opt/lib"]
    assert messages(clean, "KB107") == []


# What the loader has to do, and what the build left.


def test_an_executable_stack_is_refused(workshop: Workshop, clean: Path) -> None:
    assert messages(workshop.library(ADD, "-Wl,-z,execstack"), "KB108") == ["requests an executable stack"]
    assert messages(clean, "KB108") == []


@LINUX
def test_text_relocations_are_refused(workshop: Workshop, clean: Path) -> None:
    code = f'{INIT}int here;\nlong where(void) {{ long r; __asm__("movabs $here, %0" : "=r"(r)); return r; }}\n'
    library = workshop.library(code, "-Wl,-z,notext", "-Wno-error")
    assert messages(library, "KB109") == ["has text relocations (DT_TEXTREL)"]
    assert messages(clean, "KB109") == []


def test_unique_symbols_are_warned_of(workshop: Workshop) -> None:
    code = f"""
    inline int &count() {{ static int value; return value; }}
    extern "C" {{ {INIT} int next() {{ return ++count(); }} }}
    """
    unique = workshop.library(code, *STATIC_CXX, "-fgnu-unique", language="cpp")
    (finding,) = findings(unique, "KB112")
    assert finding.symbol == "_ZZ5countvE5value"
    assert messages(workshop.library(code, *STATIC_CXX, "-fno-gnu-unique", language="cpp"), "KB112") == []


def test_paths_of_the_build_are_warned_of(workshop: Workshop, tmp_path: Path) -> None:
    code = f"{INIT}const char *where(void) {{ return __FILE__; }}\n"
    library = workshop.library(code, f"-fmacro-prefix-map={workshop.root}=/home/user/project")
    (message,) = messages(library, "KB151")
    assert "/home/user/project/source" in message
    assert messages(workshop.library(code, f"-fmacro-prefix-map={workshop.root}=."), "KB151") == []
    innocent = f'{INIT}const char *log(void) {{ return "/tmp/log of a.txt /usr/home/x.c /tmp/aXXXXXX.cpp"; }}\n'
    assert messages(workshop.library(innocent), "KB151") == []


def test_paths_are_found_without_section_headers(workshop: Workshop, tmp_path: Path) -> None:
    code = f'{INIT}const char *where(void) {{ return "/home/user/a.cpp"; }}\n'
    data = bytearray(workshop.library(code).read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    library = tmp_path / f"{ID}.abi3.so"
    library.write_bytes(data)
    assert len(messages(library, "KB151")) == 1


def test_debug_information_is_warned_of(workshop: Workshop, clean: Path) -> None:
    assert "debug information" in messages(workshop.library(ADD, "-g"), "KB152")[0]
    assert messages(clean, "KB152") == []


def test_a_library_of_two_gibibytes_is_warned_of(clean: Path, tmp_path: Path) -> None:
    large = tmp_path / clean.name
    large.write_bytes(clean.read_bytes())
    os.truncate(large, 2**31)
    assert messages(large, "KB153") == ["is 2.0 GiB in size"]
    assert messages(clean, "KB153") == []


# The C++ runtime inside.


def test_an_exported_cxx_runtime_is_refused(workshop: Workshop, cxx: Path) -> None:
    exported = workshop.library(THROWS, "-static-libstdc++", language="cpp")
    (finding,) = findings(exported, "KB110")
    assert "exports the C++ runtime" in finding.message
    workshop.run("strip", exported)
    assert len(findings(exported, "KB110")) == 1
    assert messages(cxx, "KB110") == []


def test_templates_and_inline_functions_of_the_library_may_be_exported(workshop: Workshop) -> None:
    code = f"""
    #include <optional>
    #include <stdexcept>
    #include <vector>
    extern "C" {{ {INIT} }}
    int f(std::vector<int> v, std::optional<int> o) {{
      std::runtime_error e("a"); std::runtime_error g(std::move(e));
      std::exception_ptr p; std::exception_ptr q = p;
      v.push_back(1); return v.size() + o.value();
    }}
    """
    assert messages(workshop.library(code, *STATIC_CXX, "-O0", language="cpp"), "KB110") == []


def test_a_private_unwinder_is_refused_hidden_exported_and_stripped(workshop: Workshop, cxx: Path) -> None:
    hidden = workshop.library(THROWS, *STATIC_CXX, "-static-libgcc", language="cpp")
    assert "it defines _Unwind_RaiseException" in messages(hidden, "KB111")[0]
    workshop.run("strip", "--strip-all", hidden)
    assert "but nothing from libgcc_s's unwinder" in messages(hidden, "KB111")[0]
    whole = ("-Wl,--whole-archive", "-lgcc_eh", "-Wl,--no-whole-archive")
    exported = workshop.library(THROWS, "-static-libstdc++", "-static-libgcc", *whole, language="cpp")
    assert len(messages(exported, "KB111")) == 1
    dynamic = workshop.library(THROWS, "-static-libgcc", language="cpp")
    workshop.run("strip", "--strip-all", dynamic)
    assert len(messages(dynamic, "KB111")) == 1
    assert messages(cxx, "KB111") == []
    workshop.run("cp", cxx, workshop.root / "stripped.so")
    workshop.run("strip", "--strip-all", workshop.root / "stripped.so")
    assert messages(workshop.root / "stripped.so", "KB111") == []


# Python.


def _using(workshop: Workshop, *names: str, id: str = ID) -> Path:  # noqa: A002
    source = INIT + "".join(
        f"extern int {name}(void);\nint use_{name}(void) {{ return {name}(); }}\n" for name in names
    )
    return workshop.library(source, name=f"{id}.abi3.so")


def test_functions_newer_than_the_floor_are_refused(workshop: Workshop) -> None:
    library = _using(workshop, "PyObject_Vectorcall", "PyModule_AddType", "PyLong_FromLong", "PyModule_AddObjectRef")
    assert messages(library, "KB121") == [
        "PyModule_AddObjectRef, PyModule_AddType: in the limited API since Python 3.10; the oldest supported is 3.9",
        "PyObject_Vectorcall: in the limited API since Python 3.12; the oldest supported is 3.9",
    ]
    assert messages(library, "KB121", Settings(python_floor=(3, 12))) == []


def test_names_outside_the_limited_api_are_refused(workshop: Workshop) -> None:
    assert messages(_using(workshop, "_PyObject_GetState", "PyFrame_GetBack", "PyLong_FromLong"), "KB122") == [
        "PyFrame_GetBack: not in the limited API",
        "_PyObject_GetState: private to CPython",
    ]
    assert messages(_using(workshop, "PyLong_FromLong", "Python_is_no_prefix"), "KB122") == []


def test_an_extension_has_the_name_of_its_id(workshop: Workshop, clean: Path) -> None:
    versioned = workshop.library(ADD, name=f"{ID}.cpython-313-x86_64-linux-gnu.so")
    assert "works with only one Python version" in messages(versioned, "KB123")[0]
    other = workshop.library(ADD, name="_C.abi3.so")
    assert messages(workshop.variant(CPU, other), "KB123") == [
        f"the extension module of this variant must be named {ID}.abi3.so"
    ]
    assert messages(workshop.variant(CPU, clean), "KB123") == []


def test_a_library_for_free_threaded_python_is_refused(workshop: Workshop, clean: Path) -> None:
    named = workshop.library(ADD, name=f"{ID}.cpython-313t-x86_64-linux-gnu.so")
    assert messages(named, "KB124") == ["its name marks it as built for free-threaded Python"]
    assert messages(_using(workshop, "_Py_DecRefShared"), "KB124") == [
        "uses _Py_DecRefShared, which only free-threaded Python has"
    ]
    assert messages(clean, "KB124") == []


def test_exactly_the_init_function_of_the_module_is_exported(workshop: Workshop, clean: Path) -> None:
    none = workshop.library("int add(int a) { return a; }\n")
    assert messages(none, "KB125") == [f"must export PyInit_{ID} and no other; exports none"]
    two = workshop.library(ADD + "void *PyInit__C(void) { return 0; }\n")
    assert messages(two, "KB125") == [f"must export PyInit_{ID} and no other; exports PyInit__C, PyInit_{ID}"]
    hidden = workshop.library(ADD, "-fvisibility=hidden")
    assert len(messages(hidden, "KB125")) == 1
    assert messages(workshop.variant(CPU, clean), "KB125") == []
    renamed = workshop.variant(CPU, clean, id="_sample_cpu_fffffff")
    assert f"exports PyInit_{ID}" in messages(renamed, "KB125")[0]


# Names that others must have.

TORCH = "_ZN3c105ErrorC1Ev"
HIDDEN = "_ZNR5torch7Library4_defEv"


def _exports(*names: str) -> Settings:
    def look(variant: Variant) -> frozenset[str]:
        assert str(variant) == CPU
        return frozenset(names)

    return Settings(torch_exports=look)


def test_names_that_nobody_has_are_errors_where_torch_is_known(workshop: Workshop) -> None:
    variant = workshop.variant(CPU, _using(workshop, TORCH, "my_kernel_launch", "PyLong_FromLong", "GOMP_parallel"))
    (finding,) = findings(variant, "KB131", _exports(TORCH))
    assert "defines my_kernel_launch" in finding.message
    assert [f.symbol for f in findings(variant, "KB131", _exports())] == [TORCH]
    assert "c10::Error" in messages(variant, "KB131", _exports("my_kernel_launch"))[0]
    assert messages(variant, "KB131", _exports(TORCH, "my_kernel_launch")) == []
    assert messages(variant, "KB132", _exports(TORCH)) == []


def test_without_torch_its_names_are_not_compared_and_unknown_ones_are_warned_of(workshop: Workshop) -> None:
    variant = workshop.variant(
        CUDA.replace("213", "25"), _using(workshop, TORCH, HIDDEN, "my_kernel_launch", "cudaMalloc")
    )
    assert messages(variant, "KB132") == ["2 symbols were not compared with the exports of torch25-cxx11"]
    assert messages(variant, "KB134") == ["no library a kernel may need is known to define my_kernel_launch"]
    assert messages(variant, "KB131") == []
    known = workshop.variant(CUDA.replace("213", "25"), _using(workshop, "cudaMalloc"))
    assert messages(known, "KB13") == []


def test_an_upload_compares_with_the_exports_that_are_at_hand(workshop: Workshop, tmp_path: Path) -> None:
    library = _using(workshop, TORCH, "my_kernel_launch")
    variant(tmp_path / "build", CPU, {library.name: library.read_bytes()}, ops_id=ID, backend={"type": "cpu"})
    source, told = find_source(tmp_path / "build"), Recorder()

    def check(*exports: str) -> None:
        proving = Proving(environ={}, proofs=tmp_path, exports=_exports(*exports).torch_exports)
        check_source(source, told, ignore=["KB5"], proving=proving)

    check(TORCH, "my_kernel_launch")
    assert not any("KB13" in str(event) for event in told.events)
    with pytest.raises(BuildError, match="KB131"):
        check(TORCH)


def test_weak_names_may_stay_undefined(workshop: Workshop) -> None:
    code = f"{INIT}extern int maybe(void) __attribute__((weak));\nint f(void) {{ return maybe ? maybe() : 0; }}\n"
    assert messages(workshop.variant(CPU, workshop.library(code)), "KB13", _exports()) == []


@pytest.mark.parametrize("rule", ["KB10", "KB11", "KB12"])
def test_what_torch_exports_is_read_only_where_it_decides(workshop: Workshop, rule: str) -> None:
    """There are eighty thousand names."""

    def look(_: Variant) -> frozenset[str]:
        raise AssertionError(rule)

    variant = workshop.variant(
        CPU, _using(workshop, TORCH, "my_kernel_launch", "PyLong_FromLong", "_PyObject_GetState")
    )
    found = messages(variant, rule, Settings(torch_exports=look))
    assert any("_PyObject_GetState" in text for text in found) is (rule == "KB12")


STABLE = "aoti_torch_delete_tensor_object"


def test_the_stable_abi_is_kept_where_it_is_claimed(workshop: Workshop) -> None:
    library = _using(workshop, STABLE, TORCH, "torch_call_dispatcher", "_ZN5torch6stable4funcEv")
    variant = workshop.variant("torch-stable-abi29-cpu-x86_64-linux", library)
    assert messages(variant, "KB133") == [
        "c10::Error: not in torch's stable ABI",
        "torch_call_dispatcher is in torch's stable ABI since 2.10, but the library is for 2.9",
    ]
    assert messages(library, "KB133") == []
    assert len(messages(library, "KB133", Settings(torch_stable_abi=(2, 9)))) == 2
    assert messages(_using(workshop, STABLE), "KB133", Settings(torch_stable_abi=(2, 9))) == []


# A library without exports: GNU ld's hash table counts nothing then.


def test_undefined_names_of_a_library_without_exports_are_seen(workshop: Workshop) -> None:
    code = """
    extern int _PyObject_GetState(void);
    __attribute__((constructor)) static void start(void) { _PyObject_GetState(); }
    """
    library = workshop.library(code, "-nostdlib", name="x.so")
    assert messages(library, "KB122") == ["_PyObject_GetState: private to CPython"]


# Registrations of ops.


@pytest.mark.parametrize("place", ["start", "after a megabyte of constants"])
def test_op_schemas_of_another_namespace_are_found(workshop: Workshop, tmp_path: Path, place: str) -> None:
    filler = "char filler[1 << 20] = {1};" if place != "start" else ""
    code = f'{INIT}{filler}const char *schema = "{{}}::relu(Tensor x) -> Tensor";\n'
    foreign = workshop.variant(CPU, workshop.library(code.replace("{}", "relu")))
    assert messages(foreign, "KB2") == [f"registers ops in namespace 'relu' instead of the kernel's own, '{ID}'"]
    assert messages(workshop.variant(CPU, workshop.library(code.replace("{}", ID))), "KB2") == []
