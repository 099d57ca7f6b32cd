"""``kernel-builder worker``: thin; the work is in :mod:`kernel_builder.workflow.cluster`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from kernel_builder.cli.console import mebibytes
from kernel_builder.cli.options import PathName, offline_option, read_size
from kernel_builder.cli.session import open_run
from kernel_builder.cluster.service import Abilities
from kernel_builder.errors import ExitCode
from kernel_builder.workflow.cluster import DEFAULT_BLOBS, WorkerRequest, work_for


@click.command(short_help="Compile for builds on other machines, through a dask scheduler.")
@click.argument("address")
@click.option(
    "-j",
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run N actions at once. Default: the number of cores.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=read_size,
    help="Memory for all actions together, such as 16G. Default: what is free at the start.",
)
@click.option(
    "--folder",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Where to create the worker's directory, which is removed at the end. Default: the temporary directory.",
)
@click.option(
    "--blobs",
    metavar="SIZE",
    callback=read_size,
    help="Keep at most this much of what builds sent and produced. Default: 4G.",
)
@click.option(
    "--host",
    metavar="NAME",
    help=(
        "The address to listen on. Default: the one that reaches the scheduler; loopback if the scheduler is on "
        "loopback."
    ),
)
@click.option("--name", metavar="NAME", help="The worker's name in the messages of builds. Default: its address.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for a scheduler. Default: 60.",
)
@offline_option
def command(
    *,
    address: str,
    threads: int | None,
    memory: int | None,
    folder: Path | None,
    blobs: int | None,
    host: str | None,
    name: str | None,
    patience: float,
) -> int:
    """Run actions of 'kernel-builder build --scheduler ADDRESS' on this machine, until the scheduler at ADDRESS stops
    or you press Ctrl-C.

    Anyone who can reach the scheduler can run programs on this machine: keep the scheduler on loopback, in a private
    network, or behind TLS (docs/howto/clusters.md).
    """
    request = WorkerRequest(
        address=address,
        threads=threads,
        memory=memory,
        folder=folder,
        blobs=blobs or DEFAULT_BLOBS,
        host=host,
        name=name,
        patience=patience,
    )

    def ready(own: str, abilities: Abilities) -> None:
        compilers = ", ".join(sorted(abilities.compilers.values())) or "no compiler"
        resources = abilities.resources
        click.echo(
            f"worker {name or own}: {resources.processors} threads, {mebibytes(resources.memory)}; {compilers}",
            err=True,
        )

    with open_run() as run:
        is_over = work_for(request, run, ready)
    if not is_over:  # a thread waits for a server, and Python would wait for the thread
        sys.stderr.flush()
        os._exit(ExitCode.OK)
    return ExitCode.OK
