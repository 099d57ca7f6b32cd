"""Where toolchains come from: ``kernel-builder.toml``, in the project and in the user's configuration directory.

What the project says wins over what the user says, key by key; the environment wins over both:
``KERNEL_BUILDER_SOURCES`` (the order, separated by commas), ``KERNEL_BUILDER_REDISTRIB`` and
``KERNEL_BUILDER_DEBIAN_MIRROR`` (a URL or a folder), ``KERNEL_BUILDER_HOST_COMPILER``. ``KERNEL_BUILDER_CONFIG`` names
another file than the user's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from kernel_builder.config.schema import Kind, Table
from kernel_builder.config.settings import FILE_NAME, TOP, SettingsFile, settings_key
from kernel_builder.config.tables import TableReader, TextEntry
from kernel_builder.errors import ConfigError, UsageError
from kernel_builder.store.index import DEFAULT_LABEL
from kernel_builder.store.settings import expanded, names_a_server, redact
from kernel_builder.toml.nodes import ListNode, TableNode, describe, quoted
from kernel_builder.toolchain.model import HostChoice

INDEX, REDISTRIB, DEBIAN, LOCAL = DEFAULT_LABEL, "redistrib", "debian", "local"
BUILT_IN = (INDEX, DEBIAN, REDISTRIB, LOCAL)
"""The sources that need no configuration to be named."""

_HOST_COMPILERS = {choice.value: choice for choice in HostChoice}
_HOST_COMPILERS_HINT = f"host compilers are: {', '.join(_HOST_COMPILERS)}"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A URL or a folder. The text of it shows no credentials; :attr:`address` has them."""

    url: str | None = None
    path: Path | None = None

    @property
    def address(self) -> str | Path:
        """What to open."""
        return self.path if self.path is not None else self.url or ""

    def __repr__(self) -> str:
        return f"Place({self})"

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else redact(self.url or "")


@dataclass(frozen=True, kw_only=True)
class FurtherIndex:
    """A package index in addition to the one that pip is configured for."""

    name: str
    place: Place


@dataclass(frozen=True, kw_only=True)
class FurtherRepository:
    """A repository of Debian packages, such as a vendor's: one ``suite`` of it, signed by a key of ``keyring``.

    ``expires``: its index is refused behind the date until which it says that it is valid.
    """

    name: str
    place: Place
    suite: str
    component: str
    keyring: Path
    expires: bool = True


FurtherSource = FurtherIndex | FurtherRepository


@dataclass(frozen=True, kw_only=True)
class ToolchainSettings:
    """What the files and the environment say. ``files`` are those that were read.

    ``order`` names sources: ``index``, further indexes and repositories, ``debian``, ``redistrib``, ``local``;
    ``usual``: nobody asked for this order. ``redistrib`` is where NVIDIA's manifests lie (``None``: NVIDIA's server);
    ``debian_mirror`` a mirror of Debian (``None``: apt's), ``debian_suites`` where to look (empty: where the release is
    known to be), ``debian_keyring`` the keys (``None``: where Debian's package puts them); with ``debian_expires`` an
    index of it is refused behind its last day.
    ``toolkits`` are folders of toolkits on this machine besides those that are found: programs in them are run, so
    only the user names them. ``by_project`` are the sources whose place, or whose keys, the project's file names.
    ``host_compiler`` says which compiler is wanted for host code, ``requires`` what the project's tests need.
    """

    order: tuple[str, ...] = BUILT_IN
    usual: bool = True
    indexes: tuple[FurtherIndex, ...] = ()
    repositories: tuple[FurtherRepository, ...] = ()
    redistrib: Place | None = None
    debian_mirror: Place | None = None
    debian_suites: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    debian_expires: bool = True
    toolkits: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    by_project: frozenset[str] = frozenset()
    host_compiler: HostChoice = HostChoice.AUTO
    requires: tuple[str, ...] = ()

    @property
    def debian_facts(self) -> str:
        """All that decides what Debian's packages are."""
        facts = (self.debian_mirror, self.debian_suites, self.debian_keyring, self.debian_expires)
        return f"{DEBIAN} {' '.join(map(str, facts))}"


_INDEX = Table(
    name="[index]",
    model="FurtherIndex",
    summary="A package index in addition to the one that pip is configured for.",
    keys=(
        settings_key("name", Kind.TEXT, "Its name in sources and messages.", '"mine"', required=True),
        settings_key("url", Kind.TEXT, "Its URL: what pip takes as --index-url.", '"https://host/simple"'),
        settings_key("path", Kind.TEXT, "A directory of wheels, instead of a URL.", '"wheels"'),
    ),
)
_EXPIRES = settings_key(
    "check-valid-until",
    Kind.FLAG,
    "Whether an index is refused after its own expiry date, as apt does. Default: true.",
    "false",
)
_REPOSITORY = Table(
    name="[repository]",
    model="FurtherRepository",
    summary="A repository of Debian packages in addition to Debian's own.",
    keys=(
        settings_key("name", Kind.TEXT, "Its name in sources and messages.", '"amd"', required=True),
        settings_key("url", Kind.TEXT, "The URL of the directory that contains dists and pool.", '"https://host/apt"'),
        settings_key("path", Kind.TEXT, "Such a directory on this machine, instead of a URL.", '"apt"'),
        settings_key("suite", Kind.TEXT, "The suite, as in apt's sources.", '"noble"', required=True),
        settings_key("component", Kind.TEXT, "The component. Default: main.", '"main"'),
        settings_key(
            "keyring",
            Kind.TEXT,
            "A file with the keys that sign the repository, as text or binary.",
            '"keys.gpg"',
            required=True,
        ),
        _EXPIRES,
    ),
)
_REDISTRIB = Table(
    name="redistrib",
    model="ToolchainSettings",
    summary="NVIDIA's redistributable archives.",
    keys=(
        settings_key(
            "url", Kind.TEXT, "The URL of the directory that contains redistrib_*.json.", '"https://host/redist"'
        ),
        settings_key(
            "path", Kind.TEXT, "Such a directory on this machine, with the archives that these files list.", '"redist"'
        ),
    ),
)
_DEBIAN = Table(
    name="debian",
    model="ToolchainSettings",
    summary="Debian's package of a toolkit's compiler.",
    keys=(
        settings_key(
            "mirror", Kind.TEXT, "A URL or a directory. Default: the mirror that apt uses.", '"http://host/debian"'
        ),
        settings_key("suites", Kind.TEXTS, "Suites to search. Default: those known to have the release.", '["trixie"]'),
        settings_key(
            "keyring",
            Kind.TEXT,
            "The archive's keys. Default: where debian-archive-keyring puts them.",
            '"/usr/share/keyrings/debian-archive-keyring.gpg"',
        ),
        _EXPIRES,
    ),
)
_LOCAL = Table(
    name="local",
    model="ToolchainSettings",
    summary="Toolkits on this machine; only in the user's file.",
    keys=(
        settings_key(
            "toolkits",
            Kind.TEXTS,
            "Directories of toolkits, in addition to the usual places and PATH.",
            '["/opt/toolkit"]',
        ),
    ),
)
TABLES = (_INDEX, _REPOSITORY, _REDISTRIB, _DEBIAN, _LOCAL)
"""All that is read here, for the reference."""


@dataclass(frozen=True, kw_only=True)
class _Partial:
    """What one file says; ``None`` where it says nothing."""

    order: tuple[str, ...] | None = None
    indexes: tuple[FurtherIndex, ...] = ()
    repositories: tuple[FurtherRepository, ...] = ()
    redistrib: Place | None = None
    debian_mirror: Place | None = None
    debian_suites: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    debian_expires: bool | None = None
    toolkits: tuple[Path, ...] = ()
    host_compiler: HostChoice | None = None
    requires: tuple[str, ...] = ()

    @property
    def places(self) -> frozenset[str]:
        """The sources for which the file says where they are, or who vouches for them."""
        redistrib = [REDISTRIB] if self.redistrib is not None else []
        named = (self.debian_mirror is not None, self.debian_keyring is not None, self.debian_expires is False)
        further = _names((*self.indexes, *self.repositories))
        return frozenset([*further, *redistrib, *([DEBIAN] if any(named) else [])])


def _names(sources: Sequence[FurtherSource]) -> tuple[str, ...]:
    return tuple(source.name for source in sources)


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's file: ``KERNEL_BUILDER_CONFIG``, or the one in the configuration directory."""
    named = environ.get("KERNEL_BUILDER_CONFIG")
    if not named:
        return platformdirs.user_config_path("kernel-builder") / FILE_NAME
    return expanded(named, "KERNEL_BUILDER_CONFIG")


def _same_file(one: Path, other: Path) -> bool:
    """Whether the user's file is at hand under the project's name: then it is the user's."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _exists(path: Path) -> bool:
    return os.path.lexists(path)  # Path.exists raises where a folder above must not be looked into


def load_settings(
    root: Path | None, environ: Mapping[str, str], *, sources: Sequence[str] = (), host_compiler: str | None = None
) -> ToolchainSettings:
    """The settings of the project in ``root`` (``None``: outside of any) on this machine.

    ``sources`` is the order of sources, ``host_compiler`` the host compiler that counts instead of the configured one,
    if there is any.

    Raises :class:`ConfigError` with all mistakes of a file, :class:`UsageError` for a name in the environment that is
    no source's, and no host compiler's.
    """
    files = [user_file(environ)]
    if root is not None:
        files.insert(0, root / FILE_NAME)
    if environ.get("KERNEL_BUILDER_CONFIG") and not files[-1].is_file():
        wrong = "is not a regular file" if _exists(files[-1]) else "does not exist"
        raise ConfigError(f"KERNEL_BUILDER_CONFIG names {files[-1]}, which {wrong}")
    foreign = {file for file in files[:-1] if not _same_file(file, files[-1])}
    read = [(file, _read(file, environ, of_project=file in foreign)) for file in files if _exists(file)]
    by_project = frozenset(name for file, partial in read if file in foreign for name in partial.places)
    settings = ToolchainSettings(files=tuple(file for file, _ in read), by_project=by_project)
    order: tuple[str, ...] | None = None
    for _, partial in reversed(read):
        order = partial.order if partial.order is not None else order
        own = set(_names((*partial.indexes, *partial.repositories)))
        settings = replace(
            settings,
            indexes=(*partial.indexes, *(index for index in settings.indexes if index.name not in own)),
            repositories=(*partial.repositories, *(one for one in settings.repositories if one.name not in own)),
            redistrib=partial.redistrib or settings.redistrib,
            debian_mirror=partial.debian_mirror or settings.debian_mirror,
            debian_suites=partial.debian_suites or settings.debian_suites,
            debian_keyring=partial.debian_keyring or settings.debian_keyring,
            debian_expires=settings.debian_expires if partial.debian_expires is None else partial.debian_expires,
            toolkits=partial.toolkits or settings.toolkits,
            host_compiler=partial.host_compiler or settings.host_compiler,
            requires=partial.requires or settings.requires,
        )
    settings = _from_environment(settings, environ)
    if host_compiler:
        settings = replace(settings, host_compiler=HostChoice(host_compiler))
    names = (INDEX, *_names((*settings.indexes, *settings.repositories)), *BUILT_IN[1:])
    named = environ.get("KERNEL_BUILDER_SOURCES", "").replace(" ", "").split(",")
    asked = tuple(dict.fromkeys(sources or filter(None, named)))
    for name in asked:
        if name not in names:
            raise UsageError(f"unknown source {quoted(name)}", hint=f"sources are: {', '.join(names)}")
    if order is not None:
        _check_order(order, names, read)
    return replace(settings, order=asked or order or names, usual=not asked and order is None)


def _check_order(order: Sequence[str], names: Sequence[str], read: Sequence[tuple[Path, _Partial]]) -> None:
    """A project's order may name an index of the user's file, so it is judged when both are read."""
    unknown = [name for name in order if name not in names]
    if unknown:
        file = next(file for file, partial in read if partial.order is not None)
        raise ConfigError(
            f"{file}: sources: unknown source {', '.join(map(quoted, unknown))}",
            hint=f"sources are: {', '.join(names)}; an additional one needs an [[index]] or a [[repository]]",
        )


def _from_environment(settings: ToolchainSettings, environ: Mapping[str, str]) -> ToolchainSettings:
    redistrib, mirror = environ.get("KERNEL_BUILDER_REDISTRIB"), environ.get("KERNEL_BUILDER_DEBIAN_MIRROR")
    if redistrib:
        place = _place_in_environment(redistrib, "KERNEL_BUILDER_REDISTRIB")
        settings = replace(settings, redistrib=place, by_project=settings.by_project - {REDISTRIB})
    if mirror:
        settings = replace(settings, debian_mirror=_place_in_environment(mirror, "KERNEL_BUILDER_DEBIAN_MIRROR"))
    host = environ.get("KERNEL_BUILDER_HOST_COMPILER", "").strip()
    if host:
        if host not in _HOST_COMPILERS:
            raise UsageError(
                f"KERNEL_BUILDER_HOST_COMPILER is {quoted(host)}, which is not a host compiler",
                hint=_HOST_COMPILERS_HINT,
            )
        settings = replace(settings, host_compiler=_HOST_COMPILERS[host])
    return settings


def _place_in_environment(text: str, variable: str) -> Place:
    if "://" not in text:
        return Place(path=expanded(text, variable).absolute())
    if not text.startswith("file://") and not names_a_server(text):
        raise UsageError(
            f"{variable} is {quoted(redact(text))}, which is not an http or https URL",
            hint="write https://host/path, or the path of a directory",
        )
    return Place(url=text)


def _read(file: Path, environ: Mapping[str, str], *, of_project: bool) -> _Partial:
    """What one file says about toolchains. Mistakes in its other parts are told together with those in these."""
    opened = SettingsFile.open(file)
    partial = _Reader(opened).read()
    if of_project and partial.toolkits:
        # Its compiler would be asked for its version by commands that only look at the project.
        said = (
            "a project cannot choose programs on this machine, because people who only check it have not agreed to "
            "run them"
        )
        hint = f"move it to your own file, {user_file(environ)}"
        opened.report.error(("local", "toolkits"), said, hint=hint, at_key=True)
    accepted = opened.acceptances()
    if accepted and not of_project:
        said = "only the kernel-builder.toml of a project accepts what a check finds"
        opened.report.error(("check",), said, hint="move it to the file next to build.toml", at_key=True)
    requires = opened.test_requires()
    if requires and not of_project:
        said = "only the kernel-builder.toml of a project says what its tests need"
        opened.report.error(("test",), said, hint="move it to the file next to build.toml", at_key=True)
    opened.refuse_mistakes()
    return replace(partial, requires=requires)


class _Reader:
    """Reads one file; paths in it are relative to its directory."""

    def __init__(self, file: SettingsFile) -> None:
        self._top = file.top
        self._report = file.report
        self._folder = file.path.parent
        self._table = file.table
        self._named: set[str] = set()

    def read(self) -> _Partial:
        top = TableReader(self._top, TOP, self._report)
        order = top.texts("sources")
        debian = TableReader(self._table("debian"), _DEBIAN, self._report)
        local = TableReader(self._table("local"), _LOCAL, self._report)
        mirror, keyring = debian.text("mirror"), debian.text("keyring")
        return _Partial(
            order=None if order is None else self._unique(order),
            indexes=tuple(self._indexes()),
            repositories=tuple(self._repositories()),
            redistrib=self._redistrib(),
            debian_mirror=None if mirror is None else self._url_or_folder(mirror),
            debian_suites=tuple(entry.text for entry in debian.texts("suites") or ()),
            debian_keyring=None if keyring is None else self._path(keyring),
            debian_expires=debian.flag(_EXPIRES.name),
            toolkits=tuple(self._path(entry) for entry in local.texts("toolkits") or ()),
            host_compiler=self._host_compiler(top.text("host-compiler")),
        )

    def _host_compiler(self, entry: TextEntry | None) -> HostChoice | None:
        if entry is not None and entry.text not in _HOST_COMPILERS:
            self._report.error(entry.path, f"{quoted(entry.text)} is not a host compiler", hint=_HOST_COMPILERS_HINT)
        return _HOST_COMPILERS.get(entry.text) if entry is not None else None

    def _redistrib(self) -> Place | None:
        reader = TableReader(self._table("redistrib"), _REDISTRIB, self._report)
        if not isinstance(self._top.get("redistrib"), TableNode):
            return None
        return self._place(reader, '"https://host/redist"; for NVIDIA\'s server, list "redistrib" in sources instead')

    def _unique(self, order: Sequence[TextEntry]) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        node = self._top.get("sources")
        if node is not None and isinstance(node, ListNode) and not node.items:
            self._report.error(node.path, "lists no source", hint="list some, or remove it for the default order")
        for entry in order:
            if entry.text in seen:
                self._report.error(entry.path, f"{quoted(entry.text)} is listed twice", hint="remove one of the two")
            seen[entry.text] = None
        return tuple(seen)

    def _indexes(self) -> Iterator[FurtherIndex]:
        hint = 'write: [[index]] with name = "mine" and url = "https://host/simple" or path = "wheels"'
        for item in self._tables("index", hint):
            reader = TableReader(item, _INDEX, self._report)
            name, place = self._name(reader), self._place(reader, '"https://host/simple"')
            if name is not None and place is not None:
                yield FurtherIndex(name=name, place=place)

    def _repositories(self) -> Iterator[FurtherRepository]:
        hint = 'write: [[repository]] with name = "amd", url or path, suite and keyring'
        for item in self._tables("repository", hint):
            reader = TableReader(item, _REPOSITORY, self._report)
            name, place = self._name(reader), self._place(reader, '"https://host/apt"')
            suite, component, keyring = reader.text("suite"), reader.text("component"), reader.text("keyring")
            expires = reader.flag(_EXPIRES.name)
            if name is not None and place is not None and suite is not None and keyring is not None:
                yield FurtherRepository(
                    name=name,
                    place=place,
                    suite=suite.text,
                    component=component.text if component is not None else "main",
                    keyring=self._path(keyring),
                    expires=expires is not False,
                )

    def _tables(self, key: str, hint: str) -> Iterator[TableNode]:
        """The tables of a list of tables. Anything else of that name is noticed."""
        node = self._top.get(key)
        if node is None:
            return
        if not isinstance(node, ListNode) or any(not isinstance(item, TableNode) for item in node.items):
            what = "a list of other things" if isinstance(node, ListNode) else describe(node)
            self._report.error(node.path, f"must be a list of tables, not {what}", hint=hint, at_key=True)
            return
        yield from (item for item in node.items if isinstance(item, TableNode))

    def _name(self, reader: TableReader) -> str | None:
        """The name of a further source; one that cannot be taken is noticed."""
        name = reader.text("name")
        if name is None:
            return None
        if name.text in BUILT_IN or _NAME.fullmatch(name.text) is None:
            taken = " is the name of a built-in source" if name.text in BUILT_IN else " is not a valid name"
            hint = "use lower-case letters, digits, dots, dashes and underscores"
            self._report.error(name.path, f"{quoted(name.text)}{taken}", hint=hint)
            return None
        if name.text in self._named:
            said = f"{quoted(name.text)} appears twice"
            self._report.error(name.path, said, hint="give each source its own name")
            return None
        self._named.add(name.text)
        return name.text

    def _place(self, reader: TableReader, example: str) -> Place | None:
        url, path = reader.text("url"), reader.text("path")
        if url is not None and path is not None:
            self._report.error(path.path, "cannot be combined with 'url'", hint="keep one of the two", at_key=True)
            return None
        if path is not None:
            return Place(path=self._path(path))
        if url is not None:
            return self._url(url)
        if reader.node("url") is None and reader.node("path") is None:
            self._report.error(reader.path, "has neither 'url' nor 'path'", hint=f"add: url = {example}")
        return None

    def _url(self, entry: TextEntry, otherwise: str = "set 'path' to a directory") -> Place | None:
        if not names_a_server(entry.text):
            self._report.error(
                entry.path,
                f"{quoted(redact(entry.text))} is not an http or https URL",
                hint=f"write https://host/path, or {otherwise}",
            )
            return None
        return Place(url=entry.text)

    def _url_or_folder(self, entry: TextEntry) -> Place | None:
        return self._url(entry, "the path of a directory") if "://" in entry.text else Place(path=self._path(entry))

    def _path(self, entry: TextEntry) -> Path:
        path = Path(entry.text)
        try:
            path = path.expanduser()
        except RuntimeError:
            self._report.error(entry.path, f"{quoted(entry.text)}: no such user", hint="write the full path")
        return path if path.is_absolute() else self._folder.absolute() / path
