"""The reference page of ``build.toml`` in ``docs/``, made from the tables of :mod:`schema`."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_builder.config.backends import Backend
from kernel_builder.config.known import dependencies
from kernel_builder.config.schema import CURRENT_EDITION, KERNEL, KERNEL_DEPENDENCY, TABLES, Key, Kind, Table

_KINDS: Mapping[Kind, str] = {
    Kind.NAME: "kernel name",
    Kind.UINT: "whole number",
    Kind.EDITION: f"the number {CURRENT_EDITION}",
    Kind.TEXT: "text",
    Kind.LICENSE: "licence identifier",
    Kind.BACKEND: "backend",
    Kind.BACKENDS: "list of backends",
    Kind.GIT_URL: "git URL",
    Kind.VERSION: "version, as text",
    Kind.TEXTS: "list of texts",
    Kind.SUFFIXES: "list of suffixes",
    Kind.SOURCES: "list of files",
    Kind.INCLUDES: "list of directories",
    Kind.ARCHITECTURES: "list of architectures",
    Kind.DEPENDS: "list of C++ dependencies",
    Kind.PYTHON_DEPENDS: "list of Python dependencies",
    Kind.KERNEL_DEPENDS: "list of kernel dependencies",
    Kind.STABLE_ABI: "version, or table of versions",
    Kind.REPO_ID: "repository",
    Kind.BRANCH: "branch",
}

_INTRODUCTION = f"""\
# build.toml

A kernel project is described by the file `build.toml` at its root. This page lists every key of edition
{CURRENT_EDITION}, the current one. It is made by `scripts/generate_reference.py` from the table that the reader itself
works with; edit that table (`src/kernel_builder/config/schema.py`; what one backend alone has is in
`src/kernel_builder/data/backends.toml`), not this page.

- `kernel-builder check-config` judges a file, all mistakes in one run.
- `kernel-builder update-build` brings an older file to the current edition, comments and layout kept.
- `kernel-builder schema` prints the JSON schema of the file, for editors; it is kept in `build-toml.schema.json` too.

Unknown keys are mistakes everywhere. Paths are relative to the directory of `build.toml`, written with `/`, and stay
inside of it. Versions are text, so that `"2.10"` is not `2.1`; a bound speaks of the numbers that it writes, so
`maxver = "2.12"` admits 2.12.1. Exactly one of `[torch]`, `[torch-noarch]` and `[tvm-ffi]` must be there.
"""


def reference() -> str:
    """The page, as Markdown. It is the same in every run."""
    notes = [backend.architectures.note for backend in Backend if backend.architectures and backend.architectures.note]
    parts = [_INTRODUCTION, *notes, *(_table(table) for table in TABLES), _dependencies()]
    return "\n".join(parts)


def _table(table: Table) -> str:
    title = "Kernel dependencies" if table is KERNEL_DEPENDENCY else f"`[{table.name}]`"
    rows = [f"## {title}", "", table.summary, "", "| Key | Value | Example |", "|---|---|---|"]
    rows += [f"| `{key.name}`{_marks(key)} | {_kind(key)} | `{_example(key)}` |" for key in table.keys]
    rows.append("")
    rows += [f"- `{key.name}`: {key.summary}{_more(table, key)}" for key in table.keys]
    return "\n".join([*rows, ""])


def _kind(key: Key) -> str:
    known = [backend.architectures for backend in key.only if backend.architectures is not None]
    if key.kind is Kind.ARCHITECTURES and known:
        return f"list of {known[0].plural}"
    return _KINDS[key.kind]


def _marks(key: Key) -> str:
    return " (required)" if key.required else ""


def _example(key: Key) -> str:
    return f"{key.name} = {key.example}".replace("|", "\\|")


def _more(table: Table, key: Key) -> str:
    text = ""
    if key.only and table is KERNEL:
        text += f" Only in sections for {' and '.join(backend.value for backend in key.only)}."
    if key.default is not None:
        text += f" Default: `{key.default}`."
    if key.aliases:
        text += f" May be written {', '.join(f'`{alias}`' for alias in key.aliases)}, which older tools insist on."
    return text


def _dependencies() -> str:
    known = dependencies()
    rows = ["## Allowed dependencies", "", "C++ libraries, for `depends` in kernel sections:", ""]
    rows += ["| Name | Backends |", "|---|---|"]
    rows += [f"| `{name}` | {', '.join(backends) if backends else 'all'} |" for name, backends in known.depends.items()]
    rows += ["", "Python packages, for `python-depends`:", "", "| Name | In | Package to install |", "|---|---|---|"]
    for owner, packages in known.python.items():
        place = "[general]" if owner == "general" else f"[general.{owner}]"
        rows += [f"| `{name}` | `{place}` | {entry.package} |" for name, entry in packages.items()]
    return "\n".join([*rows, ""])
