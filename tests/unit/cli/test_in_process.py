"""The command line called again and again in one process: what one call says is not there in the next."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ProjectMaker
from kernel_builder.cli import build, run
from kernel_builder.errors import ExitCode
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.workflow.run import Run


def fill(folder: Path) -> list[object]:
    (folder / "a").write_text("a")
    return []


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that ``build`` was called with; it builds nothing, installs its handlers and uses an entry."""
    found: list[Run] = []

    def record(_request: object, run: Run) -> object:
        found.append(run)
        run.store.ensure(StoreKey.of("demo"), fill)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "build", record)
    return found


def test_options_and_environment_of_one_call_are_not_those_of_the_next(
    tmp_path: Path, runs: list[Run], make_project: ProjectMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(make_project("calls", {"a.cpp": "int a;\n"}))
    before = dict(os.environ)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    one = {"KERNEL_BUILDER_CACHE": str(tmp_path / "one")}
    two = {"KERNEL_BUILDER_CACHE": str(tmp_path / "two"), "KERNEL_BUILDER_OFFLINE": "1"}
    for arguments, environ in (
        (["build", root, "--offline", "--source", "local, index", "--source", "debian"], one),
        (["build", root], one),
        (["build", root], two),
    ):
        assert run(arguments, environ=environ) == ExitCode.INTERRUPTED
        assert "interrupted" in capsys.readouterr().err
    assert [(run.offline, run.sources) for run in runs] == [
        (True, ("local", "index", "debian")),
        (False, ()),
        (True, ()),
    ]
    assert [dict(run.environ) for run in runs] == [one, one, two]
    assert [run.store.root for run in runs] == [tmp_path / "one", tmp_path / "one", tmp_path / "two"]
    assert dict(os.environ) == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers
    # What was used is not used any more, as when a process ends.
    assert list((tmp_path / "one" / "uses").iterdir()) == []


def test_the_environment_is_the_process_s_own_unless_one_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNEL_BUILDER_CACHE", str(tmp_path / "own"))
    for environ, root in ((None, "own"), ({"KERNEL_BUILDER_CACHE": str(tmp_path / "given")}, "given")):
        assert run(["toolchain", "list", "--json"], environ=environ) == ExitCode.OK
        assert json.loads(capsys.readouterr().out)["store"] == str(tmp_path / root)


class Gone(io.StringIO):
    """What a reader leaves that went away."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_reader_that_went_away_leaves_the_streams_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Gone()
    monkeypatch.setattr("sys.stdout", gone)
    errors = sys.stderr
    assert run(["schema"]) == ExitCode.FAILED
    assert (sys.stdout, sys.stderr) == (gone, errors)


def test_the_order_of_sources_is_that_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("")
    environ = {"KERNEL_BUILDER_SOURCES": "local", "KERNEL_BUILDER_CONFIG": str(tmp_path / "own.toml")}
    configured = Run(environ=environ, store=Store(tmp_path), reporter=Silent())
    asked = replace(configured, sources=("index", "local"))
    assert (configured.settings(tmp_path).order, asked.settings(tmp_path).order) == (("local",), ("index", "local"))
