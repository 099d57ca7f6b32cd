"""``kernel-builder ci-test``: see :mod:`kernel_builder.cli.test`."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.passing import PassingCommand
from kernel_builder.cli.test import TrialOptions, run_command, trial_options


@click.command(name="ci-test", cls=PassingCommand)
@trial_options
def command(**options: Unpack[TrialOptions]) -> int:
    """Like test, for the tests that are marked kernels_ci: quick ones that together catch most mistakes.

    That there is none is no failure.
    """
    return run_command(options, marked=True)
