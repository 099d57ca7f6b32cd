"""The HTTP library: sessions, and what its failures mean. Imported with the first request, for its import takes long.

It is imported without the socket that it opens to see whether this machine has IPv6: IPv6 addresses are tried where
Python can use them, and where they lead nowhere the next address is tried.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

_can_use = socket.has_ipv6
socket.has_ipv6 = False
try:
    import urllib3.util.connection
finally:
    socket.has_ipv6 = _can_use
urllib3.util.connection.HAS_IPV6 = _can_use

import requests  # noqa: E402
import urllib3.exceptions  # noqa: E402
from requests.adapters import HTTPAdapter  # noqa: E402
from requests.auth import AuthBase, HTTPBasicAuth  # noqa: E402

from kernel_builder import __version__  # noqa: E402
from kernel_builder.store.settings import IndexSettings  # noqa: E402
from kernel_builder.store.transport import NO_NETWORK  # noqa: E402

FAILURES = (requests.RequestException, urllib3.exceptions.HTTPError)
"""What sending a request raises."""
BROKEN_OFF = (urllib3.exceptions.HTTPError, OSError)
"""What reading an answer raises."""


def open_session(settings: IndexSettings) -> requests.Session:
    """A session that says who asks, with the credentials of ``settings`` for the server of ``settings``."""
    session = requests.Session()
    session.headers["User-Agent"] = f"kernel-builder/{__version__}"
    adapter = HTTPAdapter(pool_connections=16, pool_maxsize=16, max_retries=0)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    if settings.credentials is not None:
        session.auth = _IndexAuth(settings)
    return session


class _IndexAuth(AuthBase):
    """Credentials for the index's own host, and for no other (a file link may lead elsewhere)."""

    def __init__(self, settings: IndexSettings) -> None:
        self._origin = urlsplit(settings.url or "")[:2]
        self._basic = HTTPBasicAuth(*(settings.credentials or ("", "")))

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if urlsplit(request.url or "")[:2] == self._origin:
            signed: requests.PreparedRequest = self._basic(request)
            return signed
        return request


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        item = queue.pop(0)
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        queue += [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]


def _words(error: BaseException) -> str:
    """The operating system's words for a failure, or the kind of failure; never a URL."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return cause.strerror
    return type(error).__name__


_REFUSALS: tuple[tuple[type[Exception], str, str | None], ...] = (
    (
        requests.exceptions.SSLError,
        "its certificate could not be verified",
        "behind a proxy that inspects traffic, set PIP_CERT or SSL_CERT_FILE to its certificate file",
    ),
    (requests.exceptions.ProxyError, "the proxy refused", "check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"),
    (requests.exceptions.ConnectTimeout, "no connection within {seconds:.0f} s", NO_NETWORK),
)
_TRANSIENT = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    urllib3.exceptions.HTTPError,
)


def refusal_in(error: Exception, seconds: float) -> tuple[str, str | None] | None:
    """``(what happened, hint)``, after at most ``seconds`` of connecting, when trying again is pointless; ``None`` when
    the failure may pass.
    """
    for kind, what, hint in _REFUSALS:
        if isinstance(error, kind):
            return what.format(seconds=seconds), hint
    if any(isinstance(cause, urllib3.exceptions.NewConnectionError) for cause in _causes(error)):
        return f"no connection: {_words(error)}", NO_NETWORK
    if isinstance(error, _TRANSIENT):
        return None
    return f"the request failed: {_words(error)}", None  # redirect loops, unreadable addresses


def describe(error: Exception, seconds: float) -> str:
    """How a transfer broke off, for people, where nothing came for ``seconds``."""
    if isinstance(error, requests.exceptions.Timeout | urllib3.exceptions.ReadTimeoutError):
        return f"no data received for {seconds:.0f} s"
    if isinstance(error, requests.exceptions.ConnectionError | urllib3.exceptions.ProtocolError):
        return f"the connection was lost ({_words(error)})"
    return f"the transfer failed ({_words(error)})"
