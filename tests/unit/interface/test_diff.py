"""What a change of a kernel's interface means for its users, and so for its version."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.interface.diff import Effect, Published, Verdict, compare, schema_signature
from kernel_builder.interface.read import Function, Interface, Layer, read_interface

Read = Callable[[str], Interface]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def make(text: str) -> Interface:
        ast.parse(text)
        (tmp_path / "__init__.py").write_text(text)
        return read_interface(tmp_path)

    return make


def verdict(
    old: Interface,
    new: Interface,
    *,
    versions: tuple[int, int] = (1, 1),
    variants: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Verdict:
    return compare(
        Published(interface=old, version=versions[0], variants=variants[0]),
        Published(interface=new, version=versions[1], variants=variants[1]),
    )


@pytest.mark.parametrize(
    ("old", "new", "breaking"),
    [
        ("x", "x", []),
        ("x", "x, y=1", []),
        ("x", "x, *, y=1", []),
        ("x, y=1", "x, y=2", []),
        ("x", "x, *args, **kwargs", []),
        ("x, *, y", "x, **kwargs", []),
        ("x", "y", ["parameter 'x' was removed", "new parameter 'y' has no default"]),
        ("x, y", "x", ["parameter 'y' was removed"]),
        ("x", "x, y", ["new parameter 'y' has no default"]),
        ("x, y=1", "x, y", ["parameter 'y' no longer has a default"]),
        ("x, y", "y, x", ["positional parameter 'x' has moved"]),
        ("x, z=1", "x, y=1, z=1", ["positional parameter 'z' has moved"]),
        ("x", "*, x", ["parameter 'x' can no longer be passed by position"]),
        ("x", "x, /", ["parameter 'x' can no longer be passed by name"]),
        ("*args", "", ["no longer takes *args"]),
        ("**options", "", ["no longer takes **kwargs"]),
    ],
)
def test_signatures(read: Read, old: str, new: str, breaking: list[str]) -> None:
    found = verdict(read(f"__all__=['f']\ndef f({old}): pass"), read(f"__all__=['f']\ndef f({new}): pass"))
    assert [change.message for change in found.breaking] == breaking
    assert found.demands_new_version is bool(breaking)


DATA = "from dataclasses import dataclass, field\n__all__=['C']\n@dataclass\nclass C:\n    a: int\n"


@pytest.mark.parametrize(
    ("old", "new", "breaking"),
    [
        ("class C:\n def m(self): pass\n def n(self): pass", "class C:\n def m(self): pass", ["C.n: it was removed"]),
        ("class C:\n def m(self, x): pass", "class C:\n def m(self): pass", ["C.m: parameter 'x' was removed"]),
        ("class C:\n def m(self): pass", "class B:\n def m(self): pass\nclass C(B): pass", []),
        ("class C:\n def _m(self): pass", "class C: pass", []),
        (
            "class C:\n def __init__(self, a, b=1): pass",
            "class C:\n def __init__(self, a): pass",
            ["C: parameter 'b' was removed"],
        ),
        ("class C: pass", "class C:\n def __init__(self, a): pass", ["C: new parameter 'a' has no default"]),
        (
            "class C:\n @staticmethod\n def m(x): pass",
            "class C:\n @staticmethod\n def m(): pass",
            ["C.m: parameter 'x' was removed"],
        ),
        ("class C:\n @property\n def m(self): pass", "class C:\n m = 1", []),
        ("class C:\n LIMIT = 1", "class C: pass", ["C.LIMIT: it was removed"]),
        ("class C(X):\n def m(self): pass", "class C(X): pass", []),  # X may have it
    ],
)
def test_classes(read: Read, old: str, new: str, breaking: list[str]) -> None:
    found = verdict(read(f"__all__=['C']\n{old}\n"), read(f"__all__=['C']\n{new}\n"))
    assert [str(change) for change in found.breaking] == breaking


@pytest.mark.parametrize(
    ("old", "new", "breaking"),
    [
        ("", "    b: int\n", ["C: new parameter 'b' has no default"]),
        ("", "    b: int = 1\n", []),
        ("", "    b: list[int] = field(default_factory=list)\n", []),
        ("", "    b: int = field(init=False)\n", []),
        ("", "    b: ClassVar[int] = 3\n", []),
        ("    b: int = 1\n", "", ["C: parameter 'b' was removed", "C.b: it was removed"]),
        (
            "    b: int = 1\n",
            "    _: KW_ONLY\n    b: int = 1\n",
            ["C: parameter 'b' can no longer be passed by position"],
        ),
        (
            "    b: int = 1\n",
            "    c: int = 0\n    b: int = 1\n",
            ["C: positional parameter 'b' has moved"],
        ),
    ],
)
def test_dataclasses(read: Read, old: str, new: str, breaking: list[str]) -> None:
    found = verdict(read(DATA + old), read(DATA + new))
    assert [str(change) for change in found.breaking] == breaking


def test_a_raised_version_satisfies_and_version_0_is_exempt(read: Read) -> None:
    old, new = read("__all__=['f', 'g']\ndef f(): pass\ndef g(): pass"), read("__all__=['g']\ndef g(): pass")
    assert not verdict(old, new).is_satisfied
    assert verdict(old, new, versions=(1, 2)).is_satisfied
    exempt = verdict(old, new, versions=(0, 0))
    assert exempt.breaking
    assert exempt.is_satisfied


def test_additions_are_no_reason_for_a_version(read: Read) -> None:
    found = verdict(read("__all__=['f']\ndef f(): pass"), read("__all__=['f', 'g']\ndef f(): pass\ndef g(): pass"))
    assert [(change.effect, change.subject) for change in found.changes] == [(Effect.ADDITION, "g")]


def test_layers_that_go_or_can_do_less_break_users() -> None:
    one = Layer(name="Silu", flags={"has_backward": True, "can_torch_compile": False})
    other = Layer(name="Silu", flags={"has_backward": False, "can_torch_compile": True})
    found = verdict(Interface(layers=(one, Layer(name="Gone"))), Interface(layers=(other,)))
    assert [str(change) for change in found.breaking] == [
        "layers.Silu: has_backward is now False",
        "layers.Gone: the layer was removed",
    ]


def test_ops_count_when_they_are_published() -> None:
    before, after = {"relu": "relu(Tensor x) -> Tensor"}, {"relu": "relu(Tensor x, float y) -> Tensor"}
    inner = verdict(Interface(ops=before), Interface(ops=after))
    assert [change.effect for change in inner.changes] == [Effect.NOTE]
    outer = verdict(Interface(ops=before, others=("ops",)), Interface(ops=after, others=("ops",)))
    assert outer.demands_new_version
    spaces = {"relu": "relu( Tensor x )->Tensor"}
    assert not verdict(Interface(ops=before, others=("ops",)), Interface(ops=spaces, others=("ops",))).changes


def test_a_function_that_is_an_op_has_the_signature_of_its_schema() -> None:
    function = (Function(name="relu", op="relu"),)
    old = Interface(functions=function, ops={"relu": "relu(Tensor x, float? limit=None) -> Tensor"})
    new = Interface(functions=function, ops={"relu": "relu(Tensor x) -> Tensor"})
    assert [str(change) for change in verdict(old, new).breaking] == ["relu: parameter 'limit' was removed"]


def test_dropping_an_old_torch_demands_a_version_and_adding_one_does_not() -> None:
    old = ("torch212-cxx11-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux")
    newer = ("torch213-cxx11-cpu-x86_64-linux", "torch214-cxx11-cpu-x86_64-linux")
    found = verdict(Interface(), Interface(), variants=(old, newer))
    assert [(str(change), change.is_support) for change in found.breaking] == [
        ("cpu on x86_64-linux: no longer has variants for torch 2.12", True)
    ]
    assert not verdict(Interface(), Interface(), variants=(old, (*old, *newer))).changes


def test_schemas_as_signatures() -> None:
    signature = schema_signature("f(Tensor(a!) x, int[2] size=[1, 2], *, float? y=None) -> (Tensor, Tensor)")
    assert str(signature) == "(x: Tensor(a!), size: int[2] = [1, 2], *, y: float? = None) -> (Tensor,Tensor)"
    assert schema_signature("no schema") is None


@pytest.mark.parametrize(
    ("others", "expected"),
    [((), {Effect.NOTE}), (("ops",), {Effect.BREAKING, Effect.ADDITION})],
    ids=["of its own", "published"],
)
def test_functions_of_a_tvm_ffi_library_are_compared(others: tuple[str, ...], expected: set[Effect]) -> None:
    old, new = (Interface(library=names, others=others) for names in (("add", "scale"), ("add", "scale_all")))
    found = verdict(old, new).changes
    assert [str(change) for change in found] == [
        "tvm-ffi function scale: the function was removed",
        "tvm-ffi function scale_all: new function",
    ]
    assert {change.effect for change in found} == expected
    assert verdict(old, Interface(others=others)).changes == ()
