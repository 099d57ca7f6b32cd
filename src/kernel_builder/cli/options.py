"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from kernel_builder.errors import UsageError

if TYPE_CHECKING:
    from kernel_builder.variants.names import Platform

OFFLINE, SOURCES = "kernel_builder.offline", "kernel_builder.sources"
"""Where ``ctx.meta`` keeps what the options of the same name say; :mod:`kernel_builder.cli.session` reads it."""

_Command = TypeVar("_Command", bound=Callable[..., object])


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """One decorator that adds ``options``, which help shows in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _keep_offline(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[OFFLINE] = value


def offline_option(command: _Command) -> _Command:
    """``--offline``: the command opens no connection. Its function gets no parameter."""
    return click.option(
        "--offline",
        is_flag=True,
        expose_value=False,
        callback=_keep_offline,
        help="Never use the network; what is not in the store is an error. KERNEL_BUILDER_OFFLINE=1 does the same.",
    )(command)


def _keep_sources(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    # A value may list several, as KERNEL_BUILDER_SOURCES does.
    ctx.meta[SOURCES] = tuple(filter(None, ",".join(value).replace(" ", "").split(",")))


def source_option(command: _Command) -> _Command:
    """``--source``: the order of sources, for this run, as ``KERNEL_BUILDER_SOURCES`` gives it. Its function gets no
    parameter.
    """
    return click.option(
        "--source",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep_sources,
        help="Take toolchains from this source, and others given so, in this order, instead of those that are"
        " configured. KERNEL_BUILDER_SOURCES does the same.",
    )(command)


def _read_platform(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Platform | None:
    if value is None:
        return None
    from kernel_builder.variants.names import Platform  # noqa: PLC0415  (start-up time)

    try:
        return Platform.parse(value)
    except ValueError as error:
        raise UsageError(f"--platform {error}") from error


def platform_option(command: _Command) -> _Command:
    """``--platform``: the function gets ``platform``, or ``None`` for this machine's."""
    return click.option(
        "--platform",
        metavar="NAME",
        callback=_read_platform,
        help="Variants for this platform, such as aarch64-linux. Default: this machine's.",
    )(command)
