"""``kernel-builder toolchain list``: what is in the store."""

from __future__ import annotations

import datetime
import json

import click

from kernel_builder.cli.console import ago, mebibytes
from kernel_builder.cli.session import open_run
from kernel_builder.store.cache import Store
from kernel_builder.store.inventory import StoreEntry, list_entries


@click.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON, with the source files of each entry.")
def command(*, as_json: bool) -> None:
    """List the entries of the store: size, last use and origin.

    The store is KERNEL_BUILDER_CACHE, or kernel-builder in the user's cache directory.
    """
    with open_run(silent=True) as run:
        store = run.store
        entries = list_entries(store)
    if as_json:
        click.echo(json.dumps(_report(store, entries), indent=2))
        return
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        origin = f"damaged: {entry.problem}" if entry.problem else ", ".join(entry.origins)
        click.echo(f"{entry.name:<{width}}  {mebibytes(entry.size):>10}  {ago(entry.last_used):<14}  {origin}")
    total = mebibytes(sum(entry.size for entry in entries))
    click.echo(f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}, {total}, in {store.root}")


def _report(store: Store, entries: tuple[StoreEntry, ...]) -> dict[str, object]:
    return {
        "store": str(store.root),
        "size": sum(entry.size for entry in entries),
        "entries": [
            {
                "name": entry.name,
                "size": entry.size,
                "files": entry.files,
                "last-used": datetime.datetime.fromtimestamp(entry.last_used, datetime.UTC).isoformat("T", "seconds"),
                "problem": entry.problem,
                "sources": [
                    {
                        "name": source.name,
                        "version": source.version,
                        "filename": source.filename,
                        "kind": source.kind.value,
                        "source": source.source,
                        "size": source.size,
                        "sha256": source.sha256,
                        "record-sha256": source.record_sha256,
                    }
                    for source in entry.sources
                ],
            }
            for entry in entries
        ],
    }
