"""``kernel-builder toolchain fetch``: what variants are compiled with, before it is needed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.options import PathName, offline_option, platform_option, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.config.backends import Backend
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import ExitCode
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.fetch import Fetched, FetchRequest, fetch


@click.command(name="fetch")
@click.argument("variants", metavar="[VARIANT]...", nargs=-1)
@click.option(
    "--project",
    type=PathName(exists=True, file_okay=False),
    metavar="DIR",
    help=f"The project whose variants to use. Default: here, if there is a {FILE_NAME}.",
)
@click.option(
    "--no-project", is_flag=True, help=f"Use variants of the support table, even if there is a {FILE_NAME} here."
)
@click.option(
    "--set",
    "within",
    type=click.Choice([which.value for which in VariantSet]),
    help="Fetch for the variants of this set. Default: required in a project, latest elsewhere.",
)
@click.option(
    "--backend",
    "backends",
    metavar="NAME",
    multiple=True,
    type=click.Choice([backend.value for backend in Backend], case_sensitive=False),
    help="Only variants of this backend. Can be repeated.",
)
@platform_option
@click.option("--available", is_flag=True, help="Skip what is not available instead of failing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
@source_option
@offline_option
def command(
    variants: tuple[str, ...],
    *,
    project: Path | None,
    no_project: bool,
    within: str | None,
    backends: tuple[str, ...],
    platform: Platform | None,
    available: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Fetch the toolchains of VARIANTs: names, or globs such as 'torch213-*'.

    Default: the required variants in a project; elsewhere, those of the newest torch releases for this machine. Resumes
    interrupted downloads. With --offline, reports whether everything is in the store.
    """
    if project is not None and no_project:
        raise click.UsageError("--project and --no-project cannot be combined")
    if project is None and not no_project and Path(FILE_NAME).is_file():
        project = Path.cwd()
    request = FetchRequest(
        root=project,
        settings=Path.cwd(),
        patterns=variants,
        backends=tuple(Backend(name) for name in backends),
        within=VariantSet(within) if within else None,
        platform=platform,
        available=available,
    )
    started = time.monotonic()
    with open_run(quiet=quiet) as run:
        fetched = fetch(request, run)
    seconds = time.monotonic() - started
    if as_json:
        click.echo(json.dumps(_report(fetched, seconds), indent=2))
    else:
        for name in fetched.variants:
            click.echo(f"{name}  ready")
        for entry in fetched.unavailable:
            click.echo(f"{entry.name}  not available: {entry.reason}")
        count = len(fetched.variants)
        what = f"{count} variant{'' if count == 1 else 's'} ready"
        click.echo(f"{what}; {mebibytes(fetched.received)} fetched; {seconds:.1f} s")
    return ExitCode.INCOMPLETE if fetched.unavailable else ExitCode.OK


def _report(fetched: Fetched, seconds: float) -> dict[str, object]:
    return {
        "variants": list(fetched.variants),
        "unavailable": [
            {"name": entry.name, "reason": entry.reason, "remedy": entry.remedy} for entry in fetched.unavailable
        ],
        "fetched-bytes": fetched.received,
        "seconds": round(seconds, 1),
    }
