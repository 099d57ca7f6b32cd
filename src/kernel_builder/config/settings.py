"""``kernel-builder.toml``: the file, and the parts of it that are about checks and tests.

A file is opened once and its parts are read by those whom they concern: ``[check]`` and ``[test]`` here,
where toolchains come from in :mod:`kernel_builder.toolchain.settings`. All mistakes go to one report.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from kernel_builder.config.schema import Key, Kind, Table
from kernel_builder.config.tables import TableReader, text_of
from kernel_builder.errors import ConfigError, Level
from kernel_builder.files import read_small
from kernel_builder.toml.document import open_document
from kernel_builder.toml.nodes import TableNode, describe, quoted
from kernel_builder.toml.report import Report

FILE_NAME = "kernel-builder.toml"
MAX_BYTES = 1 << 20


def settings_key(name: str, kind: Kind, summary: str, shown: str, *, required: bool = False) -> Key:
    """A key of one of the file's tables."""
    return Key(name=name, kind=kind, summary=summary, field=name.replace("-", "_"), required=required, shown=shown)


TOP = Table(
    name="top level",
    model="SettingsFile",
    summary="The order of sources, and the compiler for host code.",
    keys=(
        settings_key(
            "sources",
            Kind.TEXTS,
            "The order in which sources are tried; sources that are not listed are not used.",
            '["index", "redistrib", "debian", "local"]',
        ),
        settings_key("host-compiler", Kind.TEXT, "The compiler for host code: auto, gcc, clang or zig.", '"auto"'),
        settings_key("index", Kind.TEXTS, "Further indexes of wheels, one [[index]] each.", "[]"),
        settings_key(
            "repository", Kind.TEXTS, "Further repositories of Debian packages, one [[repository]] each.", "[]"
        ),
        settings_key("redistrib", Kind.TABLE, "NVIDIA's redistributable archives.", "{}"),
        settings_key("debian", Kind.TABLE, "Debian's package of a toolkit's compiler.", "{}"),
        settings_key("local", Kind.TABLE, "Toolkits on this machine.", "{}"),
        settings_key("check", Kind.TABLE, "Which findings this project accepts.", "{}"),
        settings_key("test", Kind.TABLE, "Requirements of the project's tests.", "{}"),
    ),
)
_EXAMPLE = '{ KB302 = "our users have Python 3.10" }'
_CHECK = Table(
    name="check",
    model="Acceptance",
    summary="Which findings this project accepts.",
    keys=(settings_key("accept", Kind.TABLE, "Rules, each with the reason why its findings are accepted.", _EXAMPLE),),
)
_REQUIRES = settings_key(
    "requires", Kind.TEXTS, "Packages that tests need in addition to torch.", '["numpy>=2", "scipy"]'
)
_TEST = Table(name="test", model="SettingsFile", summary="Requirements of the project's tests.", keys=(_REQUIRES,))
TABLES = (TOP, _CHECK, _TEST)
"""All that is read here, for the reference."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """Findings of ``rule`` (a code or a name, as written) are accepted, for this ``reason``. ``line`` counts from 1."""

    rule: str
    reason: str
    line: int


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """One file. What its parts get wrong is noticed in ``report``."""

    path: Path
    top: TableNode
    report: Report

    @classmethod
    def open(cls, path: Path) -> SettingsFile:
        """Parse the file. Raises :class:`ConfigError` when it cannot be read; mistakes in it go to the report."""
        try:
            data = read_small(path, MAX_BYTES)
        except OSError as error:
            other = "is it a different file with that name?" if error.errno == errno.EFBIG else None
            raise ConfigError(f"cannot read {path}: {error.strerror}", hint=other) from error
        top, report = open_document(data, path)
        return cls(path=path, top=top, report=report)

    def table(self, name: str) -> TableNode:
        """The table of that name, an empty one where there is none. Anything else of that name is noticed."""
        node = self.top.get(name)
        if node is not None and not isinstance(node, TableNode):
            self.report.error(node.path, f"must be a table, not {describe(node)}", hint=f"write: [{name}]", at_key=True)
        return self.top.table(name)

    def acceptances(self) -> tuple[Acceptance, ...]:
        """What ``[check]`` accepts, in file order. Which rules exist is for the check to say."""
        node = TableReader(self.table("check"), _CHECK, self.report).node("accept")
        if node is None:
            return ()
        if not isinstance(node, TableNode):
            said = f"must be a table of rules and reasons, not {describe(node)}"
            self.report.error(node.path, said, hint=f"write: accept = {_EXAMPLE}", at_key=True)
            return ()
        found: list[Acceptance] = []
        for rule, value in node.items.items():
            reason = text_of(value, self.report, example='"why this is accepted"')
            if reason is not None:
                line, _ = self.report.source.position(self.report.source.key(reason.path))
                found.append(Acceptance(rule=rule, reason=" ".join(reason.text.split()), line=line))
        return tuple(found)

    def test_requires(self) -> tuple[str, ...]:
        """What ``[test]`` requires, in file order: requirements as pip takes them."""
        found: dict[str, None] = {}
        for entry in TableReader(self.table("test"), _TEST, self.report).texts(_REQUIRES.name) or ():
            try:
                requirement = Requirement(entry.text)
            except InvalidRequirement:
                self.report.error(
                    entry.path,
                    f"{quoted(entry.text)} is not a requirement",
                    hint='write the name of a package, and versions where they matter: "numpy>=2"',
                )
                continue
            if canonicalize_name(requirement.name) == "torch":
                said = "torch is the variant's own: each variant is tested with the torch that it is built for"
                self.report.error(entry.path, said, hint="remove it; torch.minver in build.toml excludes old releases")
                continue
            found[str(requirement)] = None
        return tuple(found)

    def refuse_mistakes(self) -> None:
        """Raise :class:`ConfigError` with all that was noticed, if anything of it is an error."""
        diagnostics = self.report.diagnostics()
        errors = sum(diagnostic.severity is Level.ERROR for diagnostic in diagnostics)
        if errors:
            raise ConfigError(f"{self.path} has {errors} mistake{'s' * (errors > 1)}", diagnostics=diagnostics)
