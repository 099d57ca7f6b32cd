"""``kernel-builder lock``: write down what variants are compiled with."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.completing import VARIANT
from kernel_builder.cli.options import offline_option, platform_option, project_argument, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.errors import ExitCode, UsageError
from kernel_builder.toolchain.lock import LOCK_NAME, write_lock
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.lock import Locking, LockRequest, drift, make_lock


@click.command(name="lock")
@project_argument("[DIR]", exists=True, file_okay=False)
@click.option(
    "--variant",
    "variants",
    type=VARIANT,
    metavar="NAME",
    multiple=True,
    help="Lock this variant, or all that match a glob, instead of the required ones, and keep what is already locked."
    " Can be repeated.",
)
@click.option(
    "--set",
    "within",
    type=click.Choice([which.value for which in VariantSet]),
    help="Lock the variants of this set. Default: required variants and those already locked.",
)
@platform_option
@click.option("--check", is_flag=True, help="Write nothing; list differences and exit with 1 if there are any.")
@click.option("--upgrade", is_flag=True, help="Choose everything again, and show what changed.")
@click.option("--dry-run", is_flag=True, help="Show what would change without writing it.")
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

    Keeps what is locked, adds variants that are new in build.toml, and removes those that are gone. 'build' compiles
    with what is locked; 'build --locked' fails for anything else.
    """
    if check and (upgrade or dry_run):
        raise UsageError("--check writes nothing; remove --upgrade and --dry-run")
    request = LockRequest(
        root=directory.resolve(),
        patterns=variants,
        within=VariantSet(within) if within else None,
        platform=platform,
        upgrade=upgrade,
    )
    with open_run() as run:
        if check:
            return _tell_drift(drift(request, run), exists=(request.root / LOCK_NAME).exists())
        locking = make_lock(request, run)
    _tell(locking)
    if not dry_run:
        write_lock(request.root, locking.lock)
    count = len(locking.lock.variants)
    verb = "would have" if dry_run else "has"
    click.echo(f"{LOCK_NAME} {verb} {count} {'variant' if count == 1 else 'variants'}")
    return ExitCode.OK


def _tell_drift(problems: tuple[str, ...], *, exists: bool) -> int:
    if not problems:
        click.echo(f"{LOCK_NAME} is up to date")
        return ExitCode.OK
    if exists:
        click.echo(f"{LOCK_NAME} is out of date:")
        hint = "run 'kernel-builder lock' to follow build.toml, or 'kernel-builder lock --upgrade' to choose again"
    else:
        hint = "run 'kernel-builder lock' to write it"
    for problem in problems:
        click.echo(f"  {problem}" if exists else problem)
    click.echo(f"  hint: {hint}", err=True)
    return ExitCode.FAILED


def _tell(locking: Locking) -> None:
    for entry in locking.unavailable:
        click.echo(f"not locked: {entry.name}: {entry.reason}", err=True)
    for line in locking.changes:
        click.echo(line)
    if not locking.changes:
        click.echo("nothing changed")
