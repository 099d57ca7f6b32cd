"""A proof is carried over to what does the very same when it is loaded, and to nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.load.carried import carried, keep
from kernel_builder.load.client import Environment, Loadable, NoEnvironment
from kernel_builder.load.evidence import LoadedOp, LoadResult, LoadStatus
from kernel_builder.variants.names import parse_variant

CPU = parse_variant("torch213-cxx11-cpu-x86_64-linux")
BEFORE, AFTER = "_k_cpu_abcdef0_dirty_11111111", "_k_cpu_abcdef0_dirty_22222222"
SOURCE = '''\
import torch

from ._ops import ops

FACTOR = 2


def decorated(function):
    return function


class Layer:
    size = 3

    def forward(self, x):
        return x * FACTOR

    @decorated
    def backward(self, x, *, scale=1):
        return x / FACTOR


def called():
    def within():
        return 1

    return within()


VALUE = called()


def unused(x, out=None):
    """Words."""
    values = [y for y in x]
    return ops.op(values, out)
'''
RAN = frozenset(
    {("__init__.py", 1, "<module>"), ("__init__.py", 8, "decorated"), ("__init__.py", 12, "Layer"),
     ("__init__.py", 23, "called"), ("__init__.py", 24, "within"), ("__init__.py", 15, "forward")}
)  # fmt: skip
RESULT = LoadResult(status=LoadStatus.LOADED, ops=(LoadedOp(name="k::op", keys=("CPU",)),), ran=RAN)


def environment(torch: str = "2.13.0") -> Environment:
    return Environment(python=Path("/python"), torch=torch, toolkits={}, devices={}, abi=None, client="1")


def kernel(folder: Path, ops_id: str, source: str = SOURCE, **more: str) -> Loadable:
    folder.mkdir()
    metadata = {"name": "k", "id": ops_id, "digest": {"files": ops_id}, "provenance": {"x": ops_id}, "version": 1}
    files = {
        "__init__.py": source,
        "_ops.py": f"import torch\nfrom . import {ops_id}\nops = torch.ops.{ops_id}\n",
        "data.json": "{}",
        f"{ops_id}.abi3.so": ops_id,
        "metadata.json": json.dumps(metadata),
        **more,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return Loadable(directory=folder, variant=CPU, ops_id=ops_id, python_name="k")


def over(tmp_path: Path, source: str = SOURCE, **more: str) -> LoadResult | None:
    """What is carried over to a kernel with ``source`` and the files ``more``."""
    keep(kernel(tmp_path / "one", BEFORE), "native", environment(), RESULT, tmp_path / "work")
    return carried(kernel(tmp_path / "two", AFTER, source, **more), "native", environment(), tmp_path / "work")


COMMENTS: dict[str, tuple[str, str]] = {
    "a comment at its end": ("return ops.op(values, out)\n", "return ops.op(values, out)\n# the end\n"),
    "a comment in what ran": ("return x * FACTOR", "# doubled\n        return x * FACTOR"),
    "blank lines, so that all is further down": ("FACTOR = 2", "\n\n\nFACTOR = 2"),
    "how it is written": ("return ops.op(values, out)", "return ops.op(\n        values,\n        out,\n    )"),
}
HOLDS: dict[str, tuple[str, str]] = {
    "a function's body": ("return ops.op(values, out)", "return ops.op(values, out) + FACTOR"),
    "what it lists": ("[y for y in x]", "[y + 1 for y in x]"),
    "its words": ('"""Words."""', '"""Other words."""'),
    "a new function": (
        "VALUE = called()\n",
        "VALUE = called()\n\n\ndef unused_too(x, y=1):\n    return unused(x)\n",
    ),
    "a new function further up": ("FACTOR = 2\n", "FACTOR = 2\n\n\ndef unused_too():\n    pass\n"),
    "a new constant": ("FACTOR = 2\n", "FACTOR = 2\nunused_too = 3\n"),
    "a function less": (SOURCE[SOURCE.index("def unused(") :], ""),
    "another name": ("def unused(", "def unused_too("),
    "a method's body": ("return x / FACTOR", "y = x * 7\n        return y / FACTOR"),
}
HOLDS_NOT: dict[str, tuple[str, str]] = {
    "a constant": ("FACTOR = 2", "FACTOR = 3"),
    "a new constant that something reads": ("FACTOR = 2\n", "FACTOR = 2\nsize = 4\n"),
    "a new constant that is computed": ("FACTOR = 2\n", "FACTOR = 2\nUNUSED = FACTOR + 1\n"),
    "a new constant with a meaning of its own": ("FACTOR = 2\n", "FACTOR = 2\n__path__ = None\n"),
    "its type": ("FACTOR = 2", "FACTOR = 2.0"),
    "an import": ("import torch\n", "import torch\nimport os\n"),
    "a default": ("scale=1", "scale=2"),
    "an annotation": ("def unused(x,", "def unused(x: int,"),
    "an argument": ("out=None", "output=None"),
    "a decorator": ("    @decorated\n", ""),
    "a class's body": ("size = 3", "size = 4"),
    "a function that ran": ("    return function", "    print()\n    return function"),
    "a function within one that ran": ("return 1\n", "return 2\n"),
    "a method that was called": ("return x * FACTOR", "return x"),
    "a new function of a builtin's name": ("def unused(", "def len(x):\n    pass\n\n\ndef unused("),
    "a new function that the client looks for": ("def unused(", "def layers():\n    pass\n\n\ndef unused("),
    "a new function that is asked for": ("def unused(", "def __getattr__(x):\n    pass\n\n\ndef unused("),
    "a new function that runs": ("VALUE = called()\n", "def new():\n    pass\n\n\nVALUE = called()\nnew()\n"),
    "a new function with a decorator": ("def unused(", "@decorated\ndef new():\n    pass\n\n\ndef unused("),
    "a new function whose default runs": ("def unused(", "def new(x=called()):\n    pass\n\n\ndef unused("),
    "a new function with a new annotation": ("def unused(", "def new(x: Tensr):\n    pass\n\n\ndef unused("),
    "a new function where names are asked for": ("VALUE = called()\n", "VALUE = dir()\n\n\ndef new():\n    pass\n"),
    "a new class": ("def unused(", "class New:\n    pass\n\n\ndef unused("),
    "a function that ran less": ("def called():\n    def within():\n        return 1\n\n    return within()\n", ""),
    "no Python": ("FACTOR = 2", "FACTOR ="),
}


@pytest.mark.parametrize(("old", "new"), COMMENTS.values(), ids=COMMENTS)
def test_it_holds_where_only_comments_or_the_layout_changed(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    found = over(tmp_path, SOURCE.replace(old, new))
    assert found is not None
    assert found.reason == "not again: only comments and formatting of its Python code changed"
    # What ran is told by its lines before that edit: one more edit is held against those.
    keep(kernel(tmp_path / "three", AFTER, SOURCE.replace(old, new)), "native", environment(), found, tmp_path / "work")
    again = kernel(tmp_path / "four", AFTER, SOURCE.replace(old, new).replace("x * FACTOR", "x * FACTOR + 1"))
    assert carried(again, "native", environment(), tmp_path / "work") is None


@pytest.mark.parametrize("edit", HOLDS)
def test_what_did_not_run_may_change(tmp_path: Path, edit: str) -> None:
    old, new = HOLDS[edit]
    assert old in SOURCE
    found = over(tmp_path, SOURCE.replace(old, new))
    assert found is not None
    assert found.reason is not None
    assert "not again" in found.reason
    assert ("backward" if "method" in edit else "unused") in found.reason
    assert (found.status, found.ops) == (RESULT.status, RESULT.ops)


@pytest.mark.parametrize(
    ("more", "holds"),
    [
        ({}, True),
        ({"other.py": "from . import *\n"}, False),
        ({"other.py": "from . import __all__ as names\n"}, False),
        ({"other.py": "def __getattr__(name):\n    return name\n\n\nunused_too = 1\n"}, False),
    ],
)
def test_what_a_package_lists_for_people_may_change_with_its_functions(
    tmp_path: Path, more: dict[str, str], holds: bool
) -> None:
    source = f'{SOURCE}\n\n__all__ = ["called"]\n'
    keep(kernel(tmp_path / "one", BEFORE, source, **more), "native", environment(), RESULT, tmp_path / "work")
    new = source.replace('["called"]', '["called", "unused_too"]') + "\n\ndef unused_too():\n    pass\n"
    found = carried(kernel(tmp_path / "two", AFTER, new, **more), "native", environment(), tmp_path / "work")
    assert (found is not None) is holds


def test_what_makes_the_package_importable_by_name_asks_for_nothing(tmp_path: Path) -> None:
    shim = {"__init__.py": "exec(compile(code, path, 'exec'), globals())\n"}
    folders = tmp_path / "one", tmp_path / "two"
    kernels = [kernel(folders[0], BEFORE), kernel(folders[1], AFTER, f"{SOURCE}\n\ndef unused_too():\n    pass\n")]
    for folder in folders:
        (folder / "k").mkdir()
        (folder / "k" / "__init__.py").write_text(shim["__init__.py"], encoding="utf-8")
    keep(kernels[0], "native", environment(), RESULT, tmp_path / "work")
    assert carried(kernels[1], "native", environment(), tmp_path / "work") is not None


@pytest.mark.parametrize("edit", HOLDS_NOT)
def test_what_ran_may_not(tmp_path: Path, edit: str) -> None:
    old, new = HOLDS_NOT[edit]
    assert old in SOURCE
    assert over(tmp_path, SOURCE.replace(old, new)) is None


@pytest.mark.parametrize(
    "more",
    [
        {"data.json": "[]"},
        {"more.py": ""},
        {"_ops.py": "import torch\n"},
        {"metadata.json": json.dumps({"name": "k", "id": AFTER, "version": 2})},
    ],
)
def test_other_files_may_not(tmp_path: Path, more: dict[str, str]) -> None:
    assert over(tmp_path, **more) is None


def test_the_same_under_another_name_needs_no_words(tmp_path: Path) -> None:
    found = over(tmp_path)
    assert found is not None
    assert found.reason is None


CONDITIONS: dict[str, Callable[[Path, Loadable], LoadResult | None]] = {
    "another library": lambda work, other: carried(other, "another", environment(), work),
    "another torch": lambda work, other: carried(other, "native", environment("2.13.1"), work),
    "no Python to load it": lambda work, other: carried(other, "native", NoEnvironment(reason="none"), work),
    "no proof": lambda work, other: carried(other, "native", environment(), work / "elsewhere"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_only_what_was_proven_here(tmp_path: Path, condition: str) -> None:
    keep(kernel(tmp_path / "one", BEFORE), "native", environment(), RESULT, tmp_path / "work")
    assert CONDITIONS[condition](tmp_path / "work", kernel(tmp_path / "two", AFTER)) is None


@pytest.mark.parametrize(
    "result",
    [
        replace(RESULT, ran=None),
        replace(RESULT, reason="its Python was not run"),
        LoadResult(status=LoadStatus.FAILED, ran=RAN),
        LoadResult(status=LoadStatus.NOT_LOADED, ran=RAN),
    ],
)
def test_only_a_whole_proof_is_kept(tmp_path: Path, result: LoadResult) -> None:
    keep(kernel(tmp_path / "one", BEFORE), "native", environment(), result, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_carried_proof_is_not_a_proof_to_carry(tmp_path: Path) -> None:
    """What holds for the third is what was seen of the first: nothing adds up on the way."""
    found = over(tmp_path, SOURCE.replace("return x / FACTOR", "return x"))
    assert found is not None
    assert found.ran is None
    third = SOURCE.replace("return ops.op(values, out)", "return values")
    again = carried(kernel(tmp_path / "three", AFTER, third), "native", environment(), tmp_path / "work")
    assert again is not None
    assert again.reason is not None
    assert "unused" in again.reason
    assert "backward" not in again.reason
