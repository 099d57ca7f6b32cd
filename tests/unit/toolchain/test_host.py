from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import (
    HostCompilers,
    Purpose,
    choose_host_compiler,
    compiler_file,
    find_host_compilers,
    header_folders,
    host_limits,
    judge_host_compilers,
    measured,
    variable_with,
)
from kernel_builder.toolchain.model import Family, HostChoice, HostCompiler, Toolkit
from kernel_builder.toolchain.provide import purpose_of
from kernel_builder.variants.names import Machine


def fake_compiler(directory: Path, name: str, *, version: str, banner: str = "g++ (GCC)") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -dumpfullversion) echo {version};; -dumpmachine) echo x86_64-linux-gnu;;'
        f" --version) echo '{banner} {version}';; esac\n",
        encoding="ascii",
    )
    path.chmod(0o755)
    return path


def fake_clang(directory: Path, name: str, *, version: str, library: int | None = 12) -> Path:
    """A clang that finds the libstdc++ of GCC ``library``, or none."""
    macros = f"echo '#define _GLIBCXX_RELEASE {library}'" if library is not None else "exit 1"
    path = directory / name
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in -dumpfullversion) exit 1;; -dumpversion) echo {version};; -stdlib=*) {macros};;'
        f" -dumpmachine) echo x86_64-pc-linux-gnu;; --version) echo 'Debian clang version {version}';; esac\n",
        encoding="ascii",
    )
    path.chmod(0o755)
    return path


def purpose(torch: str, cuda: str | None) -> Purpose:
    if cuda is None:
        return Purpose(release=torch)
    toolkit = Toolkit(backend=Backend("cuda"), version=cuda)
    return purpose_of(ToolchainRequest(release=torch, machine=Machine.X86_64, toolkit=toolkit), toolkit_kinds())


def choose(compilers: HostCompilers, *, torch: str = "2.13", cuda: str | None = None) -> HostCompiler:
    return choose_host_compiler(compilers, purpose(torch, cuda))


def test_the_machines_compiler_is_found() -> None:
    host = find_host_compilers(os.environ).found[0]
    assert host.cxx.is_absolute()
    assert host.target.endswith("linux-gnu")
    assert compiler_file(host, "libstdc++.a", os.environ).is_file()


def test_the_newest_that_the_toolkit_accepts_is_taken(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="14.2.0")
    fake_compiler(tmp_path, "g++-11", version="11.4.0")
    fake_compiler(tmp_path, "g++-13", version="13.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert choose(compilers).version == "14.2.0"
    assert choose(compilers, cuda="12.8").version == "14.2.0"
    assert choose(compilers, torch="2.6", cuda="12.4").version == "13.2.0"
    assert choose(compilers, torch="2.6", cuda="11.8").cxx == tmp_path / "g++-11"


def test_only_compilers_of_the_wanted_family_are_found(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="12.2.0")
    clang = fake_clang(tmp_path, "clang++", version="17.0.6")
    environ = {"PATH": str(tmp_path)}
    assert find_host_compilers(environ, choice=HostChoice.CLANG).found[0].cxx == clang
    assert [host.family for host in find_host_compilers(environ, choice=HostChoice.GCC).found] == [Family.GCC]
    assert find_host_compilers(environ, choice=HostChoice.ZIG).found == ()
    named = find_host_compilers({**environ, "CXX": "g++"}, choice=HostChoice.CLANG)
    with pytest.raises(ToolchainError, match=r"it is g\+\+ 12\.2\.0, but the host compiler is set to clang"):
        choose(named)


def test_of_two_names_of_one_compiler_the_plain_one_is_taken(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++-12", version="12.2.0")
    (tmp_path / "g++").symlink_to("g++-12")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert [host.cxx.name for host in compilers.found] == ["g++"]


def test_too_new_for_the_toolkit_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path, "g++", version="12.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    with pytest.raises(ToolchainError) as caught:
        choose(compilers, torch="2.6", cuda="11.8")
    assert f"{compiler}: it is g++ 12.2.0; CUDA 11.8 accepts 11 at most" in caught.value.message
    assert "needs g++ 9 to 11 or clang++ 13 to 14" in caught.value.message
    assert caught.value.hint is not None
    assert "g++-11" in caught.value.hint


def test_the_headers_of_torch_set_the_oldest(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="10.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert choose(compilers, torch="2.11").version == "10.2.0"
    with pytest.raises(ToolchainError, match=r"torch 2\.12 need 11 or newer"):
        choose(compilers, torch="2.12")


@pytest.mark.parametrize(
    ("torch", "cuda", "gcc", "clang"),
    [
        ("2.6", "11.8", ">=9,<12", ">=13,<15"),
        ("2.6", "12.3", ">=9,<13", ">=13,<17"),
        ("2.8", "12.9", ">=9,<15", ">=13,<20"),
        ("2.15", "13.2", ">=11,<16", ">=13,<22"),
        ("2.13", None, ">=11", ">=13"),
    ],
)
def test_bounds_hold_from_a_release_on(torch: str, cuda: str | None, gcc: str, clang: str) -> None:
    limits = host_limits(purpose(torch, cuda))
    assert {family: limit.specifier for family, limit in limits.items()} == {Family.GCC: gcc, Family.CLANG: clang}


def test_a_gcc_that_fits_goes_before_every_clang(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="12.2.0")
    clang = fake_clang(tmp_path, "clang++", version="19.1.7")
    compilers = find_host_compilers({"PATH": str(tmp_path)})
    assert str(choose(compilers)) == "g++ 12.2.0"
    _, refused = judge_host_compilers(compilers, Purpose(release="2.13"))
    assert [str(entry) for entry in refused] == [
        f"{clang}: it is clang++ 19.1.7, which also fits; g++ 12.2.0 is preferred"
    ]


def test_the_newest_clang_that_fits_is_taken_where_no_gcc_does(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="16.1.0")
    fake_clang(tmp_path, "clang++", version="21.1.0", library=14)
    fake_clang(tmp_path, "clang++-20", version="20.1.0", library=14)
    fake_clang(tmp_path, "clang++-14", version="14.0.6", library=14)
    host = choose(find_host_compilers({"PATH": str(tmp_path)}), cuda="13.0")
    assert (host.cxx.name, host.family, host.major, host.library) == ("clang++-20", Family.CLANG, 20, 14)


@pytest.mark.parametrize(
    ("version", "library", "torch", "cuda", "reason"),
    [
        ("12.0.1", 12, "2.13", None, "it is clang++ 12.0.1; the headers of torch 2.13 need 13 or newer"),
        ("19.1.7", 12, "2.6", "12.4", "it is clang++ 19.1.7; CUDA 12.4 accepts 17 at most"),
        ("16.0.6", 10, "2.13", "13.0", "libstdc++ 10; the headers of torch 2.13 need 11 or newer"),
        ("14.0.6", 12, "2.6", "11.8", "libstdc++ 12; CUDA 11.8 accepts 11 at most"),
        ("19.1.7", None, "2.13", None, "it is clang, but finds no libstdc++"),
    ],
)
def test_a_clang_that_does_not_fit_is_refused_with_the_reason(
    version: str, library: int | None, torch: str, cuda: str | None, reason: str, tmp_path: Path
) -> None:
    fake_clang(tmp_path, "clang++", version=version, library=library)
    with pytest.raises(ToolchainError) as caught:
        choose(find_host_compilers({"PATH": str(tmp_path)}), torch=torch, cuda=cuda)
    assert reason in caught.value.message


def test_compilers_behind_one_wrapper_stay_apart(tmp_path: Path) -> None:
    wrapper = tmp_path / "ccache"
    wrapper.write_text(
        "#!/bin/sh\n"
        'case "${0##*/}" in g++-11) v=11.4.0;; *) v=13.2.0;; esac\n'
        'case "$1" in -dumpm*) echo x86_64-linux-gnu;; -dump*) echo $v;; --version) echo "g++ (GCC) $v";; esac\n'
    )
    wrapper.chmod(0o755)
    for name in ("g++", "g++-13", "g++-11"):
        (tmp_path / name).symlink_to(wrapper)
    found = find_host_compilers({"PATH": str(tmp_path)}).found
    assert [(host.cxx.name, host.version) for host in found] == [("g++", "13.2.0"), ("g++-11", "11.4.0")]


def test_everything_that_was_tried_is_named_with_its_reason(tmp_path: Path) -> None:
    fake_compiler(tmp_path, "g++", version="9.4.0")
    fake_clang(tmp_path, "c++", version="12.0.1")
    with pytest.raises(ToolchainError) as caught:
        choose(find_host_compilers({"PATH": str(tmp_path)}))
    assert "9.4.0" in caught.value.message
    assert "clang" in caught.value.message
    assert caught.value.hint is not None
    assert "apt-get install g++" in caught.value.hint


def test_another_machines_compiler_does_not_fit(tmp_path: Path) -> None:
    cross = fake_compiler(tmp_path, "aarch64-linux-gnu-g++", version="13.2.0")
    compilers = find_host_compilers({"PATH": str(tmp_path)}, machine="aarch64")
    with pytest.raises(ToolchainError, match="compiles for x86_64-linux-gnu, not for aarch64") as caught:
        choose(compilers)
    assert "apt-get install g++-aarch64-linux-gnu" in (caught.value.hint or "")
    cross.write_text(cross.read_text().replace("x86_64", "aarch64"))
    assert choose(find_host_compilers({"PATH": str(tmp_path)}, machine="aarch64")).cxx == cross


def test_cxx_is_the_users_choice_and_nothing_else_is_tried(tmp_path: Path) -> None:
    old = fake_compiler(tmp_path, "mine", version="8.1.0")
    with pytest.raises(ToolchainError, match=r"8\.1\.0") as caught:
        choose(find_host_compilers({"PATH": os.environ["PATH"], "CXX": str(old)}))
    assert caught.value.hint == "unset CXX, or set it to another compiler"
    with pytest.raises(ToolchainError, match="not on PATH"):
        choose(find_host_compilers({"PATH": os.environ["PATH"], "CXX": "no-such-compiler"}))


def test_no_compiler_at_all(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="none was found"):
        choose(find_host_compilers({"PATH": str(tmp_path)}))


def test_the_documented_bounds_are_those_that_hold() -> None:
    text = (Path(__file__).parents[3] / "docs" / "toolchains.md").read_text(encoding="utf-8")
    documented: dict[str, tuple[str, str]] = {}
    for releases, gcc, clang in re.findall(r"\| CUDA ([^|]+?) \| up to (\d+) \| up to ([^|]+?) \|", text):
        for group, newest in zip(releases.split(" · "), clang.split(" · "), strict=True):
            for release in re.findall(r"\d+\.\d+", group):
                documented[release] = (gcc, newest)
    assert {"11.8", "12.4", "12.6", "13.0", "13.3", "13.4"} <= documented.keys()
    for cuda, newest in documented.items():
        limits = host_limits(purpose("2.6", cuda))
        assert (str(limits[Family.GCC].newest), str(limits[Family.CLANG].newest)) == newest, cuda


def test_a_program_that_prints_no_text_is_no_compiler(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\nprintf '\\377\\376'\n")
    program.chmod(0o755)
    compilers = find_host_compilers({"PATH": os.environ["PATH"], "CXX": str(program)})
    assert [entry.reason for entry in compilers.rejected] == ["it does not respond like a compiler"]


PARTS = {
    "a program": "libexec/cc1plus",
    "the assembler": "bin/as",
    "a library": "lib/libstdc++.a",
    "a header of C++": "include/c++/12/bits/stl_vector.h",
    "the compiler's own header": "lib/gcc/x86_64-linux-gnu/12/include/immintrin.h",
    "a header of the C library": "include/stdio.h",
    "one in its folders": "include/bits/types.h",
}


@pytest.fixture
def whole_compiler(tmp_path: Path) -> Path:
    """A g++ that says where its parts are."""
    root = tmp_path / "compiler"
    for part in (*PARTS.values(), "include/other/library.h"):
        (root / part).parent.mkdir(parents=True, exist_ok=True)
        (root / part).write_text("1", encoding="ascii")
        (root / part).chmod(0o755)
    folders = ["include/c++/12", "lib/gcc/x86_64-linux-gnu/12/include", "include", "not/there"]
    listed = "\n ".join(["#include <...> search starts here:", *(str(root / folder) for folder in folders)])
    path = fake_compiler(root / "bin", "g++", version="12.2.0")
    answers = {
        "-print-prog-name=as": f"{root}/bin/as",
        "-print-prog-name=cc1plus": f"{root}/libexec/cc1plus",
        "-print-file-name=libstdc++.a": f"{root}/lib/libstdc++.a",
    }
    cases = [f"{question}) echo {answer};;" for question, answer in answers.items()]
    cases.append(f"-E) echo '{listed}\nEnd of search list.' >&2;;")
    text = path.read_text(encoding="ascii").replace('case "$1" in', f'case "$1" in {" ".join(cases)}')
    path.write_text(text, encoding="ascii")
    return path


def digest_of(cxx: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "CXX": str(cxx)}
    (host,) = find_host_compilers(environ).found
    return measured(host, environ).digest


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_every_part_of_a_compiler_that_changes_in_place_makes_another_one(whole_compiler: Path, part: str) -> None:
    before = digest_of(whole_compiler)
    assert digest_of(whole_compiler) == before
    (whole_compiler.parent.parent / part).write_text("12", encoding="ascii")
    assert digest_of(whole_compiler) != before


def test_other_libraries_headers_are_no_part_of_a_compiler(whole_compiler: Path) -> None:
    before = digest_of(whole_compiler)
    (whole_compiler.parent.parent / "include/other/library.h").write_text("12", encoding="ascii")
    assert digest_of(whole_compiler) == before


def test_the_headers_of_the_machines_compiler_are_found() -> None:
    host = find_host_compilers(os.environ).found[0]
    own, shared = header_folders(host.cxx, os.environ, host.family)
    assert any((folder / "vector").is_file() for folder in own)
    assert any((folder / "stdio.h").is_file() for folder in shared)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CPATH", "{0}/other:{0}/own"),
        ("CPLUS_INCLUDE_PATH", "{0}/own"),
        ("CXXFLAGS", "-O2 -I{0}/own -g"),
        ("SOME_PREPEND_FLAGS", "-isystem {0}/own"),
    ],
)
def test_a_variable_that_names_a_header_is_found(tmp_path: Path, variable: str, value: str) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "x.h").touch()
    environ = {"PATH": str(tmp_path / "own"), variable: value.format(tmp_path)}
    assert variable_with("x.h", environ) == (variable, tmp_path / "own" / "x.h")
    assert variable_with("y.h", environ) is None
    assert variable_with("x.h", {"PATH": str(tmp_path / "own")}) is None
