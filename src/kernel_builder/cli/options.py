"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from kernel_builder.environment import variable

if TYPE_CHECKING:
    from kernel_builder.variants.names import Platform

_Command = TypeVar("_Command", bound=Callable[..., object])


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """One decorator that adds ``options``, which help shows in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


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
        help="Never use the network; fail if something is not in the store. Same as KERNEL_BUILDER_OFFLINE=1.",
    )(command)


def _choose_sources(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    if value:
        ctx.with_resource(variable("KERNEL_BUILDER_SOURCES", ",".join(value)))


def source_option(command: _Command) -> _Command:
    """``--source``: the order of sources, for this run, as ``KERNEL_BUILDER_SOURCES`` gives it. Its function gets no
    parameter.
    """
    return click.option(
        "--source",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_choose_sources,
        help="Take toolchains from this source instead of the configured ones. Can be repeated; order matters."
        " Same as KERNEL_BUILDER_SOURCES.",
    )(command)


def _read_platform(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Platform | None:
    if value is None:
        return None
    from kernel_builder.variants.names import Platform  # noqa: PLC0415  (start-up time)

    try:
        return Platform.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def platform_option(command: _Command) -> _Command:
    """``--platform``: the function gets ``platform``, or ``None`` for this machine's."""
    return click.option(
        "--platform",
        metavar="NAME",
        callback=_read_platform,
        help="Variants for another platform, such as aarch64-linux.",
    )(command)
