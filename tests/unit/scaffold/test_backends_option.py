"""``--backends`` takes several words, commas and repetition, anywhere on the line."""

from pathlib import Path

import pytest

from kernel_builder.cli.init import spread_backends
from kernel_builder.errors import UsageError


@pytest.mark.parametrize(
    ("line", "spread"),
    [
        ("--backends cpu cuda --name a/b", "--backends=cpu --backends=cuda --name a/b"),
        ("--backends cpu,cuda path", "--backends=cpu,cuda path"),
        ("mypath --backends cpu", "mypath --backends=cpu"),
        ("--backends=cpu cuda path", "--backends=cpu --backends=cuda path"),
        ("--backends cpu --name a/b --backends cuda", "--backends=cpu --name a/b --backends=cuda"),
        ("--backends all", "--backends=all"),
        ("--backends CUDA Cpu", "--backends=CUDA --backends=Cpu"),
        ("--backends metal rocm", "--backends=metal --backends=rocm"),
        ("--backends cpu ./cuda", "--backends=cpu ./cuda"),
        ("--backends cpu kernel", "--backends=cpu kernel"),
        ("--backends cpu -- cuda", "--backends=cpu -- cuda"),
        ("-- --backends cpu", "-- --backends cpu"),
        ("cpu --name a/b", "cpu --name a/b"),
        ("--backends nonsense", "--backends=nonsense"),
        ("", ""),
    ],
)
def test_words_after_the_option_belong_to_it_while_they_are_backends(line: str, spread: str) -> None:
    assert spread_backends(line.split()) == spread.split()


@pytest.mark.parametrize("line", ["--backends cpu cude", "--backends=cuda cup", "--backends cpu,cuda meta x"])
def test_a_misspelled_backend_does_not_pass_for_the_directory(line: str) -> None:
    with pytest.raises(UsageError, match="is not a backend"):
        spread_backends(line.split())


def test_a_directory_that_is_there_may_be_called_almost_like_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cude").mkdir()
    assert spread_backends(["--backends", "cpu", "cude"]) == ["--backends=cpu", "cude"]


@pytest.mark.parametrize("line", ["--backends", "--backends --name a/b", "--backends -- x"])
def test_the_option_needs_a_word(line: str) -> None:
    with pytest.raises(UsageError, match="needs at least one backend"):
        spread_backends(line.split())
