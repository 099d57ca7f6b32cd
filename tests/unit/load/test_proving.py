"""The very same is loaded once, whoever asks; what would do the same is not loaded; all else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.load import proving
from kernel_builder.load.client import Environment, Loadable, NoEnvironment
from kernel_builder.load.evidence import LoadedOp, LoadResult, LoadStatus
from kernel_builder.load.proofs import Proofs
from kernel_builder.load.proving import Former, prove
from kernel_builder.variants.names import parse_variant

CPU = parse_variant("torch213-cxx11-cpu-x86_64-linux")
CLEAN, DIRTY = "_k_cpu_abcdef0", "_k_cpu_abcdef0_dirty_22222222"
RAN = frozenset({("__init__.py", 1, "<module>")})
RESULT = LoadResult(status=LoadStatus.LOADED, ops=(LoadedOp(name="k::op", keys=("CPU",)),), ran=RAN)
HERE = Environment(
    python=Path("/python"), torch="2.13.0", toolkits={}, devices={}, abi=None, client="1", seen={"files": {}}
)
Prove = Callable[..., LoadResult]


def kernel(folder: Path, ops_id: str = CLEAN, body: str = "return 1", **metadata: object) -> Loadable:
    folder.mkdir()
    (folder / "__init__.py").write_text(f"def unused():\n    {body}\n", encoding="ascii")
    facts = {"name": "k", "id": ops_id, "version": 1, "provenance": {"commit": "a"}, **metadata}
    (folder / "metadata.json").write_text(json.dumps(facts), encoding="ascii")
    return Loadable(directory=folder, variant=CPU, ops_id=ops_id, python_name="k")


def digests(one: Loadable) -> dict[str, str]:
    return {path.name: path.read_text(encoding="ascii") for path in one.directory.glob("*.py")}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Loadable]:
    """The kernels that were really loaded, in order."""
    found: list[Loadable] = []

    def load(one: Loadable, environment: Environment | NoEnvironment, *, log: Path | None = None) -> LoadResult:
        assert log is None
        found.append(one)
        if isinstance(environment, NoEnvironment):
            return LoadResult(status=LoadStatus.NOT_LOADED, reason=environment.reason)
        return RESULT

    monkeypatch.setattr(proving, "load_variant", load)
    return found


def test_the_same_bytes_are_loaded_once_wherever_they_are(tmp_path: Path, loaded: list[Loadable]) -> None:
    proofs = Proofs(tmp_path / "proofs")
    first = kernel(tmp_path / "one")
    moved = kernel(tmp_path / "two", provenance={"commit": "a", "sandbox": True}, digest={"files": {}})
    for one in (first, first, moved):
        assert prove(one, HERE, proofs, digests(one)) == RESULT
    assert loaded == [first]


DIFFERENT: dict[str, Callable[[Path], tuple[Loadable, Environment]]] = {
    "another file": lambda path: (kernel(path, body="return 2"), HERE),
    "other metadata": lambda path: (kernel(path, version=2), HERE),
    "another name": lambda path: (kernel(path, DIRTY), HERE),
    "another torch": lambda path: (kernel(path), replace(HERE, torch="2.13.1")),
    "another interpreter": lambda path: (kernel(path), replace(HERE, python=Path("/other"))),
    "what it rests on is not known": lambda path: (kernel(path), replace(HERE, seen=None)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_anything_else_is_loaded(tmp_path: Path, loaded: list[Loadable], what: str) -> None:
    proofs, first = Proofs(tmp_path / "proofs"), kernel(tmp_path / "one")
    prove(first, HERE, proofs, digests(first))
    other, environment = DIFFERENT[what](tmp_path / "two")
    prove(other, environment, proofs, digests(other))
    assert loaded == [first, other]


def test_a_recalled_proof_is_one_to_go_on_from(tmp_path: Path, loaded: list[Loadable]) -> None:
    """After ``git clean``, or in another checkout, the first edit costs what later ones do."""
    proofs, first = Proofs(tmp_path / "proofs"), kernel(tmp_path / "one")
    prove(first, HERE, proofs, digests(first), former=Former(folder=tmp_path / "lost", native="same"))
    again = Former(folder=tmp_path / "work", native="same")
    assert prove(first, HERE, proofs, digests(first), former=again) == RESULT
    edited = kernel(tmp_path / "two", DIRTY, "return 2")
    found = prove(edited, HERE, proofs, digests(edited), former=again)
    assert found.is_carried
    assert found.ops == RESULT.ops
    assert loaded == [first]
    # Nobody loaded it, so whoever must have it loaded gets no answer from here.
    assert prove(edited, HERE, proofs, digests(edited)) == RESULT
    assert loaded == [first, edited]


def test_another_library_is_loaded(tmp_path: Path, loaded: list[Loadable]) -> None:
    proofs, first = Proofs(tmp_path / "proofs"), kernel(tmp_path / "one")
    prove(first, HERE, proofs, digests(first), former=Former(folder=tmp_path / "work", native="one"))
    edited = kernel(tmp_path / "two", DIRTY, "return 2")
    prove(edited, HERE, proofs, digests(edited), former=Former(folder=tmp_path / "work", native="other"))
    assert loaded == [first, edited]


def test_where_nothing_can_load_it_nothing_is_kept(tmp_path: Path, loaded: list[Loadable]) -> None:
    proofs, first = Proofs(tmp_path / "proofs"), kernel(tmp_path / "one")
    former = Former(folder=tmp_path / "work", native="same")
    for _ in range(2):
        result = prove(first, NoEnvironment(reason="no torch"), proofs, digests(first), former=former)
        assert (result.status, result.reason) == (LoadStatus.NOT_LOADED, "no torch")
    assert loaded == [first, first]
    assert not (tmp_path / "proofs").exists()
    assert not (tmp_path / "work").exists()
