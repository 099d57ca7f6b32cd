"""``kernel-builder hash``: write the digest of built variants into their metadata."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import project_argument
from kernel_builder.errors import UsageError


@click.command(name="hash")
@project_argument()
def command(directory: Path) -> int:
    """Write the SHA-256 of every file of the variants in DIRECTORY to their metadata.json.

    Keeps everything else in the file, and does not rewrite a digest that is already correct.
    """
    from kernel_builder.artifact.digest import METADATA  # noqa: PLC0415  (start-up time)
    from kernel_builder.artifact.rehash import rehash_variants  # noqa: PLC0415
    from kernel_builder.check.subject import discover  # noqa: PLC0415

    found = discover(directory)
    variants = [variant for variant in found.variants if (variant.path / METADATA).is_file()]
    if not variants:
        raise UsageError(
            f"no variant with {METADATA} in {directory}", hint="build the kernel first: kernel-builder build"
        )
    changed = rehash_variants([variant.path for variant in variants])
    for variant, rewritten in zip(variants, changed, strict=True):
        click.echo(f"{variant.shown}: {'digest written' if rewritten else 'digest is already correct'}")
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    return 0
