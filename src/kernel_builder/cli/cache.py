"""``kernel-builder cache``: the cache of what compilers made."""

from __future__ import annotations

import json

import click

from kernel_builder.cli.console import mebibytes, show_error
from kernel_builder.cli.options import read_size
from kernel_builder.cli.session import open_run
from kernel_builder.errors import ExitCode
from kernel_builder.workflow.caching import open_cache


@click.group(name="cache")
def command() -> None:
    """Show, verify and shrink the compilation cache.

    Builds take from it what your earlier builds compiled from the same sources with the same compilers. It limits its
    own size. You can empty it at any time; the next builds then take longer.
    """


@command.command(name="show")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def show(*, as_json: bool) -> None:
    """Show where the cache is, how large it is, and how large it may grow."""
    with open_run(silent=True) as run:
        cache = open_cache(run)
        usage = cache.usage()
    if as_json:
        facts = {"path": str(cache.root), "results": usage.entries, "files": usage.blobs}
        click.echo(json.dumps({**facts, "bytes": usage.size, "limit": cache.limit}, indent=2))
        return
    click.echo(f"{cache.root}: {usage.entries} results, {mebibytes(usage.size)} of at most {mebibytes(cache.limit)}")


@command.command(name="verify")
def verify() -> int:
    """Compare every file in the cache with its digest, and remove what differs.

    Exits with 1 if anything differed. Builds also verify every file that they take from the cache.
    """
    with open_run(silent=True) as run:
        cache = open_cache(run)
        damaged = cache.remove_damaged()
        usage = cache.usage()
    for path in damaged:
        show_error(f"error: {path} was damaged and was removed; the next build that needs it compiles it again")
    total = usage.blobs + usage.entries + len(damaged)
    click.echo(f"{total} files verified; {len(damaged) or 'none'} damaged")
    return ExitCode.FAILED if damaged else ExitCode.OK


@command.command(name="gc")
@click.option(
    "--keep-size",
    metavar="5G",
    callback=read_size,
    help=(
        "Remove the least recently used results until the rest fits in this size (K, M, G, T). Default: the cache's "
        "size limit."
    ),
)
@click.option("--all", "everything", is_flag=True, help="Remove everything.")
def gc(*, keep_size: int | None, everything: bool) -> None:
    """Remove the least recently used results."""
    with open_run(silent=True) as run:
        cache = open_cache(run)
        freed = cache.shrink(0 if everything else cache.limit if keep_size is None else keep_size)
    click.echo(f"{mebibytes(freed)} freed")
