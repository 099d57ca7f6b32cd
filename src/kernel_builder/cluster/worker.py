"""Starts a worker: one of dask's, with a service of kernel-builder in it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.cluster.open import DASK_SETTINGS, address_of, connection_arguments, in_words, needs_dask
from kernel_builder.cluster.service import Service
from kernel_builder.cluster.tasks import ATTRIBUTE, resources_of
from kernel_builder.errors import NetworkError
from kernel_builder.signals import ENDING

_GRACE_SECONDS = 5.0
"""For how long dask may go on waiting when it should have given up."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """``address`` is the scheduler's, ``host`` what the worker listens on (``None``: where the scheduler sees it),
    ``threads`` how many actions run at once. ``folder`` is its own: it is removed in the end. ``patience`` is for how
    many seconds a scheduler is waited for.
    """

    address: str
    host: str | None
    threads: int
    folder: Path
    name: str | None
    patience: float


def serve(options: WorkerOptions, service: Service, ready: Callable[[str], None]) -> None:
    """Work for the scheduler until it goes, or a signal comes; ``ready`` is called with the worker's address.

    Raises :class:`UsageError` without dask, :class:`NetworkError` where no scheduler answers.
    """
    needs_dask()
    asyncio.run(_serve(options, service, ready))


async def _serve(options: WorkerOptions, service: Service, ready: Callable[[str], None]) -> None:
    import dask  # noqa: PLC0415  (an extra)
    from distributed import Worker  # noqa: PLC0415

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set(DASK_SETTINGS)
    address = address_of(options.address)
    host = options.host or ("127.0.0.1" if "://127." in address or "://localhost" in address else None)
    connection_arguments(address)  # which dask's worker would ask for itself, and fail with a traceback
    try:
        worker: Any = Worker(
            address,
            nthreads=options.threads,
            name=options.name,
            host=host,
            memory_limit=0,  # compilers are programs of their own: kernel-builder counts their memory
            resources=resources_of(service),
            local_directory=str(options.folder),
            dashboard_address="127.0.0.1:0",
            death_timeout=options.patience,
        )
        setattr(worker, ATTRIBUTE, service)
        async with asyncio.timeout(options.patience + _GRACE_SECONDS):
            await worker
    except Exception as error:  # what answers there may speak anything, of which dask makes any error
        raise NetworkError(
            f"no scheduler responds at {options.address}: {in_words(error)}",
            hint="start one as docs/howto/clusters.md shows, or check the address",
        ) from error
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopped.set)
    ready(worker.address)
    done = [asyncio.ensure_future(worker.finished()), asyncio.ensure_future(stopped.wait())]
    await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(service.close)
    await worker.close(timeout=2, nanny=False)
    for one in done:
        one.cancel()
