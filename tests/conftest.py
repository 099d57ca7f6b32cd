"""What all tests share: a store for the session, the command line as users run it, and small projects.

Tests run in several processes at once (pytest-xdist). What is costly to make lies in one folder for all of them and is
made by whoever needs it first. Tests that share a fixture of their module run in one process; ``xdist_group`` keeps
others together.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout
from hypothesis import HealthCheck, settings

from kernel_builder.cli import run
from kernel_builder.load.client import Environment, NoEnvironment, find_environment
from kernel_builder.toolchain.host import inspect_compiler
from kernel_builder.toolchain.model import HostCompiler
from kernel_libraries import Workshop
from warm_python import WarmPython

# How fast a busy machine makes examples says nothing about what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The tests are the same with and without a GPU.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Nor on the terminal and the virtual environment of whoever runs them.
for _name in ("COLUMNS", "LINES", "VIRTUAL_ENV"):
    os.environ.pop(_name, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and every child would be deaf to Ctrl-C too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Put before code that loads a kernel. `pip install torch` brings a build for CUDA on Linux, and with it the client
# looks for CUDA variants, GPU or not, unless it is told a backend. With any build of torch it is to behave like that.
LIKE_A_CUDA_BUILD = "import torch; torch.version.cuda = torch.version.cuda or '13.0'\n"


def with_torch(code: str) -> list[str | Path]:
    """The command that runs ``code`` in a fresh Python with torch, like a build for CUDA.

    To look for garbage while torch is imported, and to take torch down at the end, would be half of what it takes.
    """
    begin = f"import gc; gc.disable()\n{LIKE_A_CUDA_BUILD}"
    end = "\nimport os, sys; sys.stdout.flush(); sys.stderr.flush(); os._exit(0)\n"
    return [sys.executable, "-B", "-c", f"{begin}{code}{end}"]


ROOT = Path(__file__).parent.parent
PROJECTS = Path(__file__).parent / "projects"
CPU = "torch213-cxx11-cpu-x86_64-linux"

BUILD_TOML = """\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = []

[kernel.main]
backend = "cpu"
depends = ["torch"]
src = [{sources}]
"""


@dataclass(frozen=True)
class Result:
    """What a run of the command line left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, object]:
        """stdout as JSON."""
        value: dict[str, object] = json.loads(self.stdout)
        return value

    def variant(self, name: str = CPU) -> dict[str, object]:
        """The entry of one variant in the JSON result of ``build``."""
        variants = self.json["variants"]
        assert isinstance(variants, list)
        (found,) = [entry for entry in variants if entry["name"] == name]
        assert isinstance(found, dict)
        return found

    def compiled(self, name: str = CPU) -> list[str]:
        """Sources that were compiled for a variant, sorted."""
        found = self.variant(name)["compiled"]
        assert isinstance(found, list)
        return sorted(found)


# Variables that are read once, when an interpreter starts or a module is imported.
_READ_ONCE = ("PYTHON", "HF_", "HUGGING")
_BUILDS = {"build", "build-and-copy", "build-and-upload"}


@dataclass
class Tool:
    """Runs ``kernel-builder`` with the variables of ``environment`` and the session's store.

    A call runs in this process where that makes no difference; ``apart`` and ``start`` take a process of their own.
    """

    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start it and return at once."""
        return subprocess.Popen(
            [sys.executable, "-m", "kernel_builder", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=self.environment,
        )

    def apart(self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
        """Run it to its end in a process of its own."""
        with room_to_build() if str(arguments[0]) in _BUILDS else contextlib.nullcontext():
            completed = subprocess.run(
                [sys.executable, "-m", "kernel_builder", *map(str, arguments)],
                capture_output=True,
                text=True,
                check=False,
                cwd=cwd,
                env={"PYTHONDONTWRITEBYTECODE": "1", **self.environment, **(env or {})},
                timeout=1800,
            )
        assert "Traceback" not in completed.stderr, completed.stderr
        return recorded(arguments, Result(completed.returncode, completed.stdout, completed.stderr))

    def __call__(self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Result:
        """Run it to its end."""
        environment = {**self.environment, **(env or {})}
        if any(
            environment.get(name) != os.environ.get(name)
            for name in environment.keys() | os.environ.keys()
            if name.startswith(_READ_ONCE)
        ):
            return self.apart(*arguments, cwd=cwd, env=env)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with (
            _closing_what_is_made(),
            room_to_build() if str(arguments[0]) in _BUILDS else contextlib.nullcontext(),
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(cwd or Path.cwd()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run([str(argument) for argument in arguments], environment)
        stdout, stderr = (stream.buffer.getvalue().decode() for stream in (out, err))
        assert "Traceback" not in stderr, stderr
        return recorded(arguments, Result(int(code), stdout, stderr))


@contextlib.contextmanager
def _closing_what_is_made() -> Iterator[None]:
    """Whatever is made in this context and left is closed at its end, as when a process ends: a store, above all.

    What was there before is not looked at: thousands of tests and torch take a third of a second each time.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


# How each variant that tests build was proven: lines that the end of the session shows. Workers inherit the variable.
_PROOFS = "TEST_PROOFS"


def recorded(arguments: tuple[str | Path, ...], result: Result) -> Result:
    """``result``; what a build with ``--json`` says of its variants is noted."""
    if (
        str(arguments[0]) == "build"
        and "--json" in arguments
        and "--dry-run" not in arguments
        and _PROOFS in os.environ
    ):
        with contextlib.suppress(ValueError), Path(os.environ[_PROOFS]).open("a", encoding="utf-8") as file:
            for variant in result.json.get("variants", ()):  # type: ignore[attr-defined]
                load = variant["load"] or {"status": variant["status"], "ops": [], "implemented": {}, "reason": None}
                keys = sorted({key for found in load["implemented"].values() for key in found})
                told = f"{load['status']}; {len(load['ops'])} ops; {' '.join(keys)}; {load['reason'] or ''}"
                file.write(f"{variant['name']} {variant['ops-id']}: {told}\n".replace("\n", " ").rstrip(" ;") + "\n")
    return result


def assert_proven(load: object) -> None:
    """The proof of a variant of torch 2.13 for this platform: on one of the two levels, if torch is here."""
    assert isinstance(load, dict)
    if importlib.util.find_spec("torch") is not None:
        assert load["status"] in {"loaded", "loaded with stand-ins"}, load


def pytest_configure(config: pytest.Config) -> None:
    """The file for the proofs of this session."""
    if not hasattr(config, "workerinput"):
        handle, os.environ[_PROOFS] = tempfile.mkstemp(prefix="proofs-")
        os.close(handle)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show how the variants that were built were proven."""
    if hasattr(config, "workerinput"):
        return
    path = Path(os.environ.pop(_PROOFS))
    lines = sorted(set(path.read_text(encoding="utf-8").splitlines()))
    path.unlink()
    if lines:
        terminalreporter.section("variants that were built, and how they were proven")
        terminalreporter.write_line("\n".join(lines))


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that is one for all processes of this session."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def once(folder: Path, make: Callable[[Path], object]) -> Path:
    """``folder``, with what ``make`` puts there: made by the process that asks first, while the others wait."""
    with FileLock(f"{folder}.lock"):
        if not (done := Path(f"{folder}.done")).exists():
            shutil.rmtree(folder, ignore_errors=True)  # an attempt that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


# Two compilers at work on torch's headers take up to this much, in bytes.
_MEMORY_OF_A_BUILD = 6 << 30


@contextlib.contextmanager
def room_to_build() -> Iterator[None]:
    """Wait until the memory of this machine allows one more build, beside those of other test processes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    folder = Path(tempfile.gettempdir()) / f"kernel-builder-tests-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    slots = [FileLock(folder / f"build-{number}.lock") for number in range(max(1, memory // _MEMORY_OF_A_BUILD))]
    while not (slot := next((slot for slot in slots if _taken(slot)), None)):
        time.sleep(0.1)
    try:
        yield
    finally:
        slot.release()


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    return True


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several processes at once: the longest tests first, so that none of them is left to run alone at the end. Those
    that share a fixture of their module run in one process, or each process would make its own.
    """
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: [item.get_closest_marker(name) is None for name in ("long", "torch", "slow")])
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares_with_its_module(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _shares_with_its_module(item: pytest.Item) -> bool:
    """Whether a fixture of ``item`` is made once for its module, which is where it is."""
    if not isinstance(item, pytest.Function):
        return False
    known = item._fixtureinfo.name2fixturedefs
    used = (known[name][-1] for name in item.fixturenames if name in known)
    return any(one.scope == "module" and one.baseid == item.nodeid.partition("::")[0] for one in used)


@pytest.fixture(scope="session")
def session_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of this test session. ``KERNEL_BUILDER_TEST_CACHE`` names one that is kept between sessions."""
    kept = os.environ.get("KERNEL_BUILDER_TEST_CACHE")
    return Path(kept) if kept else shared_folder(tmp_path_factory) / "store"


@pytest.fixture(scope="session")
def tool(session_store: Path) -> Tool:
    """The command line."""
    return Tool({**os.environ, "KERNEL_BUILDER_CACHE": str(session_store)})


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmPython]:
    """A Python with torch and its compiler, for tests of the group "warm torch": each process would start one."""
    for name in ("torch", "kernels"):
        pytest.importorskip(name, reason=f"{name} is not installed in this environment")
    with WarmPython("torch", "torch._dynamo", "kernels", "pytest") as python:
        yield python


@pytest.fixture(scope="session")
def init_project(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``init`` writes, committed, with its CPU variant built for the torch here. Not to be changed."""

    def make(parent: Path) -> None:
        written = tool("init", "--name", "me/my-scale", cwd=parent)
        assert written.code == 0, written.stderr
        commit(parent / "my-scale")
        built = tool("build", parent / "my-scale", "--local", "--backend", "cpu")
        assert built.code == 0, built.stderr

    return once(shared_folder(tmp_path_factory) / "init", make) / "my-scale"


@pytest.fixture(scope="session")
def built_relu(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """examples/relu at its ``first`` and ``second`` commit, each with its CPU variant built. Not to be changed."""

    def make(parent: Path) -> None:
        root = copy_project(ROOT / "examples" / "relu", parent / "second")
        for name in ("first", "second"):
            commit(root, f"the {name} commit")
            built = tool("build", root, "--local", "--backend", "cpu")
            assert built.code == 0, built.stderr
            if name == "first":
                shutil.copytree(root, parent / "first", ignore=shutil.ignore_patterns(".kernel-builder"))

    folder = once(shared_folder(tmp_path_factory) / "relu", make)
    return {name: folder / name for name in ("first", "second")}


ProjectMaker = Callable[..., Path]


@pytest.fixture
def make_project(tmp_path: Path) -> ProjectMaker:
    """Make a project of plain files: ``make_project("name", {"a.cpp": "..."}, toml="...")``.

    Without ``toml`` every C++ source is in one cpu section. A package is added. Sources need no torch, so they compile
    at once.
    """

    def make(name: str, files: Mapping[str, str], *, toml: str | None = None, directory: str | None = None) -> Path:
        root = tmp_path / (directory or name)
        sources = ", ".join(f'"{path}"' for path in files if path.endswith((".cpp", ".c", ".h")))
        contents = {
            "build.toml": toml or BUILD_TOML.format(name=name, sources=sources),
            f"torch-ext/{name.replace('-', '_')}/__init__.py": "from . import _ops\n",
            **files,
        }
        for path, text in contents.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return root

    return make


@pytest.fixture
def unloaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds by ``tool`` take it that no Python here has torch: what loading shows is not what is tested, and it takes
    several times as long as to compile these sources. A test that is marked ``loaded`` is the exception.
    """
    if request.node.get_closest_marker("loaded") is not None:
        return

    def nowhere(chosen: Path | None, *rest: Any, **named: Any) -> Environment | NoEnvironment:
        if chosen is None:
            return NoEnvironment(reason="this test loads nothing")
        return find_environment(chosen, *rest, **named)

    monkeypatch.setattr("kernel_builder.workflow.making.find_environment", nowhere)


def commit(root: Path, message: str = "state") -> str:
    """Commit everything in ``root``, making a repository of it first; returns the commit."""
    environment = {
        **os.environ,
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.invalid",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.invalid",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()

    if not (root / ".git").exists():
        git("init", "-q")
        (root / ".gitignore").write_text("build/\n.kernel-builder/\n", encoding="utf-8")
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", message)
    return git("rev-parse", "HEAD")


def copy_project(source: Path, target: Path) -> Path:
    """Copy a project without what builds left in it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("build", ".kernel-builder", "__pycache__"))
    return target


@pytest.fixture(scope="session")
def host() -> HostCompiler:
    """The g++ of this machine."""
    found = inspect_compiler(Path("/usr/bin/g++"), os.environ)
    if not isinstance(found, HostCompiler) or not found.target.startswith("x86_64"):
        pytest.skip("needs g++ on x86_64")
    return found


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Makes tiny real libraries."""
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")
    return Workshop(tmp_path_factory.mktemp("libraries"))
