"""``kernel-builder ci-test``: see :mod:`kernel_builder.cli.test`."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.passing import PassingCommand
from kernel_builder.cli.test import TrialOptions, run_command, trial_options


@click.command(name="ci-test", cls=PassingCommand)
@trial_options
def command(**options: Unpack[TrialOptions]) -> int:
    """Like test, but only for tests marked kernels_ci: quick tests that together catch most mistakes.

    A project without such tests passes.
    """
    return run_command(options, marked=True)
