"""update-build: what changes, what stays, and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_builder.cli import run
from kernel_builder.config.migrate import update
from kernel_builder.config.reader import read_project
from kernel_builder.errors import ConfigError, ExitCode, UsageError

FILE = Path("build.toml")


def updated(text: str, license_: str | None = None) -> str:
    after = update(text.encode(), file=FILE, root=Path(), license_=license_).after
    again = update(after, file=FILE, root=Path())
    assert not again.is_due, "a second run must change nothing"
    project, warnings = read_project(after, file=FILE, root=Path(), tree=False)
    assert project.edition == 5
    assert not [one for one in warnings if "edition" in one.message]
    return after.decode()


FOURTH = """\
# Ours.
[general]  # about it
name    = "scale"
version = 2   # major
license = "MIT"
backends = [ "cpu",
  "cuda" ]

    [general.hub]
    repo-id = "me/scale"

[torch]
stable-abi = "2.10"

# ---- sections
[kernel.cpu] # first
backend='cpu'
depends=[]
src=["a.cpp", # one
]
"""


def test_edition_4_gains_one_line() -> None:
    assert updated(FOURTH) == FOURTH.replace("# major\n", "# major\nedition = 5\n")


def test_line_ends_and_what_has_no_newline_stay_as_they_are() -> None:
    text = FOURTH.replace("\n", "\r\n").rstrip() + "\n# mixed"
    assert updated(text) == text.replace("# major\r\n", "# major\r\nedition = 5\r\n")


def test_a_written_number_is_replaced_where_it_stands() -> None:
    text = FOURTH.replace("# Ours.\n[general]", "[general]").replace("version = 2 ", "edition = 4 # old\nversion = 2 ")
    assert updated(text) == text.replace("edition = 4", "edition = 5")


def test_dotted_and_inline_tables_are_added_to() -> None:
    dotted = (
        'general.name = "ab"\ngeneral.version = 1\ngeneral.license = "mit"\ngeneral.backends = ["cpu"]\ntorch = {}\n'
    )
    assert updated(dotted) == dotted.replace("version = 1\n", "version = 1\ngeneral.edition = 5\n")
    inline = 'general = { name = "ab", version = 1, license = "mit", backends = ["cpu"] } # x\ntorch = { }\n'
    assert updated(inline) == inline.replace('["cpu"] }', '["cpu"], edition = 5 }')


def test_edition_3_gains_version_licence_and_framework() -> None:
    text = '[general]\nname = "ab"\nbackends = ["cpu"]'
    assert updated(text, "apache-2.0") == (
        '[general]\nname = "ab"\nversion = 1\nedition = 5\nlicense = "apache-2.0"\nbackends = ["cpu"]\n'
        "\n[torch-noarch]\n"
    )


def test_edition_1_is_carried_over_with_its_comments() -> None:
    before = """\
# a kernel
[general]
name = "scale" # its name

[torch]
# binding
src = ["b.cpp"]

# both
[kernel."my scale"]
cuda-capabilities = ["8.0"] # caps
rocm-archs = ["gfx942"] # archs
language = "cuda-hipify" # both
src = [
  "a.cu", # one
]
depends = ["torch"]

# Apple
[kernel.m]
src = ["m.mm"]
language = 'metal'
depends = []

[kernel.c]
src = ["c.cu"]
depends = []
"""
    assert (
        updated(before, "mit")
        == """\
# a kernel
[general]
name = "scale" # its name
version = 1
edition = 5
license = "mit"
backends = ["cuda", "metal", "rocm"]

[torch]
# binding
src = ["b.cpp"]

# both
[kernel."my scale"]
cuda-capabilities = ["8.0"] # caps
backend = "cuda" # both
src = [
  "a.cu", # one
]
depends = ["torch"]

[kernel."my scale_rocm"]
rocm-archs = ["gfx942"] # archs
backend = "rocm" # both
src = [
  "a.cu", # one
]
depends = ["torch"]

# Apple
[kernel.m]
src = ["m.mm"]
backend = "metal"
depends = []

[kernel.c]
backend = "cuda"
src = ["c.cu"]
depends = []
"""
    )


def test_edition_2_moves_bounds_and_dependencies_of_cuda() -> None:
    before = """\
[general]
name = "scale"
python-depends = ["einops", 'nvidia-cutlass-dsl'] # both
cuda-minver = "12.4" # since

[general.hub]
branch = "main"

[torch]

[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["a.cu"]
"""
    assert (
        updated(before, "mit")
        == """\
[general]
name = "scale"
version = 1
edition = 5
license = "mit"
backends = ["cuda"]
python-depends = ["einops"] # both

[general.cuda]
minver = "12.4" # since
python-depends = ["nvidia-cutlass-dsl"]

[general.hub]
branch = "main"

[torch]

[kernel.a]
backend = "cuda"
depends = ["torch"]
src = ["a.cu"]
"""
    )


def test_universal_becomes_torch_noarch() -> None:
    first = '[general]\nname = "ab"\n\n[torch] # all\nuniversal = true\nsrc = []\npyext = ["py"]\n'
    assert updated(first, "mit") == (
        '[general]\nname = "ab"\nversion = 1\nedition = 5\nlicense = "mit"\n'
        'backends = ["cpu", "cuda", "metal", "rocm", "xpu"]\n\n[torch-noarch] # all\npyext = ["py"]\n'
    )
    second = '[general]\nname = "ab"\nuniversal = true\n'
    assert updated(second, "mit").endswith('"xpu"]\n\n[torch-noarch]\n')


def test_keys_are_added_before_a_table_at_the_same_place() -> None:
    added = 'name = "ab"\nversion = 1\nedition = 5\nlicense = "mit"\n'
    assert updated('[general]\nuniversal = true\nname = "ab"', "mit") == (
        f'[general]\n{added}backends = ["cpu", "cuda", "metal", "rocm", "xpu"]\n\n[torch-noarch]\n'
    )
    section = '[kernel.a]\nbackend = "cuda"\ndepends = []\nsrc = []\n'
    assert updated(f'[general]\ncuda-minver = "12.4"\nname = "ab"\n\n[torch]\n{section}', "mit") == (
        f'[general]\n{added}backends = ["cuda"]\n\n[general.cuda]\nminver = "12.4"\n\n[torch]\n{section}'
    )


def test_a_file_without_licence_asks_for_one() -> None:
    with pytest.raises(ConfigError, match="has no license") as caught:
        update(b'[general]\nname = "ab"\nbackends = ["cpu"]\n', file=FILE, root=Path())
    assert "--license" in (caught.value.hint or "")


def test_another_licence_than_the_files_is_refused() -> None:
    with pytest.raises(UsageError, match="already has a license: MIT"):
        update(FOURTH.encode(), file=FILE, root=Path(), license_="apache-2.0")


def test_what_has_no_place_for_a_change_is_refused() -> None:
    text = '[general]\nname = "ab"\n[kernel]\na = { language = "cuda-hipify", src = ["a.cu"], depends = [] }\n[torch]\n'
    with pytest.raises(ConfigError, match="was left unchanged") as caught:
        update(text.encode(), file=FILE, root=Path(), license_="mit")
    assert caught.value.hint == "write the keys of 'kernel.a' under a header: [kernel.a]"


# The command.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(FOURTH, encoding="utf-8")
    return tmp_path


def test_writes_in_place_once(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "build.toml").chmod(0o640)
    assert run(["update-build", str(project)]) == ExitCode.OK
    written = (project / "build.toml").read_bytes()
    assert b"edition = 5" in written
    assert (project / "build.toml").stat().st_mode & 0o777 == 0o640
    before = (project / "build.toml").stat()
    assert run(["update-build", str(project)]) == ExitCode.OK
    assert (project / "build.toml").stat() == before
    assert os.listdir(project) == ["build.toml"]  # noqa: PTH208
    assert "already uses edition 5" in capfd.readouterr().err


def test_check_changes_nothing_and_tells_by_its_exit_code(project: Path) -> None:
    assert run(["update-build", "--check", str(project)]) == ExitCode.FAILED
    assert (project / "build.toml").read_text(encoding="utf-8") == FOURTH
    assert run(["update-build", str(project)]) == ExitCode.OK
    assert run(["update-build", "--check", str(project)]) == ExitCode.OK


def test_diff_shows_the_change_and_makes_none(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["update-build", "--diff", str(project)]) == ExitCode.OK
    shown = capfd.readouterr().out
    assert [line for line in shown.split("\n") if line.startswith(("+", "-"))][2:] == ["+edition = 5"]
    assert (project / "build.toml").read_text(encoding="utf-8") == FOURTH


def test_a_link_is_followed_not_replaced(project: Path, tmp_path: Path) -> None:
    (project / "build.toml").rename(tmp_path / "real.toml")
    (project / "build.toml").symlink_to("real.toml")
    assert run(["update-build", str(project)]) == ExitCode.OK
    assert (project / "build.toml").is_symlink()
    assert "edition = 5" in (tmp_path / "real.toml").read_text(encoding="utf-8")


def test_a_file_with_mistakes_stays_byte_for_byte(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = FOURTH.encode().replace(b"major", b"m\xff") + b"x = \n"
    (project / "build.toml").write_bytes(broken)
    assert run(["update-build", str(project)]) == ExitCode.CONFIG
    assert (project / "build.toml").read_bytes() == broken
    assert os.listdir(project) == ["build.toml"]  # noqa: PTH208
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_an_error_of_the_machine(project: Path) -> None:
    project.chmod(0o500)
    try:
        assert run(["update-build", str(project)]) == ExitCode.SYSTEM
    finally:
        project.chmod(0o700)
    assert (project / "build.toml").read_text(encoding="utf-8") == FOURTH
