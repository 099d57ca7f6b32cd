"""Metadata name the headers of this machine that compiles read, each with its digest."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_actions import action, plan_of
from kernel_builder.artifact.tools import HEADERS
from kernel_builder.project.digests import DIGITS, by_path
from kernel_builder.workflow.evidence import with_headers_read

TOOLS = [{"name": "g++", "version": "12"}, {"name": "torch", "version": "2.13.0"}]


def told(root: Path, depfiles: dict[str, str], provenance: object) -> Any:
    """The provenance of a variant whose compiles left ``depfiles``."""
    actions = [replace(action(name, ""), depfile=f"{{work}}/{name}.d") for name in depfiles]
    plan = plan_of(root / "project", *actions)
    for name, text in depfiles.items():
        (plan.places.work / f"{name}.d").write_text(text, encoding="utf-8")
    variant = replace(plan.variants[0], metadata={"name": "k", "provenance": provenance})
    return with_headers_read(variant, plan.places).metadata["provenance"]


def test_headers_of_all_compiles_are_named_once(tmp_path: Path) -> None:
    for name in ("one.h", "a b.h"):
        (tmp_path / name).write_text(name, encoding="ascii")
    depfiles = {
        "a": f"a.o: /p/a.cpp\n# system headers: {tmp_path}/one.h {tmp_path}/gone.h\n",
        "b": f"b.o: /p/b.cpp\n# system headers: {tmp_path}/one.h {tmp_path}/a\\ b.h\n",
    }
    provenance = told(tmp_path, depfiles, {"tools": TOOLS, "headers": "slim"})
    assert provenance["tools"][1:] == TOOLS[1:]
    assert provenance["headers"] == "slim"
    assert by_path(provenance["tools"][0][HEADERS]) == {
        f"{tmp_path}/{name}": hashlib.sha256(name.encode()).hexdigest()[:DIGITS] for name in ("one.h", "a b.h")
    }


@pytest.mark.parametrize("provenance", [None, {}, {"tools": []}, {"tools": TOOLS}])
def test_where_nothing_was_read_or_nothing_is_told_metadata_stay(tmp_path: Path, provenance: object) -> None:
    header = f"# system headers: {tmp_path}/one.h\n" if provenance != {"tools": TOOLS} else ""
    (tmp_path / "one.h").touch()
    assert told(tmp_path, {"a": f"a.o: /p/a.cpp\n{header}"}, provenance) == provenance
