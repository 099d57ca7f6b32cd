"""A project as a document of the current edition: plain data that TOML and JSON can both hold.

:func:`document_of` is the inverse of the reader: what it returns, written as TOML and read again, is the same
project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_builder.config.backends import Role
from kernel_builder.config.model import (
    BackendOptions,
    Framework,
    FrameworkKind,
    KernelDependency,
    Project,
    Section,
)
from kernel_builder.config.schema import CURRENT_EDITION, TORCH_NOARCH, Kind

Value = str | int | Sequence["Value"] | Mapping[str, "Value"]
"""What TOML and JSON have in common, as far as ``build.toml`` needs it."""


def document_of(project: Project) -> dict[str, Value]:
    """``build.toml`` of the current edition for this project. Keys that say nothing are left out."""
    general: dict[str, Value | None] = {
        "name": project.name,
        "version": project.version,
        "edition": CURRENT_EDITION,
        "license": project.license,
        "backends": [backend.value for backend in project.backends],
        "upstream": project.upstream,
        "source": project.source,
        "kernel-depends": _kernel_depends(project.kernel_depends),
        "python-depends": list(project.python_depends),
        "hub": _kept({"repo-id": project.hub.repo_id, "branch": project.hub.branch}),
    }
    general |= {backend.value: _options(options) for backend, options in project.backend_options.items()}
    document: dict[str, Value] = {
        "general": _kept(general, empty=("backends",)),
        project.framework.kind.value: _framework(project.framework),
    }
    if project.sections:
        document["kernel"] = {section.id: _section(section) for section in project.sections}
    return document


def _kept(table: Mapping[str, Value | None], *, empty: Sequence[str] = ()) -> dict[str, Value]:
    """The entries of ``table`` that say something. Those named in ``empty`` do so even when they are
    empty.
    """
    return {
        name: value
        for name, value in table.items()
        if value is not None and (isinstance(value, int | str) or len(value) > 0 or name in empty)
    }


def _text(value: object | None) -> str | None:
    return None if value is None else str(value)


def _kernel_depends(depends: Sequence[KernelDependency]) -> list[Value]:
    return [_kept({"repo-id": one.repo_id, "version": one.version, "revision": one.revision}) for one in depends]


def _options(options: BackendOptions) -> dict[str, Value]:
    return _kept(
        {
            "minver": _text(options.minver),
            "maxver": _text(options.maxver),
            "kernel-depends": _kernel_depends(options.kernel_depends),
            "python-depends": list(options.python_depends),
        }
    )


def _framework(framework: Framework) -> dict[str, Value]:
    noarch = framework.kind is FrameworkKind.TORCH_NOARCH
    return _kept(
        {
            "src": list(framework.src),
            "include": list(framework.include),
            "cxx-flags": list(framework.cxx_flags),
            "pyext": None if framework.pyext is None else list(framework.pyext),
            "minver": _text(framework.minver),
            "maxver": _text(framework.maxver),
            "stable-abi": {backend.value: version.text for backend, version in framework.stable_abi.items()},
        }
        | {
            # With an underscore, these are read by the reference implementation as well.
            key.aliases[0]: [str(one) for backend in key.only for one in framework.architectures.get(backend, ())]
            for key in TORCH_NOARCH.keys
            if key.kind is Kind.ARCHITECTURES
        },
        empty=("pyext",) if noarch else ("pyext", "src"),
    )


def _section(section: Section) -> dict[str, Value]:
    own = {key.name: _own(section, key.role) for key in section.backend.keys}
    architectures = section.backend.key(Role.ARCHITECTURES)
    return _kept(
        {
            "backend": section.backend.value,
            "depends": list(section.depends),
            "src": list(section.src),
            "include": list(section.include),
            "cxx-flags": list(section.cxx_flags),
        }
        | own,
        empty=("depends", "src", *([architectures.name] if architectures else [])),
    )


def _own(section: Section, role: Role) -> Value | None:
    """The value of the key in which the section's backend says this."""
    if role is Role.FLAGS:
        return list(section.flags)
    if role is Role.MINVER:
        return _text(section.toolkit_minver)
    return None if section.architectures is None else [str(one) for one in section.architectures]
