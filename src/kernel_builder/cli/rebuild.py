"""``kernel-builder rebuild``: build what a build came from again, and compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.completing import VARIANT
from kernel_builder.cli.options import PathName, offline_option, sandbox_options, source_option
from kernel_builder.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.workflow.rebuild import Rebuilt, RebuiltVariant


@click.command(name="rebuild")
@click.argument("target", metavar="BUILD|OWNER/NAME@REVISION")
@click.option("--verify", "verifies", is_flag=True, help="Compare file by file; exit with 1 if anything differs.")
@click.option(
    "--output",
    "-o",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Keep the rebuilt variants in this directory. Default: they are removed after the comparison.",
)
@click.option(
    "--project",
    type=PathName(exists=True, file_okay=False),
    metavar="DIR",
    help="The kernel's sources, in git. Default: the project that BUILD is in, else the current directory.",
)
@click.option(
    "--variant",
    "variants",
    type=VARIANT,
    metavar="NAME",
    multiple=True,
    help="Only this variant, or all that match a glob. Can be repeated.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Run N compilers in parallel.")
@click.option("-v", "--verbose", is_flag=True, help="Show every command and all compiler output.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@sandbox_options
@source_option
@offline_option
def command(
    target: str,
    *,
    verifies: bool,
    output: Path | None,
    project: Path | None,
    variants: tuple[str, ...],
    jobs: int | None,
    verbose: bool,
    as_json: bool,
    sandbox: bool,
    try_sandbox: bool,
) -> int:
    """Rebuild the commit that a build came from, with the toolchains in its lock and without the cache.

    BUILD is a directory of built variants, or a project with a build directory. With --verify, lists what differs:
    files, and the sections, symbols, strings, keys and lines in them.
    """
    from kernel_builder.cli.build import handle_signals, show_failures  # noqa: PLC0415  (start-up time)
    from kernel_builder.cli.console import errors_as_json  # noqa: PLC0415
    from kernel_builder.cli.session import open_run  # noqa: PLC0415
    from kernel_builder.workflow.build import sandbox_use  # noqa: PLC0415
    from kernel_builder.workflow.rebuild import RebuildRequest, rebuild  # noqa: PLC0415

    if not verifies and output is None:
        raise UsageError(
            "the rebuilt variants would be neither compared nor kept",
            hint=f"compare them: kernel-builder rebuild --verify {target}, or keep them: kernel-builder rebuild -o DIR",
        )
    request = RebuildRequest(
        target=target,
        project=project,
        patterns=variants,
        output=output,
        jobs=jobs,
        verbose=verbose,
        sandbox=sandbox_use(always=sandbox, where_possible=try_sandbox),
    )
    handle_signals()
    with errors_as_json(as_json), open_run() as run:
        rebuilt = rebuild(request, run)
    for outcome in rebuilt.outcomes:
        show_failures(outcome)
    for note in rebuilt.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        click.echo(json.dumps(_document(rebuilt), indent=2))
    elif verifies:
        for line in _text(rebuilt):
            click.echo(line)
    same = rebuilt.ok and (not verifies or all(one.is_same for one in rebuilt.comparisons))
    return ExitCode.OK if same else ExitCode.FAILED


def _text(rebuilt: Rebuilt) -> Iterator[str]:
    for one in rebuilt.comparisons:
        yield f"{one.variant}: {_verdict(one)}"
        yield from (f"  {line}" for line in (*one.sources, *one.tools, *one.flags))
        for difference in one.differences:
            first, *rest = difference.lines
            yield f"  {difference.path}: {first}"
            yield from (f"    {line}" for line in rest)
    if rebuilt.comparisons:
        same = sum(one.is_same for one in rebuilt.comparisons)
        yield f"{same} of {len(rebuilt.comparisons)} variants match a rebuild of commit {rebuilt.commit[:12]}"


def _verdict(one: RebuiltVariant) -> str:
    if one.is_same:
        return f"the same, {one.files} files"
    count = len(one.differences)
    return f"{count} file{'s differ' if count != 1 else ' differs'}"


def _document(rebuilt: Rebuilt) -> dict[str, object]:
    return {
        "ok": rebuilt.ok and all(one.is_same for one in rebuilt.comparisons),
        "commit": rebuilt.commit,
        "notes": list(rebuilt.notes),
        "variants": [
            {
                "name": one.variant,
                "same": one.is_same,
                "files": one.files,
                "sources": list(one.sources),
                "tools": list(one.tools),
                "flags": list(one.flags),
                "differences": [{"path": each.path, "how": list(each.lines)} for each in one.differences],
            }
            for one in rebuilt.comparisons
        ],
    }
