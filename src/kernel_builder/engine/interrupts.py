"""Signals that end a command, while an engine runs: they are dealt with between two changes of its state, never within
one.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kernel_builder.signals import ENDING


@contextmanager
def deferred(take: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """While it lasts, a signal whose handler would end the command gives ``take`` what does that, to be called when it
    suits. ``take`` itself runs within a handler of a signal. What is ignored stays so. In another thread than the main
    one, which no signal interrupts, it does nothing.
    """
    former: dict[int, Callable[[int, FrameType | None], object]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        def act() -> None:
            former[number](number, frame)

        take(act)

    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            handler = signal.getsignal(number)
            if callable(handler):
                former[number] = handler
                signal.signal(number, handle)
    try:
        yield
    finally:
        for wanted, before in former.items():
            signal.signal(wanted, before)
