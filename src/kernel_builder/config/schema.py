"""Every key of ``build.toml``, edition 5: the one table that the reader, the JSON schema, the reference page
in ``docs/`` and the hints of error messages are made from.

Reference: interoperability contract 1.2-1.6. Older editions are described by how they differ, in
``editions.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from kernel_builder.config.backends import HOST, SHOWN, Backend, KernelKey, Role

CURRENT_EDITION = 5

COMPILED = tuple(backend for backend in Backend if backend.has_sections)
"""Backends that can have compiled code, hence a ``[kernel.<id>]`` section."""

FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
"""The framework tables; exactly one of them is there."""


class Kind(Enum):
    """What a value may be. The comment is how the reference page calls it."""

    NAME = auto()  # kernel name
    UINT = auto()  # whole number, 0 or more
    EDITION = auto()  # the number 5
    TEXT = auto()  # text
    LICENSE = auto()  # licence identifier
    BACKEND = auto()  # backend
    BACKENDS = auto()  # list of backends
    GIT_URL = auto()  # git URL
    VERSION = auto()  # version, as a string
    TEXTS = auto()  # list of text
    SUFFIXES = auto()  # list of file name suffixes
    SOURCES = auto()  # list of files
    INCLUDES = auto()  # list of directories
    ARCHITECTURES = auto()  # list of a backend's architectures
    DEPENDS = auto()  # list of C++ dependencies
    PYTHON_DEPENDS = auto()  # list of Python dependencies
    KERNEL_DEPENDS = auto()  # list of kernel dependencies
    STABLE_ABI = auto()  # version, or a table from backend to version
    REPO_ID = auto()  # owner/name
    BRANCH = auto()  # git branch
    FLAG = auto()  # true or false
    TABLE = auto()  # table


def _architectures_of(backend: Backend) -> str:
    """Architectures of a backend, as a list is written."""
    examples = backend.architectures.examples if backend.architectures else ()
    return f"[{', '.join(json.dumps(example) for example in examples)}]"


EXAMPLES: Mapping[Kind, str] = {
    Kind.NAME: '"my-kernel"',
    Kind.UINT: "1",
    Kind.EDITION: "5",
    Kind.TEXT: '"main"',
    Kind.LICENSE: '"Apache-2.0"',
    Kind.BACKEND: f'"{SHOWN}"',
    Kind.BACKENDS: f'["{HOST}", "{SHOWN}"]',
    Kind.GIT_URL: '"https://github.com/owner/name"',
    Kind.VERSION: '"2.12"',
    Kind.TEXTS: '["-O3"]',
    Kind.SUFFIXES: '["py", "json"]',
    Kind.SOURCES: f'["my_kernel_{SHOWN}/my_kernel{SHOWN.sources[0]}"]',
    Kind.INCLUDES: '["include"]',
    Kind.ARCHITECTURES: _architectures_of(SHOWN),
    Kind.DEPENDS: '["torch"]',
    Kind.PYTHON_DEPENDS: '["einops"]',
    Kind.KERNEL_DEPENDS: '[{ repo-id = "owner/name", version = 1 }]',
    Kind.STABLE_ABI: '"2.11"',
    Kind.REPO_ID: '"owner/name"',
    Kind.BRANCH: '"main"',
    Kind.FLAG: "true",
    Kind.TABLE: "{}",
}
"""A value of each kind, as it is written; hints and the reference page show it."""


class Key(NamedTuple):
    """One key. ``field`` is the attribute of the model that holds its value; ``only`` the backends whose
    kernel sections may have it (empty: all); ``aliases`` other spellings that are read; ``shown`` a value as it is
    written, where that of its kind would mislead.
    """

    name: str
    kind: Kind
    summary: str
    field: str
    required: bool = False
    only: tuple[Backend, ...] = ()
    aliases: tuple[str, ...] = ()
    default: str | None = None
    shown: str | None = None

    @property
    def example(self) -> str:
        """A value, as it is written."""
        return self.shown or EXAMPLES[self.kind]


class Table(NamedTuple):
    """One table. ``name`` is what stands in its header, with ``<id>`` where users choose; ``model`` the class
    of the model that it is read into.
    """

    name: str
    model: str
    summary: str
    keys: tuple[Key, ...]

    def find(self, name: str) -> Key | None:
        """The key of that name or alias."""
        return next((key for key in self.keys if name == key.name or name in key.aliases), None)

    def key(self, name: str) -> Key:
        """The key of that name, which must exist."""
        return next(key for key in self.keys if key.name == name)


_SRC = "Source files and headers, relative to the project. List headers too."
_INCLUDE = "Directories to look for headers in, relative to the project. `csrc` is always one of them."
_PYEXT = "Suffixes, without the dot, of the Python package's files to ship. Add those of data files here."
_CXX_FLAGS = "Additional flags for the C++ compiler, on these sources only."
_PYTHON_DEPENDS = "Python packages that the kernel imports on this backend, from the table of allowed names."
_KERNEL_DEPENDS = "Hub kernels that this kernel loads on this backend."

GENERAL = Table(
    name="general",
    model="Project",
    summary="The kernel's name, version, license and backends.",
    keys=(
        Key(
            name="name",
            kind=Kind.NAME,
            field="name",
            required=True,
            summary="Name of the kernel: lower-case letters, digits and dashes, at least two characters. "
            "The Python "
            "package has the same name, with underscores for dashes.",
        ),
        Key(
            name="version",
            kind=Kind.UINT,
            field="version",
            required=True,
            summary="Major version of the kernel's interface. It goes up when callers must change. Uploads "
            "go to the "
            "branch `v<version>`.",
        ),
        Key(
            name="edition",
            kind=Kind.EDITION,
            field="edition",
            required=True,
            summary="Edition of this file's format. Older files have none; `kernel-builder update-build` adds it.",
        ),
        Key(
            name="license",
            kind=Kind.LICENSE,
            field="license",
            required=True,
            summary="License of the kernel, as an identifier from the Hub's list.",
        ),
        Key(
            name="backends",
            kind=Kind.BACKENDS,
            field="backends",
            required=True,
            summary="Compute backends that the kernel supports. One without a kernel section gets a variant "
            "with only Python "
            "code.",
        ),
        Key(
            name="upstream",
            kind=Kind.GIT_URL,
            field="upstream",
            summary="Repository that the kernel was taken from.",
        ),
        Key(
            name="source",
            kind=Kind.GIT_URL,
            field="source",
            summary="Repository that this project is kept in.",
        ),
        Key(
            name="kernel-depends",
            kind=Kind.KERNEL_DEPENDS,
            field="kernel_depends",
            summary="Hub kernels that this kernel loads, on every backend.",
        ),
        Key(
            name="python-depends",
            kind=Kind.PYTHON_DEPENDS,
            field="python_depends",
            summary="Python packages that the kernel imports on every backend, from the table of allowed names.",
        ),
    ),
)

HUB = Table(
    name="general.hub",
    model="Hub",
    summary="Where the kernel is uploaded to.",
    keys=(
        Key(name="repo-id", kind=Kind.REPO_ID, field="repo_id", summary="Repository on the Hub, `owner/name`."),
        Key(
            name="branch",
            kind=Kind.BRANCH,
            field="branch",
            summary="Branch to upload to instead of `v<version>`.",
        ),
    ),
)

_BACKEND_PYTHON_DEPENDS = Key(
    name="python-depends", kind=Kind.PYTHON_DEPENDS, field="python_depends", summary=_PYTHON_DEPENDS
)
_BACKEND_KERNEL_DEPENDS = Key(
    name="kernel-depends", kind=Kind.KERNEL_DEPENDS, field="kernel_depends", summary=_KERNEL_DEPENDS
)


def _general_keys(backend: Backend) -> Mapping[str, Key]:
    """The keys that ``[general.<backend>]`` can have, by name."""
    keys = (
        Key(
            name="minver",
            kind=Kind.VERSION,
            field="minver",
            summary=f"Oldest {backend.label} toolkit to build with. This excludes required variants: use it only if "
            "older toolkits fail.",
        ),
        Key(
            name="maxver",
            kind=Kind.VERSION,
            field="maxver",
            summary=f"Newest {backend.label} toolkit to build with, including its patch releases. "
            "This excludes required variants.",
        ),
        _BACKEND_KERNEL_DEPENDS,
        _BACKEND_PYTHON_DEPENDS,
    )
    return {key.name: key for key in keys}


BACKEND_TABLES: Mapping[Backend, Table] = {
    backend: Table(
        name=f"general.{backend}",
        model="BackendOptions",
        summary=backend.general.summary,
        keys=tuple(_general_keys(backend)[name] for name in backend.general.keys),
    )
    for backend in Backend
    if backend.general is not None
}
"""``[general.<backend>]``, for the backends that have one."""

TORCH = Table(
    name="torch",
    model="Framework",
    summary="A kernel for PyTorch with compiled code. Its Python package is `torch-ext/<python name>`.",
    keys=(
        Key(
            name="src",
            kind=Kind.SOURCES,
            field="src",
            default="[]",
            summary="Sources and headers of the binding that registers the operators. Compiled for every backend.",
        ),
        Key(name="include", kind=Kind.INCLUDES, field="include", default="[]", summary=_INCLUDE),
        Key(
            name="cxx-flags",
            kind=Kind.TEXTS,
            field="cxx_flags",
            default="[]",
            summary="Additional flags for the C++ compiler, on the binding's sources only.",
        ),
        Key(name="pyext", kind=Kind.SUFFIXES, field="pyext", default='["py", "pyi"]', summary=_PYEXT),
        Key(
            name="minver",
            kind=Kind.VERSION,
            field="minver",
            summary="Oldest torch to build for. This excludes required variants: use it only if older releases fail.",
        ),
        Key(
            name="maxver",
            kind=Kind.VERSION,
            field="maxver",
            summary="Newest torch to build for, including its patch releases. This excludes required variants.",
        ),
        Key(
            name="stable-abi",
            kind=Kind.STABLE_ABI,
            field="stable_abi",
            summary="Build against torch's stable ABI of this release, so that one build works with every later "
            "torch. A "
            f'version applies to all backends; a table, `{{ {SHOWN} = "2.10" }}`, to those that it lists.',
        ),
    ),
)

TVM_FFI = Table(
    name="tvm-ffi",
    model="Framework",
    summary="A kernel for every framework that supports TVM FFI. Its Python package is `tvm-ffi-ext/<python name>`.",
    keys=(
        Key(name="src", kind=Kind.SOURCES, field="src", required=True, summary=_SRC),
        Key(name="include", kind=Kind.INCLUDES, field="include", default="[]", summary=_INCLUDE),
        Key(name="cxx-flags", kind=Kind.TEXTS, field="cxx_flags", default="[]", summary=_CXX_FLAGS),
        Key(name="pyext", kind=Kind.SUFFIXES, field="pyext", default='["py", "pyi"]', summary=_PYEXT),
    ),
)

TORCH_NOARCH = Table(
    name="torch-noarch",
    model="Framework",
    summary="A kernel with only Python code, such as one for Triton. Its Python package is `torch-ext/<python name>`.",
    keys=(
        Key(name="pyext", kind=Kind.SUFFIXES, field="pyext", default='["py", "pyi"]', summary=_PYEXT),
        *(
            Key(
                name=key.name,
                kind=Kind.ARCHITECTURES,
                field="architectures",
                only=(backend,),
                aliases=(key.name.replace("-", "_"),),
                summary=key.noarch,
                shown=_architectures_of(backend),
            )
            for backend in Backend
            for key in backend.keys
            if key.noarch is not None
        ),
    ),
)


def _kernel_key(backend: Backend, key: KernelKey) -> Key:
    """A backend's own key in ``[kernel.<id>]``."""
    kinds = {Role.FLAGS: Kind.TEXTS, Role.ARCHITECTURES: Kind.ARCHITECTURES, Role.MINVER: Kind.VERSION}
    fields = {Role.FLAGS: "flags", Role.ARCHITECTURES: "architectures", Role.MINVER: "toolkit_minver"}
    return Key(
        name=key.name,
        kind=kinds[key.role],
        field=fields[key.role],
        only=(backend,),
        default="[]" if key.role is Role.FLAGS else None,
        summary=key.summary,
        shown=_architectures_of(backend) if key.role is Role.ARCHITECTURES else None,
    )


KERNEL = Table(
    name="kernel.<id>",
    model="Section",
    summary="Sources of one backend that are compiled the same way. There can be any number of these sections.",
    keys=(
        Key(
            name="backend",
            kind=Kind.BACKEND,
            field="backend",
            required=True,
            summary="Backend of these sources.",
        ),
        Key(
            name="depends",
            kind=Kind.DEPENDS,
            field="depends",
            required=True,
            summary="C++ libraries whose headers these sources include. May be empty.",
        ),
        Key(name="src", kind=Kind.SOURCES, field="src", required=True, summary=_SRC),
        Key(name="include", kind=Kind.INCLUDES, field="include", default="[]", summary=_INCLUDE),
        Key(name="cxx-flags", kind=Kind.TEXTS, field="cxx_flags", default="[]", summary=_CXX_FLAGS),
        *(_kernel_key(backend, key) for backend in Backend for key in backend.keys),
    ),
)

KERNEL_DEPENDENCY = Table(
    name="kernel-depends",
    model="KernelDependency",
    summary="One Hub kernel that this kernel loads, with either a version or a revision.",
    keys=(
        Key(
            name="repo-id",
            kind=Kind.REPO_ID,
            field="repo_id",
            required=True,
            summary="Repository, `owner/name`.",
        ),
        Key(name="version", kind=Kind.UINT, field="version", summary="Major version of the kernel."),
        Key(name="revision", kind=Kind.TEXT, field="revision", summary="Branch, tag or commit of the kernel."),
    ),
)

FRAMEWORK_TABLES: Mapping[str, Table] = {"torch": TORCH, "torch-noarch": TORCH_NOARCH, "tvm-ffi": TVM_FFI}

TABLES: tuple[Table, ...] = (
    GENERAL,
    HUB,
    *BACKEND_TABLES.values(),
    *FRAMEWORK_TABLES.values(),
    KERNEL,
    KERNEL_DEPENDENCY,
)
"""All tables, in the order of the reference page."""
