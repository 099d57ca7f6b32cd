"""Who asks is told of room that no action needs, once something new is being made: not before, and of no other."""

from __future__ import annotations

from pathlib import Path

from engine_actions import action, plan_of, run
from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.protocol import ActionStatus

SLOW, FAST = "sleep 1", "true"


def told(root: Path, *scripts: str, jobs: int, cache: ActionCache | None = None, source: str = "a") -> list[str]:
    """The variants that were told of while ``scripts`` made a source each, that many at once."""
    names = [f"{source}{number or ''}" for number in range(len(scripts))]
    made = [action(name, f"{script} && : > '{name}.out'") for name, script in zip(names, scripts, strict=True)]
    found: list[str] = []
    result = run(plan_of(root, *made), jobs=jobs, cache=cache, spare=found.append)
    assert not {one.status for one in result.results.values()} & {ActionStatus.FAILED, ActionStatus.NOT_RUN}
    return found


def test_while_the_last_action_runs(tmp_path: Path) -> None:
    assert set(told(tmp_path, FAST, SLOW, jobs=2)) == {"torch-cpu"}


def test_while_the_only_action_takes_its_time(tmp_path: Path) -> None:
    assert told(tmp_path, SLOW, jobs=2) != []


def test_not_where_actions_take_all_the_room(tmp_path: Path) -> None:
    assert told(tmp_path, FAST, SLOW, jobs=1) == []


def test_not_for_what_the_cache_has(tmp_path: Path) -> None:
    cache = ActionCache(tmp_path / "cache")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    told(tmp_path / "one", FAST, FAST, jobs=2, cache=cache)
    assert told(tmp_path / "two", FAST, FAST, jobs=2, cache=cache) == []


def test_not_for_a_new_name_alone(tmp_path: Path) -> None:
    assert told(tmp_path, FAST, jobs=2, source=MODULE_SOURCE) == []
