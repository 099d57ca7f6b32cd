"""Editions 1-4: recognised by what is in them, read into the same model (contract 1.4, cases T3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Capability, FrameworkKind, Project
from kernel_builder.config.reader import read_project
from kernel_builder.errors import ConfigError, Diagnostic, Level
from kernel_builder.versions import Version


def read(text: str, *, to_build: bool = False) -> tuple[Project, tuple[Diagnostic, ...]]:
    return read_project(text.encode(), file=Path("build.toml"), root=Path(), tree=False, to_build=to_build)


def refused(text: str, *, to_build: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, to_build=to_build)
    return [one.message for one in caught.value.diagnostics if one.severity is Level.ERROR]


FIRST = """\
[general]
name = "scale"

[torch]
src = ["torch_binding.cpp"]

[kernel.scale]
cuda-capabilities = ["7.0", "8.0"]
depends = ["torch"]
src = ["scale.cu"]
"""

SECOND = """\
[general]
name = "scale"
python-depends = ["einops", "nvidia-cutlass-dsl"]
cuda-minver = "12.4"
cuda-maxver = "12.9"

[torch]
minver = "2.7"

[kernel.b]
backend = "rocm"
depends = ["torch"]
src = ["scale.cu"]

[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["scale.cu"]
cuda-flags = ["-O3"]
"""

THIRD = """\
[general]
name = "scale"
backends = ["xpu"]

[torch]

[kernel.a]
backend = "xpu"
depends = ["cutlass_sycl"]
src = ["scale.cpp"]
"""


def test_the_first_edition_is_for_cuda_unless_it_says_otherwise() -> None:
    project, (warning,) = read(FIRST)
    assert (project.edition, project.version, project.license) == (1, 1, None)
    assert project.backends == (Backend("cuda"),)
    (section,) = project.sections
    assert (section.id, section.backend) == ("scale", Backend("cuda"))
    assert section.architectures == (Capability(7, 0), Capability(8, 0))
    assert "edition 1" in warning.message
    assert "kernel-builder update-build" in (warning.hint or "")


def test_hipify_is_a_section_for_cuda_and_one_for_rocm() -> None:
    project, _ = read(FIRST + 'language = "cuda-hipify"\nrocm-archs = ["gfx942"]\n')
    assert project.backends == (Backend("cuda"), Backend("rocm"))
    cuda, rocm = project.sections
    assert (cuda.id, cuda.backend, cuda.architectures) == (
        "scale",
        Backend("cuda"),
        (Capability(7, 0), Capability(8, 0)),
    )
    assert (rocm.id, rocm.backend, rocm.architectures) == ("scale_rocm", Backend("rocm"), ("gfx942",))
    assert cuda.src == rocm.src


def test_hipify_does_not_overwrite_a_section() -> None:
    text = FIRST + 'language = "cuda-hipify"\n\n[kernel.scale_rocm]\ndepends = []\nsrc = ["a.cu"]\n'
    assert refused(text) == [
        "'cuda-hipify' turns this section into 'scale_rocm', but a section with that name already exists"
    ]


def test_a_language_beside_a_backend_is_a_contradiction() -> None:
    assert refused(FIRST + 'language = "cuda"\nbackend = "rocm"\n') == ["cannot be combined with 'backend'"]


def test_metal_stays_metal() -> None:
    project, _ = read(
        FIRST.replace('cuda-capabilities = ["7.0", "8.0"]', 'language = "metal"').replace("scale.cu", "scale.metal")
    )
    assert [section.backend for section in project.sections] == [Backend("metal")]
    assert project.backends == (Backend("metal"),)


def test_architectures_of_another_language_are_told_to_have_no_effect() -> None:
    project, warnings = read(FIRST + 'rocm-archs = ["gfx942"]\n')
    assert project.sections[0].architectures == (Capability(7, 0), Capability(8, 0))
    assert [one.key for one in warnings] == ["general", "kernel.scale.rocm-archs"]


@pytest.mark.parametrize(
    "text",
    [
        '[general]\nname = "ab"\n[torch]\nuniversal = true\nsrc = []\npyext = ["py"]\n',
        '[general]\nname = "ab"\nuniversal = true\n[torch]\npyext = ["py"]\n',
    ],
)
def test_universal_is_python_alone_for_the_backends_of_its_time(text: str) -> None:
    project, _ = read(text)
    assert project.framework.kind is FrameworkKind.TORCH_NOARCH
    assert project.framework.pyext == ("py",)
    assert project.backends == (Backend("cpu"), Backend("cuda"), Backend("metal"), Backend("rocm"), Backend("xpu"))


def test_universal_with_sources_is_a_contradiction() -> None:
    assert refused(FIRST.replace("[torch]\n", "[torch]\nuniversal = true\n")) == [
        "has no effect on a Python-only kernel ('universal = true')",
        "kernel sections are for compiled code, but [torch-noarch] declares that there is none",
    ]


def test_universal_beside_torch_noarch_is_a_contradiction() -> None:
    text = '[general]\nname = "ab"\n[torch]\nuniversal = true\n[torch-noarch]\n'
    assert "cannot be combined with [torch-noarch]" in refused(text)


def test_universal_false_is_nothing() -> None:
    project, _ = read(FIRST.replace("[torch]\n", "[torch]\nuniversal = false\n"))
    assert project.framework.kind is FrameworkKind.TORCH


def test_the_second_edition_keeps_python_depends_and_bounds() -> None:
    project, _ = read(SECOND)
    assert project.edition == 2
    assert project.backends == (Backend("cuda"), Backend("rocm"))
    assert [section.id for section in project.sections] == ["b", "a"]
    assert project.python_depends == ("einops",)
    cuda = project.backend_options[Backend("cuda")]
    assert (cuda.minver, cuda.maxver) == (Version.parse("12.4"), Version.parse("12.9"))
    assert cuda.python_depends == ("nvidia-cutlass-dsl",)
    assert project.framework.minver == Version.parse("2.7")


def test_the_third_edition_needs_neither_version_nor_licence() -> None:
    project, (warning,) = read(THIRD)
    assert (project.edition, project.version, project.license) == (3, 1, None)
    assert project.sections[0].depends == ("sycl_tla",)
    assert "--license" in (warning.hint or "")


def test_the_third_edition_without_framework_is_python_alone() -> None:
    project, _ = read('[general]\nname = "ab"\nversion = 2\nlicense = "mit"\nbackends = ["cuda"]\n')
    assert project.edition == 3
    assert project.framework.kind is FrameworkKind.TORCH_NOARCH


def test_a_mistake_in_the_framework_table_does_not_make_it_python_alone() -> None:
    assert refused(THIRD.replace("[torch]", "[torchh]")) == ["unknown table [torchh]"]
    assert refused(THIRD.replace("[torch]", "[torch]\nsrc = 3")) == ["must be a list of strings, not the number 3"]


def test_the_fourth_edition_has_one_stable_abi_for_all_backends() -> None:
    text = THIRD.replace('backends = ["xpu"]', 'version = 1\nlicense = "mit"\nbackends = ["xpu", "cpu"]')
    project, _ = read(text.replace("[torch]", '[torch]\nstable-abi = "2.9"').replace("cutlass_sycl", "torch"))
    assert project.edition == 4
    assert project.framework.stable_abi == dict.fromkeys((Backend("xpu"), Backend("cpu")), Version.parse("2.9"))


def test_a_key_of_the_fourth_edition_makes_its_version_due() -> None:
    text = THIRD.replace("backends", 'source = "https://example.com/a/b"\nbackends')
    assert refused(text) == ["is missing", "unknown dependency 'cutlass_sycl'"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_what_is_built_has_a_license_in_every_edition(number: int) -> None:
    text = {1: FIRST, 2: SECOND, 3: THIRD, 4: THIRD.replace("[torch]", "version = 1\n[torch]", 1)}[number]
    text = text.replace("cutlass_sycl", "torch").replace('["xpu"]\n\nversion', '["xpu"]\nversion')
    assert read(text)[0].edition == number
    with pytest.raises(ConfigError) as caught:
        read(text, to_build=True)
    (one,) = [one for one in caught.value.diagnostics if one.severity is Level.ERROR]
    assert (one.key, one.message, one.hint) == ("general.license", "is missing", 'add: license = "Apache-2.0"')


@pytest.mark.parametrize("text", [FIRST, SECOND, THIRD, THIRD.replace("\n\n[torch]", "\nversion = 1\n\n[torch]", 1)])
def test_a_license_does_not_change_the_edition(text: str) -> None:
    text = text.replace("cutlass_sycl", "torch")
    licensed = text.replace('name = "scale"', 'name = "scale"\nlicense = "mit"')
    before, after = read(text)[0], read(licensed, to_build=True)[0]
    assert after.edition == before.edition
    assert replace(after, license=None) == before


def test_a_version_does_not_make_a_file_of_the_first_edition_a_newer_one() -> None:
    assert read(FIRST.replace('name = "scale"', 'name = "scale"\nversion = 2\nlicense = "mit"'))[0].edition == 1


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_written_older_number_is_read_with_the_same_warning(number: int) -> None:
    text = {1: FIRST, 2: SECOND, 3: THIRD, 4: THIRD}[number]
    text = text.replace('name = "scale"', f'name = "scale"\nedition = {number}')
    if number == 4:
        text = text.replace("[torch]", 'version = 1\nlicense = "mit"\n\n[torch]').replace("cutlass_sycl", "torch")
        text = text.replace('\n\nversion = 1\nlicense = "mit"', '\nversion = 1\nlicense = "mit"')
    project, (warning,) = read(text)
    assert project.edition == number
    assert f"edition {number};" in warning.message


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("6", "edition 6 is newer than this kernel-builder, which supports editions up to 5"),
        ("99999999999999999999", "edition ... is newer than this kernel-builder, which supports editions up to 5"),
        ("0", "unknown edition 0"),
        ("-1", "unknown edition -1"),
        ('"5"', "must be an integer, not the string '5'"),
        ("5.0", "must be an integer, not the number 5.0"),
        ("true", "must be an integer, not true"),
    ],
)
def test_other_numbers_are_refused(written: str, said: str) -> None:
    text = THIRD.replace("[torch]", f"edition = {written}\n\n[torch]", 1).replace("\n\nedition", "\nedition")
    assert said in refused(text)


@pytest.mark.parametrize("written", ["6", "99", '"5"', '"five"', "5.0", "true", "0", "[5]", "{ number = 5 }"])
def test_a_wrong_number_does_not_hide_other_mistakes(written: str) -> None:
    text = f"""\
[general]
name = "Bad Name"
version = "1"
edition = {written}
backends = ["gpu"]
[torch]
srcs = []
[kernel.a]
backend = "cuda"
depends = ["cub"]
src = ["a.cu"]
cuda-flags = ["-lfoo"]
"""
    with pytest.raises(ConfigError) as caught:
        read(text, to_build=True)
    keys = {one.key for one in caught.value.diagnostics}
    assert keys >= {
        "general.edition",
        "general.license",
        "general.name",
        "general.version",
        "general.backends[0]",
        "torch.srcs",
        "kernel.a.depends[0]",
        "kernel.a.cuda-flags[0]",
    }


def test_no_backends_in_a_present_day_file_is_a_mistake_not_an_old_edition() -> None:
    assert refused(SECOND.replace("cuda-minver", "version = 1\nlicense = 'mit'\n#").replace("cuda-maxver", "#"))[
        :1
    ] == ["is missing"]
