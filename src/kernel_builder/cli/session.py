"""The :class:`Run` of a command, out of the environment that the command line was started with and of its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.options import HOST_COMPILER, OFFLINE, SOURCES

if TYPE_CHECKING:
    from kernel_builder.workflow.run import Run


def environment() -> Mapping[str, str]:
    """The environment of the command that runs: what :func:`kernel_builder.cli.run` was given."""
    environ: Mapping[str, str] = click.get_current_context().find_root().obj
    return environ


@contextmanager
def open_run(*, quiet: bool = False, silent: bool = False) -> Iterator[Run]:
    """What the command that runs runs with, until the block ends.

    Progress goes to stderr; with ``quiet`` only warnings and errors, with ``silent`` nothing.
    """
    from kernel_builder.cli.console import ConsoleReporter  # noqa: PLC0415  (start-up time)
    from kernel_builder.events import Reporter, Silent  # noqa: PLC0415
    from kernel_builder.store.cache import Store, default_root  # noqa: PLC0415
    from kernel_builder.store.offline import asks_for_offline  # noqa: PLC0415
    from kernel_builder.workflow.run import Run  # noqa: PLC0415

    meta, environ = click.get_current_context().meta, environment()
    with ExitStack() as stack:
        reporter: Reporter = Silent() if silent else stack.enter_context(ConsoleReporter(quiet=quiet))
        store = Store(default_root(environ), reporter)
        stack.callback(store.close)
        yield Run(
            environ=environ,
            store=store,
            reporter=reporter,
            offline=meta.get(OFFLINE, False) or asks_for_offline(environ),
            sources=meta.get(SOURCES, ()),
            host_compiler=meta.get(HOST_COMPILER),
        )
