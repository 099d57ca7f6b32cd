"""``kernel-builder doctor``: what this machine has, what can be built on it, and how to fix the rest."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_builder import __version__
from kernel_builder.cli.options import offline_option, platform_option, project_argument, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ConfigError, UsageError
from kernel_builder.variants.names import Platform
from kernel_builder.workflow.doctor import Check, Diagnosis, Standing, VariantCheck, examine

_COLOURS = {Standing.OK: "green", Standing.ABSENT: "yellow", Standing.MISSING: "red"}


@click.command()
@project_argument("[DIR]")
@platform_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@source_option
@offline_option
def command(directory: Path, *, platform: Platform | None, as_json: bool) -> int:
    """Show what this machine has, and which required variants it can build.

    The variants are those of the project in DIR (default: here); without a build.toml, those of any kernel with CPU
    and CUDA code. For anything missing, prints the command that fixes it. Exits with 0 when all of them can be built,
    with 4 when something is missing.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", hint="pass the directory of a project, or none")
    with open_run(silent=True) as run:
        diagnosis = examine(directory.resolve(), run, platform)
    if as_json:
        click.echo(json.dumps(_document(diagnosis), indent=2))
    else:
        _show(diagnosis)
    if isinstance(diagnosis.problem, ConfigError) or (diagnosis.problem is not None and not as_json):
        raise diagnosis.problem
    return diagnosis.exit_code


def _show(diagnosis: Diagnosis) -> None:
    click.echo(f"kernel-builder {__version__}\n")
    width = max(len(check.name) for check in diagnosis.checks)
    for check in diagnosis.checks:
        mark = click.style(f"{check.standing.value:<7}", fg=_COLOURS[check.standing])
        first, *rest = check.found.splitlines() or [""]
        click.echo(f"  {mark}  {check.name:<{width}}  {first}")
        for line in [*rest, *([check.remedy] if check.remedy else [])]:
            click.echo(f"  {'':<7}  {'':<{width}}  {line}")
    if diagnosis.problem is not None:
        return
    languages = " and ".join(backend.label for backend in Backend if backend.has_module)
    whose = str(diagnosis.project) if diagnosis.project else f"any kernel with {languages} code"
    click.echo(f"\nrequired variants of {whose}:\n")
    _show_variants(diagnosis.variants)
    good = sum(entry.reason is None for entry in diagnosis.variants)
    click.echo(f"\n{good} of {len(diagnosis.variants)} can be built here")


def _show_variants(variants: tuple[VariantCheck, ...]) -> None:
    for entry in variants:
        if entry.reason is None:
            click.echo(f"  {click.style('yes', fg='green')}  {entry.variant}")
    groups: dict[tuple[str, str | None], list[str]] = {}
    for entry in variants:
        if entry.reason is not None:
            groups.setdefault((entry.reason, entry.remedy), []).append(entry.variant)
    for (reason, remedy), names in groups.items():
        for name in names:
            click.echo(f"  {click.style('no', fg='red')}   {name}")
        for line in reason.splitlines():
            click.echo(f"         {line}")
        if remedy is not None:
            click.echo(f"         remedy: {remedy}")


def _document(diagnosis: Diagnosis) -> dict[str, object]:
    return {
        "version": __version__,
        "project": str(diagnosis.project) if diagnosis.project else None,
        "ok": diagnosis.exit_code == 0,
        "problem": diagnosis.problem.message if diagnosis.problem else None,
        "checks": [_check(check) for check in diagnosis.checks],
        "variants": [
            {
                "variant": entry.variant,
                "can-be-built": entry.reason is None,
                "reason": entry.reason,
                "remedy": entry.remedy,
            }
            for entry in diagnosis.variants
        ],
    }


def _check(check: Check) -> dict[str, str | None]:
    return {"name": check.name, "standing": check.standing.value, "found": check.found, "remedy": check.remedy}
