"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernel_builder.cli.completing import SOURCE
from kernel_builder.errors import UsageError
from kernel_builder.files import bytes_of

if TYPE_CHECKING:
    from kernel_builder.variants.names import Platform

OFFLINE, SOURCES, HOST_COMPILER = "kernel_builder.offline", "kernel_builder.sources", "kernel_builder.host_compiler"
"""Where ``ctx.meta`` keeps what the options of the same name say; :mod:`kernel_builder.cli.session` reads it."""

HOST_COMPILERS = ("auto", "gcc", "clang", "zig")
"""Those of :class:`~kernel_builder.toolchain.model.HostChoice`, which takes time to import."""

_Command = TypeVar("_Command", bound=Callable[..., object])


class PathName(click.Path):
    """The path of a file or directory; an empty one, which a variable that is not set gives, is refused."""

    def __init__(self, **options: bool) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The ``Path`` of ``value``; ``Path("")`` would be the current directory."""
        if not os.fspath(value):
            self.fail("the path is empty; is a variable not set?", param, ctx)
        return super().convert(value, param, ctx)


def project_directory(directory: Path | None, *, quiet: bool = False) -> Path:
    """The directory that a command works on: the one that was named, else this one, else the only project right below.

    This one counts if it has a ``build.toml``, or built variants where commands look for them. A note says which was
    found below, unless ``quiet``. As the user would write it: not resolved.
    """
    if directory is not None:
        return directory
    here = Path()
    below = [] if (here / "build.toml").exists() else sorted(here.glob("*/build.toml"))
    if len(below) != 1 or any(any(here.glob(f"{place}metadata.json")) for place in ("", "*/", "build/*/", "result/*/")):
        return here
    if not quiet:
        click.echo(f"note: using {below[0].parent.name}, the only kernel project here", err=True)
    return below[0].parent


def project_argument(metavar: str | None = None, **options: bool) -> Callable[[_Command], _Command]:
    """The argument of commands that work on one directory: the function gets ``directory``, by
    :func:`project_directory`. ``options`` are those of :class:`PathName`, for a directory that is named.
    """

    def found(ctx: click.Context, _parameter: click.Parameter, value: Path | None) -> Path:
        return project_directory(value, quiet=ctx.resilient_parsing)

    return click.argument("directory", metavar=metavar, required=False, type=PathName(**options), callback=found)


def together(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """One decorator that adds ``options``, which help shows in this order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_NAMES = {"max_jobs": ("--max-jobs", "MAX_JOBS"), "cores": ("--cores", "CORES")}
"""The options that say how much runs at once, and the variables that say it where they do not."""


def _read_count(text: str, name: str, *, nothing: str) -> int | None:
    """The number ``text``; ``None`` for ``nothing``, the word that leaves it to the machine."""
    if text == nothing:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise UsageError(
            f"{name} is {text!r}, which is not a positive number", hint=f"write a number, or {nothing} for the default"
        )
    return int(text)


def how_many_at_once(
    jobs: int | None, max_jobs: str | None, cores: str | None, environ: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """How many variants are compiled at once, and how many compilers for each, as far as options and variables say so.

    Options win over variables; with ``jobs``, which counts compilers of all variants, variables do not count. Raises
    :class:`UsageError` for what is no number, and for ``jobs`` beside the other two.
    """
    given = {"max_jobs": max_jobs, "cores": cores}
    if jobs is not None:
        for key, value in given.items():
            if value is not None:
                raise UsageError(
                    f"--jobs cannot be combined with {_NAMES[key][0]}",
                    hint=(
                        f"run kernel-builder build --jobs {jobs} without {_NAMES[key][0]}: --jobs limits the "
                        "compilers of all variants together"
                    ),
                )
        return None, None
    found: dict[str, int | None] = {}
    for key, (option, variable) in _NAMES.items():
        value, name = given[key], option
        if value is None:
            value, name = environ.get(variable, "").strip() or None, variable
        found[key] = None if value is None else _read_count(value, name, nothing="auto" if key == "max_jobs" else "0")
    return found["max_jobs"], found["cores"]


def _keep_offline(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    ctx.meta[OFFLINE] = value


def offline_option(command: _Command) -> _Command:
    """``--offline``: the command opens no connection. Its function gets no parameter."""
    return click.option(
        "--offline",
        is_flag=True,
        expose_value=False,
        callback=_keep_offline,
        help="Never use the network; fail if something is not in the store. Same as KERNEL_BUILDER_OFFLINE=1.",
    )(command)


def sandbox_options(command: _Command) -> _Command:
    """``--sandbox`` and ``--try-sandbox``, as parameters of these names."""
    always = click.option(
        "--sandbox",
        is_flag=True,
        help=(
            "Run compilers in a bubblewrap sandbox: without network access, and with nothing to read but their "
            "declared inputs. metadata.json records this (docs/howto/reproduce.md)."
        ),
    )
    where_possible = click.option(
        "--try-sandbox",
        is_flag=True,
        help="Like --sandbox, but where bubblewrap cannot run, warn and build without it.",
    )
    return always(where_possible(command))


def _keep_sources(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    # A value may list several, as KERNEL_BUILDER_SOURCES does.
    ctx.meta[SOURCES] = tuple(filter(None, ",".join(value).replace(" ", "").split(",")))


def _keep_host_compiler(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    ctx.meta[HOST_COMPILER] = value


def source_option(command: _Command) -> _Command:
    """``--source`` and ``--host-compiler``: what toolchains are made of in this run, as ``KERNEL_BUILDER_SOURCES`` and
    ``KERNEL_BUILDER_HOST_COMPILER`` say it. Its function gets no parameters.
    """
    source = click.option(
        "--source",
        type=SOURCE,
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_keep_sources,
        help="Take toolchains from this source instead of the configured ones. Can be repeated; order matters."
        " Same as KERNEL_BUILDER_SOURCES.",
    )
    host_compiler = click.option(
        "--host-compiler",
        type=click.Choice(HOST_COMPILERS),
        expose_value=False,
        callback=_keep_host_compiler,
        help=(
            "Compiler for host code; zig is fetched, so no compiler needs to be installed. Default: auto, the best "
            "one on this machine, or zig if there is none. Same as KERNEL_BUILDER_HOST_COMPILER."
        ),
    )
    return source(host_compiler(command))


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


_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def read_duration(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """Callback of an option: seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration; use 30d, 12h, 90m or 2w")
    return int(match[1]) * _SECONDS[match[2]]


def read_size(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Callback of an option: bytes."""
    size = None if value is None else bytes_of(value)
    if value is not None and size is None:
        raise click.BadParameter(f"{value!r} is not a size; use 5G or 800M")
    return size
