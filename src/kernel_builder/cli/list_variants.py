"""``kernel-builder list-variants``: what a project would be built into, and why not into more."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kernel_builder.cli.options import offline_option, project_argument
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ExitCode
from kernel_builder.variants.matrix import Dropped, Kept, Matrix, all_variants, choose, full_names
from kernel_builder.variants.names import Platform, TorchTag
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.select import refuse_unknown_backends, this_platform

RUNNERS = {"x86_64-linux": "ubuntu-latest", "aarch64-linux": "ubuntu-24.04-arm"}
"""GitHub's own runners, by the platform that they build for."""


@click.command(name="list-variants")
@project_argument("[DIR]")
@click.option(
    "--set",
    "within",
    type=click.Choice([which.value for which in VariantSet]),
    default=VariantSet.REQUIRED.value,
    show_default=True,
    help="required: what Hub kernels must have now; latest: required and every newer torch; legacy: the first twelve,"
    " for torch 2.5 and 2.6; all: every known torch build.",
)
@click.option(
    "--backend",
    "backends",
    metavar="NAME",
    multiple=True,
    type=click.Choice([backend.value for backend in Backend], case_sensitive=False),
    help="Only variants of this backend. Can be repeated.",
)
@click.option("--all-platforms", is_flag=True, help="Variants of every platform, not only this machine's.")
@click.option(
    "--arch",
    is_flag=True,
    help=(
        "Print the full names of the torch builds behind the variants: for stable-ABI variants, the build they are "
        "compiled with; for Python-only variants, all builds they serve."
    ),
)
@click.option("--why", is_flag=True, help="Also list every excluded variant and why.")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON, including excluded variants.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "github"]),
    default="text",
    show_default=True,
    help='github: a workflow matrix, {"include": [...]}, on one line.',
)
@offline_option
def command(
    directory: Path,
    *,
    within: str,
    backends: tuple[str, ...],
    all_platforms: bool,
    arch: bool,
    why: bool,
    as_json: bool,
    form: str,
) -> int:
    """List the variants that the project in DIR (default: here) would build.

    Excludes backends that this version of kernel-builder cannot compile, but does not check whether this machine has a
    toolchain for each variant: 'kernel-builder build --dry-run' does.
    """
    if form == "github" and (as_json or why):
        raise click.UsageError("--format github cannot be combined with --json or --why")
    if arch and (as_json or why or form == "github"):
        raise click.UsageError(
            "--arch cannot be combined with --json (which includes these names), --why or --format github"
        )
    if why and as_json:
        raise click.UsageError("--json already includes the reasons; remove --why")
    project, _ = load_project(directory)
    chosen = tuple(Backend(name) for name in backends)
    refuse_unknown_backends(project, chosen)
    platform = None if all_platforms else this_platform()
    listed = list_matrix(project, platform, chosen, VariantSet(within))
    matrix = _compilable(listed)
    if not as_json:
        _tell_what_is_missing(listed, project, chosen)
    names = {
        entry.name: full_names(project, entry, load_support(), platform, VariantSet(within)) for entry in matrix.kept
    }
    if as_json:
        click.echo(json.dumps(_document(matrix, VariantSet(within), names), indent=2))
    elif form == "github":
        click.echo(json.dumps({"include": [_job(entry) for entry in matrix.kept]}))
    elif arch:
        for name in dict.fromkeys(name for group in names.values() for name in group):
            click.echo(name)
    else:
        for entry in matrix.kept:
            click.echo(entry.name)
        if why:
            _tell_why(matrix.dropped)
    return ExitCode.OK


def list_matrix(
    project: Project, platform: Platform | None, backends: tuple[Backend, ...], within: VariantSet
) -> Matrix:
    """The variants of ``project`` in a set, whether or not they can be compiled."""
    table = load_support()
    return choose(all_variants(project, table, platform), backends=backends, within=within)


def _compilable(matrix: Matrix) -> Matrix:
    """``matrix`` without what this version has no compiler for."""
    dropped = list(matrix.dropped)
    dropped += [
        Dropped(name=entry.name, backend=entry.backend, reason=entry.obstacle)
        for entry in matrix.kept
        if entry.obstacle is not None
    ]
    kept = tuple(entry for entry in matrix.kept if entry.obstacle is None)
    return Matrix(kept=kept, dropped=tuple(dropped))


def _tell_what_is_missing(matrix: Matrix, project: Project, chosen: tuple[Backend, ...]) -> None:
    """Notes for people: what belongs to the list and cannot be compiled, and backends that have nothing in it."""
    reasons = Counter(entry.obstacle for entry in matrix.kept if entry.obstacle is not None)
    for reason, count in reasons.items():
        what = "1 variant is" if count == 1 else f"{count} variants are"
        click.echo(
            f"note: {what} excluded: {reason}"
            f" ('kernel-builder list-variants --why' lists {'it' if count == 1 else 'them'})",
            err=True,
        )
    for backend, reason in matrix.silent_backends(project):
        if not chosen or backend in chosen:
            click.echo(f"note: nothing to build for {backend.value}: {reason}", err=True)


def _tell_why(dropped: tuple[Dropped, ...]) -> None:
    if not dropped:
        return
    width = max(len(entry.name) for entry in dropped)
    click.echo("\nexcluded:")
    for entry in dropped:
        click.echo(f"  {entry.name:<{width}}  {entry.reason}")


def _facts(entry: Kept) -> dict[str, object]:
    """What is known of a variant, for programs; ``None`` where it does not apply to a Python-only one."""
    row = entry.row
    return {
        "variant": entry.name,
        "backend": entry.backend.value,
        "torch": str(row.torch) if row else None,
        "compute": str(row.variant.compute) if row else entry.backend.value,
        "machine": row.variant.machine.value if row else None,
        "os": row.variant.system.value if row else None,
    }


def _job(entry: Kept) -> dict[str, object]:
    """An entry of a workflow's matrix. Python-only variants are built anywhere."""
    runner = RUNNERS[str(entry.row.platform)] if entry.row else RUNNERS["x86_64-linux"]
    return {**_facts(entry), "runner": runner}


def _abi(entry: Kept) -> str | None:
    """The C++ ABI of the torch that it is compiled with; ``None`` where names have none."""
    tag = entry.row.variant.tag if entry.row else None
    return tag.abi.value if isinstance(tag, TorchTag) and tag.abi else None


def _document(matrix: Matrix, within: VariantSet, names: Mapping[str, Sequence[str]]) -> dict[str, object]:
    return {
        "set": within.value,
        "variants": [
            {
                **_facts(entry),
                "arch": list(names[entry.name]),
                "abi": _abi(entry),
                "toolkit": str(entry.row.toolkit) if entry.row and entry.row.toolkit else None,
                "cxx-standard": entry.row.cxx_standard if entry.row else None,
                "required": any(row.required for row in entry.stands_for) or entry.row is None,
                "since": entry.row.since if entry.row else None,
                "until": entry.row.until if entry.row else None,
            }
            for entry in matrix.kept
        ],
        "dropped": [
            {"variant": entry.name, "backend": entry.backend.value, "reason": entry.reason} for entry in matrix.dropped
        ],
    }
