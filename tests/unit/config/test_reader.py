"""build.toml of edition 5 into the model, and the files that are no text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import (
    BackendOptions,
    Capability,
    FrameworkKind,
    Hub,
    KernelDependency,
    Suffix,
)
from kernel_builder.config.reader import MAX_BYTES, load_project, read_project
from kernel_builder.errors import ConfigError, Diagnostic, ExitCode, Level
from kernel_builder.versions import Version

MINIMAL = """\
[general]
name = "my-kernel"
version = 0
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch-noarch]
"""

FULL = """\
[general]
name = "my-kernel"
version = 3
edition = 5
license = "mit"
backends = ["cuda", "cpu", "xpu"]
upstream = "git@example.com:me/mine.git"
source = "git+https://example.com/me/mine"
python-depends = ["einops"]
kernel-depends = [{ repo-id = "me/other", version = 2 }]

[general.hub]
repo-id = "me/my-kernel"
branch = "next"

[general.cuda]
minver = "12.8.0"
maxver = "13.0"
python-depends = ["nvidia-cutlass-dsl"]
kernel-depends = [{ repo-id = "me/more", revision = "main" }]

[torch]
src = ["torch-ext/torch_binding.cpp"]
include = ["."]
pyext = ["py", "json"]
cxx-flags = ["-O3"]
minver = "2.12"
maxver = "2.13"
stable-abi = "2.11"

[kernel."the first"]
backend = "cuda"
depends = ["torch", "cutlass_4_0"]
src = ["b.cu"]
include = ["."]
cxx-flags = ["-O1"]
cuda-flags = ["-O2", "-O2"]
cuda-capabilities = ["9.0a", "8.0"]
cuda-minver = "12.9"

[kernel.a]
backend = "xpu"
depends = []
src = ["a.cpp"]
sycl-flags = ["-O0"]
"""


def project_dir(root: Path, text: str | bytes, *files: str) -> Path:
    (root / "build.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def messages(error: ConfigError) -> list[str]:
    return [one.message for one in error.diagnostics]


def test_reads_the_least_that_there_is(tmp_path: Path) -> None:
    project, warnings = load_project(project_dir(tmp_path, MINIMAL, "torch-ext/my_kernel/__init__.py"))
    assert warnings == ()
    assert project.root == tmp_path
    assert (project.name, project.python_name, project.version, project.edition) == ("my-kernel", "my_kernel", 0, 5)
    assert project.backends == (Backend("cuda"),)
    assert project.framework.kind is FrameworkKind.TORCH_NOARCH
    assert project.framework.pyext is None
    assert project.sections == ()


def test_bindings_that_nothing_compiles_are_told(tmp_path: Path) -> None:
    """Without kernel sections the variant is Python alone, whatever the framework's sources are."""
    text = MINIMAL.replace("[torch-noarch]", '[torch]\nsrc = ["torch-ext/torch_binding.cpp"]')
    files = ("torch-ext/my_kernel/__init__.py", "torch-ext/torch_binding.cpp")
    _, warnings = load_project(project_dir(tmp_path, text, *files))
    assert [one.message for one in warnings] == [
        "there is no kernel section for cuda, so its variant has only Python code"
    ]


def test_reads_every_key(tmp_path: Path) -> None:
    files = ("torch-ext/my_kernel/__init__.py", "torch-ext/torch_binding.cpp", "a.cpp", "b.cu")
    project, warnings = load_project(project_dir(tmp_path, FULL, *files))
    assert [one.message for one in warnings] == [
        "there is no kernel section for cpu, so its variant has only Python code"
    ]
    assert project.hub == Hub(repo_id="me/my-kernel", branch="next")
    assert project.upstream == "git@example.com:me/mine.git"
    assert project.source == "git+https://example.com/me/mine"
    assert project.kernel_depends == (KernelDependency(repo_id="me/other", version=2),)
    assert project.python_depends == ("einops",)
    assert project.backend_options == {
        Backend("cuda"): BackendOptions(
            minver=Version.parse("12.8.0"),
            maxver=Version.parse("13.0"),
            kernel_depends=(KernelDependency(repo_id="me/more", revision="main"),),
            python_depends=("nvidia-cutlass-dsl",),
        )
    }
    framework = project.framework
    assert (framework.src, framework.include) == (("torch-ext/torch_binding.cpp",), (".",))
    assert (framework.pyext, framework.cxx_flags) == (("py", "json"), ("-O3",))
    assert framework.stable_abi == dict.fromkeys(project.backends, Version.parse("2.11"))
    first, second = project.sections
    assert (first.id, first.backend, first.depends) == ("the first", Backend("cuda"), ("torch", "cutlass_4_0"))
    assert first.flags == ("-O2", "-O2")
    assert first.architectures == (Capability(9, 0, Suffix.ARCH), Capability(8, 0))
    assert (second.id, second.flags, second.architectures) == ("a", ("-O0",), None)


def test_versions_keep_their_text(tmp_path: Path) -> None:
    project, _ = read_project(FULL.encode(), file=tmp_path / "build.toml", root=tmp_path, tree=False)
    cuda = project.backend_options[Backend("cuda")]
    assert (str(cuda.minver), str(cuda.maxver)) == ("12.8.0", "13.0")


def test_an_empty_kernel_table_and_dotted_or_inline_tables_are_fine(tmp_path: Path) -> None:
    text = """\
general = { name = "ab", version = 1, edition = 5, license = "mit", backends = ["cpu"] }
torch.src = []
kernel = {}
"""
    project, warnings = load_project(project_dir(tmp_path, text, "torch-ext/ab/__init__.py"))
    assert (project.name, project.sections, warnings) == ("ab", (), ())


def errors_of(error: ConfigError) -> list[Diagnostic]:
    return [one for one in error.diagnostics if one.severity is Level.ERROR]


def test_tvm_ffi_has_a_package_directory_of_its_own(tmp_path: Path) -> None:
    text = MINIMAL.replace("[torch-noarch]", '[tvm-ffi]\nsrc = ["x.cc"]')
    with pytest.raises(ConfigError) as caught:
        load_project(project_dir(tmp_path, text, "x.cc", "torch-ext/my_kernel/__init__.py"))
    (said,) = errors_of(caught.value)
    assert "tvm-ffi-ext/my_kernel/__init__.py" in said.message
    assert said.hint == "move torch-ext/my_kernel there"


def test_no_file_points_to_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}/build.toml does not exist") as caught:
        load_project(tmp_path)
    assert caught.value.exit_code == ExitCode.CONFIG
    assert "kernel-builder init" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["ab", "my-kernel", "relu2d", "a--b", "a1"])
def test_takes_kernel_names(name: str, tmp_path: Path) -> None:
    text = MINIMAL.replace("my-kernel", name)
    project, _ = read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert project.name == name


@pytest.mark.parametrize(
    "name",
    ["a", "My-kernel", "2relu", "my_kernel", "relu-", "-relu", "re lu", "../x", "", "relü", "ab\\n", "ab\\u0000"],
)
def test_refuses_other_names_with_the_rule(name: str, tmp_path: Path) -> None:
    text = MINIMAL.replace("my-kernel", name)
    with pytest.raises(ConfigError) as caught:
        read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    (said,) = caught.value.diagnostics
    assert (said.key, said.line, said.column) == ("general.name", 2, 8)


def test_crlf_is_fine_and_places_are_right(tmp_path: Path) -> None:
    text = MINIMAL.replace("version = 0", "version = -1").replace("\n", "\r\n")
    with pytest.raises(ConfigError) as caught:
        read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert [(one.line, one.column) for one in caught.value.diagnostics] == [(3, 11)]
    good = MINIMAL.replace("\n", "\r\n")
    assert read_project(good.encode(), file=tmp_path, root=tmp_path, tree=False)[1] == ()


def test_a_byte_order_mark_is_named_and_read_over(tmp_path: Path) -> None:
    _, (warning,) = read_project(b"\xef\xbb\xbf" + MINIMAL.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert warning.severity is Level.WARNING
    assert "byte-order mark" in warning.message


@pytest.mark.parametrize(
    ("data", "line", "column", "said"),
    [
        (MINIMAL.encode().replace(b"Apache", "Apach\u00e9".encode("latin-1")), 5, 17,
         "the byte 0xe9 here is not UTF-8"),
        (MINIMAL.encode("utf-16"), 1, 1, "the file is UTF-16"),
        (b"[general]\nname = \"a\x00b\"\n", 2, 10, "not TOML: illegal character '\\x00'"),
    ],
)  # fmt: skip
def test_names_what_is_no_text(data: bytes, line: int, column: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_project(data, file=tmp_path, root=tmp_path, tree=False)
    assert (line, column, said) in [(one.line, one.column, one.message) for one in caught.value.diagnostics]


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    project_dir(tmp_path, b"#" * (10 * 1024 * 1024))
    assert MAX_BYTES < 10 * 1024 * 1024
    with pytest.raises(ConfigError, match=r"is 10\.0 MiB; the limit for build.toml is 4 MiB"):
        load_project(tmp_path)


def test_a_directory_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "build.toml").mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        load_project(tmp_path)


def test_an_empty_file_lacks_two_tables(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_project(project_dir(tmp_path, ""))
    assert messages(caught.value) == ["the table [general] is missing", "the framework table is missing"]


def test_thousands_of_mistakes_are_counted_not_listed(tmp_path: Path) -> None:
    text = MINIMAL + "".join(f"x{number} = 1\n" for number in range(5000))
    with pytest.raises(ConfigError) as caught:
        read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert len(caught.value.diagnostics) == 201
    assert caught.value.diagnostics[-1].message == "and 4800 more like this"


def test_a_source_behind_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    root, other = tmp_path / "project", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (other / "a.cu").touch()
    text = MINIMAL.replace("[torch-noarch]", '[torch]\nsrc = ["a.cu", "inside/a.cu", "b.cu"]')
    project_dir(root, text, "torch-ext/my_kernel/__init__.py", "c.cu")
    (root / "a.cu").symlink_to(other / "a.cu")
    (root / "inside").symlink_to(other)
    (root / "b.cu").symlink_to("c.cu")
    with pytest.raises(ConfigError) as caught:
        load_project(root)
    assert [(one.key, one.message) for one in errors_of(caught.value)] == [
        ("torch.src[0]", f"'a.cu' is a link that leads out of the project, to '{other / 'a.cu'}'"),
        ("torch.src[1]", f"'inside' is a link that leads out of the project, to '{other}'"),
    ]


LINKED = MINIMAL.replace("[torch-noarch]", '[torch]\ninclude = ["include"]\nsrc = ["src/a.cpp"]')
LEAVING = {
    "a header": ("include/x.h", "../../other/x.h"),
    "a header without suffix, deep down": ("include/a/b/x", "{other}/x.h"),
    "a directory of headers": ("include/vendor", "{other}"),
    "by way of another link": ("include/near", "../src/far"),
    "out and in again": ("include/back", "{other}/back"),
    "to nowhere, outside": ("include/gone.h", "{other}/gone.h"),
    "beside a source": ("src/x.h", "{other}/x.h"),
    "the package": ("torch-ext/my_kernel", "{other}"),
    "a module": ("torch-ext/my_kernel/x.py", "{other}/x.h"),
    "data of the package": ("torch-ext/my_kernel/data/x.json", "{other}/x.h"),
    "the framework's directory": ("torch-ext", "{other}"),
    "csrc": ("csrc", "{other}"),
    "build.toml": ("build.toml", "{other}/build.toml"),
}


@pytest.mark.parametrize(("path", "target"), LEAVING.values(), ids=LEAVING)
def test_links_out_of_the_project_are_refused_wherever_they_are(tmp_path: Path, path: str, target: str) -> None:
    root, other = tmp_path / "project", tmp_path / "other"
    for name in ("x.h", "my_kernel/__init__.py", "__init__.py"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).touch()
    (other / "build.toml").write_text(LINKED, encoding="utf-8")
    (other / "back").symlink_to(root / "src")
    root.mkdir()
    project_dir(root, LINKED, "torch-ext/my_kernel/__init__.py", "src/a.cpp", "include/i.h")
    (root / "src/far").symlink_to(other)
    link, target = root / path, target.format(other=other)
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    with pytest.raises(ConfigError) as caught:
        load_project(root)
    said = [one.message for one in caught.value.diagnostics]
    assert f"'{path}' is a link that leads out of the project, to '{target}'" in said
    assert f"'src/far' is a link that leads out of the project, to '{other}'" in said  # all in one pass


def test_links_that_stay_inside_are_fine(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    project_dir(root, LINKED, "torch-ext/my_kernel/__init__.py", "real/a.cpp", "real/x.h")
    (tmp_path / "seen-as").symlink_to(root)
    (root / "src").symlink_to("real")
    (root / "include").symlink_to(root / "real")
    (root / "torch-ext/my_kernel/x.py").symlink_to("../../real/../real/x.h")
    (root / "real/up").symlink_to("..")
    (root / "result").symlink_to(tmp_path)  # nothing that is built looks at it
    load_project(root)
    load_project(tmp_path / "seen-as")


def test_a_project_in_the_hubs_cache_is_all_links(tmp_path: Path) -> None:
    root, blobs = tmp_path / "snapshots" / "1234", tmp_path / "blobs"
    root.mkdir(parents=True)
    project_dir(root, LINKED, "torch-ext/my_kernel/__init__.py", "src/a.cpp", "include/i.h")
    for number, path in enumerate([path for path in root.rglob("*") if path.is_file()]):
        blobs.mkdir(exist_ok=True)
        path.rename(blobs / str(number))
        path.symlink_to(blobs / str(number))
    load_project(root)


def test_a_link_that_leads_nowhere_is_a_missing_file(tmp_path: Path) -> None:
    text = MINIMAL.replace("[torch-noarch]", '[torch]\nsrc = ["a.cu"]')
    project_dir(tmp_path, text, "torch-ext/my_kernel/__init__.py")
    (tmp_path / "a.cu").symlink_to("b.cu")
    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path)
    assert [one.message for one in errors_of(caught.value)] == ["file 'a.cu' does not exist"]


def test_a_range_that_only_a_patch_release_is_in_is_not_empty(tmp_path: Path) -> None:
    text = MINIMAL.replace("[torch-noarch]", '[torch]\nminver = "2.12.1"\nmaxver = "2.12"')
    assert read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)[1] == ()


NOT_DEPENDENCIES = [
    ('repo-id = "../x", version = 1', "'../x' is not the name of a repository"),
    ('repo-id = "/abs/x", version = 1', "'/abs/x' is not the name of a repository"),
    ('repo-id = "a/b/c", version = 1', "'a/b/c' is not the name of a repository"),
    ('repo-id = "a/..", version = 1', "'a/..' is not the name of a repository"),
    ('repo-id = "https://host/a/b", version = 1', "is not the name of a repository"),
    ('repo-id = "a/b", version = -1', "must be an integer from 0 to 4294967295"),
    ('repo-id = "a/b", version = 99999999999', "must be an integer from 0 to 4294967295"),
    ('repo-id = "a/b", version = "x; rm"', "must be an integer, not the string 'x; rm'"),
    ('repo-id = "a/b", revision = "../../x"', "'../../x' is not a valid name of a branch, tag or commit"),
    ('repo-id = "a/b", revision = "--upload-pack=x"', "is not a valid name of a branch, tag or commit"),
    ('repo-id = "a/b", revision = "x; rm"', "is not a valid name of a branch, tag or commit"),
    ('repo-id = "a/b", revision = "/abs"', "is not a valid name of a branch, tag or commit"),
]


@pytest.mark.parametrize(("entry", "words"), NOT_DEPENDENCIES)
def test_a_kernel_dependency_is_a_repository_and_a_version_of_it(tmp_path: Path, entry: str, words: str) -> None:
    text = MINIMAL.replace("[torch-noarch]", f"kernel-depends = [{{ {entry} }}]\n[torch-noarch]")
    project_dir(tmp_path, text, "torch-ext/my_kernel/__init__.py")
    with pytest.raises(ConfigError) as caught:
        load_project(tmp_path)
    (mistake,) = caught.value.diagnostics
    assert words in mistake.message
    assert (mistake.key or "").startswith("general.kernel-depends[0].")
    assert mistake.line == text.split("kernel-depends")[0].count("\n") + 1


@pytest.mark.parametrize(
    "written",
    ['"/etc/passwd"', '{ repo-id = "/etc/passwd", version = 1 }', '{ repo-id = "../k", version = 1 }', '"./k"'],
)
def test_a_path_is_never_a_kernel_to_depend_on(tmp_path: Path, written: str) -> None:
    text = MINIMAL.replace("[torch-noarch]", f"kernel-depends = [{written}]\n[torch-noarch]")
    with pytest.raises(ConfigError) as caught:
        load_project(project_dir(tmp_path, text))
    hint = "kernels are named as on the Hub, owner/name; a directory of this machine cannot be one"
    assert hint in [one.hint for one in errors_of(caught.value)]


def test_backends_without_a_section_are_named_in_a_sentence(tmp_path: Path) -> None:
    text = """\
[general]
name = "ab"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "metal", "xpu"]
[torch]
[kernel.a]
backend = "cpu"
depends = []
src = ["a.cpp"]
"""
    _, warnings = load_project(project_dir(tmp_path, text, "torch-ext/ab/__init__.py", "a.cpp"))
    assert [one.message for one in warnings] == [
        "there is no kernel section for cuda, metal and xpu, so their variants have only Python code"
    ]
