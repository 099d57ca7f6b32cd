"""A variant, and what tests need, as requirements. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernel_builder.config.backends import Backend
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.variants.matrix import Kept
from kernel_builder.variants.names import Variant
from kernel_builder.variants.support import SupportRow, SupportTable, VariantSet

TOOLS = ("kernels", "pytest")
"""What every environment must have besides the framework."""
_COMFORT = ("numpy",)
"""What is installed besides into those that are made: torch warns without it."""
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What is installed to run ``variant``.

    ``torch`` are requirements, any one of which will do, the best first; none where it runs without torch. ``label`` is
    for people (``torch 2.13 for CUDA 13.0``), ``python`` the oldest Python that this torch runs on.
    """

    variant: Variant
    label: str
    torch: tuple[str, ...]
    python: tuple[int, int]
    requirements: tuple[str, ...]

    @property
    def backend(self) -> Backend:
        """The variant's."""
        return self.variant.backend

    @property
    def installed(self) -> tuple[str, ...]:
        """What is installed besides torch."""
        return tuple(dict.fromkeys([*self.requirements, *_COMFORT]))

    def key(self, *more: str) -> str:
        """The name of the environment, which everything that it is made of determines: ``more`` says of the rest."""
        facts = json.dumps([_FORMAT, self.torch, sorted(self.installed), more])
        return f"{self.label.lower().replace(' ', '-')}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def wanted_for(
    project: Project, entry: Kept, table: SupportTable, requires: Iterable[str], *, torch: bool = True
) -> Needs | None:
    """What running ``entry`` of ``project`` takes, where its tests need ``requires`` besides, and ``torch``.

    A variant of Python alone runs with any torch of its backend: the newest that is required is taken. One for tvm-ffi
    runs with any framework: on the host it gets torch where the tests need it, on a device always, for something must
    hold tensors there. ``None``: no build of torch is known for it.
    """
    requires = tuple(requires)
    row = entry.row or _newest(entry.backend, table)
    if row is None:
        return None
    toolkit = f" {row.toolkit.major}.{row.toolkit.minor}" if row.toolkit else ""
    label, framework = f"torch {row.torch} for {row.variant.backend.label}{toolkit}", list[str]()
    has_torch = entry.variant.needs_torch or not entry.backend.is_host or torch or any(map(_is_torch, requires))
    if not entry.variant.needs_torch and row.tvm_ffi is not None:
        framework = [f"{FrameworkKind.TVM_FFI.package}=={row.tvm_ffi}.*"]
        label = f"tvm-ffi {row.tvm_ffi}{f' and {label}' if has_torch else ''}"
    return Needs(
        variant=entry.variant,
        label=label,
        torch=torch_requirements(row, table) if has_torch else (),
        python=row.python,
        requirements=tuple(dict.fromkeys([*TOOLS, *framework, *_declared(project, entry.backend), *requires])),
    )


def _is_torch(requirement: str) -> bool:
    return canonicalize_name(Requirement(requirement).name) == "torch"


def _newest(backend: Backend, table: SupportTable) -> SupportRow | None:
    rows = [row for row in table.rows if row.variant.backend is backend]
    fitting = [row for row in rows if table.contains(VariantSet.REQUIRED, row)] or rows
    return max(fitting, key=lambda row: (row.torch, row.is_published), default=None)


def _declared(project: Project, backend: Backend) -> list[str]:
    """The packages of ``python-depends``, as pip calls them."""
    options = project.backend_options.get(backend)
    found = [(None, name) for name in project.python_depends]
    own = [(backend, name) for name in (options.python_depends if options else ())]
    packages = [dependencies().python_table(owner)[name].package for owner, name in [*found, *own]]
    return [package for package in packages if package]


def torch_requirements(row: SupportRow, table: SupportTable) -> tuple[str, ...]:
    """The builds of torch that run code for ``row``, as requirements, the best first.

    That is the build itself, then those with a newer minor of the toolkit where such run it, then the wheel of the
    public index, which has no mark, where it is one of these. For what every build there has, any will do.
    """
    release = row.wheel or f"{row.torch}"
    rows = [other for other in table.rows if other.torch == row.torch and other.platform == row.platform]
    serving = [other for other in rows if _serves(other, row)]
    serving.sort(key=lambda other: (other.variant != row.variant, other.variant.compute))
    marks = [mark for other in serving if (mark := _mark(other)) is not None]
    found = [f"torch=={release}+{mark}" for mark in marks]
    backend = row.variant.backend
    if backend.is_host or backend.torch.system == row.platform.system.value:  # every build has it
        found.append(f"torch=={release}")
    elif any(other.is_published for other in serving):
        # Of that version and nothing else: `==` would also admit builds for something else, as 2.13.0+cpu.
        found.append(f"torch==={release}")
    return tuple(dict.fromkeys(found))


def _serves(other: SupportRow, row: SupportRow) -> bool:
    """Whether the torch of ``other`` runs code that was built for ``row``."""
    backend, built, has = row.variant.backend, row.variant.compute.version, other.variant.compute.version
    if other.variant.backend is not backend:
        return False
    if built is None or has is None or not backend.torch.older_minor:
        return built == has
    return has[0] == built[0] and has[1] >= built[1]


def _mark(row: SupportRow) -> str | None:
    """The local version of that build: ``cu130``."""
    text = row.variant.backend.torch.build
    major, minor = row.variant.compute.version or (0, 0)
    return None if text is None else text.format(major=major, minor=minor)
