"""``kernel-builder build-and-upload``: build, then publish what was built."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.build import BuildOptions, build_options, build_request, exit_code, run_build, show_failures
from kernel_builder.cli.console import errors_as_json
from kernel_builder.cli.upload import UploadOptions, run_upload, upload_options
from kernel_builder.errors import BuildError, ExitCode


class BothOptions(BuildOptions, UploadOptions):
    """What both sets of options give the command's function."""


@click.command(short_help="Build the project's variants, then publish them on the Hub.")
@build_options
@upload_options
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
def command(*, quiet: bool, **options: Unpack[BothOptions]) -> int:
    """Build the kernel in DIR (default: here) as build does, then publish what was built as upload does.

    Nothing is published when a variant cannot be built. With --dry-run the variants are built, and what would change on
    the Hub is printed.
    """
    with errors_as_json(options["as_json"]):
        outcome = run_build(build_request(options, ignore=options["ignore"]), quiet=quiet)
        show_failures(outcome)
        built = tuple(variant.plan.name for variant in outcome.variants if variant.path is not None)
        code = exit_code(outcome)
        if code is ExitCode.FAILED or not built:
            raise BuildError("nothing was uploaded, because the build failed", hint="see above")
    # The very folder: a link named result beside it is not what was built now.
    uploaded = run_upload(outcome.plan.output, options, quiet=quiet, only=built)
    return code if uploaded == ExitCode.OK else uploaded
