"""What is known outside of a project's own file: dependencies, licences, releases of torch. Read from
``data/``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError
from kernel_builder.versions import Version

_DATA = Path(__file__).parent.parent / "data"

OLDEST_STABLE_ABI = Version.parse("2.7")
"""The release of torch from which on a kernel can register its operators through the stable ABI."""


class PythonPackage(NamedTuple):
    """A Python package that kernels may import: what to install, the module to import (``""``: none), and the modules
    that its own requirements bring.
    """

    package: str
    module: str
    brings: Sequence[str] = ()


class Dependencies(NamedTuple):
    """``depends`` maps a C++ library to the backends it is for (empty: all); ``renamed`` an earlier name to
    the present one; ``python`` ``"general"`` or a backend to the packages that are allowed there. ``provides`` maps
    the beginning of a header's name to the values of ``depends`` that bring it, oldest release first; ``library`` a
    release to the library that it is one of.
    """

    depends: Mapping[str, tuple[Backend, ...]]
    renamed: Mapping[str, str]
    python: Mapping[str, Mapping[str, PythonPackage]]
    provides: Mapping[str, tuple[str, ...]]
    library: Mapping[str, str]

    def bringing(self, header: str, backend: Backend) -> tuple[str, ...]:
        """The values of ``depends`` that bring ``header`` to sections for ``backend``, oldest release first."""
        return tuple(
            name
            for beginning, names in self.provides.items()
            if header.startswith(beginning)
            for name in names
            if not self.depends[name] or backend in self.depends[name]
        )

    def python_table(self, backend: Backend | None) -> Mapping[str, PythonPackage]:
        """Packages allowed in ``general.python-depends`` (``None``) or in
        ``general.<backend>.python-depends``.
        """
        return self.python.get("general" if backend is None else backend.value, MappingProxyType({}))


@cache
def dependencies() -> Dependencies:
    """The table of allowed dependencies, ``data/dependencies.toml``."""
    data = tomllib.loads((_DATA / "dependencies.toml").read_text(encoding="utf-8"))
    provides: dict[str, tuple[str, ...]] = {}
    for name, release in data["release"].items():
        for beginning in data["library"][release["library"]]["provides"]:
            provides[beginning] = (*provides.get(beginning, ()), name)
    return Dependencies(
        depends={name: tuple(Backend(backend) for backend in backends) for name, backends in data["depends"].items()},
        renamed=dict(data["renamed"]),
        python={
            table: {name: PythonPackage(**entry) for name, entry in packages.items()}
            for table, packages in data["python-depends"].items()
        },
        provides=provides,
        library={name: release["library"] for name, release in data["release"].items()},
    )


@cache
def licenses() -> frozenset[str]:
    """Licence identifiers that the Hub knows, in lower case."""
    text = (_DATA / "licenses.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.split("\n") if line and not line.startswith("#"))


def read_license(text: str) -> str:
    """The licence that a user named: an identifier of the Hub's list, in any case, or a valid SPDX expression.

    Raises :class:`UsageError` for anything else.
    """
    given = text.strip()
    if given.lower() in licenses() or spdx_of(given) is not None:
        return given
    near = get_close_matches("-".join(given.lower().split()), sorted(licenses()), n=1)
    usual = "" if not near else f"did you mean {spdx_of(near[0]) or near[0]}? "
    raise UsageError(
        f"--license {given!r} is neither on the Hub's list of licenses nor an SPDX identifier",
        hint=f"{usual}for a license that has no identifier, run the same command with --license other",
    )


def spdx_of(text: str) -> str | None:
    """``text`` as SPDX spells it; ``None`` when it is not a valid expression of SPDX identifiers."""
    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return None


@cache
def _releases() -> Sequence[Mapping[str, object]]:
    """The releases of torch of the support table."""
    return tuple(tomllib.loads((_DATA / "support.toml").read_text(encoding="utf-8"))["torch"])


@cache
def newest_torch() -> Version:
    """The newest torch release of the support table."""
    return max(Version.parse(str(row["version"])) for row in _releases())


@cache
def newest_cxx_standard() -> int:
    """The newest standard of C++ that a torch release's headers need: ``20``."""
    return max(int(str(row["cxx-standard"])) for row in _releases())
