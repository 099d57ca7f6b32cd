"""``kernel-builder lock``: write down what variants are compiled with."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import offline_option, platform_option, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.errors import ExitCode, UsageError
from kernel_builder.toolchain.lock import LOCK_NAME, write_lock
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.lock import Locking, LockRequest, drift, make_lock


@click.command(name="lock")
@click.argument(
    "directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.option(
    "--variant",
    "variants",
    metavar="NAME",
    multiple=True,
    help="Lock this variant instead of what Hub kernels must have now, and keep what is locked already; a glob means"
    " all that match. Can be given several times.",
)
@click.option(
    "--set",
    "within",
    type=click.Choice([which.value for which in VariantSet]),
    help="The variants of this set. Default: what Hub kernels must have now, and what is locked already.",
)
@platform_option
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 and a list when something differs.")
@click.option("--upgrade", is_flag=True, help="Choose anew what the variants are compiled with, and show what changed.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
@source_option
@offline_option
def command(
    directory: Path,
    *,
    variants: tuple[str, ...],
    within: str | None,
    platform: Platform | None,
    check: bool,
    upgrade: bool,
    dry_run: bool,
) -> int:
    """Write kernel-builder.lock for the project in DIR: every file that its variants are compiled with.

    What is locked stays as it is, variants that are new in build.toml are added, those that are gone are left out.
    'build' compiles with what the lock names; 'build --locked' refuses everything else.
    """
    if check and (upgrade or dry_run):
        raise UsageError("--check writes nothing; leave out --upgrade and --dry-run")
    request = LockRequest(
        root=directory.resolve(),
        patterns=variants,
        within=VariantSet(within) if within else None,
        platform=platform,
        upgrade=upgrade,
    )
    with open_run() as run:
        if check:
            return _tell_drift(drift(request, run))
        locking = make_lock(request, run)
    _tell(locking)
    if not dry_run:
        write_lock(request.root, locking.lock)
    count = len(locking.lock.variants)
    verb = "would have" if dry_run else "has"
    click.echo(f"{LOCK_NAME} {verb} {count} {'variant' if count == 1 else 'variants'}")
    return ExitCode.OK


def _tell_drift(problems: tuple[str, ...]) -> int:
    if not problems:
        click.echo(f"{LOCK_NAME} is in order")
        return ExitCode.OK
    click.echo(f"{LOCK_NAME} is not in order:")
    for problem in problems:
        click.echo(f"  {problem}")
    hint = "kernel-builder lock follows build.toml and keeps the files that are locked; lock --upgrade chooses all anew"
    click.echo(f"  hint: {hint}", err=True)
    return ExitCode.FAILED


def _tell(locking: Locking) -> None:
    for entry in locking.unavailable:
        click.echo(f"not locked: {entry.name}: {entry.reason}", err=True)
    for line in locking.changes:
        click.echo(line)
    if not locking.changes:
        click.echo("nothing changed")
