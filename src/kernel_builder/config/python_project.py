"""``pyproject.toml`` of a kernel, as far as it describes the package; the rest follows from ``build.toml``.

Reference: the packaging specification "pyproject.toml", ``[project]``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from kernel_builder.errors import ConfigError, Diagnostic, Level

NAME = "pyproject.toml"
_DYNAMIC = frozenset({"version", "license", "dependencies"})
_TEXTS = {"description": "Summary", "requires-python": "Requires-Python"}
_LISTS = {"classifiers": "Classifier"}


@dataclass(frozen=True, kw_only=True)
class PythonProject:
    """What the file says: ``fields`` are headers of core metadata, ``description`` is the text of its ``readme``."""

    fields: tuple[tuple[str, str], ...] = ()
    dependencies: tuple[str, ...] = ()
    description: str = ""


def read_python_project(root: Path) -> PythonProject:
    """Read ``root/pyproject.toml``. Raises :class:`ConfigError` that names every key of ``[project]`` that cannot be
    taken as it is, so that none is passed over in silence.
    """
    file = root / NAME
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except FileNotFoundError:
        table = {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    reader = _Reader(root, table if isinstance(table, dict) else {})
    for key, value in reader.table.items():
        reader.take(key, value)
    if reader.wrong:
        raise ConfigError(f"{file} has mistakes in [project]", diagnostics=tuple(reader.wrong))
    return PythonProject(
        fields=tuple(reader.fields), dependencies=tuple(reader.dependencies), description=reader.description
    )


class _Reader:
    def __init__(self, root: Path, table: dict[str, object]) -> None:
        self.root, self.table = root, table
        self.fields: list[tuple[str, str]] = []
        self.dependencies: list[str] = []
        self.description = ""
        self.wrong: list[Diagnostic] = []

    def take(self, key: str, value: object) -> None:
        if key == "name":  # that of build.toml counts, and frontends compare the two
            return
        if key == "dynamic":
            others = sorted(set(_words(value)) - _DYNAMIC)
            if others:
                self._refuse(key, f"does not supply {', '.join(others)}", "write them as keys of [project]")
        elif key in _TEXTS and isinstance(value, str) and "\n" not in value:
            self.fields.append((_TEXTS[key], value))
        elif key in _LISTS and isinstance(value, list):
            self.fields += [(_LISTS[key], word) for word in _words(value)]
        elif key == "keywords" and isinstance(value, list):
            self.fields.append(("Keywords", ",".join(_words(value))))
        elif key in {"authors", "maintainers"} and isinstance(value, list):
            self.fields += _people(key.removesuffix("s").capitalize(), value)
        elif key == "urls" and isinstance(value, dict):
            self.fields += [("Project-URL", f"{label}, {url}") for label, url in value.items()]
        elif key == "readme" and isinstance(value, str):
            self._readme(value)
        elif key == "dependencies":
            self._requirements(key, value, self.dependencies)
        elif key == "optional-dependencies" and isinstance(value, dict):
            self._extras(value)
        else:
            self._refuse(
                key,
                "is not supported for kernels",
                "build.toml sets it" if key in _DYNAMIC else "remove it",
            )

    def _refuse(self, key: str, what: str, hint: str) -> None:
        self.wrong.append(
            Diagnostic(severity=Level.ERROR, message=f"project.{key} {what}", file=self.root / NAME, hint=hint)
        )

    def _readme(self, path: str) -> None:
        try:
            self.description = (self.root / path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            self._refuse("readme", f"names {path}, which cannot be read: {error}", "fix the path")

    def _requirements(self, key: str, value: object, into: list[str]) -> None:
        for text in _words(value):
            try:
                into.append(str(Requirement(text)))
            except InvalidRequirement as error:
                self._refuse(key, f"has {text!r}, which is not a requirement: {error}", "fix it")

    def _extras(self, extras: dict[str, object]) -> None:
        for extra, value in extras.items():
            self.fields.append(("Provides-Extra", extra))
            found: list[str] = []
            self._requirements(f"optional-dependencies.{extra}", value, found)
            for text in found:
                requirement = Requirement(text)
                marker = f"extra == '{extra}'"
                condition = f"({requirement.marker}) and {marker}" if requirement.marker else marker
                requirement.marker = None
                self.fields.append(("Requires-Dist", f"{requirement} ; {condition}"))


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _people(role: str, people: list[object]) -> list[tuple[str, str]]:
    found = []
    for person in people:
        name, email = (person.get("name"), person.get("email")) if isinstance(person, dict) else (None, None)
        if email:
            found.append((f"{role}-email", f"{name} <{email}>" if name else str(email)))
        elif name:
            found.append((role, str(name)))
    return found
