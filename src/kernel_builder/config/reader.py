"""``build.toml`` of any edition to a :class:`Project`, or everything that is wrong with it.

The way: bytes -> text -> TOML (:mod:`scan`) -> edition (:mod:`editions`) -> the keys of :mod:`schema` ->
values of the model -> checks across keys and against the tree (:mod:`checks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kernel_builder.config import checks, values
from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.editions import Edition, edition_of, upgrade
from kernel_builder.config.editions.retired import RETIRED
from kernel_builder.config.headers import Flagged, missing_forced, missing_libraries
from kernel_builder.config.intents import instead_of
from kernel_builder.config.model import (
    Architecture,
    BackendOptions,
    Framework,
    FrameworkKind,
    Hub,
    KernelDependency,
    Project,
    Section,
)
from kernel_builder.config.schema import (
    BACKEND_TABLES,
    COMPILED,
    CURRENT_EDITION,
    FRAMEWORK_TABLES,
    FRAMEWORKS,
    GENERAL,
    HUB,
    KERNEL,
    TORCH_NOARCH,
    Kind,
)
from kernel_builder.config.tables import TableReader, TextEntry
from kernel_builder.errors import ConfigError, Diagnostic, Level
from kernel_builder.toml.document import open_document
from kernel_builder.toml.nodes import ListNode, TableNode, describe, quoted
from kernel_builder.toml.report import Report
from kernel_builder.versions import Version

FILE_NAME = "build.toml"
MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read; the largest real one has half a MiB."""


def load_project(root: Path, *, to_build: bool = False) -> tuple[Project, tuple[Diagnostic, ...]]:
    """Read ``root/build.toml``, any edition, and look at the tree that it describes. With ``to_build``, what older
    editions leave out and finished kernels must have (a license) is a mistake.

    Returns the project and warnings in file order. Raises :class:`ConfigError` with all diagnostics, warnings
    included, when any of them is an error or when there is no such file; ``OSError`` when it cannot be read.
    """
    file = root / FILE_NAME
    return read_project(read_file(file), file=file, root=root, to_build=to_build)


def load_draft(root: Path) -> Project | None:
    """What can be read of ``root/build.toml``, be it full of mistakes: what is missing or wrong is left out or guessed,
    so only what is there means anything. ``None`` when there is no such file, or no way to read it.
    """
    file = root / FILE_NAME
    try:
        tables, report = open_document(read_file(file), file)
    except (ConfigError, OSError):
        return None
    return _read(tables, report, root.resolve(), tree=False, to_build=False)[0]


def read_file(file: Path) -> bytes:
    """The bytes of a ``build.toml``. Raises :class:`ConfigError` when there is none, or it is far too
    large.
    """
    try:
        if file.is_dir():
            raise ConfigError(f"{file} is a directory", hint="build.toml must be a file")
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(
                f"{file} is {size / 2**20:.1f} MiB; the limit for build.toml is {MAX_BYTES // 2**20} MiB",
                hint="check that this is the right file",
            )
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"{file} does not exist",
            hint="run this in a kernel project, pass its directory, or create one with: kernel-builder init",
        ) from None


def read_project(
    data: bytes, *, file: Path, root: Path, tree: bool = True, to_build: bool = False
) -> tuple[Project, tuple[Diagnostic, ...]]:
    """Read ``data``, the content of ``file``, as :func:`load_project` does. Without ``tree``, only the text
    is judged.
    """
    tables, report = open_document(data, file)
    if data.startswith(b"\xef\xbb\xbf"):
        report.warning(
            (),
            "the file starts with a byte-order mark, which other tools reject",
            hint="save it as UTF-8 without BOM",
        )
    project, is_whole = _read(tables, report, root.resolve(), tree=tree, to_build=to_build)
    diagnostics = report.diagnostics()
    errors = sum(diagnostic.severity is Level.ERROR for diagnostic in diagnostics)
    if errors or not is_whole:
        warnings = len(diagnostics) - errors
        more = f" and {_count(warnings, 'warning')}" if warnings else ""
        raise ConfigError(f"{file} has {_count(errors, 'error')}{more}", diagnostics=diagnostics)
    return project, diagnostics


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _read(tables: TableNode, report: Report, root: Path, *, tree: bool, to_build: bool) -> tuple[Project, bool]:
    """What the tables say, as far as it can be read, and whether that is all of it."""
    top = _only_tables(tables, report)
    edition = edition_of(top, report)
    if edition.number < CURRENT_EDITION and "general" in top.items:
        _warn_of_edition(top, edition, report)
        top = upgrade(top, edition, report)
    return _Reader(top, edition.number, report, root, to_build=to_build).project(tree=tree)


def _only_tables(top: TableNode, report: Report) -> TableNode:
    """The document without entries that are no tables where tables must be; those are noticed."""
    tables = {}
    for name, node in top.items.items():
        if isinstance(node, TableNode):
            tables[name] = node
        elif name in {GENERAL.name, "kernel", *FRAMEWORKS}:
            report.error(node.path, f"must be a table, not {describe(node)}", hint=f"write: [{name}]", at_key=True)
        else:
            owner = next((table for table in (GENERAL, KERNEL) if table.find(name)), None)
            hint = (
                f"it belongs in the table [{owner.name}]" if owner else "tables: [general], a framework, [kernel.<id>]"
            )
            hint = RETIRED.get(("", name)) or (None if owner else instead_of("keys", name)) or hint
            report.error(node.path, "is outside any table", hint=hint, at_key=True)
    if "kernel" in tables:
        kernels = tables["kernel"]
        for name, node in kernels.items.items():
            if not isinstance(node, TableNode):
                report.error(
                    node.path,
                    f"must be a table, not {describe(node)}",
                    hint=f"kernel sections need a name: put {quoted(name)} in [kernel.my_kernel]"
                    if KERNEL.find(name)
                    else "write: [kernel.<id>]",
                    at_key=True,
                )
        tables["kernel"] = TableNode(
            kernels.path, {name: node for name, node in kernels.items.items() if isinstance(node, TableNode)}
        )
    return TableNode((), tables)


def _warn_of_edition(top: TableNode, edition: Edition, report: Report) -> None:
    why = f" (it has {edition.why})" if edition.why else ""
    license_hint = ""
    if "license" not in top.table("general").items:
        license_hint = " --license <identifier>"
    report.warning(
        edition.where or (("general",) if "general" in top.items else ()),
        f"the file uses edition {edition.number}{why}; the current edition is {CURRENT_EDITION}",
        hint=f"it still works; update it with: kernel-builder update-build{license_hint}",
        at_key=True,
    )


class _Own(NamedTuple):
    """The values of a section's keys that its backend alone has."""

    flags: tuple[str, ...] = ()
    architectures: tuple[Architecture, ...] | None = None
    minver: Version | None = None


class _Reader:
    """Reads a document of the current edition. ``number`` is the edition that the file was written in; ``to_build``
    that of :func:`load_project`.
    """

    def __init__(self, top: TableNode, number: int, report: Report, root: Path, *, to_build: bool) -> None:
        self._top = top
        self._number = number
        self._to_build = to_build
        self._report = report
        self._root = root
        self._tree = checks.ProjectTree(report, root)
        self._flagged: list[Flagged] = []

    def project(self, *, tree: bool) -> tuple[Project, bool]:
        """The project, and whether all of it could be read: if not, what it lacks is guessed."""
        if "general" not in self._top.items and ("general",) not in self._report.broken:
            self._report.error(("general",), "the table [general] is missing", hint="start the file with: [general]")
        self._judge_tables()
        general = self._top.table("general")
        tables = {Backend(name): table for name, table in _backend_tables(general)}
        own = general.but({}, without=("hub", *(backend.value for backend in tables)))
        optional = {"edition"} if self._number < CURRENT_EDITION else set()
        if self._number < CURRENT_EDITION and not self._to_build:
            optional.add("license")
        if "general" not in self._top.items:
            optional.update(key.name for key in GENERAL.keys)
        reader = TableReader(own, GENERAL, self._report, optional=frozenset(optional))
        name = values.name(reader, self._report)
        version = reader.uint("version")
        license_ = values.license_(reader, self._report)
        backends = values.backends(reader, self._report)
        upstream, source = (values.git_url(reader, key, self._report) for key in ("upstream", "source"))
        kernel_depends = values.kernel_depends(reader, self._report)
        python_depends = values.python_depends(reader, None, self._report)
        options = {backend: self._options(backend, table, backends) for backend, table in tables.items()}
        hub = self._hub(general)
        framework = self._framework(backends or ())
        sections = self._sections()
        self._between(backends, framework, sections, options)
        if tree and name is not None and framework is not None:
            self._tree.package(self._node_path_of_name(), name, framework)
        if tree:
            self._tree.judge()
            missing_libraries(sections, framework, self._root, self._report)
            missing_forced(self._flagged, framework, self._root, self._report)
        missing = name is None or version is None or backends is None or framework is None
        project = Project(
            root=self._root,
            edition=self._number,
            name=name or "kernel",
            version=version or 0,
            license=license_,
            backends=backends or tuple(dict.fromkeys(section.section.backend for section in sections)),
            framework=framework or Framework(kind=FrameworkKind.TORCH),
            sections=tuple(section.section for section in sections),
            upstream=upstream,
            source=source,
            hub=hub,
            kernel_depends=kernel_depends,
            python_depends=python_depends,
            backend_options=MappingProxyType(options),
        )
        return project, not missing and not self._report.has_errors

    def _binding(self, framework: Framework) -> tuple[TextEntry, ...]:
        """The sources of the framework's table, with their places."""
        path = (*self._top.table(framework.kind.value).path, "src")
        return tuple(TextEntry(source, (*path, number)) for number, source in enumerate(framework.src))

    def _node_path_of_name(self) -> tuple[str | int, ...]:
        return (*self._top.table("general").path, "name")

    def _judge_tables(self) -> None:
        """Notice tables that nobody knows, and anything but exactly one framework table."""
        known = [GENERAL.name, *FRAMEWORKS, "kernel"]
        meant = {path[0] for path in self._report.broken if path}
        for name, node in self._top.items.items():
            if name not in known:
                near = self._report.near(name, known)
                meant.add(near or name)
                shown = [f"[{known_name}]" if known_name != "kernel" else "[kernel.<id>]" for known_name in known]
                listed = f"did you mean {shown[known.index(near)]}?" if near else f"tables: {', '.join(shown)}"
                hint = instead_of("tables", name) or listed
                self._report.error(node.path, f"unknown table [{name}]", hint=hint, at_key=True)
        found = [name for name in FRAMEWORKS if name in self._top.items]
        if not found and not meant & set(FRAMEWORKS):
            self._report.error(
                (),
                "the framework table is missing",
                hint="add [torch] for a kernel with compiled code, [torch-noarch] for Python only, or [tvm-ffi]",
                at_key=True,
            )
        for name in found[1:]:
            self._report.error(
                self._top.items[name].path,
                f"only one framework table is allowed, and [{found[0]}] already exists",
                hint="remove one of the two",
                at_key=True,
            )

    def _options(self, backend: Backend, table: TableNode, backends: tuple[Backend, ...] | None) -> BackendOptions:
        schema = BACKEND_TABLES[backend]
        reader = TableReader(table, schema, self._report)
        if backends is not None and backend not in backends and table.items:
            self._report.warning(
                table.path,
                f"has no effect: '{backend.value}' is not in general.backends",
                hint="remove the table, or add the backend",
                at_key=True,
            )
        minver = reader.version("minver") if schema.find("minver") else None
        maxver = reader.version("maxver") if schema.find("maxver") else None
        values.check_range(reader, minver, maxver, self._report)
        depends: tuple[KernelDependency, ...] = ()
        if schema.find("kernel-depends"):
            depends = values.kernel_depends(reader, self._report)
        python_depends: tuple[str, ...] = ()
        if schema.find("python-depends"):
            python_depends = values.python_depends(reader, backend, self._report)
        return BackendOptions(minver=minver, maxver=maxver, kernel_depends=depends, python_depends=python_depends)

    def _hub(self, general: TableNode) -> Hub:
        node = general.get("hub")
        if node is None:
            return Hub()
        if not isinstance(node, TableNode):
            self._report.error(node.path, f"must be a table, not {describe(node)}", hint="write: [general.hub]")
            return Hub()
        reader = TableReader(node, HUB, self._report)
        return Hub(repo_id=values.repo_id(reader, self._report), branch=values.branch(reader, self._report))

    def _framework(self, backends: tuple[Backend, ...]) -> Framework | None:
        """The framework table; were there more than one, all are judged."""
        found = [self._framework_of(name, backends) for name in FRAMEWORKS if name in self._top.items]
        return found[0] if found else None

    def _framework_of(self, name: str, backends: tuple[Backend, ...]) -> Framework:
        kind = FrameworkKind(name)
        schema = FRAMEWORK_TABLES[name]
        reader = TableReader(self._top.table(name), schema, self._report)
        pyext = values.suffixes(reader, self._report)
        if kind is FrameworkKind.TORCH_NOARCH:
            return Framework(
                kind=kind,
                pyext=pyext,
                architectures=self._noarch_architectures(reader),
            )
        src, include = (
            values.paths(reader, "src", self._tree, self._report),
            values.paths(reader, "include", self._tree, self._report),
        )
        flags = values.flags(reader, "cxx-flags", None, self._report)
        self._keep_flags(reader, ("cxx-flags",), include)
        minver = maxver = None
        stable: Mapping[Backend, Version] = MappingProxyType({})
        if kind is FrameworkKind.TORCH:
            minver, maxver = reader.version("minver"), reader.version("maxver")
            values.check_range(reader, minver, maxver, self._report)
            stable = values.stable_abi(reader, backends, maxver, self._report)
        return Framework(
            kind=kind,
            src=src,
            include=include,
            cxx_flags=flags,
            pyext=pyext,
            minver=minver,
            maxver=maxver,
            stable_abi=stable,
        )

    def _noarch_architectures(self, reader: TableReader) -> Mapping[Backend, tuple[Architecture, ...]]:
        """What ``[torch-noarch]`` says of architectures, for the backends that it says something of."""
        found: dict[Backend, tuple[Architecture, ...]] = {}
        for key in TORCH_NOARCH.keys:
            if key.kind is Kind.ARCHITECTURES:
                for backend in key.only:
                    listed = values.architectures(reader, key.name, backend, self._report, compiled=False)
                    if listed:
                        found[backend] = listed
        return MappingProxyType(found)

    def _own(self, reader: TableReader, backend: Backend | None) -> _Own:
        """What a section says in keys of its backend alone. Those of other backends, misplaced, are judged too."""
        found = _Own()
        for owner in COMPILED:
            own = _Own()
            for key in owner.keys:
                if key.role is Role.FLAGS:
                    own = own._replace(flags=values.flags(reader, key.name, backend, self._report))
                elif key.role is Role.ARCHITECTURES:
                    listed = values.architectures(reader, key.name, owner, self._report, compiled=True)
                    own = own._replace(architectures=listed)
                else:
                    own = own._replace(minver=reader.version(key.name))
            if owner is backend:
                found = own
        return found

    def _sections(self) -> list[checks.Located]:
        placed = []
        for id_, node in self._top.table("kernel").items.items():
            if not isinstance(node, TableNode):
                continue
            backend = values.section_backend(node, self._report)
            reader = TableReader(node, KERNEL, self._report, backend=backend)
            src = values.paths(reader, "src", self._tree, self._report)
            if reader.node("src") is not None and not src and not self._report.has_errors:
                self._report.warning(reader.path, "lists no source files, so nothing is compiled for it", at_key=True)
            own = self._own(reader, backend)
            section = Section(
                id=id_,
                # Without a backend there is no project, yet the rest of the section is judged all the same.
                backend=backend or COMPILED[0],
                src=src,
                depends=values.depends(reader, backend, self._report),
                include=values.paths(reader, "include", self._tree, self._report),
                cxx_flags=values.flags(reader, "cxx-flags", backend, self._report),
                flags=own.flags,
                architectures=own.architectures,
                toolkit_minver=own.minver,
            )
            names = ["cxx-flags", *(key.name for key in section.backend.keys if key.role is Role.FLAGS)]
            self._keep_flags(reader, names, section.include)
            placed.append(checks.Located(section=section, known=backend is not None, reader=reader))
        return placed

    def _keep_flags(self, reader: TableReader, names: Iterable[str], include: tuple[str, ...]) -> None:
        """Keep the flags of one table, to see later whether the files that they include are there."""
        for name in names:
            if isinstance(reader.node(name), ListNode):
                self._flagged.append(Flagged(reader.texts(name) or (), include))

    def _between(
        self,
        backends: tuple[Backend, ...] | None,
        framework: Framework | None,
        sections: list[checks.Located],
        options: Mapping[Backend, BackendOptions],
    ) -> None:
        checks.shared_sources(sections, self._report)
        checks.two_releases(sections, self._report)
        known = [placed for placed in sections if placed.known]
        if backends is not None:
            checks.section_backends(known, backends, self._report)
        if framework is not None and framework.kind is FrameworkKind.TORCH_NOARCH:
            checks.no_sections(sections, self._report)
        elif backends is not None and framework is not None:
            checks.uncompilable(sections, self._binding(framework), backends, self._report)
            checks.backends_without_sections(
                known,
                tuple(b for b in backends if b in COMPILED),
                framework.src,
                (*self._top.table("general").path, "backends"),
                self._report,
            )
        for backend, option in options.items():
            if option.maxver is not None:
                checks.never_built(known, backend, option.maxver, self._report)


def _backend_tables(general: TableNode) -> list[tuple[str, TableNode]]:
    """``[general.<backend>]`` tables, for the backends that have one."""
    names = {backend.value for backend in BACKEND_TABLES}
    return [(name, node) for name, node in general.items.items() if name in names and isinstance(node, TableNode)]
