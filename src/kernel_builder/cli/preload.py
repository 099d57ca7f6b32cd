"""What ``dask worker --preload kernel_builder.cli.preload`` loads to compile, too, for clusters whose tools start
dask's own command.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernel_builder.cli import snapshot_of
from kernel_builder.cluster.tasks import ATTRIBUTE, resources_of
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store, default_root
from kernel_builder.store.offline import asks_for_offline
from kernel_builder.workflow.cluster import WorkerRequest, open_service
from kernel_builder.workflow.run import Run

_OPENED: list[ExitStack] = []


async def dask_setup(worker: Any) -> None:
    """What dask calls when the worker starts."""
    environ = snapshot_of()
    store = Store(default_root(environ), Silent())
    run = Run(environ=environ, store=store, reporter=Silent(), offline=asks_for_offline(environ))
    folder = Path(os.path.abspath(worker.local_directory))  # noqa: PTH100  (as dask has it, links and all)
    request = WorkerRequest(address=worker.scheduler.address, threads=worker.state.nthreads, folder=folder)
    stack = ExitStack()
    stack.callback(store.close)
    service, _, _ = stack.enter_context(open_service(request, run))
    setattr(worker, ATTRIBUTE, service)
    await worker.set_resources(**resources_of(service))
    _OPENED.append(stack)


async def dask_teardown(_worker: Any) -> None:
    """What dask calls when the worker ends: stop what runs, and leave nothing."""
    while _OPENED:
        await asyncio.to_thread(_OPENED.pop().close)
