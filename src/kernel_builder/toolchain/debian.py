"""Packages out of Debian's archive: verified as apt would, unpacked, and never installed.

The chain of trust: gpgv checks ``InRelease`` against Debian's archive keyring; that file gives the SHA-256 of
``Packages.xz``; that one gives the SHA-256 of each package. No root, no dpkg, no change to apt's state. The mirror is
the one that this machine's apt uses, or one that the user names.
References: Debian wiki, "DebianRepository/Format"; sources.list(5), also for deb822; gpgv(1); GnuPG doc/DETAILS.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import lzma
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.store.archive import Select, unpack
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.download import OnBytes, Site, kept_download, safe_path
from kernel_builder.store.transport import NotFoundError, Transport
from kernel_builder.toolchain.settings import DEBIAN, FurtherRepository, ToolchainSettings

KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
)
"""Where the package ``debian-archive-keyring`` puts the keys."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SUITES = (
    *("bullseye", "bookworm", "trixie", "forky", "duke", "sid"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable"),
)
NON_FREE, MAIN = "non-free", "main"
"""Components of the archive."""
_RELEASE_LIMIT = 16 << 20
_PACKAGES_LIMIT = 512 << 20
_GPGV_SECONDS = 60
_ARMOR = re.compile(
    rb"^-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[\w-]+: .*\n)*\n?([A-Za-z0-9+/=\n]+?)(?:\n=[A-Za-z0-9+/]{4})?\n+"
    rb"-----END PGP PUBLIC KEY BLOCK-----",
    re.MULTILINE,
)
_REFUSED = {
    "BADSIG": "its signature does not match its contents",
    "EXPSIG": "its signature has expired",
    "EXPKEYSIG": "the key that signed it has expired",
    "REVKEYSIG": "the key that signed it was revoked",
    "NO_PUBKEY": "the keyring lacks the keys that signed it",
    "ERRSIG": "its signature cannot be checked",
    "NODATA": "it is not signed",
}
_KEYRING_HINT = (
    "apt-get install debian-archive-keyring (elsewhere: set the keyring's file in kernel-builder.toml), and make sure"
    " that it is current"
)


@dataclass(frozen=True, kw_only=True)
class DebPackage:
    """A package as its suite's index describes it. Sizes are in bytes; ``depends`` is as written there.
    ``source`` is the label of where it comes from.
    """

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    suite: str
    depends: str
    installed_size: int
    source: str = DEBIAN

    @property
    def artefact(self) -> Artefact:
        """The package as a source of an entry of the store."""
        return Artefact(
            name=self.name,
            version=self.version,
            filename=self.filename.rpartition("/")[2],
            kind=ArtefactKind.PACKAGE,
            size=self.size,
            sha256=self.sha256,
            source=self.source,
        )


def debian_architecture(machine: str) -> str:
    """Debian's name for ``x86_64`` or ``aarch64``. Raises :class:`ToolchainError` for others."""
    try:
        return _ARCHITECTURES[machine]
    except KeyError:
        raise ToolchainError(f"Debian's packages do not support {machine}") from None


def apt_mirrors(apt: Path = Path("/etc/apt")) -> tuple[str, ...]:
    """The mirrors of Debian that apt is configured for, in its order; other repositories are left out.

    Reads ``sources.list`` and ``sources.list.d/*.{list,sources}`` below ``apt``; files that cannot be read count as
    absent. A mirror of security or backports alone does not count.
    """
    files = [apt / "sources.list"]
    if (apt / "sources.list.d").is_dir():
        files += sorted((apt / "sources.list.d").iterdir())
    found: dict[str, None] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        entries = {".list": _one_line, ".sources": _deb822}.get(file.suffix)
        for uris, suites, components in entries(text) if entries else ():
            if "main" in components and any(suite in _SUITES for suite in suites):
                found.update(
                    (uri.rstrip("/"), None) for uri in uris if uri.startswith(("http://", "https://", "file:/"))
                )
    return tuple(found)


_AptEntry = tuple[Sequence[str], Sequence[str], Sequence[str]]


def _one_line(text: str) -> Iterator[_AptEntry]:
    """``deb [option=value] URI suite component...``"""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words or words[0] != "deb":
            continue
        rest = words[1:]
        if rest and rest[0].startswith("["):
            closing = next((index for index, word in enumerate(rest) if word.endswith("]")), len(rest) - 1)
            rest = rest[closing + 1 :]
        if len(rest) >= 3:
            yield rest[:1], rest[1:2], rest[2:]


def _deb822(text: str) -> Iterator[_AptEntry]:
    for fields in _paragraphs(text):
        types, enabled = fields.get("Types", ""), fields.get("Enabled", "yes")
        if "deb" in types.split() and enabled.lower() not in {"no", "false", "0"}:
            yield fields.get("URIs", "").split(), fields.get("Suites", "").split(), fields.get("Components", "").split()


def _paragraphs(text: str) -> Iterator[Mapping[str, str]]:
    """Paragraphs of ``Field: value`` (deb822(5)); names of fields are found in whatever case."""
    from debian.deb822 import Deb822  # noqa: PLC0415  (start-up time)

    return Deb822.iter_paragraphs(text.splitlines())  # a single line of text would be taken for a path


class DebVersion(Protocol):
    """A version as dpkg compares it."""

    def __lt__(self, other: object, /) -> bool:
        """Whether it is older than ``other``."""
        ...


def debian_version(text: str) -> DebVersion:
    """A version that compares as dpkg compares it. Raises ``ValueError`` when it is malformed (deb-version(7))."""
    from debian.debian_support import NativeVersion  # noqa: PLC0415  (start-up time)

    version: DebVersion = NativeVersion(text)
    return version


def newest_package(index: str, package: str, architectures: Collection[str]) -> Mapping[str, str] | None:
    """The fields of the newest ``package`` in the text of a ``Packages`` file; ``None`` when there is none.

    Only the paragraphs that begin with the package's name are parsed: all of a file of 50 MB would take 4 s, not 0.25.
    Raises ``ValueError`` for a version that is malformed (deb-version(7)).
    """
    wanted = re.compile(rf"^Package: {re.escape(package)}\n(?:.+\n?)*", re.MULTILINE)
    found = [
        fields
        for paragraph in wanted.finditer(index)
        for fields in _paragraphs(paragraph[0])
        if fields.get("Architecture") in architectures
    ]
    return max(found, key=lambda fields: debian_version(fields.get("Version", "")), default=None)


def packages_in(index: str, packages: Iterable[str]) -> str:
    """The paragraphs of ``packages`` alone, out of the text of a ``Packages`` file: for many, one reading of it."""
    names = "|".join(map(re.escape, packages))
    wanted = re.compile(rf"^Package: (?:{names})\n(?:.+\n?)*", re.MULTILINE)
    return "\n".join(match[0] for match in wanted.finditer(index))


def find_keyring(named: Path | None = None) -> Path:
    """The archive keyring: ``named``, or where Debian's package puts it. Raises :class:`ToolchainError`."""
    for path in KEYRINGS if named is None else (named,):
        if path.is_file():
            return path
    where = " or ".join(map(str, KEYRINGS if named is None else (named,)))
    raise ToolchainError(f"Debian's archive keyring is not at {where}", hint=_KEYRING_HINT)


def open_archives(
    settings: ToolchainSettings,
    transport: Transport,
    *,
    machine: str,
    component: str,
    downloads: Path,
    environ: Mapping[str, str],
) -> tuple[DebianArchive, ...]:
    """One ``component`` of the mirror that the settings name, else of every one that apt uses, for ``machine``.

    Raises :class:`ToolchainError` without mirror or keys.
    """
    mirror = settings.debian_mirror
    mirrors: Sequence[str | Path] = apt_mirrors() if mirror is None else (mirror.address,)
    if not mirrors:
        raise ToolchainError("apt has no mirror of Debian here, and kernel-builder.toml sets none ([debian] mirror)")
    found = find_keyring(settings.debian_keyring)
    return tuple(
        DebianArchive(
            address,
            found,
            transport,
            architecture=debian_architecture(machine),
            component=component,
            downloads=downloads,
            environ=environ,
            expires=settings.debian_expires,
        )
        for address in mirrors
    )


def open_repository(
    repository: FurtherRepository, transport: Transport, *, machine: str, downloads: Path, environ: Mapping[str, str]
) -> DebianArchive:
    """A further repository, whose packages are for ``machine``. Raises :class:`ToolchainError` for unknown machines."""
    return DebianArchive(
        repository.place.address,
        repository.keyring,
        transport,
        architecture=debian_architecture(machine),
        component=repository.component,
        downloads=downloads,
        environ=environ,
        expires=repository.expires,
        source=repository.name,
    )


class DebianArchive:
    """One component of one mirror.

    ``mirror`` is a URL or a folder (it holds ``dists/`` and ``pool/``), ``architecture`` Debian's name of one.
    ``transport`` may be ``None`` for a folder. ``downloads`` is where interrupted downloads wait for the next run;
    without it they are lost. ``gpgv`` is the program that verifies. Unless ``expires``, an index that is too old is
    taken, too. ``source`` is the label that its packages get.
    """

    def __init__(
        self,
        mirror: str | Path,
        keyring: Path,
        transport: Transport | None,
        *,
        architecture: str = "amd64",
        component: str = NON_FREE,
        downloads: Path | None = None,
        environ: Mapping[str, str],
        gpgv: str = "gpgv",
        expires: bool = True,
        source: str = DEBIAN,
    ) -> None:
        if isinstance(mirror, str) and mirror.startswith("file:") and not mirror.startswith("file://"):
            mirror = Path(mirror.removeprefix("file:"))
        self._site = Site(mirror, transport)
        self._keyring = keyring
        self._architecture = architecture
        self._component = component
        self._downloads = downloads
        self._gpgv = gpgv
        self._environ = environ
        self._expires = expires
        self._source = source

    def find(self, package: str, suite: str) -> DebPackage:
        """The newest ``package`` of ``suite``, out of a verified index.

        Raises :class:`ToolchainError` when there is no such package or suite, or gpgv or the keyring is missing;
        :class:`IntegrityError` when a signature or digest is wrong; :class:`NetworkError`.
        """
        return self.find_all([package], suite)[0]

    def find_all(self, packages: Sequence[str], suite: str) -> tuple[DebPackage, ...]:
        """:meth:`find` for several packages, out of one reading of the index."""
        index = self._index_of(packages, suite)
        return tuple(self._find_in(index, package, suite) for package in packages)

    def look_for(self, packages: Sequence[str], suite: str) -> Mapping[str, DebPackage | str]:
        """:meth:`find_all`, with the reason in the place of a package that is not there."""
        index = self._index_of(packages, suite)
        found: dict[str, DebPackage | str] = {}
        for package in packages:
            try:
                found[package] = self._find_in(index, package, suite)
            except ToolchainError as error:
                found[package] = error.message
        return found

    def _index_of(self, packages: Sequence[str], suite: str) -> str:
        return packages_in(self._packages(suite, self._release(suite)), packages)

    def _find_in(self, index: str, package: str, suite: str) -> DebPackage:
        try:
            newest = newest_package(index, package, {self._architecture, "all"})
            if newest is not None:
                return _described(newest, suite, self._source)
        except (KeyError, ValueError) as error:
            raise IntegrityError(f"the index of {self._site} has an invalid entry for {package}: {error}") from error
        raise ToolchainError(
            f"{self._site} has no package {package} in {suite}/{self._component} for {self._architecture}",
            hint="set another mirror or source in kernel-builder.toml",
        )

    def fetch(self, package: DebPackage, into: Path, select: Select, on_bytes: OnBytes) -> tuple[str, ...]:
        """Download ``package``, verify it and write the members that ``select`` maps to paths below ``into``.

        ``select`` sees names such as ``usr/bin/ptxas``. Returns what was written, sorted. Raises
        :class:`NetworkError` and :class:`IntegrityError`.
        """
        with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
            downloads = self._downloads or Path(scratch)
            with kept_download(
                self._site, package.filename, downloads, size=package.size, sha256=package.sha256, on_bytes=on_bytes
            ) as file:
                # Installed-Size is what the maintainer's build measured: rounded, so leave room.
                limit = max(2 * package.installed_size, package.size)
                return unpack(file, into, select, limit=limit, name=PurePosixPath(package.filename).name)

    def _release(self, suite: str) -> Mapping[str, str]:
        """The verified fields of ``InRelease``."""
        path = f"dists/{safe_path(suite)}/InRelease"
        try:
            signed = self._site.read(path, limit=_RELEASE_LIMIT)
        except NotFoundError as error:
            raise ToolchainError(
                f"{self._site} has no suite {suite}", hint="set a mirror of Debian that has it in kernel-builder.toml"
            ) from error
        text = verify_clearsigned(signed, self._keyring, self._site.where(path), gpgv=self._gpgv, environ=self._environ)
        fields: Mapping[str, str] = next(_paragraphs(text), {})
        if suite not in {fields.get("Suite"), fields.get("Codename")}:
            raise IntegrityError(
                f"{self._site.where(path)} is for {fields.get('Codename', 'another suite')}, not for {suite}"
            )
        if self._expires:
            _check_age(fields.get("Valid-Until"), self._site.where(path))
        return fields

    def _packages(self, suite: str, release: Mapping[str, str]) -> str:
        """The text of the suite's index of packages, in the first form of it that is published."""
        folder = f"{self._component}/binary-{self._architecture}"
        digests = (line.split() for line in release.get("SHA256", "").splitlines())
        sizes = {words[2]: (words[0], int(words[1])) for words in digests if len(words) == 3 and words[1].isdecimal()}
        name = next((one for suffix in _FORMS if (one := f"{folder}/Packages{suffix}") in sizes), None)
        if name is None:
            raise ToolchainError(
                f"{self._site} has no {folder}/Packages.xz in {suite}", hint="set another mirror in kernel-builder.toml"
            )
        sha256, size = sizes[name]
        paths = [f"dists/{suite}/{name}"]
        if release.get("Acquire-By-Hash") == "yes":  # a mirror may change between the two requests
            paths.insert(0, f"dists/{suite}/{folder}/by-hash/SHA256/{sha256}")
        with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
            target = Path(scratch) / PurePosixPath(name).name
            for path in paths:
                try:
                    self._site.fetch(path, target, size=size, sha256=sha256, on_bytes=lambda _: None)
                    break
                except NetworkError as error:
                    if isinstance(error, IntegrityError) or path == paths[-1]:
                        raise
            return _inflate(target, self._site.where(paths[-1]))


def _described(fields: Mapping[str, str], suite: str, source: str) -> DebPackage:
    """A package out of its paragraph. Raises ``KeyError`` and ``ValueError``."""
    return DebPackage(
        name=fields["Package"],
        version=fields["Version"],
        filename=safe_path(fields["Filename"]),
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
        suite=suite,
        depends="\n".join(line.strip() for line in fields.get("Depends", "").splitlines()),
        installed_size=int(fields.get("Installed-Size", "0")) * 1024,
        source=source,
    )


_FORMS = (".xz", ".gz", "")
"""The suffixes of an index of packages, the smallest first. Debian has the first, reprepro makes the other two."""


def _inflate(file: Path, where: str) -> str:
    try:
        with contextlib.ExitStack() as opened:
            stream: IO[bytes]
            if file.suffix == ".xz":
                stream = opened.enter_context(lzma.open(file))
            elif file.suffix == ".gz":
                stream = cast("IO[bytes]", opened.enter_context(gzip.open(file)))
            else:
                stream = opened.enter_context(file.open("rb"))
            data = stream.read(_PACKAGES_LIMIT + 1)
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise IntegrityError(f"{where} is damaged: {error}") from error
    if len(data) > _PACKAGES_LIMIT:
        raise IntegrityError(f"{where} is too large for an index of packages")
    return data.decode("utf-8", "replace")


def _check_age(until: str | None, where: str) -> None:
    if until is None:
        return  # released suites have no end
    try:
        end = parsedate_to_datetime(until)
    except ValueError as error:
        raise IntegrityError(f"{where} has an expiry date in an unknown format: {until}") from error
    if end.tzinfo is None:
        end = end.replace(tzinfo=UTC)
    if end < datetime.now(UTC):
        raise IntegrityError(
            f"{where} was valid until {until}",
            hint="use a mirror that is kept up to date, and check this machine's clock; for a mirror of snapshots, set"
            " check-valid-until = false in kernel-builder.toml",
        )


def verify_clearsigned(
    signed: bytes, keyring: Path, where: str, *, environ: Mapping[str, str], gpgv: str = "gpgv"
) -> str:
    """What was signed in ``signed``, once a key of ``keyring`` is found to have signed it; nothing around it.

    One good signature is enough and a bad one is too many, as for apt. Raises :class:`IntegrityError` when it is not
    signed so, :class:`ToolchainError` when ``gpgv`` or ``keyring`` is missing. ``where`` is for messages.
    """
    program = shutil.which(gpgv, path=environ.get("PATH"))
    if program is None:
        raise ToolchainError(
            "gpgv, which verifies signatures of Debian's archive, is not installed",
            hint="apt-get install gpgv (dnf install gnupg2)",
        )
    keyring = find_keyring(keyring)
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
        home = Path(scratch)
        (home / "signed").write_bytes(signed)
        keys = _binary_keyring(keyring, home)
        command = [program, "--homedir", scratch, "--keyring", str(keys.absolute()), "--status-fd", "1"]
        command += ["--weak-digest", "SHA1"]
        command += ["--output", str(home / "text"), str(home / "signed")]
        try:
            answer = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_GPGV_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"cannot run {program}: {error}", hint="apt-get install --reinstall gpgv") from error
        words = [line.split()[1] for line in answer.stdout.splitlines() if line.startswith("[GNUPG:] ")]
        good = "GOODSIG" in words and "VALIDSIG" in words and "BADSIG" not in words
        if not good or not (home / "text").is_file():
            reason = next(
                (text for word, text in _REFUSED.items() if word in words), "gpgv accepts none of its signatures"
            )
            raise IntegrityError(f"{where} cannot be trusted: {reason}", hint=_KEYRING_HINT)
        return (home / "text").read_text(encoding="utf-8", errors="replace")


def _binary_keyring(keyring: Path, scratch: Path) -> Path:
    """``keyring`` as gpgv takes it: vendors publish keys as text (RFC 9580, 6), which older gpgv do not read."""
    try:
        data = keyring.read_bytes()
    except OSError as error:
        raise ToolchainError(f"cannot read the keyring {keyring}: {error.strerror}") from error
    blocks = _ARMOR.findall(data.replace(b"\r", b""))
    if not blocks:
        return keyring
    try:
        binary = b"".join(base64.b64decode(b"".join(block.split()), validate=True) for block in blocks)
    except binascii.Error as error:
        raise ToolchainError(
            f"the keyring {keyring} is damaged: {error}", hint="get it from its publisher again"
        ) from error
    target = scratch / "keys.gpg"
    target.write_bytes(binary)
    return target
