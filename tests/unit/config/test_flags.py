"""Flags that a build cannot honour: refused where they are written, in every form that compilers take them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_builder.config.reader import read_project
from kernel_builder.errors import ConfigError, Diagnostic
from kernel_trees import write

PROJECT = """\
[general]
name = "ab"
version = 1
edition = 5
license = "mit"
backends = ["{backend}"]
[torch]
cxx-flags = {torch}
[kernel.k]
backend = "{backend}"
depends = []
src = []
{key} = {flags}
"""

OLDEST = """\
[general]
name = "ab"
[torch]
src = []
[kernel.k]
{key} = {flags}
src = []
depends = []
"""


def judged(*flags: str, key: str = "cuda-flags", backend: str = "cuda", form: str = PROJECT) -> list[Diagnostic]:
    """What is noticed of ``flags``."""
    text = form.format(backend=backend, key=key, flags=json.dumps(list(flags)), torch="[]")
    try:
        _, found = read_project(text.encode(), file=Path("build.toml"), root=Path(), tree=False)
    except ConfigError as error:
        found = error.diagnostics
    return [one for one in found if one.key is not None and key in one.key]


def errors(*flags: str, **where: str) -> list[str]:
    return [one.message for one in judged(*flags, **where) if one.severity == "error"]


def table(text: str) -> list[list[str]]:
    """Lists of flags, divided by semicolons, whose words are divided by blanks."""
    return [flags.split() for flags in text.split(";")]


LINKER = table("""
    -lfoo; -l foo; --library=foo; -lcublas; -L/opt/lib; -L lib; -Wl,-rpath,x; -Wl,-z,now; -Xlinker -s;
    -Xlinker=-s; --linker-options -s; -shared; -static-libstdc++; -T x.ld; -fuse-ld=gold; -nostdlib;
    -Xcompiler -Wl,-s; -Xcompiler=-O2,-lfoo; --compiler-options=-Wl,-s; --compiler-options '-lfoo'; -Xnvlink
    -v; -cudart=static; -cudart shared
""")
OUTPUT = table("""
    -o x; -ox.o; --output-file x; -c; -E; -S; -ptx; --cubin; -MD; -MF x.d; -Wp,-MD,x; -save-temps; --keep;
    -dumpdir x; --dryrun
""")
PROGRAMS = table("""
    -wrapper gdb,--args; -fplugin=x.so; -fplugin-arg-x-y; -fpass-plugin=x.so; -specs=x; -B/opt/bin; -B bin;
    -ccbin g++-9; -ccbin=g++-9; --compiler-bindir /opt/bin; --compiler-bindir=/opt/bin; @flags.txt; -optf
    flags.txt; --options-file=x; -Xclang -load -Xclang x.so; -Xcompiler -B/opt
""")
DEVICE = table("""
    -rdc=true; -rdc true; --relocatable-device-code=true; --relocatable-device-code true; -dc; --device-c;
    -dlink; --device-link; -dlto; -fgpu-rdc
""")
PLACES = table("""
    --sysroot=/x; --sysroot /x; -isysroot /x; -isysroot/x; -I/opt/include; -I /opt/include; -isystem /opt;
    -Iinclude; --include-path=x; -include /opt/x.h; -include/opt/x.h; --pre-include=/opt/x.h; -imacros
    /opt/x.h; -fprofile-use=/opt/x; -nostdinc; -stdlib=libc++
""")
LANGUAGE = table("""
    -x cu; -xc++; -x=cu; --x cu; -x c; --language=c
""")
ABI = table("""
    -D_GLIBCXX_USE_CXX11_ABI=0; -D _GLIBCXX_USE_CXX11_ABI=1; -D_GLIBCXX_USE_CXX11_ABI;
    -U_GLIBCXX_USE_CXX11_ABI; --define-macro=_GLIBCXX_USE_CXX11_ABI=0; -Xcompiler -D_GLIBCXX_USE_CXX11_ABI=0;
    -D_GLIBCXX_DEBUG; -DTORCH_EXTENSION_NAME=_C; -DPy_LIMITED_API=0x03080000; -Wp,-D_GLIBCXX_USE_CXX11_ABI=0
""")
STANDARDS = table("""
    -std=c++23; --std=c++23; -std c++23; --std gnu++2b; -std=c++26; -std=gnu++2c; -Xcompiler=-std=c++23
""")
RUNTIMES = table("""
    -fsanitize=address; -fsanitize=undefined,thread; -Xcompiler -fsanitize=leak; -Xcompiler=-fsanitize=address,-g;
    --coverage; -fprofile-generate; -fprofile-generate=dir; -fprofile-arcs; -fdevice-sanitize=memcheck
""")
ALL = [*RUNTIMES, *LINKER, *OUTPUT, *PROGRAMS, *DEVICE, *PLACES, *LANGUAGE, *ABI, *STANDARDS]
KEYS = [
    ("cuda-flags", "cuda"),
    ("cxx-flags", "cuda"),
    ("cxx-flags", "cpu"),
    ("hip-flags", "rocm"),
    ("sycl-flags", "xpu"),
]


@pytest.mark.parametrize("flags", ALL, ids=" ".join)
def test_a_flag_that_cannot_be_honoured_is_refused(flags: list[str]) -> None:
    for key, backend in KEYS:
        found = [one for one in judged("-O2", *flags, key=key, backend=backend) if one.severity == "error"]
        assert found, (key, backend)
        for one in found:
            assert one.line == 13
            assert str(one.key).startswith(f"kernel.k.{key}[")
            assert one.hint


@pytest.mark.parametrize("flags", ALL, ids=" ".join)
def test_in_the_framework_table_also(flags: list[str]) -> None:
    text = PROJECT.format(backend="cpu", key="cxx-flags", flags="[]", torch=json.dumps(flags))
    with pytest.raises(ConfigError) as caught:
        read_project(text.encode(), file=Path("build.toml"), root=Path(), tree=False)
    assert {one.key for one in caught.value.diagnostics if one.key} <= {f"torch.cxx-flags[{i}]" for i in range(4)}


GOOD = table("""
    -O3; -g; -DNAME; -DNAME=1; -D NAME; -DPATH=/usr/x; -UNAME; -std=c++17; -std=c++20; --std=c++17; -std
    c++20; -std=gnu++17; -std=c99; --use_fast_math; -use_fast_math; --expt-relaxed-constexpr; --threads=1;
    --threads 2; -lineinfo; -res-usage; -Xptxas=-v; -Xptxas -v;
    --ptxas-options=--verbose,--warn-on-local-memory-usage; -diag-suppress=174; -Xfatbin=-compress-all;
    -Xcudafe --diag_suppress=177; --maxrregcount=64; -Xcompiler -fopenmp; -Xcompiler=-O3,-Wall; -include
    cuda_fp16.h; -fopenmp; -mavx512f; -Wno-unused; -Werror; -fno-strict-aliasing;
    -static-global-template-stub=false; -restrict; --fmad=false; -fbracket-depth=1024;
    -ffile-prefix-map=/x=/y; -mllvm -amdgpu-x=1; -Wa,-mbig-obj; -pthread; -extended-lambda; -fast {braces};
    -ftemplate-depth 90; -dopt=on; -G; -march=x86-64-v3
""")


@pytest.mark.parametrize("flags", [*GOOD, ['-DTEXT="a b"'], ["-DTEXT=a b"]], ids=" ".join)
def test_other_flags_are_taken(flags: list[str]) -> None:
    for key, backend in KEYS:
        assert judged("-O2", *flags, key=key, backend=backend) == []


@pytest.mark.parametrize("flags", [["-lgomp"], ["-march=native"], ["-rdc=false"]])
def test_what_does_no_harm_is_warned_of(flags: list[str]) -> None:
    assert [one.severity for one in judged(*flags)] == ["warning"]


@pytest.mark.parametrize(
    ("flags", "written"),
    [
        (["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"], '["8.0", "9.0a"]'),
        (["-gencode=arch=compute_80,code=[sm_80,compute_80]"], '["8.0+PTX"]'),
        (["--generate-code", "arch=compute_100f,code=sm_100f"], '["10.0f"]'),
        (["-arch=sm_89"], '["8.9"]'),
        (["-arch", "sm_89"], '["8.9"]'),
        (["--gpu-architecture=compute_75", "--gpu-code=sm_75,sm_86"], '["7.5", "8.6"]'),
    ],
)
def test_architectures_are_for_their_key(flags: list[str], written: str) -> None:
    for key in ("cuda-flags", "cxx-flags"):
        found = judged(*flags, key=key)
        assert f"cuda-capabilities = {written}" in str(found[0].hint)
        assert all("what 'cuda-capabilities' is for" in one.message for one in found)
    (one, *_) = judged(*flags, form=OLDEST)
    assert f"cuda-capabilities = {written}" in str(one.hint)


@pytest.mark.parametrize("flag", ["-arch=native", "-arch=all-major", "-arch=all"])
def test_architectures_without_a_number(flag: str) -> None:
    (one,) = judged(flag)
    assert (
        one.hint
        == "remove it; without 'cuda-capabilities', the kernel is compiled for every CUDA capability of the toolkit"
    )


def test_architectures_of_another_backend() -> None:
    (one,) = judged("--offload-arch=gfx90a", key="hip-flags", backend="rocm")
    assert 'rocm-archs = ["gfx90a"]' in str(one.hint)
    (one,) = judged("-gencode=arch=compute_80,code=sm_80", key="cxx-flags", backend="cpu")
    assert one.hint == "remove it: it is for CUDA, and this section is for cpu"


@pytest.mark.parametrize(
    ("flag", "written"),
    [
        ("-O3 -g", '"-O3", "-g"'),
        ("-O3  -g -DX", '"-O3", "-g", "-DX"'),
        (" -O3", '"-O3"'),
        ("-O3 ", '"-O3"'),
        ("--std c++20", '"--std", "c++20"'),
        ("-DA -DB", '"-DA", "-DB"'),
        ("-D A", '"-D", "A"'),
        ("-Xcompiler -fopenmp", '"-Xcompiler", "-fopenmp"'),
        ("-include x.h", '"-include", "x.h"'),
    ],
)
def test_a_flag_with_blanks_is_split(flag: str, written: str) -> None:
    for key, backend in KEYS:
        (one,) = judged(flag, key=key, backend=backend)
        assert str(one.hint).endswith(f": {written}")


def test_flags_that_are_passed_on_are_told_one_by_one() -> None:
    assert [one.split(" ", 1)[0] for one in errors("-Xcompiler=-O2,-lfoo,-Wl,-s,-x")] == ["'-lfoo'", "'-Wl,-s,-x'"]


def test_what_is_in_it_is_judged_also() -> None:
    first, second = errors("-O3 -lfoo")
    assert "2 words in one string" in first
    assert "'-lfoo' names a library to link" in second


@pytest.mark.parametrize("word", ["O3", "foo.cpp", "libfoo.a", "-", "k.o"])
def test_words_that_are_no_flags(word: str) -> None:
    assert errors(word) == [f"'{word}' is not a flag"]
    assert errors("-O3", "-Wall", "foo.cpp") == ["'foo.cpp' is not a flag"]


def test_an_argument_that_is_missing() -> None:
    assert errors("-Xptxas") == ["'-Xptxas' needs a value, but is the last word"]


def test_flags_in_one_string_instead_of_a_list() -> None:
    text = PROJECT.format(backend="cuda", key="cuda-flags", flags='"-O3 -g"', torch="[]")
    with pytest.raises(ConfigError) as caught:
        read_project(text.encode(), file=Path("build.toml"), root=Path(), tree=False)
    (one,) = [one for one in caught.value.diagnostics if one.key == "kernel.k.cuda-flags"]
    assert one.hint == 'write: cuda-flags = ["-O3", "-g"]'


def test_all_mistakes_are_told_at_once() -> None:
    assert len(errors("-lfoo", "-std=c++23", "-arch=sm_80", "-O2 -g", "-o", "x")) == 5


def test_an_include_directory_is_shown_as_it_is_written_in_its_key() -> None:
    (one,) = judged("-Ithird_party/include")
    assert one.hint == "write it in 'include': include = [\"third_party/include\"]"


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["-include", "gone.h"], "add the file"),
        (["-include", "other/config.h"], 'include = ["."]'),
        (["-include=config.h"], 'include = ["other"]'),
        (["-includeconfig.h"], 'include = ["other"]'),
        (["--pre-include", "config.h"], 'include = ["other"]'),
        (["-O3", "-imacros", "gone.h"], "add the file"),
        (["-include", "listed.h"], None),
        (["-include", "cuda_fp16.h"], None),
        (["-include", "torch/all.h", "-include", "stdint.h"], None),
    ],
)
@pytest.mark.parametrize("key", ["cxx-flags", "cuda-flags"])
def test_a_file_that_flags_include_is_where_compilers_look(
    tmp_path: Path, flags: list[str], hint: str | None, key: str
) -> None:
    write(tmp_path, {"other/config.h": "", "inc/listed.h": "", "torch-ext/ab/__init__.py": ""})
    text = PROJECT.format(backend="cuda", key=key, flags=json.dumps(flags), torch="[]")
    text = text.replace("src = []\n" + key, f'src = []\ninclude = ["inc"]\n{key}')
    try:
        _, found = read_project(text.encode(), file=Path("build.toml"), root=tmp_path)
    except ConfigError as error:
        found = error.diagnostics
    told = [one for one in found if one.key is not None and key in one.key]
    assert [one.severity for one in told] == ([] if hint is None else ["error"]), told
    assert hint is None or hint in (told[0].hint or "")
