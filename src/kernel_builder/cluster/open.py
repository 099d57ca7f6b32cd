"""What builds and workers share of dask: whether it is there, addresses, its settings, and who answers."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernel_builder.errors import NetworkError, UsageError

DASK_SETTINGS = {
    "distributed.comm.timeouts.connect": "5s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.scheduler.allowed-failures": 0,
}
"""A lost machine is noticed soon, and what is lost is done again by us; nothing else watches."""
_ADDRESS = re.compile(r"(?:(?P<protocol>tcp|tls|ws|wss)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>\d+)")


def needs_dask() -> None:
    """Raise :class:`UsageError` where dask.distributed is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise UsageError(
            "dask.distributed, which runs actions on other machines, is not installed",
            hint="run: pip install 'kernel-builder[cluster]'",
        )


@contextmanager
def dask_settings() -> Iterator[None]:
    """Dask with our settings, until the block ends."""
    import dask  # noqa: PLC0415  (an extra)

    # It adds its defaults where it is imported. Within the block, they would go with ours when that ends.
    import distributed  # noqa: F401, PLC0415

    with dask.config.set(DASK_SETTINGS):
        yield


def address_of(text: str) -> str:
    """An address as dask has it, ``tcp://127.0.0.1:8786``. Raises :class:`UsageError` for what is none."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(
            f"{text!r} is not the address of a scheduler",
            hint="write it as HOST:PORT or tls://HOST:PORT, as 'dask scheduler' prints it",
        )
    return text if match["protocol"] else f"tcp://{text}"


def connection_arguments(address: str) -> Mapping[str, Any]:
    """What connections to ``address`` are opened with, by dask's settings of TLS. Raises :class:`UsageError` where
    these do not do.
    """
    from distributed.security import Security  # noqa: PLC0415  (an extra)

    to_settings: Any = Security  # types of dask are partial
    try:
        arguments: Mapping[str, Any] = to_settings().get_connection_args("client")
    except (OSError, ValueError) as error:
        absent = [path for path in _certificate_files() if not os.path.isfile(path)]  # noqa: PTH113
        why = f"there is no {' and no '.join(absent)}" if absent else str(error)
        raise UsageError(f"dask's settings of TLS cannot be used: {why}", hint=_CERTIFICATES) from error
    if address.startswith(("tls://", "wss://")) and arguments.get("ssl_context") is None:
        raise UsageError(f"{address} needs certificates, and dask's settings name none", hint=_CERTIFICATES)
    return arguments


def _certificate_files() -> Iterator[str]:
    """The files that dask's settings of TLS name for a client."""
    import dask  # noqa: PLC0415  (an extra)

    for key in ("ca-file", "client.cert", "client.key"):
        path = dask.config.get(f"distributed.comm.tls.{key}", None)
        if isinstance(path, str) and "\n" not in path:  # else it is the text of one
            yield path


_CERTIFICATES = "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE and the others that docs/howto/clusters.md shows"


def check_scheduler(address: str, shown: str, seconds: float) -> None:
    """See that a scheduler answers at ``address`` within so many seconds. A client of dask would wait for ever for some
    that are none. ``shown`` is the address as people wrote it. Raises :class:`UsageError`, :class:`NetworkError`.
    """
    import asyncio  # noqa: PLC0415  (start-up time)

    arguments = connection_arguments(address)
    try:
        found = asyncio.run(_identity(address, arguments, seconds))
    except Exception as error:  # what answers there may speak anything, of which dask makes any error
        raise NetworkError(
            f"no scheduler responds at {shown}: {in_words(error)}",
            hint="start one as docs/howto/clusters.md shows, or check the address, and its tls:// if it has one",
        ) from error
    kind = found.get("type") if isinstance(found, dict) else None
    if kind != "Scheduler":
        raise NetworkError(
            f"what responds at {shown} is not a dask scheduler, but {f'its {kind}' if kind else 'something else'}",
            hint="pass the address that 'dask scheduler' prints",
        )


async def _identity(address: str, arguments: Mapping[str, Any], seconds: float) -> object:
    import asyncio  # noqa: PLC0415  (start-up time)

    from distributed.comm.core import connect  # noqa: PLC0415  (an extra)

    to_peer: Any = connect
    async with asyncio.timeout(seconds):
        comm = await to_peer(address, timeout=seconds, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()


def in_words(error: BaseException) -> str:
    """An error of dask's for people."""
    if isinstance(error, TimeoutError) and not str(error):
        return "it gave no answer that dask understands in time"
    return f"{type(error).__name__}: {error}".rstrip(": ") if str(error) else type(error).__name__
