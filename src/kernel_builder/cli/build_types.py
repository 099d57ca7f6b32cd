"""``--debug``, ``--lineinfo`` and ``--sanitize``: what a build is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

import click

from kernel_builder.cli.options import together
from kernel_builder.errors import UsageError
from kernel_builder.variants.build_type import BuildType, Debug, Sanitizer

_Command = TypeVar("_Command", bound=Callable[..., object])

build_type_options = together(
    click.option(
        "--debug",
        is_flag=True,
        help="Build for a debugger: not optimized (-O0 -g, -G for device code), with assertions. Such a build is not"
        " for users: metadata.json says so, and upload refuses it (docs/debugging.md).",
    ),
    click.option(
        "--lineinfo",
        is_flag=True,
        help="Build for a profiler: optimized as usual, with line information (-g, -lineinfo).",
    ),
    click.option(
        "--sanitize",
        "sanitizers",
        type=click.Choice([one.value for one in Sanitizer]),
        multiple=True,
        help=(
            "Compile host code with this sanitizer, which reports the first error and ends the process. Can be "
            "repeated. 'test' and 'testshell' preload its runtime."
        ),
    ),
)
"""The options that say what is built for."""


class BuildTypeOptions(TypedDict):
    """What :data:`build_type_options` gives a command's function."""

    debug: bool
    lineinfo: bool
    sanitizers: tuple[str, ...]


def build_type_of(options: BuildTypeOptions) -> BuildType:
    """What the options ask for. Raises :class:`UsageError` for those that contradict each other."""
    if options["debug"] and options["lineinfo"]:
        raise UsageError("--debug does not optimize, and --lineinfo does; remove one of them")
    wanted = {Sanitizer(name) for name in options["sanitizers"]}
    if {Sanitizer.ADDRESS, Sanitizer.THREAD} <= wanted:
        raise UsageError(
            "--sanitize address and --sanitize thread cannot be combined: each needs its own memory",
            hint="build with one of them, then with the other",
        )
    debug = Debug.FULL if options["debug"] else Debug.LINES if options["lineinfo"] else None
    return BuildType(debug=debug, sanitizers=tuple(one for one in Sanitizer if one in wanted))
