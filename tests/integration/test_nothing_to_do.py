"""A build for which nothing changed: it starts nothing, connects to nothing, imports little, and misses no change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import CPU, ProjectMaker, Result, Tool, commit

VARIANTS = (CPU.replace("213", "212"), CPU)
HEAVY = (
    "requests", "urllib3", "http.client", "httpx", "aiohttp", "huggingface_hub", "pypi_simple", "cryptography",
    "sigstore", "jinja2", "ninja", "rich", "packaging", "torch", "yaml", "tqdm", "kernel_builder.plan",
    "kernel_builder.backends", "kernel_builder.frameworks", "kernel_builder.check", "kernel_builder.hub",
    "kernel_builder.config.reader",
)  # fmt: skip
"""What takes its time to import, and nobody needs to say that nothing changed."""

WATCHED = """
import json, os, sys
events = []
names = {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.system"}
names |= {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname"}
paths = {"open", "os.listdir", "os.scandir"}
def watch(event, arguments):
    # A relative name is one in a directory that is removed: the tool itself opens files by whole paths.
    whole = arguments and isinstance(arguments[0], (str, bytes)) and os.path.isabs(arguments[0])
    if event in names or (event in paths and whole):
        events.append([event, str(arguments[0])])
sys.addaudithook(watch)
from kernel_builder.cli import run
code = run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump({"events": events, "modules": sorted(sys.modules)}, file)
sys.exit(code)
"""


def watched(tool: Tool, tmp_path: Path, *arguments: str | Path) -> dict[str, list[str]]:
    """What a run in a process of its own started, connected to, read and imported."""
    report = tmp_path / "report.json"
    script = tmp_path / "watch.py"
    script.write_text(textwrap.dedent(WATCHED), encoding="ascii")
    command = [sys.executable, str(script), str(report), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=tool.environment)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(report.read_text(encoding="utf-8"))
    reading = {"open", "os.listdir", "os.scandir"}
    return {
        "started": [name for event, name in found["events"] if event not in reading],
        "read": [name for event, name in found["events"] if event in reading],
        "modules": found["modules"],
        "words": [ended.stdout + ended.stderr],
    }


def heavy(modules: list[str]) -> list[str]:
    return [name for name in modules if any(name == one or name.startswith(f"{one}.") for one in HEAVY)]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["build", "--help"]])
def test_help_imports_little(tool: Tool, tmp_path: Path, arguments: list[str]) -> None:
    facts = watched(tool, tmp_path, *arguments)
    assert heavy(facts["modules"]) == []
    assert facts["started"] == []
    if arguments[0] != "build":
        assert len([name for name in facts["modules"] if name.startswith("kernel_builder")]) < 10


def outside(paths: list[str], root: Path, tool: Tool) -> Iterator[str]:
    """Those of ``paths`` that somebody else may change: neither programs of Python nor what the tool itself keeps."""
    store = Path(tool.environment["KERNEL_BUILDER_CACHE"])
    own = (root / ".kernel-builder", root / "build", store, Path("/proc"), Path("/sys"), Path("/dev"))
    python = [sys.prefix, sys.base_prefix, *(path for path in sys.path if path)]
    for name in dict.fromkeys(os.path.abspath(path) for path in paths):  # noqa: PTH100  (links as they are)
        if any(Path(name).is_relative_to(place) for place in own) or name.startswith(tuple(python)):
            continue
        if Path(name).is_relative_to(root) or not Path(name).is_relative_to(tempfile.gettempdir()):
            yield name


def test_nothing_changed(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    root = make_project("same", {"a.cpp": '#include "a.h"\nextern "C" int a() { return A; }\n', "a.h": "#define A 1\n"})
    commit(root)
    wanted = [word for name in VARIANTS for word in ("--variant", name)]
    first = tool("build", root, *wanted, "--json")
    assert first.code == 0, first.stderr

    facts = watched(tool, tmp_path, "build", root, *wanted, "--json")
    again = Result(0, facts["words"][0], "")
    assert facts["started"] == []
    assert heavy(facts["modules"]) == []
    assert [again.compiled(name) for name in VARIANTS] == [[], []]
    for name in VARIANTS:
        before, now = first.variant(name), again.variant(name)
        assert now["status"] == "unchanged"
        assert {key: value for key, value in now.items() if key not in {"status", "compiled"}} == {
            key: value for key, value in before.items() if key not in {"status", "compiled"}
        }

    # What a build reads is what its record rests on, whoever adds a file to read.
    records = root / ".kernel-builder" / "records"
    shutil.rmtree(records)
    facts = watched(tool, tmp_path, "build", root, *wanted, "--json")
    assert facts["started"]
    (record,) = records.iterdir()
    seen = json.loads(record.read_text(encoding="utf-8"))
    missed = sorted(set(outside(facts["read"], root, tool)) - set(known(seen)))
    assert not missed, "\n".join(missed)


def known(record: dict[str, Any]) -> Iterator[str]:
    """All paths that ``record`` rests on."""
    yield from record["seen"]["files"]
    yield from record["seen"]["folders"]
    for files, folders, _ in record["value"]["trees"]:
        yield from files
        for folder in folders:
            yield folder
            for parent, names, inside in os.walk(folder):
                yield from (f"{parent}/{name}" for name in (*names, *inside))


NOARCH = """
[general]
name = "plain"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch-noarch]
"""


class Plain:
    """A kernel of Python alone, which is built in no time."""

    def __init__(self, tool: Tool, root: Path, home: Path) -> None:
        self.tool = tool
        self.root = root
        self.home = home
        self.package = root / "torch-ext" / "plain"
        self.output = root / "build" / "torch-cpu"
        self.options: tuple[str, ...] = ("--no-load",)
        self.variables = {"HOME": str(home), "XDG_CONFIG_HOME": str(home)}

    def build(self) -> None:
        built = self.tool("build", self.root, "--json", *self.options, env=self.variables)
        assert built.code == 0, built.stderr

    def is_remembered(self) -> bool:
        """Whether a build is answered without looking at the project."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kernel_builder.workflow.making.make", lambda *_: pytest.fail("it is made"))
            try:
                self.build()
            except pytest.fail.Exception:
                return False
        return True

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def set(self, name: str, value: str) -> None:
        self.variables = {**self.variables, name: value}


SEEN: dict[str, Callable[[Plain], object]] = {
    "the package": lambda plain: plain.write(plain.package / "__init__.py", "from . import _ops\nx = 1\n"),
    "a file that git has": lambda plain: plain.write(plain.root / "docs" / "words.md", "other words\n"),
    "a new file": lambda plain: plain.write(plain.package / "more.py", ""),
    "a commit": lambda plain: commit(plain.root, "another"),
    "build.toml": lambda plain: plain.write(plain.root / "build.toml", NOARCH.replace("version = 1", "version = 2")),
    "the project's settings": lambda plain: plain.write(plain.root / "kernel-builder.toml", ""),
    "the user's settings": lambda plain: plain.write(plain.home / "kernel-builder" / "kernel-builder.toml", ""),
    "the user's index": lambda plain: plain.write(plain.home / "pip" / "pip.conf", ""),
    "git's settings": lambda plain: plain.write(plain.home / "git" / "config", ""),
    "a card": lambda plain: plain.write(plain.root / "CARD.md", "# A card\n"),
    "what was installed": lambda plain: plain.write(plain.output / "__init__.py", ""),
    "something installed is gone": lambda plain: (plain.output / "_ops.py").unlink(),
    "something beside it": lambda plain: plain.write(plain.output / "more.py", ""),
    "the work directory is gone": lambda plain: shutil.rmtree(plain.root / ".kernel-builder"),
    "a variable": lambda plain: plain.set("CXX", "clang++"),
    "an option": lambda plain: setattr(plain, "options", ("--no-load", "--keep-going")),
}
UNSEEN: dict[str, Callable[[Plain], object]] = {
    "nothing": lambda plain: None,  # noqa: ARG005
    "bytecode": lambda plain: plain.write(plain.package / "__pycache__" / "x.pyc", ""),
    "another project's output": lambda plain: plain.write(plain.root / "build" / "other" / "x", ""),
    "a shell in a shell": lambda plain: plain.set("SHLVL", "7"),
}


def test_whatever_changed_is_seen(tool: Tool, make_project: ProjectMaker, tmp_path: Path) -> None:
    """Each change, wherever it is, is answered by looking again; what no build rests on is not."""
    plain = Plain(tool, make_project("plain", {"docs/words.md": "words\n"}, toml=NOARCH), tmp_path / "home")
    commit(plain.root)
    plain.build()
    wrong: list[str] = []
    for changes, expected in ((UNSEEN, True), (SEEN, False)):
        for name, change in changes.items():
            change(plain)
            wrong += [] if plain.is_remembered() is expected else [name]
            plain.build()
            if not plain.is_remembered():
                wrong.append(f"after {name}")
    assert wrong == []


def test_a_record_that_came_with_a_project_is_not_believed(
    tool: Tool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    plain = Plain(tool, make_project("plain", {}, toml=NOARCH), tmp_path / "home")
    plain.build()
    assert plain.is_remembered()
    (plain.root / ".kernel-builder" / "made-by").write_text("somebody else", encoding="ascii")
    assert not plain.is_remembered()
