"""HTTP for the store: one session, short retries, bytes counted, failures told in one sentence.

A refusal (4xx, nothing listens, no such host, a bad certificate) is final at once: trying again would only
make people wait, and a server that cannot be reached is not tried for the next file either. What may pass (5xx, 429, a
reset, a read that times out) is tried at most twice more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from kernel_builder.errors import IntegrityError, NetworkError
from kernel_builder.store.offline import refused_offline
from kernel_builder.store.settings import IndexSettings, redact

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
FIRST_SECONDS = 4.0
"""How long a server that nobody asked for may take until its first answer."""
RETRIES = 2
CHUNK = 256 * 1024
NO_NETWORK = "check your network connection, or set a mirror in {place}"

_Result = TypeVar("_Result")


class NotFoundError(NetworkError):
    """The server has no such page or file (404, 410)."""


class RangesUnsupportedError(NetworkError):
    """The server answers a request for a part with the whole file."""


class CancelledError(Exception):
    """Another download of the same batch failed, so this one stopped. Never leaves the store."""


class _TransientError(Exception):
    """Something that may pass; the text says what it was."""


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _check_status(response: requests.Response, url: str, place: str) -> None:
    status = response.status_code
    if status < 400:
        return
    if status >= 500 or status in {408, 429}:
        raise _TransientError(f"the server responded with {status} {response.reason}")
    if status in {404, 410}:
        raise NotFoundError(f"{redact(url)} does not exist (the server responded with {status})")
    hint = (
        f"put the user name and password in the URL in {place}, or in ~/.netrc" if status in {401, 403, 407} else None
    )
    raise NetworkError(
        f"access to {redact(url)} was denied: the server responded with {status} {response.reason}", hint=hint
    )


class Transport:
    """Sends requests. May be used from several threads; :meth:`cancel` stops them all.

    ``received`` counts the bytes of bodies as they came over the wire, ``requests`` the requests, retries
    included. With ``offline`` every request raises :class:`OfflineError`, and no connection is opened. With
    ``first_seconds`` a server gets that long, once, until the first bytes of its first answer; one that takes longer
    is not asked again.
    """

    def __init__(
        self,
        settings: IndexSettings,
        *,
        offline: bool = False,
        read_seconds: float = READ_SECONDS,
        backoff: float = 0.5,
        first_seconds: float | None = None,
    ) -> None:
        self.offline = offline
        self._settings = settings
        self._made: requests.Session | None = None
        self._place = settings.place
        self._verify = _existing(settings.certificates)
        self._timeout = (CONNECT_SECONDS, read_seconds)
        self._first_seconds = first_seconds
        self._answered: set[tuple[str, str]] = set()
        self._backoff = backoff
        self._lock = threading.Lock()
        self._cancels = 0
        self._cancelled = threading.Event()
        self._unreachable: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.received = 0
        self.requests = 0

    def cancel(self) -> None:
        """Make every running and later request raise :class:`CancelledError`, until :meth:`resume`."""
        with self._lock:
            self._cancels += 1
            self._cancelled.set()

    def resume(self) -> None:
        """Take one :meth:`cancel` back: who else cancelled waits for others to end."""
        with self._lock:
            self._cancels -= 1
            if not self._cancels:
                self._cancelled.clear()

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            if self._made is not None:
                self._made.close()

    @property
    def _session(self) -> requests.Session:
        """Made for the first request: most runs send none, and the HTTP library takes a tenth of a second to import."""
        with self._lock:
            if self._made is None:
                from kernel_builder.store.http_library import open_session  # noqa: PLC0415  (start-up time)

                self._made = open_session(self._settings)
            return self._made

    def count(self, size: int) -> None:
        """Add ``size`` received bytes."""
        with self._lock:
            self.received += size

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """The whole answer to a GET, redirects followed. Raises :class:`NetworkError`."""

        def once() -> requests.Response:
            with self._open(url, headers) as response:
                response.content  # noqa: B018  (reads the body while failures are still told apart)
                self._answered.add(_server(url))
                self.count(response.raw.tell())
                return response

        return self._retry(url, once)

    def range_size(self, url: str) -> int | None:
        """The size of the file at ``url``; ``None`` when the server does not serve ranges."""

        def once() -> int | None:
            with self._open(url, {"Range": "bytes=0-0", "Accept-Encoding": "identity"}) as response:
                return _total(response) if response.status_code == 206 else None

        return self._retry(url, once)

    def stream(self, url: str, start: int, stop: int, *, size: int, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
        """Bytes ``start`` to ``stop`` of a file of ``size`` bytes; it resumes after an interruption.

        Raises :class:`RangesUnsupportedError` before the first byte when the server sends the whole file
        instead.
        """
        position, failures = start, 0
        while position < stop:
            try:
                for chunk in self._stream_once(url, position, stop, size):
                    position += len(chunk)
                    self.count(len(chunk))
                    on_bytes(len(chunk))
                    yield chunk
            except _TransientError as error:
                failures += 1
                self._after_failure(url, failures, error)

    def download(self, url: str, target: Path, *, on_bytes: Callable[[int], None]) -> None:
        """Write the whole file at ``url`` to ``target``, for servers without ranges."""

        def once() -> None:
            with self._open(url, {"Accept-Encoding": "identity"}) as response, target.open("wb") as file:
                promised = response.headers.get("Content-Length")
                for chunk in self._chunks(response):
                    self._answered.add(_server(url))
                    self.count(len(chunk))
                    on_bytes(len(chunk))
                    file.write(chunk)
                if promised is not None and promised.isdigit() and file.tell() != int(promised):
                    raise _TransientError("the server sent fewer bytes than it announced")

        self._retry(url, once)

    def _stream_once(self, url: str, start: int, stop: int, size: int) -> Iterator[bytes]:
        headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        with self._open(url, headers) as response:
            if response.status_code != 206:
                raise RangesUnsupportedError(f"{redact(url)}: the server does not support range requests")
            if _total(response) not in {size, None} or _first(response) != start:
                raise IntegrityError(
                    f"{redact(url)}: the server sent a different range than requested, or the file has changed",
                    hint="run the command again",
                )
            left = stop - start
            for chunk in self._chunks(response):
                self._answered.add(_server(url))
                if len(chunk) > left:
                    raise IntegrityError(f"{redact(url)}: the server sent more bytes than requested")
                left -= len(chunk)
                yield chunk
            if left:
                raise _TransientError("the server sent fewer bytes than it announced")

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        from kernel_builder.store.http_library import BROKEN_OFF, describe  # noqa: PLC0415  (start-up time)

        chunks = response.raw.stream(CHUNK, decode_content=False)
        while True:
            self.check()
            try:
                chunk = next(chunks, None)
            except BROKEN_OFF as error:
                raise _TransientError(describe(error, self._timeouts(response.url)[1])) from error
            if chunk is None:
                return
            if chunk:
                yield chunk

    @contextmanager
    def _open(self, url: str, headers: Mapping[str, str]) -> Iterator[requests.Response]:
        self.check()
        if self.offline:
            raise refused_offline(redact(url))
        with self._lock:
            known = self._unreachable.get(_server(url))
            self.requests += known is None
        if known is not None:
            raise self._refused(url, known)
        from kernel_builder.store.http_library import FAILURES, describe, refusal_in  # noqa: PLC0415  (start-up time)

        timeouts = self._timeouts(url)
        try:
            with self._send(url, headers, timeouts) as response:
                if response.status_code >= 400:
                    self._answered.add(_server(url))
                _check_status(response, url, self._place)
                yield response
        except FAILURES as error:
            refusal = refusal_in(error, timeouts[0])
            if refusal is None:
                raise _TransientError(describe(error, timeouts[1])) from error
            if refusal[1] is NO_NETWORK or self._is_new(url):
                asked = getattr(error, "request", None)  # behind a redirect, another server's
                with self._lock:
                    self._unreachable[_server(getattr(asked, "url", None) or url)] = refusal
            raise self._refused(url, refusal) from error

    def _send(self, url: str, headers: Mapping[str, str], timeouts: tuple[float, float]) -> requests.Response:
        def send() -> requests.Response:
            return self._session.get(url, headers=dict(headers), stream=True, timeout=timeouts, verify=self._verify)

        if self._first_seconds is None or not self._is_new(url):
            return send()
        return _within(self._first_seconds, send)

    def _is_new(self, url: str) -> bool:
        """Whether this server must show first that it is there."""
        return self._first_seconds is not None and _server(url) not in self._answered

    def _timeouts(self, url: str) -> tuple[float, float]:
        if self._first_seconds is not None and self._is_new(url):
            return self._first_seconds, self._first_seconds
        return self._timeout

    def _refused(self, url: str, refusal: tuple[str, str | None]) -> NetworkError:
        what, hint = refusal
        return NetworkError(f"{redact(url)}: {what}", hint=hint and hint.format(place=self._place))

    def _retry(self, url: str, once: Callable[[], _Result]) -> _Result:
        failures = 0
        while True:
            try:
                return once()
            except _TransientError as error:
                failures += 1
                self._after_failure(url, failures, error)

    def _after_failure(self, url: str, failures: int, error: _TransientError) -> None:
        if self._is_new(url):
            with self._lock:
                self._unreachable[_server(url)] = (str(error), NO_NETWORK)
            raise self._refused(url, (str(error), NO_NETWORK)) from error
        if failures > RETRIES:
            raise NetworkError(
                f"{redact(url)}: {error}, {failures} times in a row",
                hint="try again later, or use another index",
            ) from error
        self._cancelled.wait(self._backoff * 2 ** (failures - 1))

    def check(self) -> None:
        """Raise :class:`CancelledError` after :meth:`cancel`."""
        if self._cancelled.is_set():
            raise CancelledError


def _within(seconds: float, send: Callable[[], requests.Response]) -> requests.Response:
    """What ``send`` returns or raises, if it does within ``seconds``: looking up a name has no limit of its own, and
    that of a connection counts for each address of a server. Raises ``ConnectTimeout``.
    """
    answers: Queue[requests.Response | Exception] = Queue()

    def run() -> None:
        try:
            answers.put(send())
        except Exception as error:  # noqa: BLE001  (it is raised where it is waited for)
            answers.put(error)

    threading.Thread(target=run, daemon=True, name="first contact").start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        from requests.exceptions import ConnectTimeout  # noqa: PLC0415  (start-up time)

        raise ConnectTimeout from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _existing(certificates: Path | None) -> str | bool:
    if certificates is None:
        return True
    if not certificates.exists():
        raise NetworkError(
            f"the certificate file {certificates} does not exist",
            hint="fix PIP_CERT, REQUESTS_CA_BUNDLE, SSL_CERT_FILE or pip's 'cert' setting",
        )
    return str(certificates)


def _content_range(response: requests.Response) -> tuple[str, str]:
    span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes").strip().partition("/")
    return span, total


def _total(response: requests.Response) -> int | None:
    total = _content_range(response)[1]
    return int(total) if total.isdigit() else None


def _first(response: requests.Response) -> int | None:
    first = _content_range(response)[0].partition("-")[0]
    return int(first) if first.isdigit() else None
