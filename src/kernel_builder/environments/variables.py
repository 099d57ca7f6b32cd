"""What a shell, or tests, in an environment see: changes to the variables of the command. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder.errors import UsageError

_PYTHON = "PYTHONPATH"
_LOCAL = "LOCAL_KERNELS"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Variables to set (``None``: to unset), and directories to put before those of PATH."""

    values: Mapping[str, str | None] = field(default_factory=dict)
    path: tuple[Path, ...] = ()

    def applied(self, environ: Mapping[str, str]) -> dict[str, str]:
        """``environ`` with the changes."""
        result = {**environ, **{name: value for name, value in self.values.items() if value is not None}}
        for name, value in self.values.items():
            if value is None:
                result.pop(name, None)
        if self.path:
            result["PATH"] = os.pathsep.join([*map(str, self.path), *filter(None, [environ.get("PATH", "")])])
        return result

    def script(self) -> list[str]:
        """Lines of a POSIX shell that make the changes."""
        lines = [
            f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            for name, value in sorted(self.values.items())
        ]
        if self.path:
            folders = shlex.quote(os.pathsep.join(map(str, self.path)))
            lines.append(f'export PATH={folders}"${{PATH:+:$PATH}}"')
        return lines


def with_variables(variables: Mapping[str, str]) -> list[str]:
    """What stands before a command that alone is to see ``variables``: not what starts it."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []


def python_changes(python: Path) -> Changes:
    """What makes ``python`` the one of the shell, as activating its environment does."""
    folder = python.parent
    values: dict[str, str | None] = {"PYTHONHOME": None}
    if (folder.parent / "pyvenv.cfg").is_file():
        values["VIRTUAL_ENV"] = str(folder.parent)
    return Changes(values=values, path=(folder,))


def kernel_changes(repository: str | None, place: Path, environ: Mapping[str, str]) -> Changes:
    """What makes the client take the kernel ``repository`` from ``place``: a variant, or a directory of them.

    ``LOCAL_KERNELS`` may name other kernels too: they stay. Raises :class:`UsageError` for a path that the client
    cannot be told.
    """
    if repository is None:
        return Changes()
    if ":" in str(place):
        raise UsageError(
            f"{place}: the kernels client does not accept a path with ':' in it ({_LOCAL})",
            hint="move the project to another directory",
        )
    others = [entry for entry in environ.get(_LOCAL, "").split(":") if entry and entry.split("=")[0] != repository]
    return Changes(values={_LOCAL: ":".join([*others, f"{repository}={place}"])})


def import_changes(folders: Sequence[Path]) -> Changes:
    """What makes modules in ``folders`` importable, and nothing else that ``PYTHONPATH`` named before."""
    return Changes(values={_PYTHON: os.pathsep.join(map(str, folders))})


def together(*changes: Changes) -> Changes:
    """All of them; later ones win, and their directories stand first."""
    values = {name: value for one in changes for name, value in one.values.items()}
    return Changes(values=values, path=tuple(folder for one in reversed(changes) for folder in one.path))
