"""``kernel-builder build-and-upload``: build, then publish what was built."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import click

from kernel_builder.cli import build
from kernel_builder.cli.upload import run_upload, upload_options
from kernel_builder.errors import BuildError, ExitCode
from kernel_builder.hub.upload import UploadRequest

_OF_UPLOAD = {"dry_run", "as_json", "output", "quiet", "ignore"}
"""Options of build that are the upload's here, too, or make no sense before one."""


@click.command(short_help="Build the project's variants, then publish them on the Hub.")
@upload_options
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
def command(
    *,
    repo_id: str | None,
    branch: str | None,
    private: bool,
    repo_type: str,
    create_pr: bool,
    readme: bool | None,
    ignore: tuple[str, ...],
    commit_size: int,
    dry_run: bool,
    as_json: bool,
    output_json: Path | None,
    quiet: bool,
    **build_options: object,
) -> int:
    """Build the kernel in DIR (default: here) as build does, then publish what was built as upload does.

    Nothing is published when a variant cannot be built. With --dry-run the variants are built, and what would change on
    the Hub is printed.
    """
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        code = click.get_current_context().invoke(
            build.command, **build_options, quiet=quiet, ignore=ignore, dry_run=False, as_json=True, output=None
        )
    outcome = json.loads(written.getvalue())
    built = tuple(variant["name"] for variant in outcome["variants"] if variant["path"] is not None)
    if code not in {ExitCode.OK, ExitCode.INCOMPLETE} or not built:
        raise BuildError("nothing was uploaded, because the build failed", hint="see above")
    request = UploadRequest(
        # The very folder: a link named result beside it is not what was built now.
        directory=Path(outcome["output"]),
        repo_id=repo_id,
        branch=branch,
        private=private,
        repo_type=repo_type,
        create_pr=create_pr,
        readme=readme,
        ignore=ignore,
        commit_operations=commit_size,
        only=built,
    )
    uploaded = run_upload(request, dry_run=dry_run, as_json=as_json, output_json=output_json, quiet=quiet)
    return code if uploaded == ExitCode.OK else uploaded


command.params[:0] = [parameter for parameter in build.command.params if parameter.name not in _OF_UPLOAD]
