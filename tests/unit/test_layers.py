"""What may import what, and who may open connections, start processes, print and read the environment.

The order is the one that CONTRIBUTING.md shows.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Each process would read every module.
pytestmark = pytest.mark.xdist_group("layers")

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kernel_builder"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"

PAGE = CONTRIBUTING.read_text(encoding="utf-8")
ORDER = tuple(re.findall(r"^    ([a-z]+)  +\S", PAGE.split("## The map")[1].split("\nIn addition,")[0], re.MULTILINE))
"""Each may import what stands before it."""
TOO = {
    # Rules judge any kernel, ours or not: from the library's bytes, never from how it was made.
    "check": {"plan", "engine", "backends", "actions", "toolchain", "store", "project"},
    "scaffold": set(ORDER) - {"errors", "files", "git", "portable", "config", "scaffold"},
    "load": {"plan", "engine", "backends", "toolchain", "store"},
}
"""What a package must not import although it stands before it."""

NETWORK = {"socket", "ssl", "http", "urllib.request", "urllib3", "requests", "httpx", "huggingface_hub", "sigstore"}
NETWORK |= {"distributed", "dask"}
PROCESSES = {"subprocess", "multiprocessing", "pty"}
STARTERS = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "execvpe"}

OPEN_CONNECTIONS = {"store", "hub", "cluster"}
START_PROCESSES = {"git", "engine", "toolchain", "backends", "load", "environments"}
PRINT = {
    "cli",
    "backends/rocm/hipify.py",
    "engine/inspect.py",
    "engine/precompiled.py",
    "load/probe/answers.py",
    "environments/inside/warm_process.py",
}
"""The files are programs of their own: what they print is their answer to the package."""
READ_ENVIRONMENT = {"cli"}


_PATHS = re.compile(r"`((?:src|tests|docs|scripts|examples)/[\w./-]*|[\w-]+\.md)`")


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if "templates" not in path.relative_to(SOURCE).parts]


def room(path: Path) -> str:
    """The package or leaf that a module belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    """Everything imported, also inside functions and for type checkers alone. ``from a import b`` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def imports_of_package(tree: ast.AST) -> set[str]:
    """The rooms that are imported."""
    names = [name.split(".") for name in imported(tree)]
    return {name[1] for name in names if name[0] == "kernel_builder" and len(name) > 1 and name[1] != "__version__"}


def wrong_imports(where: str, tree: ast.AST) -> set[str]:
    allowed = {*ORDER[: ORDER.index(where)], where} - TOO.get(where, set())
    return imports_of_package(tree) - allowed - {"data"}


def is_one_of(name: str, libraries: set[str]) -> bool:
    return any(name == library or name.startswith(f"{library}.") for library in libraries)


def opens_connections(tree: ast.AST) -> bool:
    return any(is_one_of(name, NETWORK) for name in imported(tree))


def starts_processes(tree: ast.AST) -> bool:
    calls = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_os(node)}
    names = {name.removeprefix("os.") for name in imported(tree) if name.startswith("os.")}
    return any(is_one_of(name, PROCESSES) for name in imported(tree)) or bool((calls | names) & STARTERS)


def of_os(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "os"


def prints(tree: ast.AST) -> bool:
    streams = {("sys", "stdout"), ("sys", "stderr"), ("click", "echo")}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    parts = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {(node.value.id, node.attr) for node in parts if isinstance(node.value, ast.Name)}
    return "print" in names or bool(used & streams) or any(tuple(name.split(".")) in streams for name in imported(tree))


def reads_environment(tree: ast.AST) -> bool:
    variables = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_os(node)}
    return bool(used & variables) or any(name.removeprefix("os.") in variables for name in imported(tree))


def test_paths_on_the_page_exist() -> None:
    paths = _PATHS.findall(PAGE)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_room_has_its_place() -> None:
    found = {room(path) for path in modules()} - {"__init__", "__main__", "data"}
    assert found == set(ORDER)


def test_types_do_not_share_names() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("where", ORDER)
def test_imports_point_one_way(where: str) -> None:
    wrong = {
        str(path.relative_to(SOURCE)): sorted(bad)
        for path in modules()
        if room(path) == where and (bad := wrong_imports(where, parsed(path)))
    }
    assert wrong == {}


def test_imports_name_the_whole_path() -> None:
    """But for the probe, which another interpreter runs: it has no such package."""
    relative = {
        path.relative_to(SOURCE).parent.as_posix()
        for path in modules()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    }
    assert relative == {"load/probe"}
    probe = [path for path in modules() if path.parent == SOURCE / "load" / "probe"]
    assert {name for path in probe for name in imports_of_package(parsed(path))} == set()


@pytest.mark.parametrize(
    ("does", "allowed"),
    [
        (opens_connections, OPEN_CONNECTIONS),
        (starts_processes, START_PROCESSES),
        (prints, PRINT),
        (reads_environment, READ_ENVIRONMENT),
    ],
)
def test_only_named_packages(does: Callable[[ast.AST], bool], allowed: set[str]) -> None:
    doing = [path for path in modules() if does(parsed(path))]
    places = {(room(path), str(path.relative_to(SOURCE))) for path in doing}
    assert {file for package, file in places if package not in allowed and file not in allowed} == set()
    # A package that no longer does it is taken off the list.
    assert allowed <= {name for place in places for name in place}


@pytest.mark.parametrize(
    ("does", "text"),
    [
        (opens_connections, "import urllib.request"),
        (opens_connections, "from urllib import request"),
        (opens_connections, "def f():\n    from huggingface_hub import HfApi"),
        (starts_processes, "from subprocess import run"),
        (starts_processes, "import os\nos.posix_spawn('a', [], {})"),
        (starts_processes, "from os import execv"),
        (prints, "print('x')"),
        (prints, "import sys\nsys.stderr.write('x')"),
        (prints, "from click import echo"),
        (reads_environment, "import os\nos.environ['A']"),
        (reads_environment, "from os import getenv"),
    ],
)
def test_the_judgements_see_every_way(does: Callable[[ast.AST], bool], text: str) -> None:
    assert does(ast.parse(text))
    assert not does(ast.parse("import os\nos.path.join('a', 'b')"))


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("config", "from kernel_builder.variants.names import Variant"),
        ("check", "from kernel_builder.plan import planner"),
        ("store", "def f():\n    import kernel_builder.toolchain.model"),
        ("toml", "from kernel_builder import config"),
    ],
)
def test_an_import_against_the_order_is_seen(where: str, text: str) -> None:
    assert wrong_imports(where, ast.parse(text))
