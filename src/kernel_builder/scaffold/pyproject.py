"""``pyproject.toml`` of a kernel for pip and build: written once, and removed only if it is what was written.

The file's last line has the digest of the others, so that any clone of the project knows.
"""

from __future__ import annotations

import hashlib
import json
import os
from enum import StrEnum
from importlib.metadata import Distribution as Installed
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import jinja2

from kernel_builder import __version__
from kernel_builder.config.model import Project
from kernel_builder.config.python_project import NAME
from kernel_builder.errors import UsageError
from kernel_builder.files import replacing

_SEAL = "# sha256 of the lines above: "


class WhatIsThere(StrEnum):
    """What is in the place of the file."""

    MISSING = "does not exist"
    OURS = "is unchanged"
    CHANGED = "was changed since it was written"
    FOREIGN = "was not written by create-pyproject"


def create_pyproject(project: Project, directory: Path, *, force: bool) -> tuple[Path, str]:
    """Write the file of ``project`` into ``directory``; return its path and the requirement that brings this builder.

    Raises :class:`UsageError` for a file in its place, unless ``force`` is set, and ``OSError``.
    """
    file = directory / NAME
    state = state_of(file)
    if file.is_dir() or (state is not WhatIsThere.MISSING and not force):
        raise UsageError(
            f"{file} already exists, and {state.value}; nothing was written",
            hint="run kernel-builder create-pyproject --force to replace it"
            if not file.is_dir()
            else "move the directory",
        )
    requirement = builder_requirement()
    text = _render(project, requirement)
    with replacing(file, follow_links=False) as out:
        out.write(f"{text}{_seal(text)}".encode())
    return file, requirement


def clean_pyproject(directory: Path, *, force: bool) -> None:
    """Remove the file from ``directory``. With ``force``, changes in it do not keep it.

    Raises :class:`UsageError` for one that is not ours, or no longer what was written.
    """
    file = directory / NAME
    state = state_of(file)
    if state in {WhatIsThere.MISSING, WhatIsThere.FOREIGN} or (state is WhatIsThere.CHANGED and not force):
        raise UsageError(
            f"{file} {state.value}; nothing was removed",
            hint="run kernel-builder clean-pyproject --force to remove it with the changes"
            if state is WhatIsThere.CHANGED
            else None,
        )
    file.unlink()


def state_of(file: Path) -> WhatIsThere:
    """What ``file`` is. Raises ``OSError`` when it cannot be read."""
    if not os.path.lexists(file):
        return WhatIsThere.MISSING
    if file.is_symlink() or not file.is_file():
        return WhatIsThere.FOREIGN
    data = file.read_bytes()
    text, mark, rest = data.partition(_SEAL.encode())
    if not mark:
        return WhatIsThere.FOREIGN
    return WhatIsThere.OURS if mark + rest == _seal(text.decode("utf-8", "replace")).encode() else WhatIsThere.CHANGED


def _seal(text: str) -> str:
    return f"{_SEAL}{hashlib.sha256(text.encode('utf-8')).hexdigest()}\n"


def builder_requirement() -> str:
    """The requirement that brings this builder: a release, or where this one was installed from (PEP 610)."""
    try:
        origin = json.loads(Installed.from_name("kernel-builder").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    url = origin.get("url")
    if not url:
        return f"kernel-builder>={__version__}"
    control = origin.get("vcs_info")
    if control:
        return f"kernel-builder @ {control['vcs']}+{url}@{control['commit_id']}"
    return f"kernel-builder @ {url}"


def _render(project: Project, requirement: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/pyproject"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (TOML, not HTML)
    )
    return environment.get_template("pyproject.toml.j2").render(
        name_toml=json.dumps(project.name), requirement_toml=json.dumps(requirement)
    )
