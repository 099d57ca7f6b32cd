from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.actions.model import Action, ActionKind, Step, Tool, Tree
from kernel_builder.actions.places import Places, expand, literal, tool_word

PLACES = Places(root=Path("/p/k"), work=Path("/p/k/.kernel-builder"), output=Path("/out"), store=Path("/s"))
TREE = Tree(name="torch", identity="1", root=Path("/opt/torch/include"))


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/p/k", "{project}"),
        ("/p/k/src/a.cpp", "{project}/src/a.cpp"),
        ("/p/k/.kernel-builder/obj/a.o", "{work}/obj/a.o"),
        ("/s/torch/include", "{store}/torch/include"),
        ("/opt/torch/include/ATen", "{tree:torch}/ATen"),
        ("/p/kk/a.cpp", "/p/kk/a.cpp"),
        ("/p/k/{x}/$a b", "{project}/{{x}}/$a b"),
        ("/elsewhere/{y}", "/elsewhere/{{y}}"),
    ],
)
def test_a_word_stands_for_the_path_it_was_made_of(path: str, word: str) -> None:
    assert PLACES.word(Path(path), [TREE]) == word
    assert expand(word, PLACES, trees=[TREE]) == path


def test_words_are_the_same_in_another_place() -> None:
    other = Places(root=Path("/q"), work=Path("/w"), output=Path("/o"), store=Path("/q/cache"))
    for name in ("src/a.cpp", "{odd}/b.cpp"):
        assert PLACES.word(PLACES.root / name) == other.word(other.root / name)
    assert other.word(Path("/q/cache/torch")) == "{store}/torch"  # the store may lie in the project


@pytest.mark.parametrize("text", ["-DX={1}", "{project}", "}{", "{{", "-DY={tool:c++}", ""])
def test_what_users_write_is_no_placeholder(text: str) -> None:
    assert expand(literal(text), PLACES) == text


def test_tools_are_placeholders_too() -> None:
    tool = Tool(name="c++", path=Path("/usr/bin/g++"), digest="12")
    action = Action(
        id="v:compile:a",
        kind=ActionKind.COMPILE,
        variant="v",
        source="a",
        steps=(Step(command=(tool_word(tool), "-ccbin", tool_word(tool), "{tree:torch}")),),
        inputs=(),
        outputs=("{work}/a.o",),
        log="{work}/a.log",
        memory=1,
        tools=(tool,),
        trees=(TREE,),
    )
    assert PLACES.command(action) == ("/usr/bin/g++", "-ccbin", "/usr/bin/g++", "/opt/torch/include")
    with pytest.raises(KeyError):
        PLACES.text("{tool:nvcc}", action)
