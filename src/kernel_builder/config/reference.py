"""The reference page of ``build.toml`` in ``docs/``, made from the tables of :mod:`schema`."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_builder.config.backends import Backend
from kernel_builder.config.known import dependencies
from kernel_builder.config.schema import CURRENT_EDITION, KERNEL, KERNEL_DEPENDENCY, TABLES, Key, Kind, Table

_KINDS: Mapping[Kind, str] = {
    Kind.NAME: "kernel name",
    Kind.UINT: "integer",
    Kind.EDITION: f"the number {CURRENT_EDITION}",
    Kind.TEXT: "text",
    Kind.LICENSE: "license identifier",
    Kind.BACKEND: "backend",
    Kind.BACKENDS: "list of backends",
    Kind.GIT_URL: "git URL",
    Kind.VERSION: "version, as a string",
    Kind.TEXTS: "list of strings",
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
    Kind.FLAG: "true or false",
    Kind.TABLE: "table",
}

_INTRODUCTION = f"""\
# build.toml

<!-- Written by scripts/generate_reference.py: edit src/kernel_builder/config/ (schema.py and reference.py) instead, or
src/kernel_builder/data/backends.toml for the keys of one backend. -->

The file `build.toml` at the root of a kernel project describes the kernel and how to build it. This page lists every
key of edition {CURRENT_EDITION}, the current one.

- `kernel-builder check-config` checks the file, and everything else in the project that would stop a build. It reports
  all mistakes at once.
- `kernel-builder update-build` updates an older file to the current edition, and keeps comments and layout.
- `kernel-builder schema` prints the JSON schema of the file for editors; `build-toml.schema.json` is a copy of it.

General rules:

- Unknown keys are errors.
- Paths are relative to the directory of `build.toml`, use `/`, and stay inside that directory.
- Versions are strings, because TOML reads `2.10` as `2.1`. A bound compares only the numbers that it contains, so
  `maxver = "2.12"` includes 2.12.1.
- Exactly one of the sections `[torch]`, `[torch-noarch]` and `[tvm-ffi]` is required.
"""


_FLAGS = """\
In a list of flags, each string is one compiler argument, without shell quotes: `["-O3", "-g"]`. kernel-builder rejects
flags for things that the build decides, and says what to write instead:

- architectures (use the key for them) and device linking;
- the C++ ABI, and a C++ standard newer than that of the PyTorch headers;
- other languages, programs and outputs;
- header directories (use `include`). A file that `-include` names must be in one of these, in `csrc` or in the
  framework's directory;
- everything for the linker;
- flags that need a runtime library in the process, such as sanitizers.

Sources in `[torch]` are compiled for every backend, and sources in a `[kernel.<id>]` section only for the section's
backend. The macro `<BACKEND>_KERNEL`, with the backend's name in capitals, tells the code which backend it is compiled
for.
"""


def reference() -> str:
    """The page, as Markdown. It is the same in every run."""
    notes = [backend.architectures.note for backend in Backend if backend.architectures and backend.architectures.note]
    parts = [_INTRODUCTION, *notes, _FLAGS, *(_table(table) for table in TABLES), _dependencies()]
    return "\n".join(parts)


def _table(table: Table) -> str:
    return table_section(table, "Kernel dependencies" if table is KERNEL_DEPENDENCY else f"`[{table.name}]`")


def table_section(table: Table, title: str) -> str:
    """The part of a page that is about ``table``: its keys, with an example and a sentence for each."""
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
        text += f" May be written {', '.join(f'`{alias}`' for alias in key.aliases)}, which older tools require."
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
