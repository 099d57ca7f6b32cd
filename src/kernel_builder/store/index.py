"""The package index: which wheels there are, which one to take, and its bytes in parts.

References: PyPA "Simple repository API" (PEP 503, 691, 592 for yanked files); "Platform compatibility tags".
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.parts import KeptParts
from kernel_builder.store.settings import IndexSettings, redact
from kernel_builder.store.transport import NotFoundError, RangesUnsupportedError, Transport
from kernel_builder.store.wheel import FileOnDisk, RangeReader, Wheel

_WORTH_TELLING = 5 << 19  # bytes; a look at a wheel, to see which ABI it has, takes up to 2 MiB

PYTHONS = ("cp312", "cp313", "cp311", "cp314", "cp310")
"""Which interpreter's wheel is taken where several hold the same headers: the first of these that exists."""

DEFAULT_LABEL = "index"
"""The label of the index that pip or uv is configured for."""


def describe_index(label: str) -> str:
    """What messages call an index."""
    return "the package index" if label == DEFAULT_LABEL else f"the index {label!r}"


@dataclass(frozen=True, kw_only=True)
class IndexFile:
    """A wheel on an index. ``sha256`` and ``size`` (bytes) are ``None`` when the index does not say.

    ``url`` is empty for one that was chosen earlier, or elsewhere: :func:`locate` finds it on an index.
    ``record_sha256`` is what the digest of its RECORD must be, where that is known.
    """

    project: str
    version: Version
    filename: str
    tags: frozenset[Tag] = field(repr=False)
    url: str = field(repr=False)
    sha256: str | None = None
    size: int | None = None
    yanked: str | None = None
    record_sha256: str | None = None

    def artefact(self, source: str) -> Artefact:
        """The value that says what it is, coming from the index of label ``source``."""
        return Artefact(
            name=self.project,
            version=str(self.version),
            filename=self.filename,
            size=self.size,
            sha256=self.sha256,
            record_sha256=self.record_sha256,
            source=source,
        )


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """A file that was not taken, and why."""

    filename: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The wheel that was taken, and what was not."""

    file: IndexFile
    rejections: tuple[Rejection, ...]


class Index(Protocol):
    """A source of wheels: a server, or a folder."""

    @property
    def label(self) -> str:
        """What messages, locks and manifests call it: ``index``, or the name that the user gave it."""
        ...

    @property
    def fingerprint(self) -> str:
        """A digest that tells this source from others, without naming it."""
        ...

    def files(self, project: str) -> tuple[IndexFile, ...]:
        """All wheels of ``project``. Raises :class:`NetworkError`; :class:`NotFoundError` when there is none."""
        ...

    def open(self, file: IndexFile, scratch: Path, on_bytes: Callable[[int], None]) -> Wheel:
        """Open a wheel for reading in parts. ``scratch`` takes what arrives, for a later attempt to go on from, and the
        whole file where that is the only way; nobody else may use it meanwhile.
        """
        ...

    @property
    def bytes_received(self) -> int:
        """Bytes that came over the wire so far, pages included."""
        ...

    def cancel(self) -> None:
        """Make all transfers stop with :class:`CancelledError`, until :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Take one :meth:`cancel` back."""
        ...

    def check(self) -> None:
        """Raise :class:`CancelledError` after :meth:`cancel`."""
        ...


def _platform_reason(tags: Iterable[Tag], machine: str, *, macos: bool) -> str | None:
    platforms = sorted({tag.platform for tag in tags})
    names = {"aarch64": ("arm64", "universal2"), "x86_64": ("x86_64", "universal2")}.get(machine, (machine,))
    ends = tuple(f"_{name}" for name in (names if macos else (machine,)))
    for platform in platforms:
        begins = ("macosx",) if macos else ("manylinux", "linux")
        if platform == "any" or (platform.startswith(begins) and platform.endswith(ends)):
            return None
    return f"built for {', '.join(platforms)}, not for {'macOS' if macos else 'Linux'} on {machine}"


def _preference(file: IndexFile, pythons: Sequence[str]) -> tuple[int, int, str]:
    """Smaller is better: interpreters in the given order, ordinary ABIs before free-threaded ones."""
    best = (len(pythons) + 1, 1)
    for tag in file.tags:
        if tag.interpreter in pythons:
            rank = pythons.index(tag.interpreter)
        else:
            rank = 0 if tag.interpreter.startswith("py3") else len(pythons)
        best = min(best, (rank, 1 if tag.abi.endswith("t") else 0))
    return (*best, file.filename)


def fitting_wheels(
    files: Iterable[IndexFile],
    *,
    allowed: SpecifierSet,
    machine: str,
    pythons: Sequence[str] = PYTHONS,
    macos: bool = False,
) -> tuple[tuple[IndexFile, ...], tuple[Rejection, ...]]:
    """The wheels that fit, best first, one for each version, and why the others do not: those that ``allowed`` admits,
    for Linux (or ``macos``) on ``machine``, of the preferred Python; newest versions first.

    A yanked file is taken only when nothing else is left (PEP 592), a pre-release never. The result does not depend on
    the order of ``files``.
    """
    rejections: list[Rejection] = []
    fitting: list[IndexFile] = []
    for file in files:
        reason: str | None
        if file.version.is_prerelease:
            reason = f"{file.version} is a pre-release"
        elif not allowed.contains(file.version):
            reason = f"{file.version} is not {allowed}"
        else:
            reason = _platform_reason(file.tags, machine, macos=macos)
        if reason is None:
            fitting.append(file)
        else:
            rejections.append(Rejection(filename=file.filename, reason=reason))
    sound = [file for file in fitting if file.yanked is None]
    if sound:
        rejections += [
            Rejection(filename=file.filename, reason=f"yanked: {file.yanked or 'no reason given'}")
            for file in fitting
            if file.yanked is not None
        ]
    best: dict[Version, IndexFile] = {}
    for file in sorted(sound or fitting, key=lambda f: _preference(f, pythons)):
        best.setdefault(file.version, file)
    rejections.sort(key=lambda rejection: rejection.filename)
    return tuple(best[version] for version in sorted(best, reverse=True)), tuple(rejections)


def choose_wheel(
    files: Iterable[IndexFile],
    *,
    project: str,
    allowed: SpecifierSet,
    machine: str,
    pythons: Sequence[str] = PYTHONS,
    where: str = "the package index",
) -> Choice:
    """The first of :func:`fitting_wheels`. Raises :class:`ToolchainError` with the reasons when nothing fits."""
    listed = list(files)
    fitting, rejections = fitting_wheels(listed, allowed=allowed, machine=machine, pythons=pythons)
    if not fitting:
        raise ToolchainError(
            f"{where} has no {project} {allowed} for Linux on {machine}",
            hint=why_none(listed, rejections, allowed),
        )
    return Choice(file=fitting[0], rejections=rejections)


def why_none(files: Iterable[IndexFile], rejections: Sequence[Rejection], allowed: SpecifierSet) -> str:
    """The likeliest reason, in a few words, why none of ``files`` fits."""
    versions = {file.version for file in files}
    if not versions:
        return "its page lists no wheels"
    near = [r for r in rejections if not r.reason.endswith(f"is not {allowed}")]
    if near:
        return f"{near[-1].filename}: {near[-1].reason}"
    newest = sorted((v for v in versions if not v.is_prerelease), reverse=True)[:6]
    return f"newest versions available: {', '.join(str(version) for version in newest)}"


class _HttpFile:
    """A :class:`RangeReader` over HTTP."""

    def __init__(self, transport: Transport, url: str, size: int, on_bytes: Callable[[int], None]) -> None:
        self._transport = transport
        self._url = url
        self._on_bytes = on_bytes
        self.size = size

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """See :class:`RangeReader`."""
        return self._transport.stream(self._url, start, stop, size=self.size, on_bytes=self._on_bytes)


def locate(index: Index, artefact: Artefact) -> IndexFile:
    """The file on ``index`` of what was chosen earlier, or elsewhere.

    Raises :class:`ToolchainError` when the index no longer has it, :class:`IntegrityError` when a file of that
    name is another one now, :class:`NetworkError`.
    """
    found = next((other for other in index.files(artefact.name) if other.filename == artefact.filename), None)
    if found is None:
        raise ToolchainError(
            f"{describe_index(index.label)} no longer has {artefact.filename}, which is locked",
            hint="run 'kernel-builder lock --upgrade' to choose again, or set an index that has it in"
            " kernel-builder.toml",
        )
    for what, then, now in (("SHA-256", artefact.sha256, found.sha256), ("size", artefact.size, found.size)):
        if then is not None and now is not None and then != now:
            raise IntegrityError(
                f"{artefact.filename} on {describe_index(index.label)} is not the file that was locked: its"
                f" {what} was {then} and is now {now}",
                hint="published files never change: the index, or a proxy in between, alters them",
            )
    return replace(found, sha256=artefact.sha256, record_sha256=artefact.record_sha256)


class SimpleIndex:
    """A simple-API package index over HTTP. Thread-safe."""

    def __init__(
        self,
        settings: IndexSettings,
        reporter: Reporter,
        transport: Transport | None = None,
        *,
        label: str = DEFAULT_LABEL,
        offline: bool = False,
    ) -> None:
        self.settings = settings
        self.label = label
        self.transport = transport or Transport(settings, offline=offline)
        self._reporter = reporter
        self._opened: set[Path] = set()

    @property
    def fingerprint(self) -> str:
        """See :class:`Index`."""
        source = "default" if self.settings.url is None else redact(self.settings.url).rstrip("/")
        return hashlib.sha256(source.encode()).hexdigest()[:12]

    @property
    def bytes_received(self) -> int:
        """See :class:`Index`."""
        return self.transport.received

    def transport_without_credentials(self) -> Transport:
        """A transport for other servers: the same certificates, and nothing that is meant for the index alone."""
        return Transport(replace(self.settings, url=None, credentials=None), offline=self.transport.offline)

    def cancel(self) -> None:
        """See :class:`Index`."""
        self.transport.cancel()

    def resume(self) -> None:
        """See :class:`Index`."""
        self.transport.resume()

    def check(self) -> None:
        """See :class:`Index`."""
        self.transport.check()

    def files(self, project: str) -> tuple[IndexFile, ...]:
        """See :class:`Index`."""
        # Half a second of imports, which a build with everything in its store must not pay.
        import kernel_builder.store.http_library  # isort: skip  # noqa: F401, PLC0415  (before urllib3)
        from pypi_simple import ACCEPT_JSON_PREFERRED, ProjectPage, UnsupportedContentTypeError  # noqa: PLC0415

        url = f"{self.settings.address.rstrip('/')}/{canonicalize_name(project)}/"
        try:
            response = self.transport.get(url, {"Accept": ACCEPT_JSON_PREFERRED})
        except NotFoundError as error:
            raise NotFoundError(
                f"{describe_index(self.label)} has no project {project!r} ({redact(url)})",
                hint=f"the index is set by {self.settings.origin}; is it a full mirror?",
            ) from error
        try:
            page = ProjectPage.from_response(response, project)
        except (ValueError, KeyError, TypeError, UnsupportedContentTypeError) as error:
            raise NetworkError(
                f"{redact(url)} does not respond like a package index",
                hint=f"the index is set by {self.settings.origin}; it must support the simple API",
            ) from error
        found: list[IndexFile] = []
        for package in page.packages:
            if not package.filename.endswith(".whl"):
                continue
            try:
                name, version, _, tags = parse_wheel_filename(package.filename)
            except InvalidWheelFilename:
                continue
            found.append(
                IndexFile(
                    project=name,
                    version=version,
                    filename=package.filename,
                    tags=tags,
                    url=package.url,
                    sha256=(package.digests or {}).get("sha256"),
                    size=package.size,
                    yanked=(package.yanked_reason or "") if package.is_yanked else None,
                )
            )
        return tuple(found)

    def open(self, file: IndexFile, scratch: Path, on_bytes: Callable[[int], None]) -> Wheel:
        """See :class:`Index`. Raises :class:`NetworkError`, :class:`IntegrityError`."""
        size = file.size if file.size is not None else self.transport.range_size(file.url)
        if size is not None:
            reader: RangeReader = _HttpFile(self.transport, file.url, size, on_bytes)
            if file.sha256 is not None:
                reader = self._with_kept_parts(reader, scratch / f"{file.sha256}.parts", file.filename)
            try:
                return Wheel(reader, filename=file.filename)
            except RangesUnsupportedError:
                pass
        return Wheel(self._download(file, scratch, on_bytes), filename=file.filename)

    def _with_kept_parts(self, reader: RangeReader, path: Path, filename: str) -> RangeReader:
        """Parts of exactly this file that an earlier attempt left in the scratch directory are not fetched again."""
        parts = KeptParts(reader, path)
        # Not what this very process had a look at before.
        if parts.kept >= _WORTH_TELLING and path not in self._opened:
            self._reporter.emit(
                Notice(message=f"{filename}: {parts.kept / 2**20:.0f} MiB kept from an earlier attempt")
            )
        self._opened.add(path)
        return parts

    def _download(self, file: IndexFile, scratch: Path, on_bytes: Callable[[int], None]) -> RangeReader:
        """The whole file; one that came for an earlier look is still in ``scratch``."""
        if file.sha256 is not None:
            target = scratch / f"{file.sha256}.whl"
            if target.exists() and _digest(target) == file.sha256:
                return FileOnDisk(target)
        else:
            with tempfile.NamedTemporaryFile(dir=scratch, prefix="whole-", suffix=".whl", delete=False) as handle:
                target = Path(handle.name)
        what = f"{file.filename}{f' ({file.size / 2**20:.0f} MiB)' if file.size else ''}"
        message = f"{describe_index(self.label)} does not support range requests: downloading all of {what}"
        self._reporter.emit(Notice(message=message, warning=True))
        self.transport.download(file.url, target, on_bytes=on_bytes)
        if file.sha256 is not None and _digest(target) != file.sha256:
            target.unlink()
            raise IntegrityError(
                f"the SHA-256 of {file.filename} does not match the one in the index",
                hint="run the command again; if this persists, the index or a proxy alters files",
            )
        return FileOnDisk(target)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _record_digest(path: Path) -> str | None:
    """The digest of a wheel's RECORD; ``None`` for a damaged one: it must not stand in the way of the others."""
    try:
        return Wheel(FileOnDisk(path), filename=path.name).record_sha256
    except IntegrityError:
        return None


class FolderIndex:
    """Wheels in a folder: right in it, or in one folder per project as a mirror of a simple index has them."""

    def __init__(self, folder: Path, *, label: str) -> None:
        self._folder = folder
        self.label = label

    @property
    def fingerprint(self) -> str:
        """See :class:`Index`."""
        return hashlib.sha256(f"directory {self._folder}".encode()).hexdigest()[:12]

    @property
    def bytes_received(self) -> int:
        """See :class:`Index`: nothing comes over a wire."""
        return 0

    def cancel(self) -> None:
        """See :class:`Index`: there is nothing that takes long."""

    def resume(self) -> None:
        """See :class:`Index`."""

    def check(self) -> None:
        """See :class:`Index`."""

    def files(self, project: str) -> tuple[IndexFile, ...]:
        """See :class:`Index`. A file that is no wheel is found out by who opens it."""
        if not self._folder.is_dir():
            raise NetworkError(
                f"{describe_index(self.label)} is the directory {self._folder}, which does not exist",
                hint="fix its path in kernel-builder.toml",
            )
        wanted = canonicalize_name(project)
        paths = [*self._folder.glob("*.whl")]
        for folder in self._folder.iterdir():
            if folder.is_dir() and canonicalize_name(folder.name) == wanted:
                paths += folder.glob("*.whl")
        paths = [path for path in paths if path.is_file()]
        found: list[IndexFile] = []
        for path in sorted(paths):
            try:
                name, version, _, tags = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            if name == wanted:
                found.append(
                    IndexFile(
                        project=name,
                        version=version,
                        filename=path.name,
                        tags=tags,
                        url=str(path),
                        size=path.stat().st_size,
                        record_sha256=_record_digest(path),
                    )
                )
        if not found:
            raise NotFoundError(f"{describe_index(self.label)} has no project {project!r}")
        return tuple(found)

    def open(self, file: IndexFile, scratch: Path, on_bytes: Callable[[int], None]) -> Wheel:  # noqa: ARG002
        """See :class:`Index`: nothing comes over a wire, and nothing has to be downloaded."""
        return Wheel(FileOnDisk(Path(file.url)), filename=file.filename)
