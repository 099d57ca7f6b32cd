"""Precompiled headers save time and change nothing: real compilers, small headers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock

from kernel_builder.engine import precompiled
from kernel_builder.engine.precompiled import PREFIX, Wanted, main, provide, with_headers
from kernel_builder.store.cache import Store

PROGRAM = Path(precompiled.__file__)
SOURCE = """\
// first
#include <frame/all.h>
#include "own.h"
int answer() { return frame::twice(OWN) + sizeof(__FILE__) + frame::where()[0]; }
"""
HEADER = """\
#pragma once
#include <cstddef>
#include <frame/part.h>
namespace frame {
inline const char *where() { return __FILE__; }
inline int twice(int value) { return value * 2; }
}
"""


@dataclass
class Bench:
    """A store, a framework's headers and a project, and a compiler."""

    root: Path
    compiler: str

    @property
    def store(self) -> Store:
        return Store(self.root / "store")

    @property
    def frame(self) -> Path:
        return self.root / "frame include"

    @property
    def wanted(self) -> Wanted:
        return Wanted(
            names=("frame/all.h",),
            precompile=(self.compiler, "-x", "c++-header", *FLAGS, "-isystem", str(self.frame)),
            identity="the headers of this test",
            is_clang="clang" in self.compiler,
            unmentioned=("KERNEL_NAME",),
            beside=(self.root / "project",),
        )

    @property
    def command(self) -> list[str]:
        flags = ["-DKERNEL_NAME=mine", "-I", str(self.root / "project"), "-isystem", str(self.frame)]
        common = ["-c", str(self.root / "project" / "a.cpp"), "-o", str(self.root / "a.o")]
        return [self.compiler, "-x", "c++", *FLAGS, *common, "-MMD", "-MF", str(self.root / "a.d"), *flags]

    def arguments(self) -> list[str]:
        wanted = self.wanted
        return [
            *("--store", str(self.store.root), "--identity", wanted.identity),
            *(["--clang"] if wanted.is_clang else []),
            *("--header", "frame/all.h", "--unmentioned", "KERNEL_NAME", "--beside", str(self.root / "project")),
            *("--words", str(len(wanted.precompile)), *wanted.precompile, *self.command),
        ]

    def plain(self) -> tuple[bytes, bytes]:
        subprocess.run(self.command, check=True)
        return (self.root / "a.o").read_bytes(), (self.root / "a.d").read_bytes()

    def launched(self) -> tuple[bytes, bytes]:
        for name in ("a.o", "a.d"):
            (self.root / name).unlink(missing_ok=True)
        assert main(self.arguments()) == 0
        return (self.root / "a.o").read_bytes(), (self.root / "a.d").read_bytes()

    def entries(self) -> list[Path]:
        return sorted(self.store.entries.glob(f"{PREFIX}*")) if self.store.entries.is_dir() else []


FLAGS = ("-std=c++17", "-O2", "-fPIC")


@pytest.fixture(params=["g++", "clang++"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    compiler = shutil.which(request.param)
    if compiler is None:
        pytest.skip(f"needs {request.param}")
    made = Bench(tmp_path, compiler)
    for path, text in {
        made.frame / "frame" / "all.h": HEADER,
        made.frame / "frame" / "part.h": "#pragma once\n",
        tmp_path / "project" / "a.cpp": SOURCE,
        tmp_path / "project" / "own.h": "#define OWN 21\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return made


def test_the_object_and_the_dependencies_are_the_same_and_the_headers_are_kept(bench: Bench) -> None:
    plain = bench.plain()
    assert bench.launched() == plain
    (entry,) = bench.entries()
    assert (entry / bench.wanted.file).is_file()
    assert bench.launched() == plain  # the store has them
    assert b"own.h" in plain[1]
    used = with_headers(entry, bench.wanted, bench.command)
    assert subprocess.run([*used, "-Werror", "-Winvalid-pch"], check=False).returncode == 0
    assert not (entry / "made.d").exists()


def test_it_runs_as_a_program_of_its_own(bench: Bench, tmp_path: Path) -> None:
    plain = bench.plain()
    (tmp_path / "a.o").unlink()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-P", str(PROGRAM), *bench.arguments()]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "a.o").read_bytes() == plain[0]
    assert len(bench.entries()) == 1


def _hide(bench: Bench) -> None:
    path = bench.root / "project" / "frame" / "part.h"
    path.parent.mkdir()
    path.write_text("#pragma once\n", encoding="utf-8")


def _mention(bench: Bench) -> None:
    (bench.frame / "frame" / "part.h").write_text("#ifdef KERNEL_NAME\n#endif\n", encoding="utf-8")


def _break(bench: Bench) -> None:
    (bench.frame / "frame" / "all.h").write_text("#ifndef KERNEL_NAME\n#error\n#endif\n" + HEADER, encoding="utf-8")


@pytest.mark.parametrize("spoil", [_hide, _mention, _break])
def test_headers_that_a_source_would_see_otherwise_are_not_used(bench: Bench, spoil: Callable[[Bench], None]) -> None:
    spoil(bench)
    assert provide(bench.store, bench.wanted) is None
    plain = bench.plain()
    assert bench.launched() == plain


def test_a_longer_name_is_not_a_mention(bench: Bench) -> None:
    (bench.frame / "frame" / "part.h").write_text("#define OTHER_KERNEL_NAMES\n", encoding="utf-8")
    assert provide(bench.store, bench.wanted) is not None


def test_who_comes_while_they_are_made_does_without(bench: Bench) -> None:
    plain = bench.plain()
    locks = bench.store.root / "locks"
    locks.mkdir(parents=True)
    with FileLock(locks / f"{bench.wanted.key.name}.lock"):
        assert bench.launched() == plain
    assert bench.entries() == []


def test_they_are_made_once_others_went_without_them_often_enough(bench: Bench) -> None:
    wanted = replace(bench.wanted, after=2)
    forgotten, recent = bench.store.root / "asked" / "forgotten", bench.store.root / "asked" / "recent"
    assert provide(bench.store, wanted) is None
    for file in (forgotten, recent):
        file.write_bytes(b".")
    os.utime(forgotten, (1, 1))
    assert provide(bench.store, wanted) is None
    assert bench.entries() == []
    assert provide(bench.store, wanted) is not None
    assert provide(bench.store, wanted) is not None
    assert [file.name for file in (bench.store.root / "asked").iterdir()] == ["recent"]


def test_whoever_says_so_goes_without_them_first(bench: Bench) -> None:
    plain = bench.plain()
    arguments = bench.arguments()
    at = arguments.index("--header")
    arguments[at:at] = ["--after", "1"]
    for entries in (0, 1, 1):
        assert main(arguments) == 0
        assert (bench.root / "a.o").read_bytes() == plain[0]
        assert len(bench.entries()) == entries


def test_headers_that_no_longer_fit_are_of_no_use_and_no_harm(bench: Bench) -> None:
    plain = bench.plain()
    entry = provide(bench.store, bench.wanted)
    assert entry is not None
    entry.chmod(0o755)
    file = entry / bench.wanted.file
    file.chmod(0o644)
    file.write_bytes(b"gpch" + b"\0" * 4096 if not bench.wanted.is_clang else b"CPCH" + b"\0" * 4096)
    os.utime(file, (946_684_800, 946_684_800))
    assert precompiled._compile(entry, bench.wanted, bench.command) in {None, 0}
    assert bench.launched() == plain


def test_a_mistake_in_the_source_is_told_once(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    (bench.root / "project" / "a.cpp").write_text(SOURCE + "int broken = nothing;\n", encoding="utf-8")
    assert main(bench.arguments()) == 1
    assert capfd.readouterr().err.count("nothing") == 2  # in the message and in the line that it shows
    assert len(bench.entries()) == 1


def test_all_of_them_keep_within_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first = provide(bench.store, bench.wanted)
    assert first is not None
    size = sum(path.stat().st_size for path in first.iterdir())
    os.utime(first / ".manifest.json", (1, 1))
    monkeypatch.setattr(precompiled, "LIMIT", int(size * 1.5))
    second = provide(bench.store, replace(bench.wanted, identity="others"))
    assert bench.entries() == [second]


def test_a_store_that_cannot_be_written_costs_nothing_but_time(bench: Bench) -> None:
    plain = bench.plain()
    (bench.root / "store").write_text("in the way", encoding="utf-8")
    assert bench.launched() == plain
