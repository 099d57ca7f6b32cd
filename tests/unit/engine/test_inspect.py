"""What compilers read is told apart by whose it is: the project's, the toolchain's, or nobody's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.actions.places import Places
from kernel_builder.engine.inspect import own_files_read

FILES = ("project/a.h", "project/inc/b", "project/.venv/torch/t.h", "env/p.h", "store/s.h", "cache/real.h", "other/o.h")


@pytest.fixture
def read(tmp_path: Path) -> tuple[str, ...]:
    """Of a project with an environment in it, one beside it, and links of all kinds."""
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    project, work = tmp_path / "project", tmp_path / "project/.kernel-builder"
    (work / "generated").mkdir(parents=True)
    (work / "generated/registration.h").touch()
    (project / "near.h").symlink_to("inc/b")
    (project / "away.h").symlink_to("../other/o.h")
    (project / "far").symlink_to("../other")
    (tmp_path / "env/installed.h").symlink_to("../cache/real.h")
    (tmp_path / "link-to-project").symlink_to("project")
    named = [
        f"{project}/a.h",
        "../near.h",
        f"{project}/away.h",
        f"{project}/inc/../far/o.h",
        f"{project}/.venv/torch/t.h",
        f"{work}/generated/registration.h",
        f"{tmp_path}/env/p.h",
        f"{tmp_path}/env/installed.h",
        f"{tmp_path}/store/s.h",
        "/usr/include/stdio.h",
    ]
    depfile = tmp_path / "k.d"
    depfile.write_text("k.o: " + " \\\n  ".join(named) + "\n", encoding="utf-8")
    places = Places(root=tmp_path / "link-to-project", work=work, output=project / "build", store=tmp_path / "store")
    return own_files_read([depfile], places, [project / ".venv/torch", tmp_path / "env"])


def test_files_of_the_project_are_named_by_what_is_behind_links(read: tuple[str, ...]) -> None:
    assert read == ("a.h", "inc/b")
