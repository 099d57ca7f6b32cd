"""What builds ask of dask's workers: plain functions, of which dask sends the names. Each hands on to the service of
the worker that it runs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kernel_builder.cluster.service import Service

ATTRIBUTE = "kernel_builder_service"
MEMORY = "memory of kernel-builder"
"""The resource of dask that stands for a worker's memory, in bytes. Dask has no more tasks run there at once, of
whichever builds, than it suffices for.
"""


def service_of(worker: Any) -> Service | None:
    """The service of a worker, if ``kernel-builder worker`` started it."""
    service: Service | None = getattr(worker, ATTRIBUTE, None)
    return service


def describe(dask_worker: Any) -> dict[str, Any] | None:
    """What the worker announces; ``None`` where it has no service."""
    service = service_of(dask_worker)
    return service.describe() if service is not None else None


def resources_of(service: Service) -> dict[str, float]:
    """What dask is told that a worker with ``service`` has."""
    return {MEMORY: float(service.describe()["memory"])}


def put(blobs: Mapping[str, bytes], dask_worker: Any) -> str:
    """:meth:`Service.put`."""
    service = service_of(dask_worker)
    return service.put(blobs) if service is not None else "it was not started by kernel-builder"


async def end(run: str, dask_worker: Any) -> None:
    """:meth:`Service.end`, beside what the worker does meanwhile."""
    service = service_of(dask_worker)
    if service is not None:
        await asyncio.to_thread(service.end, run)


def perform(message: Mapping[str, Any]) -> dict[str, Any]:
    """:meth:`Service.perform`, until the task is cancelled, its build is gone, or the worker closes."""
    from distributed import get_worker  # noqa: PLC0415  (an extra)

    worker = get_worker()
    service = service_of(worker)
    if service is None:
        return {"problem": "it was not started by kernel-builder", "kind": "lacks"}
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in {"executing", "long-running"} and worker.status.name == "running"

    return service.perform(message, is_wanted)
