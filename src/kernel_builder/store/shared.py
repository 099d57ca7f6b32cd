"""A store of results that several machines share: a directory, a web server, or a bucket.

``obstore`` talks to it, which comes with ``pip install 'kernel-builder[shared-cache]'``; credentials are those of the
environment. What cannot be read or written is not: a build goes on without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernel_builder.errors import UsageError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import write_bytes
from kernel_builder.store.settings import redact

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PLACE, MODE = "KERNEL_BUILDER_SHARED_CACHE", "KERNEL_BUILDER_SHARED_CACHE_MODE"
_READ, _WRITE = "read", "write"
_SCHEMES = ("http://", "https://", "s3://", "gs://", "az://")
_AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_SKIP_SIGNATURE",
)
_SECONDS = 20
_PATIENCE = 3
"""After so many failures in a row it is not asked again."""


@dataclass(kw_only=True)
class SharedFolder:
    """A directory, such as one on a network file system."""

    root: Path
    writes: bool

    def get(self, name: str) -> bytes | None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        try:
            return (self.root / name).read_bytes()
        except OSError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        if not self.writes:
            return
        try:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.root / name, data)
        except OSError:
            return


@dataclass(kw_only=True)
class SharedServer:
    """A web server that takes GET and PUT, or a bucket."""

    address: str
    store: ObjectStore
    writes: bool
    reporter: Reporter
    failures: int = 0

    def get(self, name: str) -> bytes | None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        import obstore  # noqa: PLC0415  (optional)

        if self.failures >= _PATIENCE:
            return None
        try:
            data = bytes(obstore.get(self.store, name).bytes())
        except FileNotFoundError:
            data = None
        except Exception as error:  # noqa: BLE001  (its errors share no class but this)
            self._note(error)
            return None
        self.failures = 0
        return data

    def put(self, name: str, data: bytes) -> None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        import obstore  # noqa: PLC0415  (optional)

        if not self.writes or self.failures >= _PATIENCE:
            return
        try:
            obstore.put(self.store, name, data, use_multipart=False)
        except Exception as error:  # noqa: BLE001
            self._note(error)
        else:
            self.failures = 0

    def _note(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == _PATIENCE:
            reason = str(error).strip().splitlines()[0]
            message = f"the shared cache {redact(self.address)} does not answer, so it is not asked any more: {reason}"
            self.reporter.emit(Notice(message=message, warning=True))


def open_shared(environ: Mapping[str, str], reporter: Reporter, *, offline: bool) -> SharedFolder | SharedServer | None:
    """What ``KERNEL_BUILDER_SHARED_CACHE`` names: a URL or a directory; ``None`` where it names nothing, and, for a
    URL, where nothing is to be connected to.

    It is only read unless ``KERNEL_BUILDER_SHARED_CACHE_MODE`` is ``write``. Raises :class:`UsageError` for what
    neither variable can be, and where the library is not installed.
    """
    place, mode = environ.get(PLACE, "").strip(), environ.get(MODE, "").strip() or _READ
    if not place:
        return None
    if mode not in (_READ, _WRITE):
        raise UsageError(f"{MODE} is {mode!r}", hint=f"set it to {_READ} or {_WRITE}")
    writes = mode == _WRITE
    if "://" not in place:
        return SharedFolder(root=Path(place).expanduser().absolute(), writes=writes)
    if not place.startswith(_SCHEMES):
        kinds = ", ".join(_SCHEMES)
        raise UsageError(f"{PLACE} is {redact(place)!r}", hint=f"set it to a directory, or a URL with one of: {kinds}")
    if offline:
        return None
    return SharedServer(address=place, store=_opened(place, environ), writes=writes, reporter=reporter)


def _opened(place: str, environ: Mapping[str, str]) -> ObjectStore:
    try:
        from obstore.store import from_url  # noqa: PLC0415  (optional)
    except ImportError:
        raise UsageError(
            f"{PLACE} names a server, and the library that talks to it is not installed",
            hint="run: pip install 'kernel-builder[shared-cache]'",
        ) from None
    options: dict[str, Any] = {"timeout": f"{_SECONDS}s", "connect_timeout": "5s"}
    # A cache on plain http is the user's own choice; what comes from it is compared with its digest.
    config: dict[str, Any] = {}
    if place.startswith("s3://"):
        config = {name.lower(): environ[name] for name in _AWS if environ.get(name)}
    if place.startswith("http://") or str(config.get("aws_endpoint_url", "")).startswith("http://"):
        options["allow_http"] = True
    retries: dict[str, Any] = {"max_retries": 1}
    # Its types tell apart what each kind of place takes; here the place says the kind.
    opened: ObjectStore = cast("Any", from_url)(
        place, config=config or None, client_options=options, retry_config=retries
    )
    return opened
