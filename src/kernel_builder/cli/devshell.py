"""``kernel-builder devshell``, and what it has in common with ``testshell``: thin; see
:mod:`kernel_builder.workflow.shell`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Unpack

import click

from kernel_builder.cli.build import show_failures
from kernel_builder.cli.options import offline_option, source_option, together
from kernel_builder.cli.session import environment, open_run
from kernel_builder.cli.test import EnvironmentOptions, environment_options, environment_request, trial_build
from kernel_builder.environments.running import run_shell
from kernel_builder.environments.shells import shell_command, user_shell
from kernel_builder.errors import ExitCode, UsageError
from kernel_builder.events import Foreground
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.workflow.shell import ShellRequest, set_up_shell

shell_options = together(
    environment_options,
    click.option(
        "-c",
        "--command",
        "words",
        metavar="COMMAND",
        help="Run this command in the shell, and exit with its exit code.",
    ),
    click.option(
        "--print-env",
        is_flag=True,
        help="Print the environment variables as POSIX shell commands, and start no shell. For direnv and eval.",
    ),
    source_option,
    offline_option,
)


class ShellOptions(EnvironmentOptions):
    """What :data:`shell_options` gives a command's function."""

    words: str | None
    print_env: bool


def run_shell_command(options: ShellOptions, *, built: bool, build_type: BuildType = RELEASE) -> int:
    """Set up what ``options`` ask for, and run the shell. Its exit code."""
    words, print_env = options["words"], options["print_env"]
    if words is not None and print_env:
        raise UsageError("--command runs a command, and --print-env runs nothing; remove one of them")
    quiet = words is not None or print_env
    request = environment_request(options, quiet=quiet)
    environ = environment()
    # Until the shell ends: what it uses of the store must stay.
    with open_run(quiet=quiet) as run:
        build = trial_build(request.root, build_type=build_type)
        setting = set_up_shell(ShellRequest(environment=request, build=build, built=built), run)
        if setting.built is not None and not setting.built.ok:
            show_failures(setting.built)
            return ExitCode.FAILED
        if print_env:
            for line in setting.changes.script():
                click.echo(line)
            return ExitCode.OK
        run.reporter.emit(Foreground())
        with tempfile.TemporaryDirectory(prefix="kernel-builder-shell-") as scratch:
            if words is not None:
                command = [user_shell(environ), "-c", words]
            else:
                command = shell_command(setting.changes, setting.variant, environ, Path(scratch))
                click.echo(f"note: this is a shell for {setting.variant}; type 'exit' to leave it", err=True)
            return run_shell(command, environ=setting.changes.applied(environ), cwd=Path.cwd())


@click.command(name="devshell")
@shell_options
def command(**options: Unpack[ShellOptions]) -> int:
    """Start your shell in a development environment for a variant of the kernel in DIR.

    It has the variant's compilers, a Python with the variant's torch, kernels, pytest and what the tests import, and
    LOCAL_KERNELS set to the project's build/.
    """
    return run_shell_command(options, built=False)
