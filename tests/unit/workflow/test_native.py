"""What is native of a variant is the same under every name, and another one when anything else differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import Action, ActionKind, GeneratedFile, Step, Tree, action_id
from kernel_builder.actions.places import Places
from kernel_builder.config.backends import Backend
from kernel_builder.frameworks.torch_glue import module_source
from kernel_builder.plan.model import VariantPlan
from kernel_builder.variants.names import parse_variant
from kernel_builder.workflow.native import native_digest

NAME = "torch213-cxx11-cpu-x86_64-linux"
OBJECT, MODULE, TEXT = "{work}/a.o", "{work}/module.o", "{work}/module.c"


def action(kind: ActionKind, source: str, inputs: tuple[str, ...], output: str, *more: str) -> Action:
    return Action(
        id=action_id(NAME, kind, source),
        kind=kind,
        variant=NAME,
        source=source,
        steps=(Step(command=("cc", *inputs, "-o", output, *more)),),
        inputs=inputs,
        outputs=(output,),
        log="{work}/log",
        memory=1,
    )


def plan(unique: str, stand_in: str) -> VariantPlan:
    linked_as = f"_k_cpu_{stand_in}"
    library = f"{{work}}/{linked_as}.abi3.so"
    return VariantPlan(
        variant=parse_variant(NAME),
        ops_id=f"_k_cpu_{unique}",
        linked_as=linked_as,
        library=library,
        generated=(GeneratedFile(path=TEXT, content=module_source(linked_as, stand_in)),),
        actions=(
            action(ActionKind.COMPILE, "a.cpp", ("{project}/a.cpp",), OBJECT),
            action(ActionKind.COMPILE, MODULE_SOURCE, (TEXT,), MODULE),
            action(ActionKind.LINK, "library", (OBJECT, MODULE), library, f"-Wl,-soname,{linked_as}.abi3.so"),
        ),
        installed=(),
        metadata={},
    )


CLEAN, DIRTY = plan("abcdef0", "5777001"), plan("abcdef0_dirty_11111111", "5777001234567890123456")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    (tmp_path / "a.o").write_bytes(b"object")
    return Places(root=tmp_path, work=tmp_path, output=tmp_path / "build", store=tmp_path / "store")


def test_names_make_no_difference_be_they_as_long_or_not(places: Places) -> None:
    first = native_digest(CLEAN, places)
    assert first is not None
    # What was compiled of the module's source has the name, and its source stands for it.
    (places.work / "module.o").write_bytes(b"another name")
    assert native_digest(DIRTY, places) == first
    assert native_digest(replace(DIRTY, ops_id="_k_cpu_abcdef0_dirty_22222222"), places) == first


def changed(kind: ActionKind, **changes: object) -> VariantPlan:
    actions = tuple(replace(one, **changes) if one.kind is kind else one for one in DIRTY.actions)  # type: ignore[arg-type]
    return replace(DIRTY, actions=actions)


MODULE_TEXT = GeneratedFile(path=TEXT, content=f"{DIRTY.generated[0].content}\nint more;\n")
DIFFERENT: dict[str, Callable[[], VariantPlan]] = {
    "how it is linked": lambda: changed(ActionKind.LINK, steps=(Step(command=("cc", "-O9")),)),
    "what links it": lambda: changed(ActionKind.LINK, trees=(Tree(name="libraries", identity="other"),)),
    "what the module says": lambda: replace(DIRTY, generated=(MODULE_TEXT,)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_all_else_does(places: Places, what: str) -> None:
    assert native_digest(DIFFERENT[what](), places) != native_digest(CLEAN, places)


def test_an_object_does(places: Places) -> None:
    before = native_digest(CLEAN, places)
    (places.work / "a.o").write_bytes(b"other")
    assert native_digest(CLEAN, places) != before


def test_where_the_name_may_be_anywhere_nothing_is_known(places: Places) -> None:
    assert native_digest(replace(CLEAN, linked_as=CLEAN.ops_id), places) is None


def test_without_a_library_there_is_nothing_native(places: Places) -> None:
    noarch = replace(CLEAN, variant=parse_variant("torch-cpu"), library=None, actions=(), generated=(), linked_as="")
    assert native_digest(noarch, places) == native_digest(replace(noarch, ops_id="_k_cpu_0"), places) is not None
    assert Backend("cpu") is noarch.variant.backend
