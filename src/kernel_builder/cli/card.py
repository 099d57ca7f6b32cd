"""``kernel-builder card``: preview the card that goes to the Hub with the kernel."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.options import PathName, project_argument


@click.command(name="card")
@project_argument()
@click.option("--repo-id", help="Repository on the Hub (default: general.hub.repo-id of build.toml).")
@click.option("--output", "-o", type=PathName(), help="Write the card to this file instead of stdout.")
def command(directory: Path, *, repo_id: str | None, output: Path | None) -> int:
    """Render CARD.md of the project in DIRECTORY and print it.

    Keeps the text of CARD.md; reads functions and layers from the sources without running them, and the table of
    variants from build/. A project without CARD.md gets a simple card.
    """
    from kernel_builder.artifact.built import CARD, stale_text, stale_variants, variants_in  # noqa: PLC0415  (start-up time)
    from kernel_builder.config.reader import load_project  # noqa: PLC0415
    from kernel_builder.files import write_text  # noqa: PLC0415
    from kernel_builder.interface.card import fill_card  # noqa: PLC0415
    from kernel_builder.project.tree import OUTPUT_DIRECTORY  # noqa: PLC0415

    project, warnings = load_project(directory)
    for warning in warnings:
        click.echo(warning.render(), err=True)
    variants = variants_in(project.root / OUTPUT_DIRECTORY)
    text = fill_card(project, variants, repo_id=repo_id)
    if not (project.root / CARD).is_file():
        click.echo(f"note: no {CARD}, so this is the built-in card", err=True)
    if not variants:
        click.echo("note: nothing is built yet, so the card lists no variants", err=True)
    stale = stale_variants(project, variants)
    if stale:
        click.echo(f"warning: {stale_text(stale)}; build again with: kernel-builder build", err=True)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)
        click.echo(f"wrote {output}", err=True)
    return 0
