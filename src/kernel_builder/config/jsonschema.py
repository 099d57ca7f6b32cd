"""The JSON schema of ``build.toml``, current edition, made from the tables of :mod:`schema`.

It serves editors: completion, and squiggles while typing. What a JSON schema cannot say (files that are
missing, ranges that are empty) is left to ``check-config``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import CAPABILITY
from kernel_builder.config.known import dependencies
from kernel_builder.config.schema import (
    BACKEND_TABLES,
    COMPILED,
    CURRENT_EDITION,
    EXAMPLES,
    FRAMEWORK_TABLES,
    GENERAL,
    HUB,
    KERNEL,
    KERNEL_DEPENDENCY,
    Key,
    Kind,
    Table,
)

Json = str | int | bool | Sequence["Json"] | Mapping[str, "Json"]

_VERSION: Mapping[str, Json] = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)*\s*$"}
_TEXT: Mapping[str, Json] = {"type": "string", "minLength": 1}
_UINT: Mapping[str, Json] = {"type": "integer", "minimum": 0, "maximum": 4294967295}
_REPO_ID: Mapping[str, Json] = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$",
}
_PATH: Mapping[str, Json] = {"type": "string", "minLength": 1, "pattern": r"^[^/\\]"}
_SUFFIX: Mapping[str, Json] = {"type": "string", "pattern": r"^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*$"}


def json_schema() -> dict[str, Json]:
    """The schema, as plain data. It is the same in every run."""
    general = _object(
        GENERAL,
        tables={"hub": _object(HUB)}
        | {backend.value: _object(table, owner=backend) for backend, table in BACKEND_TABLES.items()},
    )
    frameworks = {name: _object(table) for name, table in FRAMEWORK_TABLES.items()}
    sections = [_object(KERNEL, owner=backend, fixed={"backend": {"const": backend.value}}) for backend in COMPILED]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"build.toml of a Hub kernel, edition {CURRENT_EDITION}",
        "type": "object",
        "properties": {
            "general": general,
            **frameworks,
            "kernel": {
                "type": "object",
                "description": "Kernel sections, each under a name: [kernel.my_kernel].",
                "additionalProperties": {
                    "type": "object",
                    "description": KERNEL.summary,
                    "properties": {"backend": {"enum": [backend.value for backend in COMPILED]}},
                    "required": ["backend"],
                    "oneOf": sections,
                },
            },
        },
        "required": ["general"],
        "oneOf": [{"required": [name]} for name in frameworks],
        "additionalProperties": False,
    }


def _object(
    table: Table,
    *,
    owner: Backend | None = None,
    tables: Mapping[str, Json] | None = None,
    fixed: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """One table. ``owner`` is the backend it is for, ``tables`` those inside it, ``fixed`` values known
    beforehand.
    """
    keys = [key for key in table.keys if owner is None or not key.only or owner in key.only]
    properties: dict[str, Json] = {}
    for key in keys:
        described: dict[str, Json] = {"description": key.summary, **_value(key, key.only[0] if key.only else owner)}
        properties |= dict.fromkeys((key.name, *key.aliases), described)
    found: dict[str, Json] = {
        "type": "object",
        "description": table.summary,
        "properties": properties | dict(tables or {}) | dict(fixed or {}),
        "additionalProperties": False,
    }
    required = [key.name for key in keys if key.required]
    if required:
        found["required"] = required
    if table is KERNEL_DEPENDENCY:
        found["oneOf"] = [{"required": ["version"]}, {"required": ["revision"]}]
    return found


def _value(key: Key, owner: Backend | None) -> Mapping[str, Json]:
    return _VALUES[key.kind](owner)


def _list(items: Json, *, unique: bool = False, least: int = 0) -> dict[str, Json]:
    found: dict[str, Json] = {"type": "array", "items": items}
    if unique:
        found["uniqueItems"] = True
    if least:
        found["minItems"] = least
    return found


def _names(backends: Sequence[Backend]) -> dict[str, Json]:
    return {"enum": [backend.value for backend in backends]}


def _depends(owner: Backend | None) -> dict[str, Json]:
    table = dependencies().depends
    names = [name for name, owners in table.items() if owner is None or not owners or owner in owners]
    return _list({"enum": names})


def _python_depends(owner: Backend | None) -> dict[str, Json]:
    names = list(dependencies().python_table(owner))
    return _list({"enum": names}) if names else {"type": "array", "maxItems": 0}


def _architectures(owner: Backend | None) -> Mapping[str, Json]:
    known = owner.architectures if owner is not None else None
    return _list({"type": "string", "pattern": f"^{known.pattern or CAPABILITY}$"} if known else _TEXT)


def _stable_abi() -> dict[str, Json]:
    version = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)+\s*$"}
    table: dict[str, Json] = {
        "type": "object",
        "properties": {backend.value: version for backend in Backend},
        "additionalProperties": False,
    }
    return {"oneOf": [version, table]}


_VALUES: Mapping[Kind, Callable[[Backend | None], Mapping[str, Json]]] = {
    Kind.NAME: lambda _: {"type": "string", "pattern": "^[a-z][-a-z0-9]*[a-z0-9]$"},
    Kind.UINT: lambda _: _UINT,
    Kind.EDITION: lambda _: {"const": CURRENT_EDITION},
    Kind.TEXT: lambda _: _TEXT,
    Kind.LICENSE: lambda _: {**_TEXT, "examples": [EXAMPLES[Kind.LICENSE].strip('"')]},
    Kind.BACKEND: lambda _: _names(COMPILED),
    Kind.BACKENDS: lambda _: _list(_names(tuple(Backend)), unique=True, least=1),
    Kind.GIT_URL: lambda _: _TEXT,
    Kind.VERSION: lambda _: _VERSION,
    Kind.TEXTS: lambda _: _list(_TEXT),
    Kind.SUFFIXES: lambda _: _list(_SUFFIX),
    Kind.SOURCES: lambda _: _list(_PATH),
    Kind.INCLUDES: lambda _: _list(_PATH),
    Kind.ARCHITECTURES: _architectures,
    Kind.DEPENDS: _depends,
    Kind.PYTHON_DEPENDS: _python_depends,
    Kind.KERNEL_DEPENDS: lambda _: _list(_object(KERNEL_DEPENDENCY)),
    Kind.STABLE_ABI: lambda _: _stable_abi(),
    Kind.REPO_ID: lambda _: _REPO_ID,
    Kind.BRANCH: lambda _: _TEXT,
    Kind.FLAG: lambda _: {"type": "boolean"},
    Kind.TABLE: lambda _: {"type": "object"},
}
"""How each kind of value is said in JSON schema; the backend is the one whose key or table it is."""
