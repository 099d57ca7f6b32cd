"""``kernel-builder build-and-upload``: build, then publish what was built."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from kernel_builder.cli.build import BuildOptions, build_options, build_request, exit_code, run_build, show_failures
from kernel_builder.cli.console import errors_as_json
from kernel_builder.cli.upload import run_upload, upload_options
from kernel_builder.errors import BuildError, ExitCode
from kernel_builder.hub.upload import UploadRequest


@click.command(short_help="Build the project's variants, then publish them on the Hub.")
@build_options
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
    **options: Unpack[BuildOptions],
) -> int:
    """Build the kernel in DIR (default: here) as 'build' does, then publish it as 'upload' does.

    Nothing is published if a variant cannot be built. With --dry-run, builds the variants and prints what would change
    on the Hub.
    """
    with errors_as_json(as_json):
        outcome = run_build(build_request(ignore=ignore, **options), quiet=quiet)
        show_failures(outcome)
        built = tuple(variant.plan.name for variant in outcome.variants if variant.path is not None)
        code = exit_code(outcome)
        if code is ExitCode.FAILED or not built:
            raise BuildError("nothing was uploaded because the build failed", hint="see above")
    request = UploadRequest(
        # The very folder: a link named result beside it is not what was built now.
        directory=outcome.plan.output,
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
