"""Doing several downloads at once so that one failure, or Ctrl-C, ends them all soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from kernel_builder.store.transport import CancelledError

_Result = TypeVar("_Result")


def run_all(tasks: Sequence[Callable[[], _Result]], *, cancel: Callable[[], None], workers: int = 8) -> list[_Result]:
    """The results of ``tasks``, in their order, from up to ``workers`` threads.

    When one raises, ``cancel`` is called, the others are waited for, and the first real failure in the order
    of ``tasks`` is raised (:class:`CancelledError` only when there is nothing else). The same goes for
    Ctrl-C.
    """
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(tasks)))) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = any(future.exception() is not None for future in done)
        except BaseException:
            cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        if failed:
            cancel()
            pool.shutdown(wait=True, cancel_futures=True)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, CancelledError))
    if errors:
        raise errors[0]
    return [future.result() for future in futures]
