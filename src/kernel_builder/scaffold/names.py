"""Names of a new project: from what the user typed to a kernel name that every later step accepts.

Reference: interoperability contract 1.2 (the rule for kernel names), 6.2 and sharp edge 39 (what ``init``
makes of them).
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass

from kernel_builder.errors import UsageError
from kernel_builder.portable import is_reserved

RULE = (
    "a kernel name has at least two characters: lowercase letters, digits and dashes;"
    " it begins with a letter and does not end with a dash"
)

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
# What the Hub takes for users and organisations.
_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

# The function of the template is called like the kernel: these would hide what its package needs (`torch`,
# `ops`, `layers`, `add_op_namespace_prefix`) or what torch keeps in every namespace of ops (`name`).
_TAKEN = frozenset({"add_op_namespace_prefix", "layers", "name", "ops", "torch"})
# With PYTHONPATH=build/<variant> a kernel of one of these names would shadow the module itself.
_MODULES = sys.stdlib_module_names | {"kernels", "numpy", "pytest"}


@dataclass(frozen=True, kw_only=True)
class ProjectName:
    """The names of a project. ``owner`` is ``None`` when nobody said who it will belong to on the Hub."""

    name: str
    owner: str | None = None

    @property
    def repo_id(self) -> str | None:
        """``owner/name``, where the kernel is uploaded to."""
        return None if self.owner is None else f"{self.owner}/{self.name}"

    @property
    def python_name(self) -> str:
        """The name as a Python identifier: dashes become underscores."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The name in CamelCase."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("-"))


def parse_repo_id(text: str) -> tuple[ProjectName, tuple[str, ...]]:
    """Read ``OWNER/REPO`` or ``REPO`` (what ``--name`` takes).

    Returns the names, and a note for each spelling that was changed. Raises :class:`UsageError` where no
    valid name can be made without guessing.
    """
    *owners, repo = text.split("/")
    if len(owners) > 1 or not repo or (owners and not owners[0]):
        raise UsageError(
            f"--name takes OWNER/REPO or REPO, not {text!r}",
            hint="for example: kernel-builder init --name myorg/my-kernel",
        )
    owner = owners[0] if owners else None
    if owner is not None and _OWNER.fullmatch(owner) is None:
        raise UsageError(
            f"{owner!r} is not a valid repository owner on the Hub",
            hint="use letters, digits, dots, dashes and underscores, the last three not at the beginning or end",
        )
    name, notes = parse_name(repo)
    return ProjectName(name=name, owner=owner), notes


def parse_name(text: str) -> tuple[str, tuple[str, ...]]:
    """Read a kernel's name. Capitals and underscores are converted, with a note; other mistakes are refused.

    Raises :class:`UsageError` with the rule and, where there is one, the nearest valid name.
    """
    name = text.lower().replace("_", "-") if text.isascii() else text
    if _NAME.fullmatch(name) is None:
        near = nearest(text)
        raise UsageError(
            f"{text!r} is not a valid kernel name: {RULE}",
            hint=f"use {near!r}" if near is not None else "choose another: kernel-builder init --name OWNER/REPO",
        )
    python_name = name.replace("-", "_")
    if keyword.iskeyword(python_name) or python_name in _TAKEN:
        kind = "a Python keyword" if keyword.iskeyword(python_name) else "a name that the generated code needs"
        raise UsageError(
            f"{text!r} is not a valid kernel name: its function would be called {python_name!r}, {kind}",
            hint=f"use {name + '-kernel'!r}",
        )
    if python_name in _MODULES:
        raise UsageError(
            f"{text!r} is not a valid kernel name: it would shadow Python's module {python_name!r}",
            hint=f"use {name + '-kernel'!r}",
        )
    if is_reserved(python_name):
        raise UsageError(
            f"{text!r} is not a valid kernel name: Windows reserves {python_name!r} for a device",
            hint=f"use {name + '-kernel'!r}",
        )
    notes = (f"the kernel is called {name!r}: {RULE}",) if name != text else ()
    return name, notes


def nearest(text: str) -> str | None:
    """The valid name closest to ``text``, or ``None`` if nothing of it can be kept."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if name and not name[0].isalpha():
        name = f"kernel-{name}"
    return name if _NAME.fullmatch(name) else None
