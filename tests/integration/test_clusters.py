"""Builds on the workers of a dask scheduler on loopback, with the real compiler, which can be held up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from conftest import BUILD_TOML, CPU, Result, Tool

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clusters")]

SOURCE = """\
#include "sizes.h"
extern "C" int {name}(int n) {{ return size(n) + {number}; }}
"""
HEADER = "#pragma once\ninline int size(int n) { return n * 3; }\n"
# Held up while the file is there, in which it then says that it runs.
WRAPPER = """\
#!/bin/sh
case " $* " in *" -c "*)
  if [ -e {flag} ]; then echo $$ "$PWD" >> {flag}.runs; fi
  while [ -e {flag} ]; do sleep 0.05; done;;
esac
exec g++ "$@"
"""


def says(log: Path, text: str) -> bool:
    return text in log.read_text()


def until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def end_of(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class Ground:
    """A scheduler, and workers that are started for it. All of them end with the test, or the module."""

    tool: Tool
    folder: Path
    address: str = ""
    scheduler: subprocess.Popen[str] | None = None
    workers: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def flag(self) -> Path:
        return self.folder / "hold"

    @property
    def runs(self) -> list[str]:
        """What was said by compilers that were held up."""
        file = self.folder / "hold.runs"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def cxx(self) -> str:
        return str(self.folder / "c++")

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        Path(self.cxx).write_text(WRAPPER.format(flag=self.flag))
        Path(self.cxx).chmod(0o755)
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
        command += ["--dashboard-address", "127.0.0.1:0"]
        with (self.folder / "scheduler.log").open("w") as log:
            self.scheduler = subprocess.Popen(command, stderr=log, stdout=log, text=True, cwd=self.folder)

        def address() -> re.Match[str] | None:
            return re.search(r"Scheduler at:\s+tcp://(\S+)", (self.folder / "scheduler.log").read_text())

        until(address, "the scheduler did not start")
        found = address()
        assert found is not None
        self.address = found[1]

    def worker(
        self,
        name: str,
        *,
        cxx: str | None = None,
        most: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Path:
        """Start a worker with one thread; its log. ``most`` is the largest file in bytes that it may write."""
        log, own = self.folder / f"{name}.log", self.folder / name
        own.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "kernel_builder", "worker", self.address, "-j", "1", "--name", name]
        with log.open("w") as out:
            self.workers[name] = subprocess.Popen(
                [*command, "--folder", str(own)],
                stdout=out,
                stderr=out,
                text=True,
                env={**(environment or self.tool.environment), "CXX": cxx or self.cxx},
            )
        if most is not None:
            resource.prlimit(self.workers[name].pid, resource.RLIMIT_FSIZE, (most, most))
        return log

    def are_there(self, *names: str) -> None:
        for name in names:
            log = self.folder / f"{name}.log"
            until(partial(says, log, f"worker {name}:"), f"{name} did not start")

    def debris(self, name: str) -> list[str]:
        """What builds left in a worker's directory."""
        return [str(path) for path in (self.folder / name).glob("kernel-builder-worker-*/builds/run-*")]

    def build(self, root: Path, *options: str) -> subprocess.Popen[str]:
        environment = Tool({**self.tool.environment, "CXX": self.cxx})
        to = ("--scheduler", self.address, *options)
        return environment.start("build", root, "--variant", CPU, "--no-load", "--no-cache", *to)

    def close(self) -> None:
        self.flag.unlink(missing_ok=True)
        for process in (*self.workers.values(), *([self.scheduler] if self.scheduler else [])):
            end_of(process)


@pytest.fixture(scope="module")
def ground(tool: Tool) -> Iterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="kb-cluster-") as folder:
        made = Ground(tool, Path(folder) / "shared")
        try:
            made.start()
            made.worker("one")
            made.worker("two")
            made.are_there("one", "two")
            yield made
        finally:
            made.close()


@pytest.fixture(autouse=True)
def _free(ground: Ground) -> Iterator[None]:
    yield
    ground.flag.unlink(missing_ok=True)
    (ground.folder / "hold.runs").unlink(missing_ok=True)


def kernel(root: Path, *names: str) -> Path:
    files = {f"src/{name}.cpp": SOURCE.format(name=name, number=at) for at, name in enumerate(names)}
    sources = ", ".join(f'"{path}"' for path in files)
    files |= {"src/sizes.h": HEADER, "torch-ext/far/__init__.py": "__all__: list[str] = []\nfrom . import _ops\n"}
    files["build.toml"] = BUILD_TOML.format(name="far", sources=sources)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def built(root: Path) -> dict[str, bytes]:
    folder = root / "build" / CPU
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spans(root: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (root / ".kernel-builder" / "timeline.jsonl").read_text().splitlines())
    return [line for line in lines if "id" in line]


def ended(process: subprocess.Popen[str], seconds: float = 60) -> Result:
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err, err
    return Result(process.returncode, out, " ".join(err.split()))


def test_bytes_are_those_of_a_local_build(ground: Ground, tmp_path: Path) -> None:
    here, there = kernel(tmp_path / "here", "a", "b", "c"), kernel(tmp_path / "there" / "deeper", "a", "b", "c")
    tool = Tool({**ground.tool.environment, "CXX": ground.cxx})
    local = tool("build", here, "--variant", CPU, "--no-load", "--no-cache")
    assert local.code == 0, local.stderr
    result = ended(ground.build(there))
    assert result.code == 0, result.stderr
    assert built(there) == built(here)
    ran = {str(span["id"]).split(":", 1)[1]: str(span["worker"]) for span in spans(there)}
    assert {one.partition(" ")[0] for one in ran.values()} == {"one", "two", ""}
    assert [name for name, worker in ran.items() if not worker] == ["inspect:library"]  # a check of what came back
    # The kernel's sources went to each worker once, and objects to where they were linked.
    sent = sorted(int(str(span["sent"])) for span in spans(there))
    assert [size > 0 for size in sent] == [False] * (len(sent) - 3) + [True] * 3
    assert ground.debris("one") + ground.debris("two") == []
    log = (there / ".kernel-builder" / CPU / "log" / "src" / "a.cpp.log").read_text()
    assert str(there / "src" / "a.cpp") in log

    # What is there already is not asked of anybody; a failure shows what the compiler said, with the paths of here.
    again = ended(ground.build(there))
    assert "unchanged" in again.stdout
    (there / "src" / "b.cpp").write_text('#include "sizes.h"\nint wrong() { return missing; }\n')
    failed = ended(ground.build(there))
    assert failed.code == 1
    assert "missing" in failed.stderr
    assert "was not declared" in failed.stderr
    assert "kernel-builder-worker-" not in failed.stderr


def test_a_lost_worker_costs_its_own_action_only(ground: Ground, tmp_path: Path) -> None:
    root = kernel(tmp_path / "k", "a", "b", "c")
    ground.worker("lost")
    ground.are_there("lost")
    ground.flag.touch()
    process = ground.build(root, "-j", "3")
    until(lambda: len(ground.runs) == 3, "three compilers did not start")
    (number,) = [int(line.split()[0]) for line in ground.runs if f"{ground.folder}/lost/" in line]
    os.kill(ground.workers["lost"].pid, signal.SIGKILL)
    ground.workers.pop("lost").wait()
    # The compiler does not outlive it, nor does its directory.
    until(lambda: not Path(f"/proc/{number}").exists(), "its compiler runs on", 10)
    until(lambda: not list((ground.folder / "lost").iterdir()), "its directory is left", 10)
    ground.flag.unlink()
    result = ended(process)
    assert result.code == 0, result.stderr
    assert "the worker lost" in result.stderr
    assert result.stderr.count("trying again") == 1
    assert sorted(str(span["source"]) for span in spans(root) if span["kind"] == "compile") == [
        "(module)",
        "src/a.cpp",
        "src/b.cpp",
        "src/c.cpp",
    ]


def test_a_worker_that_waits_for_a_server_can_be_stopped(ground: Ground, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        index = f"http://127.0.0.1:{mute.getsockname()[1]}/simple"
        environment = {
            **ground.tool.environment,
            "KERNEL_BUILDER_CACHE": str(tmp_path / "empty"),
            "PIP_INDEX_URL": index,
        }
        ground.worker("waits", environment=environment)
        ground.are_there("waits")
        process = ground.build(kernel(tmp_path / "k", "a", "b", "c", "d"), "-j", "3")
        mute.settimeout(60)
        asking, _ = mute.accept()
        with asking:
            begun = time.monotonic()
            ground.workers["waits"].terminate()
            assert ground.workers.pop("waits").wait(30) == 0
            assert time.monotonic() - begun < 15
        assert list((ground.folder / "waits").iterdir()) == []
        assert ended(process).code == 0


def test_a_worker_removes_what_one_that_nobody_watched_left(ground: Ground) -> None:
    left = ground.folder / "left" / "kernel-builder-worker-old"
    left.mkdir(parents=True)
    (left / "alive").touch()
    ground.worker("left")
    ground.are_there("left")
    assert not left.exists()
    end_of(ground.workers.pop("left"))
    assert list((ground.folder / "left").iterdir()) == []


def test_who_has_another_compiler_or_no_room_gets_nothing_and_that_is_said(ground: Ground, tmp_path: Path) -> None:
    other = tmp_path / "other-g++"
    other.write_text('#!/bin/sh\n# another\nexec g++ "$@"\n')
    other.chmod(0o755)
    ground.worker("other", cxx=str(other))
    ground.worker("full", most=2048)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", ground.address, "--no-nanny", "--name", "plain"]
    with (ground.folder / "plain.log").open("w") as out:
        options = ["--no-dashboard", "--local-directory", str(tmp_path), "--host", "127.0.0.1"]
        ground.workers["plain"] = subprocess.Popen([*command, *options], stdout=out, stderr=out, text=True)
    ground.are_there("other")
    until(partial(says, ground.folder / "plain.log", "Registered to:"), "the plain worker did not start")
    time.sleep(0.5)
    root = kernel(tmp_path / "k", "a", "b", "c", "d")
    result = ended(ground.build(root))
    for name in ("other", "full", "plain"):
        end_of(ground.workers.pop(name))
    assert result.code == 0, result.stderr
    assert result.stderr.count("the worker other") == 1
    assert "gets no work that needs g++" in result.stderr
    assert str(other) in result.stderr
    assert "it was not started by 'kernel-builder worker'" in result.stderr
    assert "its disk is full" in result.stderr
    assert {str(span["worker"]).partition(" ")[0] for span in spans(root)} == {"one", "two", ""}


def test_ctrl_c_ends_what_runs_there(ground: Ground, tmp_path: Path) -> None:
    root = kernel(tmp_path / "k", "a", "b")
    ground.flag.touch()
    process = ground.build(root)
    until(lambda: len(ground.runs) == 2, "two compilers did not start")
    numbers = [int(line.split()[0]) for line in ground.runs]
    process.send_signal(signal.SIGINT)
    result = ended(process, 20)
    assert result.code == 130, result.stderr
    until(lambda: not any(Path(f"/proc/{number}").exists() for number in numbers), "compilers run on", 10)
    until(lambda: not ground.debris("one") + ground.debris("two"), "something is left", 10)
    assert list((root / ".kernel-builder" / CPU).rglob("*.o")) == []
    ground.flag.unlink()
    assert ended(ground.build(root)).code == 0


def test_a_scheduler_that_goes_away_ends_the_build_and_its_workers(tool: Tool, tmp_path: Path) -> None:
    own = Ground(tool, Path(tempfile.mkdtemp(prefix="kb-cluster-")) / "own")
    try:
        own.start()
        other = tmp_path / "other-g++"
        other.write_text('#!/bin/sh\nexec g++ "$@"\n')
        other.chmod(0o755)
        own.worker("other", cxx=str(other))
        own.are_there("other")
        root = kernel(tmp_path / "k", "a")
        refused = ended(own.build(root))
        assert refused.code == 1
        assert "no worker of the scheduler" in refused.stderr
        assert str(other) in refused.stderr
        assert own.cxx in refused.stderr

        own.worker("third")
        own.are_there("third")
        own.flag.touch()
        process = own.build(root)
        until(lambda: own.runs, "no compiler started")
        number = int(own.runs[0].split()[0])
        assert own.scheduler is not None
        own.scheduler.kill()
        result = ended(process, 30)
        assert result.code == 1
        assert f"lost the scheduler at {own.address}" in result.stderr
        own.workers["third"].wait(20)
        assert not Path(f"/proc/{number}").exists()
        assert list((own.folder / "third").iterdir()) == []
        gone = ended(own.build(root), 30)
        assert gone.code == 5
        assert f"no scheduler responds at {own.address}" in gone.stderr
    finally:
        own.close()
        shutil.rmtree(own.folder.parent, ignore_errors=True)
