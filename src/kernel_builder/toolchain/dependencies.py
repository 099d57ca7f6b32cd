"""C++ libraries that a kernel section may depend on (``depends``): their headers, from whichever place has them.

Reference: interoperability contract 1.6. All of them are headers alone. A release is pinned by a digest over its header
files (``data/dependencies.toml``), so it does not matter who delivers it: a wheel of the package index, an archive, a
git repository, a mirror of either. The store's key follows from that digest, and what is in the store is never asked
for again. A directory that the user names (``CUTLASS_SRC_DIR``) comes before all of them and must be of the very
version; it is copied into the store, so that a build never reads files that may change under it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from packaging.specifiers import SpecifierSet

from kernel_builder.errors import IntegrityError, KernelBuilderError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.git import GitError, GitMissingError, GitTooSlowError, run_git
from kernel_builder.store.archive import unpack
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.cache import Store, StoreKey, require_space
from kernel_builder.store.index import Index, IndexFile, choose_wheel
from kernel_builder.store.offline import refused_offline
from kernel_builder.store.progress import Fetch
from kernel_builder.store.settings import expanded, redact
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.model import LibraryHeaders
from kernel_builder.toolchain.wheels import wheel_artefact

_SPACE = 64 * 2**20
_LARGEST = 2**30  # bytes of a whole source tree
_ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".tar.zst", ".zip")
_GIT_SECONDS = 600
_VERSION_LINES = re.compile(r"^\s*#\s*define\s+\w+_(MAJOR|MINOR|PATCH)\s+([0-9]+)\s*$", re.MULTILINE)
_CMAKE_VERSION = re.compile(r"^\s*project\(\s*\w+\s+VERSION\s+([0-9.]+)", re.MULTILINE | re.IGNORECASE)

OnBytes = Callable[[int], None]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Library:
    """Where the releases of one library come from.

    ``variable`` names the environment variable for an unpacked source tree, ``mirror`` the one for another address
    than ``archive`` (in which ``{version}`` is filled in). ``project`` is the library's name on the package index,
    ``strip`` the wheel's folder that corresponds to the source tree; both are empty where there is no such wheel.
    ``include`` are its include directories, ``version_header`` the file that says which version it is, empty where none
    does; both are relative to the source tree.
    """

    name: str
    label: str
    variable: str
    mirror: str
    archive: str
    include: tuple[str, ...]
    version_header: str = ""
    project: str = ""
    strip: str = ""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One value of ``depends``. ``headers`` is the digest of :func:`headers_digest`, ``commit`` that of its git tag.

    ``wheel`` tells whether the package index has a wheel of it. ``toolkit`` is the release of the backend's toolkit
    that it goes with, empty for any; ``also`` are those that go with others.
    """

    name: str
    library: Library
    version: str
    commit: str = ""
    headers: str = ""
    wheel: bool = False
    toolkit: str = ""
    also: tuple[Release, ...] = ()

    @property
    def refusal(self) -> str:
        """Why it is not fetched; empty when it is. A directory that the user names may have it."""
        return "" if self.headers else f"no digest is known to verify the files of {self.label}"

    @property
    def label(self) -> str:
        """For people: ``CUTLASS 3.8.0``."""
        return f"{self.library.label} {self.version}".strip()


@dataclass(frozen=True, kw_only=True)
class ResolvedLibrary:
    """What a dependency is provided from. ``local`` is the user's own directory, ``None`` for the published release.

    ``digest`` is over the header files that it will have.
    """

    release: Release
    key: StoreKey
    headers: LibraryHeaders
    digest: str
    local: Path | None = None

    @property
    def artefacts(self) -> tuple[Artefact, ...]:
        """What it is made from, the same whichever place delivers it: the library's name, version and digest."""
        return (
            Artefact(
                name=self.release.library.name,
                version=self.release.version,
                filename=f"{self.release.library.name}-{self.release.version}",
                kind=ArtefactKind.TREE,
                sha256=self.digest,
                source="release" if self.local is None else "local",
            ),
        )


@cache
def releases() -> Mapping[str, Release]:
    """The releases of all values of ``depends`` but ``torch``, which is provided with every toolchain."""
    data = tomllib.loads(files("kernel_builder.data").joinpath("dependencies.toml").read_text(encoding="utf-8"))
    libraries = {
        name: Library(
            name=name,
            **{
                **{key.replace("-", "_"): value for key, value in table.items() if key != "provides"},
                "include": tuple(table["include"]),
            },
        )
        for name, table in data["library"].items()
    }
    return {name: _release(name, libraries[table.pop("library")], table) for name, table in data["release"].items()}


def _release(name: str, library: Library, table: dict[str, Any]) -> Release:
    also = tuple(_release(name, library, other) for other in table.pop("also", []))
    return Release(name=name, library=library, also=also, **table)


def headers_digest(root: Path, include: Iterable[str]) -> str:
    """A digest over paths and contents of all files below the directories ``include`` of ``root``.

    Each file counts as ``<SHA-256 of its contents>  <path>``, one a line, sorted by path: what ``sha256sum`` prints. So
    the digest of a release can be checked by anyone, with ``find include tools/util/include -type f | LC_ALL=C sort |
    xargs sha256sum | sha256sum``.
    """
    lines: list[tuple[str, str]] = []
    for folder in include:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                lines.append((path.relative_to(root).as_posix(), digest))
    text = "".join(f"{digest}  {path}\n" for path, digest in sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()


class Libraries:
    """Provides the dependencies of sections.

    ``transport`` fetches archives; ``None`` means that nothing may be fetched. ``environ`` holds the variables that
    name directories and mirrors, ``table`` the releases that are known (default: :func:`releases`).
    """

    def __init__(
        self,
        store: Store,
        index: Index,
        reporter: Reporter,
        transport: Transport | None,
        environ: Mapping[str, str],
        table: Mapping[str, Release] | None = None,
    ) -> None:
        self._table = releases() if table is None else table
        self._store = store
        self._index = index
        self._reporter = reporter
        self._transport = transport
        self._environ = environ
        self._resolved: dict[Release, ResolvedLibrary] = {}

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire for archives (wheels are counted by the index)."""
        return self._transport.received if self._transport else 0

    def _release(self, name: str, toolkit: str) -> Release:
        """The release of ``name`` that goes with the toolkit of that version (empty: without one)."""
        newest = self._table[name]
        known = (newest, *newest.also)
        fitting = [release for release in known if release.toolkit in {"", toolkit}]
        if not fitting:
            others = " and ".join(release.toolkit for release in known)
            raise ToolchainError(
                f"{name} cannot be provided: its releases go with {others}, not with {toolkit or 'no toolkit'}",
                hint=f"{newest.library.variable} does not help here; choose other variants: kernel-builder"
                " list-variants --set all lists them",
            )
        return fitting[0]

    def resolve(self, name: str, toolkit: str = "") -> ResolvedLibrary:
        """What ``name`` (``cutlass_3_8``) is with the toolkit of that version, with the paths that it will have.
        Nothing is fetched.

        Raises :class:`ToolchainError` for a dependency that cannot be provided, and when the directory that the user
        names for it is not of its version.
        """
        release = self._release(name, toolkit)
        if release not in self._resolved:
            self._resolved[release] = self._resolve(name, release)
        return self._resolved[release]

    def _resolve(self, name: str, release: Release) -> ResolvedLibrary:
        local = self._local(release)
        digest = release.headers
        if local is None and release.refusal:
            raise ToolchainError(
                f"{name} cannot be provided: {release.refusal}",
                hint=f"get it from {release.library.archive.replace('{version}', release.version)}, unpack it, and set"
                f" {release.library.variable} to the directory",
            )
        if local is not None:
            digest = headers_digest(local, release.library.include)
            if release.headers and digest != release.headers:
                self._reporter.emit(
                    Notice(
                        message=f"{local} differs from the release {release.label}; the kernel is built with these"
                        f" files, because {release.library.variable} points to them",
                        warning=True,
                    )
                )
        key = StoreKey.of(f"{release.library.name}-{release.version}", headers=digest)
        entry = self._store.path(key)
        return ResolvedLibrary(
            release=release,
            key=key,
            headers=LibraryHeaders(
                name=name,
                library=release.library.name,
                version=release.version,
                include=tuple(entry / folder for folder in release.library.include),
            ),
            digest=digest,
            local=local,
        )

    def provide(self, resolved: ResolvedLibrary) -> None:
        """Bring the headers into the store, if they are not there.

        Raises :class:`NetworkError` or :class:`ToolchainError` that names every way to get them when no place has
        them, :class:`IntegrityError` when what came is not the release, :class:`MachineError`.
        """

        def build(into: Path) -> Sequence[Artefact]:
            require_space(into.parent, _SPACE)
            sources = self._copy(resolved, into) if resolved.local else self._fetch(resolved.release, into)
            found = headers_digest(into, resolved.release.library.include)
            if found != resolved.digest:
                raise IntegrityError(
                    f"the headers of {resolved.release.label} from {sources[0].source} do not match the release:"
                    f" got digest {found}, expected {resolved.digest}",
                    hint="an index, mirror or proxy serves altered files; use another one",
                )
            return sources

        self._store.ensure(resolved.key, build, self._index.check)

    def _local(self, release: Release) -> Path | None:
        """The user's directory for ``release``: the one of its version, of those that the variable lists."""
        library = release.library
        listed = self._environ.get(library.variable, "").split(os.pathsep)
        named = [expanded(part, library.variable) for part in listed if part]
        found: list[str] = []
        for folder in named:
            version = source_version(folder, library)
            if version == release.version or (version == "" and not library.version_header):
                return folder.absolute()
            found.append(f"{folder} is {library.label} {version}" if version else f"{folder} is not {library.label}")
        if not named:
            return None
        raise ToolchainError(
            f"{release.name} needs {release.label}, but {library.variable} has something else: {'; '.join(found)}",
            hint=f"point {library.variable} to {release.label} (several directories may be listed, separated by"
            f" '{os.pathsep}'), or unset it to fetch the release",
        )

    def _copy(self, resolved: ResolvedLibrary, into: Path) -> Sequence[Artefact]:
        assert resolved.local is not None  # noqa: S101  (the caller asked)
        for folder in resolved.release.library.include:
            source = resolved.local / folder
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    target = into / folder / path.relative_to(source)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
        return resolved.artefacts

    def require(self, resolved: ResolvedLibrary) -> None:
        """Ask whether some place has the headers, unless they are in the store: before anything else is fetched.

        Raises what :meth:`provide` raises where none has.
        """
        if resolved.local is None and not self._store.has(resolved.key):
            release = resolved.release
            places: list[Callable[[], object]] = [lambda: self._wheel_of(release)] if release.wheel else []
            self._first(release, [*places, lambda: self._ask_address(release)], lambda: None)

    def _fetch(self, release: Release, into: Path) -> Sequence[Artefact]:
        """Bring it from the first place that has it."""

        def clear() -> None:
            for folder in into.iterdir():
                shutil.rmtree(folder)

        places: list[Callable[[], Sequence[Artefact]]] = [lambda: self._from_address(release, into)]
        if release.wheel:
            places.insert(0, lambda: self._from_wheel(release, into))
        return self._first(release, places, clear)

    def _first(self, release: Release, places: Sequence[Callable[[], _T]], after_failure: Callable[[], None]) -> _T:
        """Try every place in turn; only an integrity error ends it at once, for it is no reason to look elsewhere."""
        failures: list[str] = []
        networks = 0
        for place in places:
            try:
                return place()
            except IntegrityError:
                raise
            except (NetworkError, ToolchainError) as error:
                networks += isinstance(error, NetworkError)
                failures.append(error.message)
                after_failure()
        kind: type[KernelBuilderError] = NetworkError if networks else ToolchainError
        raise kind(
            f"{release.name} ({release.label}) is not available: {'; '.join(failures)}", hint=self._remedies(release)
        )

    def _remedies(self, release: Release) -> str:
        library = release.library
        index = f"an index that has {library.project} {release.version}; " if release.wheel else ""
        return (
            f"any of these fixes it: {index}a network that reaches {urlsplit(library.archive).hostname};"
            f" {library.mirror} = the URL of a copy (an archive, with {{version}} for the version, or git+URL of a"
            f" repository with its tags); {library.variable} = a directory with {release.label} unpacked"
        )

    def _wheel_of(self, release: Release) -> IndexFile:
        library = release.library
        return choose_wheel(
            self._index.files(library.project),
            project=library.project,
            allowed=SpecifierSet(f"=={release.version}.*"),
            machine="any",
        ).file

    def _from_wheel(self, release: Release, into: Path) -> Sequence[Artefact]:
        library = release.library
        file = self._wheel_of(release)
        progress = Fetch(release.label, self._reporter)
        scratch = into / ".scratch"
        scratch.mkdir()
        wheel = self._index.open(file, scratch, progress.add)
        members = wheel.select([f"{library.strip}{folder}/**" for folder in library.include])
        progress.expect(sum(member.compressed for member in members))
        wheel.extract(members, into, lambda name: name.removeprefix(library.strip))
        shutil.rmtree(scratch)
        progress.finish()
        return (wheel_artefact(file, wheel, self._index.label),)

    def _address_of(self, release: Release) -> str:
        library = release.library
        address = self._environ.get(library.mirror, "").strip() or library.archive
        return address.replace("{version}", release.version)

    def _ask_address(self, release: Release) -> None:
        """Raise :class:`NetworkError` or :class:`ToolchainError` where nothing is at the address of the sources."""
        address = self._address_of(release)
        if address.startswith("git+"):
            address = address.removeprefix("git+")
            self._refuse_network(address)
            tag = f"refs/tags/v{release.version}"
            _git("ls-remote", "--exit-code", "--", address, tag, address=address, environ=self._environ)
        elif urlsplit(address).scheme in {"http", "https"}:
            if self._transport is None:
                raise NetworkError(f"{redact(address)} needs the network")
            self._transport.range_size(address)
        else:
            path = _local_file(address)
            if not path.is_file():
                raise NetworkError(f"cannot read {path}: it is not a file")

    def _from_address(self, release: Release, into: Path) -> Sequence[Artefact]:
        library = release.library
        address = self._address_of(release)
        progress = Fetch(release.label, self._reporter)
        scratch = into / ".scratch"
        scratch.mkdir()
        archive = scratch / "archive"
        if address.startswith("git+"):
            self._from_git(address.removeprefix("git+"), release, archive)
        elif urlsplit(address).scheme in {"http", "https"}:
            if self._transport is None:
                raise NetworkError(f"{redact(address)} needs the network")
            self._transport.download(address, archive, on_bytes=progress.add)
        else:
            _copy_file(address, archive)
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = archive.stat().st_size
        wanted = tuple(f"{folder}/" for folder in library.include)

        def select(name: str) -> str | None:
            path = name.partition("/")[2]  # below the folder that holds everything
            return path if path.startswith(wanted) else None

        suffix = next((suffix for suffix in _ARCHIVES if urlsplit(address).path.endswith(suffix)), _ARCHIVES[0])
        filename = f"{library.name}-{release.version}{suffix}"
        if not unpack(archive, into, select, limit=_LARGEST, name=filename):
            raise IntegrityError(f"{redact(address)} has no {' and no '.join(library.include)} below its top directory")
        shutil.rmtree(scratch)
        progress.finish()
        return (
            Artefact(
                name=library.name,
                version=release.version,
                filename=filename,
                kind=ArtefactKind.ARCHIVE,
                size=size,
                sha256=digest,
                source="archive",
            ),
        )

    def _refuse_network(self, address: str) -> None:
        """Raise :class:`NetworkError` for the ``address`` of a repository that may not be asked."""
        if urlsplit(address).scheme in {"", "file"}:
            return
        if self._transport is None:
            raise NetworkError(f"{redact(address)} needs the network")
        if self._transport.offline:
            raise refused_offline(redact(address))

    def _from_git(self, address: str, release: Release, archive: Path) -> None:
        """An archive of the tag ``v<version>``, whose commit must be the one that is known."""
        self._refuse_network(address)
        repository = archive.with_name("git")
        git = partial(_git, address=address, environ=self._environ)
        git("init", "--quiet", "--bare", str(repository))
        within = ("--git-dir", str(repository))
        git(*within, "fetch", "--quiet", "--depth=1", "--", address, f"refs/tags/v{release.version}")
        commit = git(*within, "rev-parse", "FETCH_HEAD^{commit}").decode().strip()
        if commit != release.commit:
            raise IntegrityError(
                f"the tag v{release.version} of {redact(address)} is commit {commit}, not {release.commit}",
                hint="that repository is not a copy of the library's own",
            )
        prefix = f"--prefix={release.library.name}-{release.version}/"
        archive.write_bytes(git(*within, "archive", "--format=tar.gz", prefix, commit, *release.library.include))


def source_version(folder: Path, library: Library) -> str | None:
    """The version of the source tree in ``folder``; ``None`` when it is no tree of that library, empty when nothing in
    such a tree says it.
    """
    if not all((folder / include).is_dir() for include in library.include[:1]):
        return None
    if not library.version_header:
        return ""
    try:
        text = (folder / library.version_header).read_text(encoding="utf-8", errors="replace")
        numbers = dict(reversed(_VERSION_LINES.findall(text)))
        if numbers.keys() == {"MAJOR", "MINOR", "PATCH"}:
            return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    except OSError:
        pass  # releases before 3.0 have no such header
    try:
        found = _CMAKE_VERSION.search((folder / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def _local_file(address: str) -> Path:
    parts = urlsplit(address)
    if "://" in address and parts.scheme != "file":
        raise NetworkError(f"{redact(address)} is not a valid URL: write https://, file:// or git+https://")
    return Path(unquote(parts.path)) if parts.scheme == "file" else Path(address).expanduser()


def _copy_file(address: str, target: Path) -> None:
    path = _local_file(address)
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise NetworkError(f"cannot read {path}: {error.strerror}") from error


def _git(*arguments: str, address: str, environ: Mapping[str, str]) -> bytes:
    try:
        return run_git(Path(), environ, *arguments, transfers=True, seconds=_GIT_SECONDS)
    except GitMissingError as error:
        raise ToolchainError(f"git is needed for {redact(address)}, but it is not installed") from error
    except GitTooSlowError as error:
        raise NetworkError(f"git could not fetch {redact(address)} within {_GIT_SECONDS} s") from error
    except GitError as error:
        reason = str(error).replace(address, redact(address))
        raise NetworkError(f"git could not fetch {redact(address)}: {reason}") from error
