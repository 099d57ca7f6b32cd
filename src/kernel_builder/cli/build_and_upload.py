"""``kernel-builder build-and-upload``: build, then publish what was built."""

from __future__ import annotations

from typing import Unpack

import click

from kernel_builder.cli.build import BuildOptions, build_options, build_request, missing_text, run_build, show_failures
from kernel_builder.cli.console import errors_as_json
from kernel_builder.cli.upload import UploadOptions, run_upload, upload_options
from kernel_builder.errors import BuildError, UsageError


class BothOptions(BuildOptions, UploadOptions):
    """What both sets of options give the command's function."""


@click.command(short_help="Build the project's variants, then publish them on the Hub.")
@build_options
@upload_options
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
def command(*, quiet: bool, **options: Unpack[BothOptions]) -> int:
    """Build the kernel in DIR (default: here) as 'build' does, then publish it as 'upload' does.

    Nothing is published if a variant fails; --complete demands that every variant can be built. With --dry-run, builds
    the variants and prints what would change on the Hub.
    """
    with errors_as_json(options["as_json"]):
        _refuse_partial(options["architectures"], fast=options["fast"])
        outcome = run_build(build_request(options, ignore=options["ignore"], quiet=quiet), quiet=quiet)
        show_failures(outcome)
        for line in missing_text(outcome.unavailable):
            click.echo(line, err=True)
        built = tuple(variant.name for variant in outcome.variants if variant.path is not None)
        if not outcome.ok or not built:
            raise BuildError("nothing was uploaded because the build failed", hint="see above")
    # The very folder: a link named result beside it is not what was built now.
    return run_upload(outcome.output, options, quiet=quiet, only=built)


def _refuse_partial(architectures: tuple[str, ...], *, fast: bool) -> None:
    if architectures or fast:
        given = "--fast" if fast else f"--arch {architectures[0]}"
        raise UsageError(
            f"build-and-upload publishes complete variants, but {given} leaves architectures out",
            hint=f"run kernel-builder build-and-upload without it, or kernel-builder build {given} to try the kernel",
        )
