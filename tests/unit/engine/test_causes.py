"""A name that a library will not find is diagnosed: one cause and one remedy each. Objects and tables are real."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.actions.places import Places
from kernel_builder.engine.definitions import find_written, spell
from kernel_builder.engine.inspect import problem_of
from kernel_builder.engine.own_names import demangle

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")

USE = """#include "decl.h"
extern "C" __attribute__((visibility("default"))) long use(long n) { float f = n; double d = n; return %s; }
"""
RELEASE = "torch 2.13.0"
TORCH = (
    "torch_call_dispatcher",
    "_ZN3c104sameEiNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    "_ZN2at4moveERKNS_6TensorEb",
)


def cause(root: Path, declaration: str, call: str, *arguments: Mapping[str, str], **more: Any) -> str:
    """:func:`problem`, of one name."""
    said = problem(root, declaration, call, *arguments, **more)
    assert said.count("cause: ") == said.count("remedy: ") == 1, said
    return said


def problem(
    root: Path,
    declaration: str,
    call: str,
    sources: Mapping[str, str] | None = None,
    *,
    unlisted: Mapping[str, str] | None = None,
    elsewhere: Mapping[str, Mapping[str, object]] | None = None,
    older: tuple[str, ...] = (),
    beside: Mapping[str, str] | None = None,
    stable: str | None = None,
) -> str:
    """What is said of a library whose ``use.cpp`` has ``call``, linked with ``sources``."""
    work, store = root / ".kernel-builder", root.parent / "store"
    work.mkdir(parents=True, exist_ok=True)
    for version, names in (("2.13.0", TORCH), ("2.12.1", (*TORCH, *older))):
        table = store / f"torch-{version}-0123456789abcdef" / "exports" / "libtorch_cpu.so.txt"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("\n".join(names), encoding="ascii")
    compiled = {"use.cpp": USE % call, **(sources or {})}
    for name, symbol in (beside or {}).items():
        (store / "torch-2.13.0-0123456789abcdef" / "exports" / f"{name}.txt").write_text(symbol, encoding="ascii")
    for path, text in {"decl.h": declaration, **compiled, **(unlisted or {})}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    objects = {}
    for path in compiled:
        target = work / f"{Path(path).name}.o"
        command = [
            "g++",
            "-c",
            "-O1",
            "-fPIC",
            "-fvisibility=hidden",
            "-fno-builtin",
            str(root / path),
            "-o",
            str(target),
        ]
        subprocess.run(command, check=True)
        objects[f"{{work}}/{target.name}"] = path
    library = work / "k.so"
    command = ["g++", "-shared", "-static-libstdc++", "-static-libgcc", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run([*command, *(str(work / Path(word).name) for word in objects), "-o", str(library)], check=True)
    request: dict[str, object] = {
        "library": "{work}/k.so",
        "framework": "torch",
        "framework-tables": ["{store}/torch-2.13.0-0123456789abcdef/exports/libtorch_cpu.so.txt"],
        "tables": [],
        "python": [3, 9],
        "c-library": "2.27",
        "stable": stable,
        "release": RELEASE,
        "objects": objects,
        "depfiles": [],
        "elsewhere": elsewhere or {},
        "covered": "{work}/covered.json",
    }
    (work / "covered.json").write_text("[]", encoding="ascii")
    said = problem_of(request, Places(root=root, work=work, output=work, store=store), ())
    assert said is not None
    return said


OWN: dict[str, tuple[tuple[str, str], dict[str, Any], list[str]]] = {
    "in a file that is not listed": (
        ("namespace k { int f(int a, float b); }", "k::f(n, f)"),
        {"unlisted": {"src/more.cpp": "// k::f(int, float) { is here\nint k::f(int a, float b) { return a; }\n"}},
        ["k::f(int, float) (used by use.cpp)", "src/more.cpp defines it, but no section", 'add "src/more.cpp" to'],
    ),
    "with the C linkage of a header, in a file that is not listed": (
        (
            '#ifdef __cplusplus\nextern "C" {\n#endif\nint f(int a, float b);\n#ifdef __cplusplus\n}\n#endif',
            "::f(n, f)",
        ),
        {"unlisted": {"more.cu": '#include "decl.h"\nint f(int a, float b) { return a; }\n'}},
        ["f (used by use.cpp)", "more.cu defines it, but no section", 'add "more.cu" to'],
    ),
    "with the C linkage of one declaration, in a file that is not listed": (
        ('extern "C" int f(int);', "::f(n)"),
        {"unlisted": {"more.cpp": '#include "decl.h"\nint f(int a) { return a; }\n'}},
        ["more.cpp defines it, but no section", 'add "more.cpp" to'],
    ),
    "in a namespace of a file that is not listed": (
        ("namespace k::v2 { int f(int); }", "k::v2::f(n)"),
        {"unlisted": {"more.cc": "namespace k {\nnamespace v2 {\nint f(int a)\n{ return a; }\n} }\n"}},
        ["more.cc defines it, but no section"],
    ),
    "a template is not taken for a call": (
        ("namespace k { int f(int); }", "k::f(n)"),
        {
            "unlisted": {
                "a.cpp": "int g() { if (k::f(1)) { return k::f(2); } return 0; }\n",
                "b.cpp": "\nnamespace k { int f(int n) { return n; } }",
            }
        },
        ["b.cpp defines it"],
    ),
    "in a section of another backend": (
        ("int f(float *);", "::f(&f)"),
        {
            "unlisted": {"dev.cu": "int f(float *p) { return *p; }\n"},
            "elsewhere": {"dev.cu": {"section": "[kernel.gpu] (x)", "fits": False}},
        },
        ["dev.cu defines it, but only [kernel.gpu] (x) compiles that file", "move the call to a source of"],
    ),
    "in a section of another backend that this one could compile": (
        ("int g(int);", "g(n)"),
        {
            "unlisted": {"o.cpp": "int g(int p) { return p; }\n"},
            "elsewhere": {"o.cpp": {"section": "[kernel.o] (x)", "fits": True}},
        },
        ["o.cpp defines it, but only [kernel.o] (x)", 'add "o.cpp" to \'src\' of a section of this variant'],
    ),
    "other parameters": (
        ("namespace k { int f(long); }", "k::f(n)"),
        {"sources": {"def.cpp": "namespace k { int f(int n) { return n; } }"}},
        ["decl.h:1 declares it, but def.cpp defines 'k::f(int)': the parameters differ", "write both alike"],
    ),
    "another constness of a pointer": (
        ("int f(const float *);", "::f(&f)"),
        {"sources": {"def.cpp": "int f(float *p) { return *p; }"}},
        ["decl.h:1 declares it, but def.cpp defines 'f(float*)': the parameters differ"],
    ),
    "another namespace": (
        ("namespace k { int f(int); }", "k::f(n)"),
        {"sources": {"def.cpp": "namespace other { int f(int n) { return n; } }"}},
        ["def.cpp defines 'other::f(int)': the namespaces differ"],
    ),
    "no namespace": (
        ("namespace k { int f(int); }", "k::f(n)"),
        {"sources": {"def.cpp": "int f(int n) { return n; }"}},
        ["def.cpp defines 'f(int)': the namespaces differ"],
    ),
    "a member that is const": (
        ("struct K { int get(); };", "K().get()"),
        {"sources": {"def.cpp": "struct K { int get() const; };\nint K::get() const { return 1; }"}},
        ["def.cpp defines 'K::get() const': the qualifiers (const) differ"],
    ),
    "C linkage at the declaration": (
        ('extern "C" int f(int);', "::f(n)"),
        {"sources": {"def.cpp": "int f(int n) { return n; }"}},
        ["decl.h:1 declares it, but def.cpp defines 'f(int)': one of the two has C", 'write extern "C" at both'],
    ),
    "C linkage at the definition": (
        ("int f(int);", "::f(n)"),
        {"sources": {"def.cpp": 'extern "C" {\nint f(int n) { return n; }\n}'}},
        ["def.cpp defines 'f': one of the two has C linkage"],
    ),
    "static": (
        ("int f(int);", "::f(n)"),
        {"sources": {"def.cpp": "static int f(int n) { return n; }\nint other() { return f(1); }"}},
        ["defines it as static, so only that file has it", "remove 'static'"],
    ),
    "static and unused": (
        ("int f(int);", "::f(n)"),
        {"sources": {"def.cpp": "static int f(int n) { return n; }"}},
        ["def.cpp:1 defines it as static"],
    ),
    "an unnamed namespace": (
        ("namespace k { int f(int); }", "k::f(n)"),
        {"sources": {"def.cpp": "namespace k { namespace { int f(int n) { return n; } } void *g = (void *)f; }"}},
        ["def.cpp defines it in an unnamed namespace", "move that definition out"],
    ),
    "an unnamed namespace, unused": (
        ("namespace k { int f(int); }", "k::f(n)"),
        {"sources": {"def.cpp": "namespace k {\nnamespace {\nint f(int n) { return n; } } }"}},
        ["def.cpp:3 defines it in an unnamed namespace"],
    ),
    "a template that is not instantiated": (
        ("namespace k { template <class T> int f(T *p); }", "k::f(&f)"),
        {"sources": {"def.cpp": "namespace k { template <class T> int f(T *p) { return *p; } }"}},
        ["def.cpp:1 defines the template, but does not instantiate it for <float>", "int k::f<float>(float*);"],
    ),
    "a template that is instantiated for others": (
        ("namespace k { template <class T> int f(T *p); }", "k::f(&f) + k::f(&d)"),
        {"sources": {"def.cpp": "namespace k {template <class T> int f(T *) { return 1; } template int f(double *);}"}},
        ["def.cpp instantiates the template as 'int k::f<double>(double*)' only", "template int k::f<float>(float*);"],
    ),
    "inline in a source": (
        ("int f(int);", "::f(n)"),
        {"sources": {"def.cpp": "inline int f(int n) { return n; }"}},
        ["def.cpp:1 defines it inline, so only that file has it", "a header that use.cpp includes"],
    ),
    "inline in a header that is not included": (
        ("int f(int);", "::f(n)"),
        {"unlisted": {"inc/f.cuh": "inline int f(int n) { return n; }"}},
        ["inc/f.cuh:1 defines it, but use.cpp sees a declaration only", "include inc/f.cuh in use.cpp"],
    ),
    "under a condition": (
        ("int f(int);", "::f(n)"),
        {"sources": {"def.cpp": "#ifdef WITH_F\nint f(int n) { return n; }\n#endif"}},
        ["def.cpp:2 defines it, but what the compiler saw of that file does not", "check the conditions"],
    ),
    "nowhere": (
        ("\nint f(int);", "::f(n)"),
        {},
        ["decl.h:2 declares it, but neither the project nor a library that it may need defines it"],
    ),
    "nowhere, in a namespace of torch's": (
        ("namespace at::native { int f(int); }", "at::native::f(n)"),
        {},
        ["decl.h:1 declares it, but neither the project"],
    ),
    "in a namespace of torch's and not listed": (
        ("namespace at::native { int f(int); }", "at::native::f(n)"),
        {"unlisted": {"f.cpp": "namespace at { namespace native { int f(int n) { return n; } } }"}},
        ["f.cpp defines it, but no section"],
    ),
    "virtual functions": (
        ("struct S { virtual int f(); }; struct T { S s; };", "reinterpret_cast<long>(new T())"),
        {"unlisted": {"s.cpp": "int S::f() { return 1; }"}},
        ["s.cpp defines it, but no section", 'add "s.cpp" to \'src\''],
    ),
    "an argument of the other C++ ABI": (
        ("#include <string>\nint f(std::string);", '::f("")'),
        {"sources": {"def.cpp": "#define _GLIBCXX_USE_CXX11_ABI 0\n#include <string>\nint f(std::string) {return 1;}"}},
        ["def.cpp defines", "is compiled for the other C++ ABI", "remove _GLIBCXX_USE_CXX11_ABI from"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_the_kernels_own_function(kind: str, tmp_path: Path) -> None:
    (declaration, call), more, expected = OWN[kind]
    said = cause(tmp_path / "kernel", declaration, call, **more)
    assert [words for words in expected if words not in said] == [], said


FAMILIES = {
    "cuTensorMapEncodeTiled": ["driver API", 'cudaGetDriverEntryPoint("cuTensorMapEncodeTiled"'],
    "cuMemAlloc_v2": ['cudaGetDriverEntryPoint("cuMemAlloc"'],
    "cuLaunchKernel_ptsz": ['cudaGetDriverEntryPoint("cuLaunchKernel"'],
    "nvmlInit_v2": ["NVML"],
    "__cudaRegisterLinkedBinary_1f2e_6_dev_cu": ["device linking", "remove -rdc=true"],
    "__fatbinwrap_1f2e_6_dev_cu": ["device linking"],
    "cudaGetParameterBufferV2": ["launches kernels from device code"],
    "__asan_report_load8": ["remove -fsanitize"],
    "__ubsan_handle_add_overflow": ["remove -fsanitize"],
    "__tsan_func_entry": ["remove -fsanitize"],
    "__msan_warning_noreturn": ["remove -fsanitize"],
    "__gcov_init": ["remove --coverage"],
    "__llvm_profile_runtime": ["remove --coverage"],
    "__llvm_gcov_init": ["remove --coverage"],
    "__kmpc_fork_call": ["LLVM's OpenMP runtime", "compile with g++"],
    "__tgt_target_kernel": ["offloads"],
    "_ZGVdN4v_sinpi": ["libmvec", "remove -ffast-math"],
    "_ZGVnN2v_expf": ["libmvec"],
    "PyFrame_GetBack": ["limited API", "TORCH_LIBRARY_EXPAND"],
    "THPVariableClass": ["libtorch_python", "TORCH_LIBRARY_EXPAND"],
    "_ZN8pybind116detail11type_casterIN2at6TensorEvE4loadENS_6handleEb": ["pybind11"],
    "cudnnCreate": ["NVIDIA's"],
    "ncclAllReduce": ["NVIDIA's"],
    "cusparseLtInit": ["NVIDIA's"],
    "miopenCreate": ["AMD's"],
    "cudaSomethingNew": ["CUDART_VERSION"],
    "cublasSomethingNew": ["CUDART_VERSION"],
    "hipSomethingNew": ["HIP_VERSION"],
    "cblas_sgemm": ["BLAS", "at::mm"],
    "dgemm_": ["BLAS"],
    "LAPACKE_dgesv": ["BLAS"],
    "dnnl_primitive_execute": ["keeps to itself"],
    "MPI_Allreduce": ["torch.distributed"],
    "numa_alloc_onnode": ["memory or devices"],
    "__atomic_load_16": ["libatomic", "std::mutex"],
    "sqrtq": ["libquadmath"],
    "_gfortran_st_write": ["Fortran"],
    "__svml_exp4": ["Intel's compilers"],
    "_ZN3tbb6detail2r15spawnERNS0_2d14taskERNS2_18task_group_contextE": ["another C++ library"],
    "_ZN2cv3MatC1Ev": ["another C++ library"],
    "ZSTD_compress": ["another C library"],
    "inflate": ["another C library"],
    "_ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKc": ["libc++"],
    "_ZNSt9not_there4workEv": ["C++ runtime that is newer"],
}


def test_names_that_tell_whose_they_are(tmp_path: Path) -> None:
    names = {symbol: f"theirs_{number}" for number, symbol in enumerate(FAMILIES)}
    declared = "".join(f'int {name}(void) __asm__("{symbol}");\n' for symbol, name in names.items())
    call = " + ".join(f"{name}()" for name in names.values())
    said = problem(tmp_path / "kernel", f'extern "C" {{ {declared} }}', call)
    plain = dict(zip(FAMILIES, demangle(FAMILIES).values(), strict=True))
    together = {symbol: said_of(plain[symbol], said) for symbol in FAMILIES}
    assert {symbol: words for symbol, words in FAMILIES.items() if any(w not in together[symbol] for w in words)} == {}


def said_of(readable: str, said: str) -> str:
    """The cause and the remedy of one name."""
    lines = said.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith(f"    {readable} (used by")]
    cause = next(number for number in range(at, len(lines)) if lines[number].startswith("      cause: "))
    return "\n".join(lines[cause : cause + 2])


def test_what_the_project_defines_comes_before_what_a_name_tells(tmp_path: Path) -> None:
    said = cause(
        tmp_path / "kernel",
        'extern "C" int cuLaunchMine(int);',
        "cuLaunchMine(n)",
        unlisted={"mine.cpp": 'extern "C" int cuLaunchMine(int n) { return n; }'},
    )
    assert "mine.cpp defines it, but no section" in said


def test_another_release_of_torch_has_it(tmp_path: Path) -> None:
    said = cause(tmp_path / "kernel", "namespace c10 { int gone(int); }", "c10::gone(n)", older=("_ZN3c104goneEi",))
    assert f"torch 2.12 has it, but {RELEASE} does not" in said
    assert 'set maxver = "2.12" in [torch]' in said


def test_another_backends_libraries_of_torch_have_it(tmp_path: Path) -> None:
    said = cause(
        tmp_path / "one" / "kernel", "namespace c10::cuda { int device_count(); }", "c10::cuda::device_count()"
    )
    assert "it belongs to torch's CUDA libraries, which this variant does not use" in said
    assert 'a section with backend = "cuda"' in said
    declaration = "namespace at { int tuned(int); }"
    said = cause(
        tmp_path / "two" / "kernel", declaration, "at::tuned(n)", beside={"libtorch_cuda.so": "_ZN2at5tunedEi"}
    )
    assert "it belongs to torch's CUDA libraries" in said


def test_torch_has_it_with_other_parameters(tmp_path: Path) -> None:
    declaration = "namespace at { struct Tensor; int move(const Tensor &, bool, int); }"
    said = cause(tmp_path / "kernel", declaration, "at::move(*reinterpret_cast<at::Tensor *>(&f), true, 1)")
    assert f"{RELEASE} has 'at::move(at::Tensor const&, bool)', whose parameters differ" in said


def test_torch_has_it_with_the_other_cxx_abi(tmp_path: Path) -> None:
    declaration = "#define _GLIBCXX_USE_CXX11_ABI 0\n#include <string>\nnamespace c10 { int same(int, std::string); }"
    said = cause(tmp_path / "kernel", declaration, 'c10::same(n, "")')
    assert f"{RELEASE} has it with the other C++ ABI of std::string" in said
    assert "remove _GLIBCXX_USE_CXX11_ABI" in said


def test_names_outside_of_the_stable_abi(tmp_path: Path) -> None:
    declaration = 'extern "C" int torch_call_dispatcher(int);'
    said = cause(tmp_path / "new" / "kernel", declaration, "torch_call_dispatcher(n)", stable="2.9")
    assert "torch has it since 2.10, but the kernel targets the stable ABI of 2.9" in said
    assert 'set stable-abi to "2.10"' in said
    declaration = "namespace at { struct Tensor; int move(const Tensor &, bool); }"
    call = "at::move(*reinterpret_cast<at::Tensor *>(&f), true)"
    said = cause(tmp_path / "cxx" / "kernel", declaration, call, stable="2.10")
    assert "include only torch/csrc/stable and torch/headeronly" in said


def test_names_with_one_cause_are_told_together(tmp_path: Path) -> None:
    names = [f"__asan_report_load{size}" for size in range(12)]
    declaration = 'extern "C" {' + "".join(f"int {name}();" for name in names) + "}"
    said = cause(tmp_path / "kernel", declaration, " + ".join(f"{name}()" for name in names))
    assert "    and 7 more\n" in said


CLASS = """namespace n {
class W : public B<int> {
 public:
  W();
  explicit W(int);
  ~W();
  void run();
  int get() const;
  static int count;
};
}
"""
MEMBERS = """#include "decl.h"
namespace n {
W::W() {}
W::W(int) {}
W::~W() {}
void W::run() {}
int W::get() const { return 1; }
int W::count = 3;
}
"""
USED = "[&]{ n::W w; n::W x(3); w.run(); return w.get() + n::W::count; }()"


@pytest.mark.parametrize("virtual", ["", "virtual"])
@pytest.mark.parametrize(
    ("unlisted", "expected"),
    [
        ({"w.cpp": MEMBERS}, "cause: w.cpp defines it, but no section of build.toml lists that file"),
        ({}, "cause: decl.h:3 declares it in W, but neither the project nor a library that it may need defines it"),
    ],
)
def test_a_class_whose_file_is_missing_is_one_cause(
    tmp_path: Path, virtual: str, unlisted: Mapping[str, str], expected: str
) -> None:
    body = CLASS.replace("  ~W", f"  {virtual} ~W")
    said = cause(tmp_path / "kernel", f"template <class T> struct B {{}};\n{body}", USED, unlisted=unlisted)
    assert expected in said
    assert "n::W::W()" in said
    assert "n::W::run()" in said


def test_one_member_that_is_missing_of_a_class(tmp_path: Path) -> None:
    declaration = f"template <class T> struct B {{}};\n{CLASS}"
    sources = {"w.cpp": MEMBERS.replace("void W::run() {}\n", "")}
    said = cause(tmp_path / "kernel", declaration, USED, sources)
    assert said.count("n::W::") == 1
    assert "decl.h:3 declares it in W, but neither" in said


def test_one_who_writes_no_function_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(
        '#define F(x) f(x) {\n// int f(int) {\nconst char *t = "int f(int) {";\nint g() { return f(2); }\n'
        "struct S { S() : f(1) {} int f(int) const noexcept; };\ntemplate <> int f<float>(float) { return 1; }\n",
        encoding="utf-8",
    )
    found = find_written(tmp_path, ["a.cpp"], "f")
    assert [(entry.line, entry.scope, entry.is_definition) for entry in found if entry.line != 5] == [(6, "", True)]
    assert [entry.is_definition for entry in found if entry.line == 5 and "const" not in entry.text] in ([], [False])


@pytest.mark.parametrize(
    ("readable", "scope", "base", "count"),
    [
        ("k::f(float*, std::pair<int, int>)", "k", "f", 2),
        ("void k::f<std::pair<int, int> >(float*)", "k", "f", 1),
        ("k::(anonymous namespace)::f()", "k::(anonymous namespace)", "f", 0),
        ("K::operator()(int) const", "K", "operator()", 1),
        ("k::run(std::function<void (int)>)", "k", "run", 1),
        ("std::vector<int> k::g<int>(void (*)(int, int))", "k", "g", 1),
        ("plain", "", "plain", None),
    ],
)
def test_parts_of_a_demangled_name(readable: str, scope: str, base: str, count: int | None) -> None:
    found = spell(readable)
    assert (found.scope, found.base, found.count) == (scope, base, count)
    assert re.match(r"\w|operator", found.base)
