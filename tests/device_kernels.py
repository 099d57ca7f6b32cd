"""Kernels whose libraries need what only a machine with their device has: a few lines of C, linked with made-up
runtimes. They register ops by the functions of torch's stable ABI, so they need none of its headers.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_trees import variant

SOURCE = """\
#include <stdint.h>
typedef struct Library *Handle;
int aoti_torch_library_init_def(const char *, const char *, uint32_t, Handle *);
int aoti_torch_library_init_fragment(const char *, const char *, uint32_t, Handle *);
int aoti_torch_library_init_impl(const char *, const char *, const char *, uint32_t, Handle *);
int aoti_torch_library_def(Handle, const char *);
int aoti_torch_library_impl(Handle, const char *, void (*)(uint64_t *, uint64_t, uint64_t));
static void nothing(uint64_t *stack, uint64_t in, uint64_t out) {}
static void define(const char *schema) {
  static Handle own;
  if (!own) aoti_torch_library_init_def("NAMESPACE", "kernel.c", 1, &own);
  aoti_torch_library_def(own, schema);
}
static void implement(const char *name, const char *key) {
  Handle own;
  aoti_torch_library_init_impl("NAMESPACE", key, "kernel.c", 2, &own);
  aoti_torch_library_impl(own, name, nothing);
}
void *PyModule_Create2(void *, int);
void *PyInit_NAMESPACE(void) {
  static struct { long refs; void *type, *init; long i; void *copy; const char *name, *doc; long size; void *rest[5]; }
      module = {1, 0, 0, 0, 0, "NAMESPACE", 0, -1};
  return PyModule_Create2(&module, 1013);
}
"""
TWO_OPS = """\
__attribute__((constructor)) static void start(void) {
  define("twice(Tensor x) -> Tensor");
  define("thrice(Tensor x) -> Tensor");
  implement("twice", "KEY");
  implement("thrice", "KEY");
}
"""
NEEDS: Mapping[str, tuple[str, ...]] = {
    "cu": ("libcudart.so.99", "libcublas.so.99", "libc10_cuda.so", "libtorch_cuda.so", "libtorch_cpu.so"),
    "rocm": ("libamdhip64.so.99", "libc10_hip.so", "libtorch_cpu.so"),
    "xpu": ("libsycl.so.99", "libtorch_xpu.so", "libtorch_cpu.so"),
}
"""What begins the name of a variant's toolkit -> the libraries that such kernels need."""
USES: Mapping[str, str] = {
    "cu": """\
void **__cudaRegisterFatBinary(void *); void __cudaRegisterFunction(void **, void *); void cudaLaunchKernel(void);
void cublasCreate_v2(void); void _ZN3c104cuda20getCurrentCUDAStreamEa(void); extern int _ZTVN2at4cuda9CUDAGraphE[4];
void cudaNever(void) __attribute__((weak));
__attribute__((constructor)) static void registers(void) {
  void **handle = __cudaRegisterFatBinary(0);
  if (!handle) __builtin_trap();
  __cudaRegisterFunction(handle, 0);
}
void run(void) {
  cudaLaunchKernel(); cublasCreate_v2(); _ZN3c104cuda20getCurrentCUDAStreamEa(); if (cudaNever) cudaNever();
}
int *table(void) { return _ZTVN2at4cuda9CUDAGraphE; }
""",
    "rocm": """\
void **__hipRegisterFatBinary(void *); void hipLaunchKernel(void); void _ZN3c103hip4syncEv(void);
__attribute__((constructor)) static void registers(void) { if (!__hipRegisterFatBinary(0)) __builtin_trap(); }
void run(void) { hipLaunchKernel(); _ZN3c103hip4syncEv(); }
""",
    "xpu": """\
void __sycl_register_lib(void *); void _ZN4sycl3_V15queue4waitEv(void); void _ZN3c103xpu4syncEv(void);
__attribute__((constructor)) static void registers(void) { __sycl_register_lib(0); }
void run(void) { _ZN4sycl3_V15queue4waitEv(); _ZN3c103xpu4syncEv(); }
""",
}


def device_kernel(
    folder: Path,
    name: str,
    *,
    toolkit: str,
    key: str,
    code: str = TWO_OPS,
    files: Mapping[str, str | bytes] | None = None,
    needs: Iterable[str] | None = None,
) -> Path:
    """A variant called ``name`` in ``folder``: its library runs ``code`` when it is loaded, after what the compiler of
    ``toolkit`` (a key of :data:`USES`) makes such a library do.
    """
    backend = {"cu": "cuda"}.get(toolkit, toolkit)
    ops_id = f"_device_{backend}_1a2b3c4"
    folder.mkdir(parents=True, exist_ok=True)
    text = (SOURCE + USES[toolkit] + code).replace("NAMESPACE", ops_id).replace("KEY", key)
    (folder / "kernel.c").write_text(text, encoding="ascii")
    subprocess.run(["gcc", "-w", "-O1", "-fPIC", "-c", "kernel.c"], cwd=folder, check=True)
    stubs = [_stub(folder, soname, toolkit) for soname in needs or NEEDS[toolkit]]
    library = folder / f"{ops_id}.abi3.so"
    subprocess.run(["gcc", "-shared", "kernel.o", "-Wl,--no-as-needed", *stubs, "-o", library], cwd=folder, check=True)
    package = {"__init__.py": f"from . import _ops\nfrom . import {ops_id}\n\n__all__ = []\n", **(files or {})}
    package = {path: text if isinstance(text, bytes) else text.replace("NAMESPACE", ops_id)
               for path, text in package.items()}  # fmt: skip
    package[library.name] = library.read_bytes()
    archs = {"backend": {"type": backend}}
    return variant(folder / "build", name, package, ops_id=ops_id, name="device", **archs)


def _stub(folder: Path, soname: str, toolkit: str) -> Path:
    """A library to link with. The first one of a toolkit has its runtime's functions, with a version."""
    path = folder / soname
    source, script = folder / f"{soname}.c", folder / f"{soname}.map"
    first = soname == NEEDS[toolkit][0]
    names = {
        "cu": ("__cudaRegisterFatBinary", "__cudaRegisterFunction", "cudaLaunchKernel"),
        "rocm": ("__hipRegisterFatBinary", "hipLaunchKernel"),
        "xpu": ("__sycl_register_lib",),
    }[toolkit]
    text = "".join(f"void *{name}(void *x) {{ return x; }}\n" for name in names) if first else ""
    source.write_text(text, encoding="ascii")
    script.write_text(f"{soname} {{ global: {'; '.join(names)}; }};\n", encoding="ascii")
    versions = [f"-Wl,--version-script={script}"] if first else []
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-fPIC", source, *versions, f"-Wl,-soname,{soname}", "-o", path], check=True
    )
    return path
