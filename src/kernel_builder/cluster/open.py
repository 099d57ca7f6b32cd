"""What builds and workers share of dask: whether it is there, addresses, and its settings."""

from __future__ import annotations

import importlib.util
import re

from kernel_builder.errors import UsageError

DASK_SETTINGS = {
    "distributed.comm.timeouts.connect": "5s",
    "distributed.comm.retry.count": 0,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.scheduler.allowed-failures": 0,
}
"""A lost machine is noticed soon, and what is lost is done again by us; nothing else watches."""
_ADDRESS = re.compile(
    r"(?:(?P<protocol>tcp|tls|ws|wss|ucx)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>\d+)"
)


def needs_dask() -> None:
    """Raise :class:`UsageError` where dask.distributed is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise UsageError(
            "dask.distributed is not installed, which runs actions on other machines",
            hint="run: pip install 'kernel-builder[cluster]'",
        )


def address_of(text: str) -> str:
    """An address as dask has it, ``tcp://127.0.0.1:8786``. Raises :class:`UsageError` for what is none."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(
            f"{text!r} is not the address of a scheduler",
            hint="write it as HOST:PORT or tls://HOST:PORT, as 'dask scheduler' prints it",
        )
    return text if match["protocol"] else f"tcp://{text}"
