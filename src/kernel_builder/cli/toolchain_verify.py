"""``kernel-builder toolchain verify``: is everything in the store as it was stored?"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import click

from kernel_builder.cli.console import mebibytes, show_error
from kernel_builder.cli.options import offline_option
from kernel_builder.cli.session import open_run
from kernel_builder.errors import ExitCode, KernelBuilderError, UsageError
from kernel_builder.store.cache import Store
from kernel_builder.store.inventory import StoreEntry, Verified, discard_unused, list_entries, verify_entries
from kernel_builder.workflow.run import Run

_SHOWN = 20


@click.command(name="verify")
@click.argument("names", metavar="[ENTRY]...", nargs=-1)
@click.option("--repair", is_flag=True, help="Delete what is damaged and fetch it again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@offline_option
def command(names: tuple[str, ...], *, repair: bool, as_json: bool) -> int:
    """Read every file in the store again and compare it with the manifest of its entry.

    ENTRY is a name that 'toolchain list' shows, or a glob; without any, all entries are verified. Exits with 1 when
    something is damaged and was not repaired.
    """
    with open_run() as run:
        store = run.store
        entries = _select(list_entries(store), names)
        verdicts = verify_entries(store, entries)
        damaged = [verdict.name for verdict in verdicts if verdict.problems]
        if not as_json:
            _tell(store, verdicts)
        outcome = _repair(damaged, run) if repair and damaged else {}
    left = [name for name in damaged if outcome.get(name) is None]
    if as_json:
        click.echo(json.dumps(_report(store, verdicts, outcome), indent=2))
    else:
        for name, what in outcome.items():
            click.echo(f"{name}: {what or 'is in use by another process; run this again when that has ended'}")
        if damaged and not repair:
            click.echo("  hint: kernel-builder toolchain verify --repair", err=True)
    return ExitCode.FAILED if left else ExitCode.OK


def _select(entries: tuple[StoreEntry, ...], names: tuple[str, ...]) -> list[StoreEntry]:
    for name in names:
        if not any(fnmatchcase(entry.name, name) for entry in entries):
            raise UsageError(f"the store has no entry {name}", hint="'kernel-builder toolchain list' shows them all")
    return [entry for entry in entries if not names or any(fnmatchcase(entry.name, name) for name in names)]


def _tell(store: Store, verdicts: tuple[Verified, ...]) -> None:
    for verdict in verdicts:
        for problem in verdict.problems[:_SHOWN]:
            show_error(f"error: {store.entries / verdict.name / problem.path}: {problem.what}")
        if len(verdict.problems) > _SHOWN:
            show_error(f"error: {verdict.name}: and {len(verdict.problems) - _SHOWN} more")
    damaged = sum(bool(verdict.problems) for verdict in verdicts)
    click.echo(
        f"{sum(verdict.files for verdict in verdicts)} files of {len(verdicts)} entries"
        f" ({mebibytes(sum(verdict.size for verdict in verdicts))}) verified; {damaged or 'none'} damaged"
    )


def _repair(damaged: list[str], run: Run) -> dict[str, str | None]:
    """Entry -> what became of it; ``None`` for one that stays because another process uses it."""
    from kernel_builder.workflow.fetch import restore  # noqa: PLC0415  (only a repair needs it)

    stayed = discard_unused(run.store, damaged)
    gone = [name for name in damaged if name not in stayed]
    outcome: dict[str, str | None] = dict.fromkeys(stayed)
    try:
        restored = restore(gone, run, Path.cwd())
        why = "nothing that was asked for so far needs it; it is provided when something does"
    except KernelBuilderError as error:
        restored, why = (), f"it could not be fetched now ({error.message}); the next build that needs it fetches it"
    for name in gone:
        outcome[name] = "repaired" if name in restored else f"deleted: {why}"
    return outcome


def _report(store: Store, verdicts: tuple[Verified, ...], outcome: dict[str, str | None]) -> dict[str, object]:
    return {
        "store": str(store.root),
        "ok": all(not verdict.problems or outcome.get(verdict.name) for verdict in verdicts),
        "entries": [
            {
                "name": verdict.name,
                "files": verdict.files,
                "problems": [{"path": problem.path, "what": problem.what} for problem in verdict.problems],
                "outcome": outcome.get(verdict.name),
            }
            for verdict in verdicts
        ],
    }
