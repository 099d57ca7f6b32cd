"""``kernel-builder testshell``: see :mod:`kernel_builder.cli.devshell`."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.build_types import BuildTypeOptions, build_type_of, build_type_options
from kernel_builder.cli.devshell import ShellOptions, run_shell_command, shell_options


class _AllOptions(ShellOptions, BuildTypeOptions):
    """What both sets of options give the command's function."""


@click.command(name="testshell")
@shell_options
@build_type_options
def command(**options: Unpack[_AllOptions]) -> int:
    """Build a variant of the kernel in DIR, and start your shell in an environment where you can try it.

    Python has the variant's torch, and finds the kernel by its name or, through LOCAL_KERNELS, with the kernels
    client. With --sanitize, the sanitizer's runtime is preloaded into every program that you start.
    """
    return run_shell_command(options, built=True, build_type=build_type_of(options))
