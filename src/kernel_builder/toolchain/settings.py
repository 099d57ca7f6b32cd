"""Where toolchains come from: ``kernel-builder.toml``, in the project and in the user's configuration directory.

What the project says wins over what the user says, key by key; the environment wins over both:
``KERNEL_BUILDER_SOURCES`` (the order, separated by commas), ``KERNEL_BUILDER_REDISTRIB`` and
``KERNEL_BUILDER_DEBIAN_MIRROR`` (a URL or a folder). ``KERNEL_BUILDER_CONFIG`` names another file than the user's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from kernel_builder.config.nodes import ListNode, TableNode, describe, quoted, table_of
from kernel_builder.config.reader import decode
from kernel_builder.config.report import Report
from kernel_builder.config.scan import Source
from kernel_builder.config.schema import Key, Kind, Table
from kernel_builder.config.tables import Entry, TableReader
from kernel_builder.errors import ConfigError, Severity, UsageError
from kernel_builder.store.index import DEFAULT_LABEL
from kernel_builder.store.settings import redact

FILE_NAME = "kernel-builder.toml"
MAX_BYTES = 1 << 20

INDEX, REDISTRIB, DEBIAN, LOCAL = DEFAULT_LABEL, "redistrib", "debian", "local"
BUILT_IN = (INDEX, REDISTRIB, DEBIAN, LOCAL)
"""The sources that need no configuration to be named."""

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
    """An index of wheels besides the one that pip is configured for."""

    name: str
    place: Place


@dataclass(frozen=True, kw_only=True)
class ToolchainSettings:
    """What the files and the environment say. ``files`` are those that were read.

    ``order`` names sources: ``index``, further indexes, ``redistrib`` (only where it is configured or named),
    ``debian``, ``local``. ``redistrib`` is where NVIDIA's manifests lie (``None``: NVIDIA's server);
    ``debian_mirror`` a mirror of Debian (``None``: apt's), ``debian_suites`` where to look (empty: where the release is
    known to be), ``debian_keyring`` the keys (``None``: where Debian's package puts them).
    ``toolkits`` are folders of CUDA toolkits on this machine besides those that are found.
    """

    order: tuple[str, ...] = (INDEX, DEBIAN, LOCAL)
    indexes: tuple[FurtherIndex, ...] = ()
    redistrib: Place | None = None
    debian_mirror: Place | None = None
    debian_suites: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    toolkits: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()


def _key(name: str, kind: Kind, summary: str, *, required: bool = False) -> Key:
    return Key(name=name, kind=kind, summary=summary, field=name.replace("-", "_"), required=required)


_TOP = Table(
    name="top level",
    model="ToolchainSettings",
    summary="Where toolchains come from.",
    keys=(
        _key("sources", Kind.TEXTS, "The order in which sources are tried; those that are not named are not used."),
        _key("index", Kind.TEXTS, "Further indexes of wheels, one [[index]] each."),
        _key("redistrib", Kind.TEXT, "A table: NVIDIA's redistributable archives."),
        _key("debian", Kind.TEXT, "A table: Debian's package of the CUDA compiler."),
        _key("local", Kind.TEXT, "A table: what this machine has."),
    ),
)
_INDEX = Table(
    name="[index]",
    model="FurtherIndex",
    summary="An index of wheels besides the one that pip is configured for.",
    keys=(
        _key("name", Kind.TEXT, "What sources and messages call it.", required=True),
        _key("url", Kind.TEXT, "Its address: what pip takes as --index-url."),
        _key("path", Kind.TEXT, "A folder of wheels, instead of an address."),
    ),
)
_REDISTRIB = Table(
    name="redistrib",
    model="ToolchainSettings",
    summary="NVIDIA's redistributable archives.",
    keys=(
        _key("url", Kind.TEXT, "Where redistrib_*.json lie."),
        _key("path", Kind.TEXT, "A folder that holds them, and the archives that they name."),
    ),
)
_DEBIAN = Table(
    name="debian",
    model="ToolchainSettings",
    summary="Debian's package of the CUDA compiler.",
    keys=(
        _key("mirror", Kind.TEXT, "A URL or a folder. Default: the mirror that apt uses."),
        _key("suites", Kind.TEXTS, "Suites to look in. Default: those known to have a CUDA release."),
        _key("keyring", Kind.TEXT, "The archive's keys. Default: where debian-archive-keyring puts them."),
    ),
)
_LOCAL = Table(
    name="local",
    model="ToolchainSettings",
    summary="What this machine has.",
    keys=(_key("toolkits", Kind.TEXTS, "Folders of CUDA toolkits, besides CUDA_HOME, /usr/local/cuda* and PATH."),),
)


@dataclass(frozen=True, kw_only=True)
class _Partial:
    """What one file says; ``None`` where it says nothing."""

    order: tuple[str, ...] | None = None
    indexes: tuple[FurtherIndex, ...] = ()
    redistrib: Place | None = None
    debian_mirror: Place | None = None
    debian_suites: tuple[str, ...] = ()
    debian_keyring: Path | None = None
    toolkits: tuple[Path, ...] = ()


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's file: ``KERNEL_BUILDER_CONFIG``, or the one in the configuration directory."""
    named = environ.get("KERNEL_BUILDER_CONFIG")
    return Path(named).expanduser() if named else platformdirs.user_config_path("kernel-builder") / FILE_NAME


def load_settings(
    root: Path | None, environ: Mapping[str, str] | None = None, *, sources: Sequence[str] = ()
) -> ToolchainSettings:
    """The settings of the project in ``root`` (``None``: outside of any) on this machine. ``sources`` is the order that
    an option gives.

    Raises :class:`ConfigError` with all mistakes of a file, :class:`UsageError` for a name in ``sources`` or in the
    environment that is no source's.
    """
    environ = os.environ if environ is None else environ
    files = [user_file(environ)]
    if root is not None:
        files.insert(0, root / FILE_NAME)
    read = [(file, _read(file)) for file in files if file.is_file()]
    if environ.get("KERNEL_BUILDER_CONFIG") and not files[-1].is_file():
        raise ConfigError(f"KERNEL_BUILDER_CONFIG names {files[-1]}, which is not there")
    settings = ToolchainSettings(files=tuple(file for file, _ in read))
    order: tuple[str, ...] | None = None
    for _, partial in reversed(read):
        order = partial.order if partial.order is not None else order
        own = {index.name for index in partial.indexes}
        settings = replace(
            settings,
            indexes=(*partial.indexes, *(index for index in settings.indexes if index.name not in own)),
            redistrib=partial.redistrib or settings.redistrib,
            debian_mirror=partial.debian_mirror or settings.debian_mirror,
            debian_suites=partial.debian_suites or settings.debian_suites,
            debian_keyring=partial.debian_keyring or settings.debian_keyring,
            toolkits=partial.toolkits or settings.toolkits,
        )
    settings = _from_environment(settings, environ)
    names = (INDEX, *(index.name for index in settings.indexes), *BUILT_IN[1:])
    # NVIDIA's own server is asked only where somebody says so.
    usual = names if settings.redistrib is not None else tuple(name for name in names if name != REDISTRIB)
    asked = tuple(sources) or tuple(filter(None, environ.get("KERNEL_BUILDER_SOURCES", "").replace(" ", "").split(",")))
    for name in asked:
        if name not in names:
            raise UsageError(f"there is no source {quoted(name)}", hint=f"sources are: {', '.join(names)}")
    if order is not None:
        _check_order(order, names, read)
    return replace(settings, order=asked or order or usual)


def _check_order(order: Sequence[str], names: Sequence[str], read: Sequence[tuple[Path, _Partial]]) -> None:
    """A project's order may name an index of the user's file, so it is judged when both are read."""
    unknown = [name for name in order if name not in names]
    if unknown:
        file = next(file for file, partial in read if partial.order is not None)
        raise ConfigError(
            f"{file}: sources: there is no source {', '.join(map(quoted, unknown))}",
            hint=f"sources are: {', '.join(names)}; a further index needs an [[index]] with name and url",
        )


def _from_environment(settings: ToolchainSettings, environ: Mapping[str, str]) -> ToolchainSettings:
    redistrib, mirror = environ.get("KERNEL_BUILDER_REDISTRIB"), environ.get("KERNEL_BUILDER_DEBIAN_MIRROR")
    if redistrib:
        settings = replace(settings, redistrib=_place_in_environment(redistrib))
    if mirror:
        settings = replace(settings, debian_mirror=_place_in_environment(mirror))
    return settings


def _place_in_environment(text: str) -> Place:
    return Place(url=text) if "://" in text else Place(path=Path(text).expanduser().absolute())


def _read(file: Path) -> _Partial:
    data = file.read_bytes()
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file} has more than {MAX_BYTES >> 20} MiB", hint="is it another file under that name?")
    text, problems = decode(data)
    source = Source(text)
    report = Report(source, file)
    for problem in problems:
        report.error((), problem.message, hint=problem.hint, offset=problem.offset)
    table, mistakes = source.parse()
    for mistake in mistakes:
        report.error(mistake.path, mistake.message, hint=mistake.hint, offset=mistake.offset)
        report.broken.add(mistake.path)
    partial = _Reader(table_of(table), report, file.parent).read()
    diagnostics = report.diagnostics()
    errors = sum(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
    if errors:
        raise ConfigError(f"{file} has {errors} mistake{'s' if errors > 1 else ''}", diagnostics=diagnostics)
    return partial


class _Reader:
    """Reads one file; paths in it are relative to ``folder``."""

    def __init__(self, top: TableNode, report: Report, folder: Path) -> None:
        self._top = top
        self._report = report
        self._folder = folder

    def read(self) -> _Partial:
        top = TableReader(self._top, _TOP, self._report)
        order = top.texts("sources")
        debian = TableReader(self._table("debian"), _DEBIAN, self._report)
        local = TableReader(self._table("local"), _LOCAL, self._report)
        mirror, keyring = debian.text("mirror"), debian.text("keyring")
        return _Partial(
            order=None if order is None else self._unique(order),
            indexes=tuple(self._indexes()),
            redistrib=self._place(TableReader(self._table("redistrib"), _REDISTRIB, self._report)),
            debian_mirror=None if mirror is None else self._url_or_folder(mirror),
            debian_suites=tuple(entry.text for entry in debian.texts("suites") or ()),
            debian_keyring=None if keyring is None else self._path(keyring),
            toolkits=tuple(self._path(entry) for entry in local.texts("toolkits") or ()),
        )

    def _table(self, name: str) -> TableNode:
        node = self._top.get(name)
        if node is not None and not isinstance(node, TableNode):
            self._report.error(
                node.path, f"must be a table, not {describe(node)}", hint=f"write: [{name}]", at_key=True
            )
        return self._top.table(name)

    def _unique(self, order: Sequence[Entry]) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        for entry in order:
            if entry.text in seen:
                self._report.error(entry.path, f"{quoted(entry.text)} is listed twice", hint="remove one of the two")
            seen[entry.text] = None
        return tuple(seen)

    def _indexes(self) -> Iterator[FurtherIndex]:
        node = self._top.get("index")
        if node is None:
            return
        if not isinstance(node, ListNode) or any(not isinstance(item, TableNode) for item in node.items):
            hint = 'write: [[index]] with name = "mine" and url = "https://host/simple" or path = "wheels"'
            what = "a list of other things" if isinstance(node, ListNode) else describe(node)
            self._report.error(node.path, f"must be a list of tables, not {what}", hint=hint, at_key=True)
            return
        seen: set[str] = set()
        for item in node.items:
            if not isinstance(item, TableNode):
                continue
            reader = TableReader(item, _INDEX, self._report)
            name = reader.text("name")
            place = self._place(reader, required=True)
            if name is None or place is None:
                continue
            if name.text in BUILT_IN or _NAME.fullmatch(name.text) is None:
                taken = " is the name of a source that is always there" if name.text in BUILT_IN else " is no name"
                self._report.error(
                    name.path,
                    f"{quoted(name.text)}{taken}",
                    hint="names are made of lower-case letters, digits, dots, dashes and underscores",
                )
            elif name.text in seen:
                self._report.error(
                    name.path, f"{quoted(name.text)} is given twice", hint="give each index its own name"
                )
            else:
                seen.add(name.text)
                yield FurtherIndex(name=name.text, place=place)

    def _place(self, reader: TableReader, *, required: bool = False) -> Place | None:
        url, path = reader.text("url"), reader.text("path")
        if url is not None and path is not None:
            self._report.error(path.path, "is given beside 'url'", hint="keep one of the two", at_key=True)
            return None
        if path is not None:
            return Place(path=self._path(path))
        if url is not None:
            return self._url(url)
        if required and reader.node("url") is None and reader.node("path") is None:
            self._report.error(reader.path, "has neither 'url' nor 'path'", hint='add: url = "https://host/simple"')
        return None

    def _url(self, entry: Entry) -> Place | None:
        try:
            parts = urlsplit(entry.text)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:
            self._report.error(
                entry.path,
                f"{quoted(redact(entry.text))} is no http or https address",
                hint="write https://host/path, or name a folder with 'path'",
            )
            return None
        return Place(url=entry.text)

    def _url_or_folder(self, entry: Entry) -> Place | None:
        return self._url(entry) if "://" in entry.text else Place(path=self._path(entry))

    def _path(self, entry: Entry) -> Path:
        path = Path(entry.text).expanduser()
        return path if path.is_absolute() else self._folder.absolute() / path
