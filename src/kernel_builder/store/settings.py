"""Where packages come from: the index that pip or uv is already configured for.

No index address is written here. The first of these that names one wins: ``KERNEL_BUILDER_INDEX_URL``;
``PIP_INDEX_URL``, ``UV_DEFAULT_INDEX``, ``UV_INDEX_URL``; pip's configuration files (``index-url``); uv's
(``index-url``, or the ``[[index]]`` marked ``default``); the index client's own default.
Reference: pip user guide, "Configuration"; uv documentation, "Configuration files" and "Package indexes".
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from kernel_builder.errors import NetworkError, UsageError
from kernel_builder.toml.nodes import quoted

_VARIABLES = ("KERNEL_BUILDER_INDEX_URL", "PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_CERTIFICATE_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")


_SPECIAL = re.compile(r"[/?#\\]")
_QUERY = re.compile(r"[?#]")
_PLAIN_HOST = re.compile(r"[A-Za-z0-9_.-]+(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?")


def redact(url: str) -> str:
    """``url`` without user, password, query and fragment, safe for messages, logs and files.

    Whoever writes a password into an address may forget to encode what is special there (``/``, ``#``, ``@``). So all
    that stands before the last ``@`` is taken away, unless it clearly is a host with the beginning of a path.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    before, at, after = rest.rpartition("@")
    if at:
        host, *path = _SPECIAL.split(before, maxsplit=1)
        if not path or not _PLAIN_HOST.fullmatch(host) or ":" in path[0]:
            rest = after
    return f"{scheme}{separator}{_QUERY.split(rest, maxsplit=1)[0]}"


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """An index: its address without credentials, the credentials apart, and what said so.

    ``origin`` is for messages (``PIP_INDEX_URL``, the path of a file, ``default``). ``certificates`` is a
    file or directory of certificate authorities; ``None`` leaves the choice to the HTTP library.
    ``url`` is ``None`` where nothing is configured: :attr:`address` is then the index client's default. ``place`` is
    where hints tell people to write another address.
    """

    url: str | None = field(repr=False)
    origin: str
    place: str = "KERNEL_BUILDER_INDEX_URL"
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    certificates: Path | None = None

    @property
    def address(self) -> str:
        """The index's address."""
        if self.url is not None:
            return self.url
        # Half a second of imports, which a build with everything in its store must not pay.
        import kernel_builder.store.http_library  # isort: skip  # noqa: F401, PLC0415  (before urllib3)
        from pypi_simple import PYPI_SIMPLE_ENDPOINT  # noqa: PLC0415

        return PYPI_SIMPLE_ENDPOINT

    @property
    def with_credentials(self) -> str:
        """The address as another program takes it: not for messages."""
        parts = urlsplit(self.address)
        if self.credentials is None:
            return self.address
        user, password = (quote(text, safe="") for text in self.credentials)
        return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc}"))


def pip_values(key: str, environ: Mapping[str, str], home: Path | None = None) -> list[str]:
    """What pip is told by the option ``key``, whose value is a list: by its variable, else by its files."""
    named = environ.get(f"PIP_{key.upper().replace('-', '_')}")
    if named is not None:
        return named.split()
    found = _pip_values(pip_configuration_files(environ, _home(environ) if home is None else home), key)
    return found[0].split() if found else []


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """``url`` without user and password, and these. Raises ``ValueError`` for what is no URL."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    if not at:
        return url, None
    name, _, password = user.partition(":")
    return urlunsplit(parts._replace(netloc=_host(parts))), (unquote(name), unquote(password))


def names_a_server(url: str) -> bool:
    """Whether ``url`` is an address of http or https with a host, and with a port that there can be."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(host) and port != 0 and not re.search(r"\s", parts.netloc)


def _make(
    url: str, origin: str, certificates: Path | None, *, place: str = "KERNEL_BUILDER_INDEX_URL"
) -> IndexSettings:
    # uv allows "name=url" in UV_DEFAULT_INDEX.
    name, equals, rest = url.strip().partition("=")
    if equals and name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        url = rest
    url = url.strip()
    try:
        bare, credentials = split_credentials(url)
        scheme = urlsplit(bare).scheme
    except ValueError as error:
        raise NetworkError(f"{origin} is not a valid URL", hint="use a URL like https://host/simple") from error
    if redact(bare) != _QUERY.split(bare, maxsplit=1)[0]:
        raise NetworkError(
            f"the user or password in {origin} contains characters that must be percent-encoded",
            hint="write %2F for '/', %23 for '#', %3F for '?', %40 for '@', %3A for ':'",
        )
    if scheme not in {"http", "https"}:
        raise NetworkError(
            f"the package index of {origin} is {redact(url)!r}, which is not an http or https URL",
            hint=f"set the URL of a simple index, such as https://host/simple, in {place}",
        )
    if not names_a_server(bare):
        raise NetworkError(
            f"the package index of {origin} is {redact(url)!r}, which has no host name",
            hint=f"set the URL of a simple index, such as https://host/simple, in {place}",
        )
    return IndexSettings(url=bare, origin=origin, place=place, credentials=credentials, certificates=certificates)


def index_at(url: str, name: str, environ: Mapping[str, str], home: Path | None = None) -> IndexSettings:
    """A further index, which ``kernel-builder.toml`` calls ``name``; certificates as for the configured one.

    Raises :class:`NetworkError` when ``url`` is no http(s) address.
    """
    return _make(url, f"the index {name!r}", find_certificates(environ, home), place="kernel-builder.toml")


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def pip_configuration_files(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The files that pip reads, the least important first, whether or not they exist."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return ()
    system = [
        Path(folder) / "pip" / "pip.conf"
        for folder in reversed(environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"))
        if folder
    ]
    user = Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    files = [*system, Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user, Path(sys.prefix) / "pip.conf"]
    if named:
        files.append(Path(named))
    return tuple(files)


def _pip_values(files: tuple[Path, ...], key: str) -> tuple[str, Path] | None:
    """The value of ``key`` that pip would use for ``pip download``, and the file that sets it."""
    found: dict[str, tuple[str, Path]] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):
            continue  # pip itself will complain about it
        for section in ("global", "download"):
            value = parser.get(section, key, fallback=None)
            if value:
                found[section] = (value, file)
    return found.get("download") or found.get("global")


def uv_configuration_files(environment: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """The files that uv reads, the most important first, whether or not they exist."""
    named = environment.get("UV_CONFIG_FILE")
    config_home = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return (Path(named),) if named else (config_home / "uv" / "uv.toml", Path("/etc/uv/uv.toml"))


def index_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that :func:`find_index` may read, whether or not they exist."""
    home = _home(environ)
    return (*pip_configuration_files(environ, home), *uv_configuration_files(environ, home))


def _uv_index(environment: Mapping[str, str], home: Path) -> tuple[str, Path] | None:
    for file in uv_configuration_files(environment, home):
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        indexes = table.get("index")
        for entry in indexes if isinstance(indexes, list) else ():
            if isinstance(entry, dict) and entry.get("default") is True and isinstance(entry.get("url"), str):
                return entry["url"], file
        if isinstance(table.get("index-url"), str):
            return table["index-url"], file
    return None


def find_index(environ: Mapping[str, str], home: Path | None = None) -> IndexSettings:
    """The package index that the variables ``environ`` and the files of this machine name.

    Raises :class:`NetworkError` when what is configured is no http(s) address.
    """
    home = _home(environ) if home is None else home
    pip_files = pip_configuration_files(environ, home)
    certificates = find_certificates(environ, home)
    for variable in _VARIABLES:
        if environ.get(variable):
            return _make(environ[variable], variable, certificates)
    for found in (_pip_values(pip_files, "index-url"), _uv_index(environ, home)):
        if found is not None:
            return _make(found[0], str(found[1]), certificates)
    return IndexSettings(url=None, origin="default", certificates=certificates)


def find_certificates(environ: Mapping[str, str], home: Path | None = None) -> Path | None:
    """The certificate authorities that pip would use, as a file or directory; ``None``: the HTTP library's own."""
    pip_files = pip_configuration_files(environ, _home(environ) if home is None else home)
    for variable in _CERTIFICATE_VARIABLES:
        if environ.get(variable):
            return Path(environ[variable])
    configured = _pip_values(pip_files, "cert")
    return Path(configured[0]) if configured else None


def expanded(text: str, variable: str) -> Path:
    """The path in an environment variable. Raises :class:`UsageError` for ``~somebody`` who does not exist."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{variable} is {quoted(text)}: no such user", hint="write the full path") from error
