"""Passwords, tokens and private keys in what is published: by the names of files, and in their contents.

A table of our own, because what it must read are packages: any suffix, binary files and archives, files of any size in
little memory, and no alarm about what merely looks random. (detect-secrets, the library for this, reads lines of text,
guesses by entropy, and asks services on the network.) Each kind of token has a beginning of its own, so that a false
alarm takes chance; beginnings and lengths are those that their issuers
document. What only shows where a secret goes, in examples and documentation, is none.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.scan import OVERLAP, PIECE, data_ranges, pieces
from kernel_builder.check.subject import EntryKind, LibraryFile, SourceTree, TreeEntry, VariantDir, join
from kernel_builder.toml.nodes import printable
from kernel_builder.walking import VERSION_CONTROL, relative_to

SECRET = rule(
    "KB456",
    "secret",
    Severity.ERROR,
    summary="What is published contains no passwords, tokens or private keys",
    rationale="Everybody can read what is published, forever.",
    remedy="Remove it, and revoke it if it was ever published.",
    source="kernel-builder",
)

_NAMES = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "*.ppk", "*.p12", "*.pfx", "*.jks"),
    *("*.keystore", "*.kdbx", ".htpasswd", ".pgpass", ".my.cnf", ".s3cfg", ".boto", ".dockercfg", ".vault-token"),
    *("kubeconfig", "*.kubeconfig", "secring.gpg", "application_default_credentials.json", "credentials.tfrc.json"),
)
_PLACES = (".aws/credentials", ".kube/config", ".docker/config.json", "huggingface/token", "huggingface/stored_tokens")
"""Names that say it only together with those of their directories."""
_HARMLESS = ("example", "sample", "template", "dist")


@dataclass(frozen=True)
class _Kind:
    """A kind of secret: ``pattern`` matches it, at less than a kilobyte, and only where one of ``beginnings`` is. Its
    group is what differs from one secret to the next.
    """

    what: str
    beginnings: tuple[bytes, ...]
    pattern: re.Pattern[bytes]

    def find(self, text: bytes) -> re.Match[bytes] | None:
        """The first that is no placeholder."""
        if not any(beginning in text for beginning in self.beginnings):
            return None
        found = self.pattern.finditer(text)
        return next((match for match in found if not any(map(_is_placeholder, match.groups(b"")))), None)


def _kind(what: str, beginnings: str, pattern: bytes) -> _Kind:
    return _Kind(what, tuple(word.encode() for word in beginnings.split("|")), re.compile(pattern))


_STANDING_IN = re.compile(
    "|".join(
        form
        for word in (
            *("example", "your", "placeholder", "replace", "change_me", "change-me", "changeme", "redacted", "dummy"),
            *("fake", "sample", "insert", "goes", "here", "todo", "xxxx", "not_real", "notreal", "invalid"),
        )
        for form in (word, word.upper(), word.title())
    ).encode()
)
"""Words of placeholders. In one case each: by chance, the shortest of them are in one random token of 100,000."""


def _is_placeholder(secret: bytes) -> bool:
    """Whether a text only shows where a secret goes: it says so, or has next to no variety, as ``xxxxxxxx`` and
    ``XXXX-XXXX``.
    """
    if not secret:
        return False
    counts = Counter(secret)
    is_plain = len(counts) <= min(4, max(1, len(secret) // 8)) or counts.most_common(1)[0][1] > len(secret) / 2
    return is_plain or _STANDING_IN.search(secret) is not None


_START = rb"(?<![A-Za-z0-9])"
_KINDS = (
    _kind(
        "a private key",
        "PRIVATE KEY",
        rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        rb"(?:(?:\s|\\+[nr])+([A-Za-z0-9+/=:][^\n\\\"'<]{0,31})|(?:[\s\"'+,]|\\+[nrt])+([A-Za-z0-9+/=]{16,32}))",
    ),
    _kind("a private key", "PuTTY-User-Key-File-", rb"PuTTY-User-Key-File-[0-9]: "),
    _kind("a private key", "AGE-SECRET-KEY-1", rb"AGE-SECRET-KEY-1([A-Z0-9]{50})"),
    _kind("a private key", "client-key-data", rb"client-key-data:\s*([A-Za-z0-9+/=]{40})"),
    _kind("a Hub token", "hf_|api_org_", _START + rb"(?:hf_|api_org_)([A-Za-z0-9]{34})(?![A-Za-z0-9_])"),
    _kind("a GitHub token", "ghp_|gho_|ghu_|ghs_|ghr_", _START + rb"gh[pousr]_([A-Za-z0-9]{36})"),
    _kind("a GitHub token", "github_pat_", _START + rb"github_pat_([A-Za-z0-9_]{82})"),
    _kind("a GitLab token", "glpat-", _START + rb"glpat-([A-Za-z0-9_-]{20})"),
    _kind("an AWS access key", "AKIA|ASIA", _START + rb"(?:AKIA|ASIA)([0-9A-Z]{16})(?![A-Za-z0-9])"),
    _kind(
        "an AWS secret key",
        "aws_secret_access_key|AWS_SECRET_ACCESS_KEY|SecretAccessKey",
        rb"(?:aws_secret_access_key|AWS_SECRET_ACCESS_KEY|SecretAccessKey)[\"']?\s*[=:]\s*[\"']?([A-Za-z0-9/+]{40})",
    ),
    _kind("a Google API key", "AIza", _START + rb"AIza([0-9A-Za-z_-]{35})(?![A-Za-z0-9_-])"),
    _kind("a Google service account", "private_key_id", rb"\"private_key_id\"\s*:\s*\"([0-9a-f]{40})\""),
    _kind(
        "a Google OAuth secret",
        "GOCSPX-|ya29.",
        _START + rb"(?:GOCSPX-([A-Za-z0-9_-]{28})|ya29\.([A-Za-z0-9_-]{50}))",
    ),
    _kind("an Azure storage key", "AccountKey=", rb"AccountKey=([A-Za-z0-9+/=]{80})"),
    _kind(
        "a Slack token",
        "xox|xapp-",
        _START + rb"(?:xox[abeprs]-[0-9A-Za-z.]+-|xapp-[0-9]-[A-Z0-9]+-)([A-Za-z0-9-]{12,40})",
    ),
    _kind("a Slack webhook", "hooks.slack.com", rb"hooks\.slack\.com/services/T[A-Z0-9]+/B[A-Z0-9]+/([A-Za-z0-9]{20})"),
    _kind("a package index token", "pypi-AgEI", _START + rb"pypi-AgEI([A-Za-z0-9_-]{50})"),
    _kind("a package registry token", "npm_", _START + rb"npm_([A-Za-z0-9]{36})(?![A-Za-z0-9_])"),
    _kind("a package registry token", "_authToken", rb":_authToken\s*=\s*[\"']?([A-Za-z0-9][A-Za-z0-9_.=-]{7,80})"),
    _kind(
        "a package index password",
        "pypi]|distutils]",
        rb"\[(?:\w*pypi|distutils)\][^\[]{0,500}?\n\s*password\s*[=:][ \t]*([^\s%${<]{3}\S{0,80})",
    ),
    _kind("a registry password", '"auths"', rb"\"auths\"\s*:\s*\{[^}]{0,500}?\"auth\"\s*:\s*\"([A-Za-z0-9+/=]{8,80})"),
    _kind(
        "a password for a machine", "machine", rb"\bmachine\s+[\w.-]+\s+login\s+\S+\s+password\s+([^\s<${]{3}\S{0,80})"
    ),
    _kind(
        "a password in a URL",
        "://x-access-token:|://oauth2:|://gitlab-ci-token:|://x-token-auth:|://__token__:",
        rb"://(?:x-access-token|oauth2|gitlab-ci-token|x-token-auth|__token__):([^\s@/$<{\"']{8,200})@",
    ),
    _kind("a Stripe key", "k_live_", _START + rb"[sr]k_live_([A-Za-z0-9]{20})"),
    _kind(
        "an OpenAI key", "sk-proj-|sk-svcacct-|sk-admin-", _START + rb"sk-(?:proj|svcacct|admin)-([A-Za-z0-9_-]{40})"
    ),
    _kind("an OpenAI key", "T3BlbkFJ", _START + rb"sk-([A-Za-z0-9_-]{20,100})T3BlbkFJ([A-Za-z0-9_-]{20})"),
    _kind("an Anthropic key", "sk-ant-", _START + rb"sk-ant-[a-z]+[0-9]+-([A-Za-z0-9_-]{40})"),
    _kind("a SendGrid key", "SG.", _START + rb"SG\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})"),
    _kind("a DigitalOcean token", "_v1_", _START + rb"do[opr]_v1_([0-9a-f]{64})"),
    _kind("a Vault token", "hvs.", _START + rb"hvs\.([A-Za-z0-9_-]{24})"),
)
_RUNS = re.compile(rb"[\t\n\r -~]{16,}")
"""Text in binary files: no kind of secret is shorter."""
_MOST_UNPACKED = 64 << 20
"""Bytes of an archive's content that are searched: a small file can unpack to anything."""
_MOST_MEMBERS = 10_000
_HEAD = 4096


@checks(VariantDir, SECRET)
def secrets(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Every file of a variant, whatever let it in: its name, the name of what it links to, and its content."""
    libraries = {library.path: library for library in variant.libraries}
    kept_by: set[str] = set()
    for entry in variant.listing.entries:
        place = join(variant.shown, entry.relative)
        if entry.kind is not EntryKind.FILE:
            continue
        parts = _parts_to_judge(variant, entry)
        folder = next((part for part in parts[:-1] if part in VERSION_CONTROL), None)
        if folder is not None:
            if entry.size and folder not in kept_by:
                kept_by.add(folder)
                yield SECRET.at(
                    place, (f"{folder} contains everything that was ever committed, and passwords of servers")
                )
            continue
        if _is_secret_name(parts):
            yield SECRET.at(place, f"files named {printable('/'.join(parts[-2:]))} contain secrets")
            continue
        path = variant.path / entry.relative
        for what, line in secrets_in(path, libraries.get(path)):
            yield SECRET.at(place, f"contains {what}", line=line)


@checks(SourceTree, SECRET)
def beside_variants(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """What an upload publishes of the project itself."""
    for path in published_beside(source.path):
        for what, line in secrets_in(path):
            yield SECRET.at(join(source.shown, path.relative_to(source.path).as_posix()), f"contains {what}", line=line)


def published_beside(directory: Path) -> tuple[Path, ...]:
    """The files of a project that an upload publishes beside variants: its card and benchmarks (contract 6.4)."""
    found = [directory / "CARD.md", *sorted((directory / "benchmarks").glob("benchmark*.py"))]
    return tuple(path for path in found if path.is_file())


def _parts_to_judge(variant: VariantDir, entry: TreeEntry) -> tuple[str, ...]:
    """The parts of an entry's path that count; of a link's target, when that is called something worse."""
    own = tuple(entry.relative.split("/"))
    path = variant.path / entry.relative
    real = relative_to(os.path.realpath(path), os.path.realpath(variant.path))
    target = tuple(part for part in real.split("/") if part != "..")
    worse = _is_secret_name(target) or any(part in VERSION_CONTROL for part in target[:-1])
    return target if worse else own


def _is_secret_name(parts: tuple[str, ...]) -> bool:
    name = parts[-1].lower()
    if any(word in name.split(".") for word in _HARMLESS):
        return False
    tail = "/".join(parts[-2:]).lower()
    return any(fnmatchcase(name, pattern) for pattern in _NAMES) or any(tail.endswith(place) for place in _PLACES)


def secrets_in(path: Path, library: LibraryFile | None = None) -> Iterator[tuple[str, int | None]]:
    """``(what, line)`` of each kind of secret in a file, once each. The line is only known for text.

    Of a library, code and GPU code are passed over. Raises ``OSError`` for a file that cannot be read.
    """
    if library is None:
        status = path.stat()
        yield from _in_file(path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
        return
    yield from _look(path, library)


@lru_cache(maxsize=512)
def _in_file(path: Path, _stamp: tuple[int, ...]) -> tuple[tuple[str, int | None], ...]:
    """Variants of several backends are packed from the same files, and each is looked at."""
    return _look(path, None)


def _look(path: Path, library: LibraryFile | None) -> tuple[tuple[str, int | None], ...]:
    with path.open("rb") as file:
        head = file.read(_HEAD)
    ranges = library.text_ranges if library is not None and library.elf is not None else data_ranges(path)
    found: dict[str, int | None] = {}
    _search(pieces(path, ranges), found, is_text=b"\0" not in head, shrinks=_has_wide_letters(head))
    _search(_unpacked(path, head), found, is_text=False, shrinks=False)
    return tuple(found.items())


def _search(texts: Iterable[bytes], found: dict[str, int | None], *, is_text: bool, shrinks: bool) -> None:
    """Add what is in ``texts``, pieces of a whole that overlap, to ``found``. ``is_text``: it has lines; ``shrinks``:
    every letter takes two bytes or more.
    """
    for number, piece in enumerate(texts):
        text = piece.replace(b"\0", b"") if shrinks else piece
        text = text if is_text else b"\0".join(_RUNS.findall(text))
        for kind in _KINDS:
            match = None if kind.what in found else kind.find(text)
            if match is not None:
                found[kind.what] = text.count(b"\n", 0, match.start()) + 1 if is_text and number == 0 else None


def _has_wide_letters(head: bytes) -> bool:
    """Whether a text seems to be UTF-16 or UTF-32: every second byte is zero."""
    half = len(head) // 2
    return half > 0 and max(head[::2].count(0), head[1::2].count(0)) > 0.6 * half


def _unpacked(path: Path, head: bytes) -> Iterator[bytes]:
    """The content of an archive in pieces that overlap, as far as it is to be searched; nothing for other files, and no
    more where one is damaged.
    """
    if head.startswith(b"PK\x03\x04"):
        files = _members(path)
    else:
        open_packed = next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), None)
        files = iter(()) if open_packed is None else _opened(open_packed, path)
    left = _MOST_UNPACKED
    try:
        for file in files:
            tail = b""
            while left > 0 and (data := file.read(min(PIECE, left))):
                left -= len(data)
                yield tail + data
                tail = data[-OVERLAP:]
    except _DAMAGED:
        return


_PACKED: Mapping[bytes, Callable[[Path], IO[bytes]]] = {
    b"\x1f\x8b": lambda path: cast("IO[bytes]", gzip.open(path)),  # noqa: SIM115  (closed by who calls it)
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


def _opened(opener: Callable[[Path], IO[bytes]], path: Path) -> Iterator[IO[bytes]]:
    with opener(path) as file:
        yield file


def _members(path: Path) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist()[:_MOST_MEMBERS]:
            if not member.is_dir():
                with archive.open(member) as file:
                    yield file
