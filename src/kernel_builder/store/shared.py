"""A store of results that several machines share: a directory, a web server, or a bucket.

``obstore`` talks to it, which comes with ``pip install 'kernel-builder[shared-cache]'``; credentials are those of the
environment. What cannot be read or written is not: a build goes on without it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernel_builder.errors import UsageError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import Sink, replacing
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
_PIECE = 1 << 20
_PATIENCE = 3
"""After so many failures in a row it is not asked again."""


@dataclass(kw_only=True)
class SharedFolder:
    """A directory, such as one on a network file system."""

    root: Path
    writes: bool

    def get(self, name: str, into: Sink) -> bool:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        with suppress(OSError), (self.root / name).open("rb") as file:
            shutil.copyfileobj(file, into, _PIECE)
            return True
        return False

    def put(self, name: str, file: Path) -> None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        if not self.writes:
            return
        with suppress(OSError):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as opened, replacing(self.root / name) as target:
                shutil.copyfileobj(opened, target, _PIECE)


@dataclass(kw_only=True)
class SharedServer:
    """A web server that takes GET and PUT, or a bucket."""

    address: str
    store: ObjectStore
    writes: bool
    reporter: Reporter
    failures: int = 0

    def get(self, name: str, into: Sink) -> bool:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        import obstore  # noqa: PLC0415  (optional)

        if self.failures >= _PATIENCE:
            return False
        found = True
        try:
            for piece in obstore.get(self.store, name).stream():
                into.write(bytes(piece))
        except FileNotFoundError:
            found = False
        except Exception as error:  # noqa: BLE001  (its errors share no class but this)
            self._note(error)
            return False
        self.failures = 0
        return found

    def put(self, name: str, file: Path) -> None:
        """See :class:`~kernel_builder.engine.cache.SharedStore`."""
        import obstore  # noqa: PLC0415  (optional)

        if not self.writes or self.failures >= _PATIENCE:
            return
        try:
            obstore.put(self.store, name, file, use_multipart=False)
        except Exception as error:  # noqa: BLE001
            self._note(error)
        else:
            self.failures = 0

    def _note(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == _PATIENCE:
            reason = str(error).strip().splitlines()[0]
            message = (
                f"the shared cache {redact(self.address)} does not respond, so this build no longer uses it: {reason}"
            )
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
            f"{PLACE} names a server, but the library that connects to it is not installed",
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
