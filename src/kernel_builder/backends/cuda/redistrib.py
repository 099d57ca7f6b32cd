"""NVIDIA's redistributable archives: per release a manifest, per component and platform one archive with its SHA-256.

``redistrib_X.Y.Z.json`` maps a component (``cuda_nvcc``) to its version and, per platform (``linux-x86_64``,
``linux-sbsa``), to ``relative_path``, ``sha256`` and ``size``; components that exist once per CUDA release have one
more level (``cuda12``). Each archive holds one folder named like itself. They are complete compilers, for CUDA 11.8
and 12.x too (DESIGN.md F4). A base is an address or a mirrored folder; :data:`PUBLIC_BASE` is asked only when the
user's options name this source.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.files import parse_json
from kernel_builder.store.archive import Select, unpack
from kernel_builder.store.download import OnBytes, Site, kept_download, safe_path
from kernel_builder.store.transport import NotFoundError, Transport

PUBLIC_BASE = "https://developer.download.nvidia.com/compute/cuda/redist/"
"""Where NVIDIA publishes them."""

_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}
_MANIFEST = re.compile(r"redistrib_(\d+)\.(\d+)\.(\d+)\.json")
_MANIFEST_LIMIT = 16 << 20
_PAGE_LIMIT = 16 << 20
_INFLATION = 40  # static libraries shrink to a tenth
_ROOM = 64 << 20
_PATCHES = 20


@dataclass(frozen=True, kw_only=True)
class RedistArchive:
    """One archive of a release. ``version`` is the component's own, ``size`` is in bytes."""

    component: str
    version: str
    platform: str
    relative_path: str
    sha256: str
    size: int

    @property
    def filename(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.relative_path).name

    @property
    def folder(self) -> str:
        """The folder that holds everything in it."""
        name = self.filename
        return name[: next((name.index(end) for end in (".tar.", ".zip") if end in name), len(name))]


def redist_platform(machine: str) -> str:
    """NVIDIA's name for Linux on ``x86_64`` or ``aarch64``. Raises :class:`ToolchainError` for others."""
    try:
        return _PLATFORMS[machine]
    except KeyError:
        raise ToolchainError(f"NVIDIA's archives do not support {machine}") from None


class Redistrib:
    """The archives below ``base``: an address, or a folder with manifests and archives in the same layout.

    ``transport`` may be ``None`` for a folder. ``downloads`` is where interrupted downloads wait for the next run;
    without it they are lost.
    """

    def __init__(self, base: str | Path, transport: Transport | None, *, downloads: Path | None = None) -> None:
        self._site = Site(base, transport)
        self._downloads = downloads

    def release(self, version: str) -> tuple[RedistArchive, ...]:
        """All archives of the newest release of CUDA ``version`` (``12.4``, or exactly ``12.4.1``), by component.

        Raises :class:`ToolchainError` when there is none, :class:`NetworkError`, and :class:`IntegrityError` for a
        manifest that makes no sense.
        """
        name, data = self._manifest(version)
        where = self._site.where(name)
        try:
            manifest = parse_json(data)
        except ValueError as error:
            raise IntegrityError(f"{where} is not valid JSON: {error}") from error
        if not isinstance(manifest, dict):
            raise IntegrityError(f"{where} is not a manifest: it contains no table")
        major = version.partition(".")[0]
        archives = [
            archive
            for component, table in manifest.items()
            if isinstance(table, dict)
            for archive in _archives(component, table, major, where)
        ]
        return tuple(sorted(archives, key=lambda archive: (archive.component, archive.platform)))

    def fetch(self, archive: RedistArchive, into: Path, select: Select, on_bytes: OnBytes) -> tuple[str, ...]:
        """Download ``archive``, verify it and write the members that ``select`` maps to paths below ``into``.

        ``select`` sees names below the archive's own folder, such as ``bin/nvcc``. Returns what was written, sorted.
        Raises :class:`NetworkError` and :class:`IntegrityError`.
        """
        with (
            tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch,
            kept_download(
                self._site,
                archive.relative_path,
                self._downloads or Path(scratch),
                size=archive.size,
                sha256=archive.sha256,
                on_bytes=on_bytes,
            ) as file,
        ):
            # The manifest does not say what an archive unpacks to: bound it by what such contents can shrink to.
            limit = _INFLATION * archive.size + _ROOM
            return unpack(file, into, select, limit=limit, name=archive.filename, strip=archive.folder)

    def _manifest(self, version: str) -> tuple[str, bytes]:
        """``(name, contents)`` of the newest manifest of ``version``."""
        if version.count(".") > 1:
            name = f"redistrib_{version}.json"
            try:
                return name, self._site.read(name, limit=_MANIFEST_LIMIT)
            except NotFoundError as error:
                raise self._missing(version) from error
        names = self._listed()
        if names is None:
            return self._probe(version)
        patches = [int(match[3]) for name in names if (match := _MANIFEST.fullmatch(name)) and _minor(match) == version]
        if not patches:
            raise self._missing(version, names)
        name = f"redistrib_{version}.{max(patches)}.json"
        return name, self._site.read(name, limit=_MANIFEST_LIMIT)

    def _listed(self) -> tuple[str, ...] | None:
        """Names of the manifests; ``None`` when the server shows no index page."""
        folder = self._site.folder
        if folder is not None:
            try:
                return tuple(sorted(path.name for path in folder.iterdir()))
            except OSError as error:
                raise NetworkError(
                    f"cannot read {folder}: {error.strerror}", hint="fix the base of the archives"
                ) from error
        try:
            page = self._site.read("", limit=_PAGE_LIMIT)
        except IntegrityError:
            raise
        except NetworkError:
            return None  # many servers refuse to list; whether this one is there at all shows with the first manifest
        links = _Links()
        links.feed(page.decode("utf-8", "replace"))
        names = tuple(sorted({link.rpartition("/")[2] for link in links.found}))
        return names if any(_MANIFEST.fullmatch(name) for name in names) else None

    def _probe(self, version: str) -> tuple[str, bytes]:
        """Ask for ``X.Y.0``, ``X.Y.1`` and so on: patch numbers have no gaps."""
        newest: tuple[str, bytes] | None = None
        for patch in range(_PATCHES):
            name = f"redistrib_{version}.{patch}.json"
            try:
                newest = name, self._site.read(name, limit=_MANIFEST_LIMIT)
            except NotFoundError:
                break
        if newest is None:
            raise self._missing(version)
        return newest

    def _missing(self, version: str, names: tuple[str, ...] = ()) -> ToolchainError:
        known = sorted({(int(m[1]), int(m[2])) for name in names if (m := _MANIFEST.fullmatch(name))})
        has = f"; it has {', '.join(f'{major}.{minor}' for major, minor in known)}" if known else ""
        return ToolchainError(
            f"{self._site} has no archives of CUDA {version}{has}",
            hint="fix the base of NVIDIA's archives, or complete the mirror",
        )


def _minor(match: re.Match[str]) -> str:
    return f"{match[1]}.{match[2]}"


def _archives(component: str, table: Mapping[str, object], major: str, where: str) -> Iterator[RedistArchive]:
    for platform, given in table.items():
        # One more level where "cuda_variant" says so; "name", "license" and "version" are no tables at all.
        entry = given.get(f"cuda{major}", given) if isinstance(given, dict) else None
        if not isinstance(entry, dict) or "relative_path" not in entry:
            continue
        try:
            yield RedistArchive(
                component=component,
                version=str(table.get("version", "")),
                platform=platform,
                relative_path=safe_path(str(entry["relative_path"])),
                sha256=_digest(entry["sha256"]),
                size=_size(entry["size"]),
            )
        except KeyError as error:
            raise IntegrityError(
                f"{where} has an invalid entry for {component} on {platform}: it has no {error}"
            ) from error
        except (ValueError, TypeError, IntegrityError) as error:
            raise IntegrityError(f"{where} has an invalid entry for {component} on {platform}: {error}") from error


def _digest(value: object) -> str:
    text = str(value).lower()
    if re.fullmatch(r"[0-9a-f]{64}", text) is None:
        raise ValueError(f"{value!r} is not a SHA-256")
    return text


def _size(value: object) -> int:
    text = str(value)
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{value!r} is not a size")
    return int(text)


class _Links(HTMLParser):
    """Collects the targets of links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See :class:`HTMLParser`."""
        if tag == "a":
            self.found += [value.partition("?")[0] for name, value in attrs if name == "href" and value]
