"""Doing several downloads at once so that one failure, or Ctrl-C, ends them all soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from kernel_builder.store.transport import CancelledError

_Result = TypeVar("_Result")


class Stoppable(Protocol):
    """Transfers that can be stopped: those of a transport, of an index, or of several."""

    def cancel(self) -> None:
        """Make every running and later transfer raise :class:`CancelledError`, until :meth:`resume`."""
        ...

    def resume(self) -> None:
        """Take one :meth:`cancel` back; transfers go on once all are."""
        ...


def run_all(tasks: Sequence[Callable[[], _Result]], *, transfers: Stoppable, workers: int = 8) -> list[_Result]:
    """The results of ``tasks``, in their order, from up to ``workers`` threads, which use ``transfers``.

    When one raises, these are stopped until the others have ended, and the first real failure in the order
    of ``tasks`` is raised (:class:`CancelledError` only when there is nothing else). The same goes for
    Ctrl-C. A task may call this in turn.
    """
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(tasks)))) as pool:
        futures = [pool.submit(task) for task in tasks]
        failed = True
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = any(future.exception() is not None for future in done)
        finally:
            if failed:
                _end(pool, transfers)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, CancelledError))
    if errors:
        raise errors[0]
    return [future.result() for future in futures]


def _end(pool: ThreadPoolExecutor, transfers: Stoppable) -> None:
    transfers.cancel()
    try:
        pool.shutdown(wait=True, cancel_futures=True)
    finally:
        transfers.resume()
