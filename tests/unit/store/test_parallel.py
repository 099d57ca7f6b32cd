"""Transfers that run side by side end together, and stop nothing that comes after them."""

from __future__ import annotations

import threading

import pytest

from kernel_builder.store.parallel import run_all
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import CancelledError, Transport


@pytest.fixture
def transport() -> Transport:
    return Transport(IndexSettings(url="http://127.0.0.1:9/", origin="the test"))


def waits(transport: Transport) -> None:
    """A transfer that goes on until it is stopped."""
    while True:
        transport.check()
        threading.Event().wait(0.01)


def fails() -> None:
    raise ValueError("no such file")


def test_a_failure_ends_the_others_and_later_transfers_run(transport: Transport) -> None:
    with pytest.raises(ValueError, match="no such file"):
        run_all([lambda: waits(transport), fails], transfers=transport)
    transport.check()
    assert run_all([lambda: 1, lambda: 2], transfers=transport) == [1, 2]


def test_what_ends_within_does_not_let_go_on_what_was_stopped_around_it(transport: Transport) -> None:
    failed, seen = threading.Event(), []

    def outer_failure() -> None:
        failed.wait(10)
        raise ValueError("the outer one")

    def outer_waiting() -> None:
        try:
            run_all([lambda: waits(transport), lambda: waits(transport)], transfers=transport)
        except CancelledError:
            # The inner ones have ended, and were told to go on; the outer failure still counts.
            try:
                transport.check()
            except CancelledError:
                seen.append("stopped")
            raise

    threading.Timer(0.1, failed.set).start()
    with pytest.raises(ValueError, match="the outer one"):
        run_all([outer_waiting, outer_failure], transfers=transport)
    assert seen == ["stopped"]
    transport.check()
