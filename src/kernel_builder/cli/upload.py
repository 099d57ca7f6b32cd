"""``kernel-builder upload``: publish built variants; thin, the work is in :mod:`kernel_builder.hub.upload`."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from kernel_builder.cli.completing import RULE
from kernel_builder.cli.options import PathName, project_directory, together
from kernel_builder.cli.session import environment
from kernel_builder.errors import ExitCode
from kernel_builder.signals import ENDING

if TYPE_CHECKING:
    from kernel_builder.hub.plan import BranchPlan, UploadPlan
    from kernel_builder.hub.upload import Outcome


class UploadOptions(TypedDict):
    """What :data:`upload_options` gives a command's function."""

    repo_id: str | None
    branch: str | None
    private: bool
    repo_type: str
    create_pr: bool
    readme: bool | None
    ignore: tuple[str, ...]
    allow_stale: bool
    commit_size: int
    dry_run: bool
    as_json: bool
    output_json: Path | None


upload_options = together(
    click.option("--repo-id", metavar="OWNER/NAME", help="The repository. Default: general.hub.repo-id of build.toml."),
    click.option(
        "--branch",
        metavar="NAME",
        help="The branch for the variants. Default: general.hub.branch, else v<version>.",
    ),
    click.option("--private", is_flag=True, help="Make the repository private if it is created now."),
    click.option(
        "--repo-type",
        type=click.Choice(["kernel", "model"]),
        default="kernel",
        show_default=True,
        help="Repository type. get_kernel loads only from kernel repositories.",
    ),
    click.option("--create-pr", is_flag=True, help="Open pull requests instead of committing: one per branch."),
    click.option(
        "--readme/--no-readme",
        default=None,
        help="Whether to put the card on main as README.md. Default: yes, unless a newer version is published.",
    ),
    click.option(
        "--ignore",
        type=RULE,
        metavar="RULE",
        multiple=True,
        help="Ignore a conformance rule: a code (KB101), a code prefix (KB1) or a name. Can be repeated.",
    ),
    click.option(
        "--allow-stale",
        is_flag=True,
        help="Upload variants that were built from other sources than those in the project.",
    ),
    click.option(
        "--commit-size",
        type=click.IntRange(min=1),
        default=1000,
        show_default=True,
        metavar="N",
        help="Change at most N files per commit.",
    ),
    click.option("--dry-run", is_flag=True, help="Print everything that would change on the Hub without changing it."),
    click.option("--json", "as_json", is_flag=True, help="Print the result (the plan with --dry-run) as JSON."),
    click.option(
        "--output-json",
        type=PathName(dir_okay=False),
        metavar="FILE",
        help="Also write the result as JSON to FILE.",
    ),
)
"""The options of everything that uploads."""


@click.command(short_help="Publish built variants on the Hub.")
@click.argument("directory", metavar="[DIR]", required=False, type=PathName())
@upload_options
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
def command(directory: Path | None, *, quiet: bool, **options: Unpack[UploadOptions]) -> int:
    """Publish the variants built in DIR (default: here) on the Hub.

    Uploads to the branch v<version> of the repository, creating both if necessary, and puts the card on main as
    README.md. Checks the build first. Skips files that the Hub already has, and keeps published variants that were not
    built here. After an interruption, run the same command again to resume.
    """
    return run_upload(project_directory(directory, quiet=quiet), options, quiet=quiet)


def run_upload(directory: Path, options: UploadOptions, *, quiet: bool, only: tuple[str, ...] | None = None) -> int:
    """Publish what is built in ``directory`` (of it, the variants ``only``) and print what came of it."""
    from kernel_builder.cli.check import exports_here  # noqa: PLC0415  (start-up time)
    from kernel_builder.cli.console import ConsoleReporter, errors_as_json  # noqa: PLC0415
    from kernel_builder.files import write_text  # noqa: PLC0415
    from kernel_builder.hub import upload as hub  # noqa: PLC0415
    from kernel_builder.hub.gate import Proving  # noqa: PLC0415
    from kernel_builder.load.proofs import FOLDER as PROOFS  # noqa: PLC0415
    from kernel_builder.store.cache import default_root  # noqa: PLC0415

    request = hub.UploadRequest(
        directory=directory,
        repo_id=options["repo_id"],
        branch=options["branch"],
        private=options["private"],
        repo_type=options["repo_type"],
        create_pr=options["create_pr"],
        readme=options["readme"],
        ignore=options["ignore"],
        allow_stale=options["allow_stale"],
        commit_operations=options["commit_size"],
        only=only,
        proving=Proving(environ=environment(), proofs=default_root(environment()) / PROOFS, exports=exports_here()),
    )
    as_json, output_json = options["as_json"], options["output_json"]
    if output_json is not None:
        output_json.parent.mkdir(parents=True, exist_ok=True)
    with errors_as_json(as_json), ConsoleReporter(quiet=quiet) as reporter:
        if options["dry_run"]:
            planned = hub.dry_run(request, reporter)
            document = planned.plan.to_json()
            text = plan_text(planned.plan, planned.url)
        else:
            outcome = hub.upload(request, reporter, stop=_stop_on_signals())
            document = outcome.to_json()
            text = _outcome_text(outcome)
            if outcome.status is hub.UploadStatus.NO_CHANGES and not quiet:
                reporter.line("note: nothing to upload: the Hub already has everything")
    if output_json is not None:
        write_text(output_json, json.dumps(document, indent=2) + "\n")
    click.echo(json.dumps(document, indent=2) if as_json else text)
    return ExitCode.OK


def _stop_on_signals() -> threading.Event:
    """An event that Ctrl-C and its kin set, so that threads which send files end at once, too."""
    stop = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        stop.set()
        raise KeyboardInterrupt

    for wanted in ENDING:
        signal.signal(wanted, handle)
    return stop


def _outcome_text(outcome: Outcome) -> str:
    if outcome.pull_requests:
        return "\n".join(url for _, url in outcome.pull_requests)
    return outcome.url or ""


def plan_text(plan: UploadPlan, url: str) -> str:
    """A plan for people: a line per branch and one per file."""
    from kernel_builder.cli.console import size_text  # noqa: PLC0415  (start-up time)

    lines = [f"upload to {url}"]
    if plan.creates_repository:
        lines.append(f"create the {'private' if plan.private else 'public'} repository {plan.repo_id}")
    for branch in plan.branches:
        lines.append(_branch_text(branch))
        width = max((len(size_text(change.size)) for change in branch.changes), default=0)
        lines += [
            f"  {change.action.value:<7}  {size_text(change.size):>{width}}  {change.path}" for change in branch.changes
        ]
    lines.append("nothing was changed (--dry-run)")
    return "\n".join(lines)


def _branch_text(branch: BranchPlan) -> str:
    from kernel_builder.cli.console import size_text  # noqa: PLC0415  (start-up time)
    from kernel_builder.hub.plan import ChangeKind  # noqa: PLC0415

    made = f" (new, from {branch.made_from})" if branch.is_new else ""
    if branch.continues:
        made = " (new, resuming an interrupted upload)"
    counts = [f"{branch.count(action)} to {action.value}" for action in ChangeKind if branch.count(action)] or [
        "nothing to change"
    ]
    if branch.unchanged:
        counts.append(f"{branch.unchanged} unchanged")
    commits = f" in {len(branch.batches)} commit{'s' if len(branch.batches) > 1 else ''}" if branch.batches else ""
    sent = f"; {size_text(branch.sent)} to send{commits}" if branch.changes else ""
    return f"branch {branch.name}{made}: {', '.join(counts)}{sent}"
