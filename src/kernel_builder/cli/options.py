"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., object])


def _enter(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from kernel_builder.store.offline import offline  # noqa: PLC0415  (start-up time)

        ctx.with_resource(offline())


def offline_option(command: _Command) -> _Command:
    """``--offline``: the command opens no connection. Its function gets no parameter."""
    return click.option(
        "--offline",
        is_flag=True,
        expose_value=False,
        callback=_enter,
        help="Never use the network; what is not in the store is an error. KERNEL_BUILDER_OFFLINE=1 does the same.",
    )(command)
