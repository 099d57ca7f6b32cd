"""``kernel-builder api-diff``: does this kernel need a new version?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.options import project_argument
from kernel_builder.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.hub.published import Side
    from kernel_builder.interface.diff import Verdict


@click.command(name="api-diff")
@project_argument()
@click.option(
    "--against",
    metavar="REVISION|DIR",
    help="What to compare with: a branch or commit on the Hub, or a directory (default: the branch of this version"
    " or the previous one).",
)
@click.option("--repo-id", help="Repository on the Hub (default: general.hub.repo-id of build.toml).")
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
def command(directory: Path, *, against: str | None, repo_id: str | None, as_json: bool) -> int:
    """Compare the interface of the kernel in DIRECTORY with a published one, or with another build.

    Compares names in __all__, signatures, layers, op schemas and supported torch releases. Exits with 1 when the
    changes break users and the version is still the same. Reads the build; without one, the sources.
    """
    from kernel_builder.interface.diff import compare  # noqa: PLC0415  (start-up time)

    new = _local(directory)
    if against is not None and (Path(against).is_dir() or "/" in against):
        old = _local(Path(against))
    else:
        found = _remote(directory, against, repo_id, new)
        if found is None:
            click.echo("nothing is published yet, so any interface is fine", err=True)
            return ExitCode.OK
        old = found
    click.echo(f"from {old.place}\nto   {new.place}", err=True)
    verdict = compare(old.published, new.published)
    click.echo(_json(verdict) if as_json else _text(verdict))
    return ExitCode.OK if verdict.is_satisfied else ExitCode.FAILED


def _local(directory: Path) -> Side:
    """The builds in ``directory``, or else its sources."""
    from kernel_builder.artifact.built import stale_text, stale_variants, variants_in  # noqa: PLC0415  (start-up time)
    from kernel_builder.config.reader import load_project  # noqa: PLC0415
    from kernel_builder.hub.local import find_source  # noqa: PLC0415
    from kernel_builder.hub.published import of_project, of_variants  # noqa: PLC0415

    if variants_in(directory / "build") or variants_in(directory / "result") or variants_in(directory):
        source = find_source(directory)
        stale = stale_variants(source.project, source.variants) if source.project is not None else ()
        if stale:
            click.echo(
                f"warning: {source.folder}: {stale_text(stale)}; build again with: kernel-builder build", err=True
            )
        return of_variants(source.variants)
    return of_project(load_project(directory)[0])


def _remote(directory: Path, revision: str | None, repo_id: str | None, new: Side) -> Side | None:
    from kernel_builder.cli.console import ConsoleReporter  # noqa: PLC0415  (start-up time)
    from kernel_builder.config.reader import FILE_NAME, load_project  # noqa: PLC0415
    from kernel_builder.hub.published import newest_branch, of_revision  # noqa: PLC0415
    from kernel_builder.hub.remote import MissingRepositoryError, Remote  # noqa: PLC0415

    if repo_id is None and (directory / FILE_NAME).is_file():
        repo_id = load_project(directory)[0].hub.repo_id
    if repo_id is None:
        raise UsageError(
            "no repository to compare with",
            hint="set repo-id in [general.hub] of build.toml, or run: kernel-builder api-diff --repo-id owner/name, or"
            " kernel-builder api-diff --against DIR",
        )
    with ConsoleReporter() as reporter, tempfile.TemporaryDirectory(prefix="kernel-builder-api-") as scratch:
        remote = Remote(repo_id, "kernel", reporter)
        if revision is None:
            try:
                branches = remote.branches()
            except MissingRepositoryError:
                return None
            revision = newest_branch(branches, new.published.version)
            if revision is None:
                return None
        return of_revision(remote, revision, Path(scratch))


def _text(verdict: Verdict) -> str:
    lines = [f"{change.effect.value:<8}  {change}" for change in verdict.changes] or ["no differences"]
    old, new = verdict.old_version, verdict.new_version
    if not verdict.breaking:
        lines.append(f"version {new} is fine: nothing breaks for users")
    elif not verdict.demands_new_version:
        lines.append("version 0 makes no promises, so this is fine")
    elif verdict.is_satisfied:
        lines.append(f"the version was raised from {old} to {new}, as these changes require")
    else:
        lines.append(
            f"this breaks users of version {old}: set version = {old + 1} in build.toml, or keep what they rely on"
        )
    return "\n".join(lines)


def _json(verdict: Verdict) -> str:
    import json  # noqa: PLC0415  (start-up time)

    return json.dumps(
        {
            "old-version": verdict.old_version,
            "new-version": verdict.new_version,
            "demands-new-version": verdict.demands_new_version,
            "ok": verdict.is_satisfied,
            "changes": [
                {"effect": change.effect.value, "subject": change.subject, "message": change.message}
                for change in verdict.changes
            ],
        },
        indent=2,
    )
