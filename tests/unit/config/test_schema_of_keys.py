"""The table of keys against the model, the reader, the generated files, and the code that uses what is read."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

import kernel_builder
from kernel_builder.cli import run
from kernel_builder.config import model, tables
from kernel_builder.config.jsonschema import json_schema
from kernel_builder.config.reader import read_project
from kernel_builder.config.schema import EXAMPLES, TABLES, Kind
from kernel_builder.errors import ConfigError

ROOT = Path(__file__).parents[3]
PACKAGE = Path(kernel_builder.__file__).parent
GOLDEN = ROOT / "tests" / "golden" / "config"


def keys() -> Iterator[tuple[str, str]]:
    """Every key of the schema, as class and field of the model."""
    for table in TABLES:
        for key in table.keys:
            yield table.model, key.field


@pytest.mark.parametrize(("owner", "field"), sorted(set(keys())))
def test_every_key_is_a_field_of_the_model(owner: str, field: str) -> None:
    assert field in {one.name for one in fields(getattr(model, owner))}


def test_every_field_of_the_model_is_a_key() -> None:
    known = set(keys())
    made = {("Project", name) for name in ("root", "framework", "sections", "hub", "backend_options")}
    made |= {("Framework", "kind"), ("Section", "id")}
    for owner in {owner for owner, _ in known}:
        for one in fields(getattr(model, owner)):
            assert (owner, one.name) in known | made


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(Kind)
    for example in EXAMPLES.values():
        tomllib.loads(f"key = {example}")


def test_the_reader_asks_for_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document with every key is read, and every one of them is asked for."""
    asked: set[tuple[str, str]] = set()

    class Noting(tables.TableReader):
        def node(self, name: str) -> object:  # type: ignore[override]
            if self._ready:
                asked.add((self._table.name, name))
            return super().node(name)

        _ready = False

        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            self._ready = True

    for module in ("reader", "values"):
        monkeypatch.setattr(f"kernel_builder.config.{module}.TableReader", Noting)
    for framework in ("torch", "torch-noarch", "tvm-ffi"):
        with_kernels = "" if framework == "torch-noarch" else '[kernel.a]\nbackend = "cuda"\ndepends = []\nsrc = []\n'
        text = f"""\
[general]
name = "ab"
version = 1
edition = 5
license = "mit"
backends = ["cuda", "neuron", "xpu", "tpu"]
kernel-depends = [{{ repo-id = "a/b", version = 1 }}]
[general.hub]
[general.cuda]
[general.neuron]
[general.xpu]
[general.tpu]
[{framework}]
{"src = []" if framework == "tvm-ffi" else ""}
{with_kernels}
"""
        read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    known = {(table.name, key.name) for table in TABLES for key in table.keys}
    # Two keys decide how the rest is read, and are looked at before a table has a reader.
    assert known - asked == {("general", "edition"), ("kernel.<id>", "backend")}


def attributes_read(outside: Path) -> set[str]:
    """Names of all attributes that the package reads, but for the modules in ``outside``."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if outside in path.parents or "templates" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def test_every_key_has_an_effect() -> None:
    read = attributes_read(PACKAGE / "config")
    idle = {f"{owner}.{field}" for owner, field in keys() if field not in read}
    assert not idle


# What is generated.


def test_the_command_prints_the_schema(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed == json.loads(json.dumps(json_schema()))
    jsonschema.Draft202012Validator.check_schema(printed)


def schema_errors(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema())
    return [error.message for error in validator.iter_errors(tomllib.loads(text))]


GOOD = """\
[general]
name = "ab"
version = 1
edition = 5
license = "mit"
backends = ["cuda"]
[torch]
stable-abi = { cuda = "2.10" }
[kernel.a]
backend = "cuda"
depends = ["torch", "cutlass_4_0"]
src = ["a.cu"]
cuda-capabilities = ["9.0a", "8.0+PTX"]
"""


def test_the_schema_takes_what_the_reader_takes(tmp_path: Path) -> None:
    read_project(GOOD.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert schema_errors(GOOD) == []
    for path in (ROOT / "examples").glob("*/build.toml"):
        assert schema_errors(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("edition = 5", "edition = 4"),
        ('name = "ab"', 'name = "A"'),
        ('backends = ["cuda"]', "backends = []"),
        ('backends = ["cuda"]', 'backends = ["gpu"]'),
        ("[torch]", "[torch]\nsources = []"),
        ("[torch]", "[tvm-ffi]\nsrc = []\n[torch]"),
        ('"9.0a"', '"90"'),
        ('"cutlass_4_0"', '"sycl_tla"'),
        ("cuda-capabilities", "rocm-archs"),
        ('stable-abi = { cuda = "2.10" }', "stable-abi = 2.10"),
        ('backend = "cuda"', 'backend = "tpu"'),
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(old: str, new: str, tmp_path: Path) -> None:
    text = GOOD.replace(old, new)
    if "edition = 4" not in text:
        with pytest.raises(ConfigError):
            read_project(text.encode(), file=tmp_path, root=tmp_path, tree=False)
    assert schema_errors(text) != []
