"""kernel-builder.lock: the same bytes for the same contents, read strictly, compared clearly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.errors import ConfigError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toolchain.lock import (
    LOCK_NAME,
    Lock,
    LockedVariant,
    changes,
    parse_lock,
    read_lock,
    render,
    write_lock,
)
from kernel_builder.toolchain.model import Family, HostCompiler

TORCH = Artefact(
    name="torch",
    version="2.13.0",
    filename="torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    size=526605292,
    sha256="7" * 64,
    record_sha256="a" * 64,
)
NVCC = Artefact(
    name="nvidia-cuda-nvcc",
    version="13.0.88",
    filename="nvidia_cuda_nvcc-13.0.88-py3-none-any.whl",
    record_sha256="c" * 64,
)
LOCAL = Artefact(
    name="nvcc", version="12.4.131", filename="cuda-12.4", kind=ArtefactKind.LOCAL, sha256="d" * 64, source="local"
)
CPU = LockedVariant(name="torch213-cxx11-cpu-x86_64-linux", host_compiler={Family.GCC: ">=11"}, artefacts=(TORCH,))
BOUNDS = {Family.GCC: ">=11,<16", Family.CLANG: ">=13,<21"}
CUDA = LockedVariant(name="torch213-cxx11-cu130-x86_64-linux", host_compiler=BOUNDS, artefacts=(NVCC, TORCH))
LOCK = Lock.of([CUDA, CPU])
FILE = Path("project") / LOCK_NAME
_HOST = 'host-compiler = { gcc = ">=11" }'

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
artefacts = st.builds(
    Artefact,
    name=words,
    version=st.sampled_from(["1.0", "2.13.0+cu130", "12.4.131~12.4.1-2", "1:2.3"]),
    filename=words,
    kind=st.sampled_from([ArtefactKind.ARCHIVE, ArtefactKind.PACKAGE, ArtefactKind.LOCAL, ArtefactKind.TREE]),
    size=st.none() | st.integers(0, 2**40),
    sha256=digests,
    record_sha256=st.none() | digests,
    source=words,
)


bounds = st.sampled_from([">=11", ">=9,<12"])


@st.composite
def locks(draw: st.DrawFn) -> Lock:
    pool = draw(st.lists(artefacts, min_size=1, max_size=6, unique_by=(lambda a: a.filename, lambda a: a.name)))
    numbers = draw(st.lists(st.integers(0, 99), max_size=4, unique=True))
    return Lock.of(
        LockedVariant(
            name=f"torch213-cxx11-cu{number}-x86_64-linux",
            host_compiler=draw(st.dictionaries(st.sampled_from(Family), bounds, min_size=1)),
            artefacts=tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6, unique=True))),
        )
        for number in numbers
    )


@given(locks())
def test_what_is_written_is_read_again(lock: Lock) -> None:
    text = render(lock)
    assert parse_lock(text.encode(), FILE) == lock
    assert render(parse_lock(text.encode(), FILE)) == text


def test_the_order_in_which_variants_come_makes_no_difference() -> None:
    other = replace(CUDA, artefacts=(TORCH, NVCC))
    assert render(Lock.of([CPU, other])) == render(LOCK)


def test_each_artefact_stands_there_once() -> None:
    text = render(LOCK)
    assert text.count("[[artefact]]") == 2
    assert text.count("[[variant]]") == 2
    assert text.count(f'"{TORCH.filename}"') == 3
    assert "http" not in text


def test_several_parts_of_one_local_toolkit_are_told_apart() -> None:
    lock = Lock.of([replace(CUDA, artefacts=(LOCAL, replace(LOCAL, name="crt"), TORCH))])
    assert parse_lock(render(lock).encode(), FILE) == lock


def test_two_files_of_one_name_cannot_be_locked() -> None:
    with pytest.raises(ConfigError, match=r"two different files are called torch-2\.13\.0"):
        render(Lock.of([CPU, replace(CUDA, artefacts=(replace(TORCH, sha256="8" * 64),))]))


def test_a_project_without_a_lock_has_none(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    write_lock(tmp_path, LOCK)
    assert read_lock(tmp_path) == LOCK
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]


GOOD = render(LOCK)
_NAME = f'name = "{CPU.name}"'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("format = 1", "format = 2", "format is the number 2; this version of kernel-builder reads format 1"),
        ("format = 1", "", "format is missing"),
        ("format = 1", "format = 1\nextra = 1", "unknown key 'extra'"),
        (_NAME, f'{_NAME}\nextra = "x"', "unknown key 'extra'"),
        (_NAME, "", "the key 'name' is missing"),
        (_NAME, "name = 3", "must be the name of a variant, not the number 3"),
        (_NAME, f'name = "{CUDA.name}"', "it appears twice"),
        (_HOST, 'host-compiler = { gcc = "eleven" }', "must be bounds such as '>=11,<16'"),
        (_HOST, 'host-compiler = { gcc = "" }', "must be bounds such as '>=11,<16'"),
        (_HOST, 'host-compiler = { icc = ">=11" }', "unknown key 'icc'"),
        (_HOST, "host-compiler = {}", 'must be a table of bounds such as { gcc = ">=11,<16" }'),
        (_HOST, 'host-compiler = ">=11"', 'must be a table of bounds such as { gcc = ">=11,<16" }'),
        (_HOST, "", "the key 'host-compiler' is missing"),
        (f'artefacts = [\n  "{TORCH.filename}",\n]', "artefacts = []", "must be a list of file names"),
        (f'  "{NVCC.filename}",', '  "other.whl",', "no [[artefact]] has the filename 'other.whl'"),
        (f'  "{NVCC.filename}",', "", "no variant refers to it"),
        ('kind = "wheel"', 'kind = "egg"', "must be one of wheel"),
        ('version = "2.13.0"', 'version = "2 13"', "must be a version"),
        ('version = "2.13.0"', 'version = "2.13.1"', f"'{TORCH.filename}' is version 2.13.0"),
        ('name = "torch"', 'name = "torchvision"', f"'{TORCH.filename}' is a wheel of torch"),
        (f'filename = "{TORCH.filename}"', 'filename = "a.whl"', "'a.whl' is not a valid wheel name"),
        ('version = "2.13.0"', 'version = "newest"', "'newest' is not a valid wheel version"),
        (f"size = {TORCH.size}", "size = -1", "must be a number of bytes"),
        (f"size = {TORCH.size}", "size = true", "must be a number of bytes"),
        (TORCH.sha256 or "", "77", "must be a SHA-256 in hex"),
        (f'record-sha256 = "{NVCC.record_sha256}"', "", "neither sha256 nor record-sha256"),
        (f'filename = "{NVCC.filename}"', 'filename = "../evil.whl"', "must be a file name"),
        ("[[variant]]", "[variant]", ""),
        ('name = "torch"', 'name = "torch', ""),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    with pytest.raises(ConfigError) as caught:
        parse_lock(text.encode(), FILE)
    assert caught.value.diagnostics
    told = [diagnostic.render() for diagnostic in caught.value.diagnostics]
    assert any(message in line for line in told), told
    assert all(line.startswith(f"{FILE}:") and line.split(":")[1].isdigit() for line in told)
    assert caught.value.hint is not None
    assert "kernel-builder lock" in caught.value.hint


def test_what_is_no_text_is_told() -> None:
    with pytest.raises(ConfigError, match="has a mistake"):
        parse_lock(b"format = 1 # \xff\n", FILE)


def test_bounds_of_the_host_compiler() -> None:
    def host(version: str, family: Family = Family.GCC) -> HostCompiler:
        return HostCompiler(cxx=Path("/c++"), version=version, target="x86_64-linux-gnu", library=12, family=family)

    assert CUDA.accepts(host("12.2.0"))
    assert CUDA.accepts(host("15.1.0"))
    assert not CUDA.accepts(host("16.0.0"))
    assert not CUDA.accepts(host("10.2.1"))
    assert CUDA.accepts(host("20.1.0", Family.CLANG))
    assert not CUDA.accepts(host("21.1.0", Family.CLANG))
    assert not CPU.accepts(host("20.1.0", Family.CLANG))


def test_changes_are_told_once_with_the_variants_that_they_concern() -> None:
    newer = replace(TORCH, version="2.13.1", filename="torch-2.13.1.whl", sha256="9" * 64)
    altered = replace(NVCC, record_sha256="e" * 64)
    after = Lock.of(
        [
            replace(CPU, artefacts=(newer,)),
            replace(CUDA, artefacts=(newer, altered), host_compiler={**BOUNDS, Family.GCC: ">=11,<17"}),
            replace(CPU, name="torch212-cxx11-cpu-x86_64-linux"),
        ]
    )
    assert changes(LOCK, after) == (
        "+ torch212-cxx11-cpu-x86_64-linux",
        f"host compiler g++ >=11,<16 or clang++ >=13,<21 -> g++ >=11,<17 or clang++ >=13,<21 ({CUDA.name})",
        f"nvidia-cuda-nvcc 13.0.88: record-sha256 {'c' * 12}... -> {'e' * 12}... ({CUDA.name})",
        f"torch 2.13.0 -> 2.13.1 ({CPU.name}, {CUDA.name})",
    )
    assert changes(None, Lock.of([CPU])) == (f"+ {CPU.name}",)
    assert changes(LOCK, Lock.of([CUDA])) == (f"- {CPU.name}",)
    assert changes(LOCK, LOCK) == ()
