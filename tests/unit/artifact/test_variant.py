from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_builder.actions.places import Places
from kernel_builder.artifact import variant as artifact
from kernel_builder.artifact.variant import check_space, fill, publish, recover, stage_for
from kernel_builder.config.backends import Backend
from kernel_builder.errors import MachineError
from kernel_builder.plan.model import InstalledFile, VariantPlan
from kernel_builder.variants.names import NoarchVariant

NAME = "torch-cpu"


def plan(content: str) -> VariantPlan:
    return VariantPlan(
        variant=NoarchVariant(backend=Backend("cpu")),
        ops_id="_k_cpu_1",
        generated=(),
        actions=(),
        library=None,
        installed=(InstalledFile(path="pkg/__init__.py", content=content),),
        metadata={"name": "k", "provenance": {}},
    )


def places(output: Path) -> Places:
    return Places(root=output.parent, work=output.parent / "work", output=output, store=output.parent / "store")


@contextmanager
def staged(variant: VariantPlan, at: Places) -> Iterator[Path]:
    with stage_for(variant.name, at.output) as stage:
        fill(stage, variant, at)
        yield stage


def install(content: str, output: Path) -> bool:
    with staged(plan(content), places(output)) as stage:
        return publish(stage, output, NAME)


def content(output: Path) -> str:
    return (output / NAME / "pkg" / "__init__.py").read_text(encoding="ascii")


@pytest.mark.parametrize("exchange", [True, False])
def test_a_variant_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(artifact, "_exchange", lambda *_: False)
    assert install("1", tmp_path)
    (tmp_path / NAME / "stale").touch()
    assert install("2", tmp_path)
    assert content(tmp_path) == "2"
    assert not install("2", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert not (tmp_path / NAME / "stale").exists()
    document = json.loads((tmp_path / NAME / "metadata.json").read_text(encoding="utf-8"))
    assert list(document) == ["name", "digest", "provenance"]


def test_a_failure_between_leaves_the_old_variant_alone(tmp_path: Path) -> None:
    install("1", tmp_path)
    with pytest.raises(KeyboardInterrupt), staged(plan("2"), places(tmp_path)):
        raise KeyboardInterrupt
    assert content(tmp_path) == "1"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_what_a_killed_process_left_is_put_right(tmp_path: Path) -> None:
    install("1", tmp_path)
    (tmp_path / NAME).rename(tmp_path / f".{NAME}.old")
    dead = subprocess.Popen(["true"])
    dead.wait()
    abandoned = tmp_path / f".{NAME}-{dead.pid}-abc.new"
    running = tmp_path / f".{NAME}-{os.getpid()}-abc.new"
    abandoned.mkdir()
    running.mkdir()
    recover(tmp_path, (NAME,))
    assert content(tmp_path) == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([NAME, running.name])


def test_an_old_variant_gives_way_to_its_successor(tmp_path: Path) -> None:
    install("1", tmp_path)
    (tmp_path / f".{NAME}.old").mkdir()
    recover(tmp_path, (NAME,))
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_link_in_the_variants_place_is_replaced_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    output = tmp_path / "build"
    output.mkdir()
    (output / NAME).symlink_to(mine)
    install("1", output)
    assert not (output / NAME).is_symlink()
    assert (mine / "file").exists()


def test_a_disk_that_is_too_small_is_an_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"not enough disk space for .*: about 1048576 MiB needed"):
        check_space(tmp_path / "not" / "yet", 1 << 40)
    check_space(tmp_path, 1)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null/x", "/dev/null"])
def test_a_place_that_takes_no_directory_is_named_before_any_work(place: str) -> None:
    with pytest.raises(MachineError, match=f"cannot write to {place}: .* takes no new directory") as raised:
        check_space(Path(place), 1)
    assert raised.value.hint is not None
    assert "pass a directory that you can write to" in raised.value.hint
