"""``kernel-builder testshell``: see :mod:`kernel_builder.cli.devshell`."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.devshell import ShellOptions, run_shell_command, shell_options


@click.command(name="testshell")
@shell_options
def command(**options: Unpack[ShellOptions]) -> int:
    """Build a variant of the kernel in DIR, and start your shell where it can be tried.

    Python has the variant's torch, and finds the kernel: by its name, and through the kernels client, which
    LOCAL_KERNELS tells of the variant.
    """
    return run_shell_command(options, built=True)
