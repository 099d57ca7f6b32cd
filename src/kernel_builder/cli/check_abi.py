"""``kernel-builder check-abi``: the rules about libraries alone, with the reference's options (contract 7.1)."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.check import make_settings, run_check
from kernel_builder.cli.options import project_argument


@click.command(name="check-abi")
@project_argument()
@click.option(
    "--manylinux",
    "-m",
    default="manylinux_2_28",
    show_default=True,
    metavar="NAME",
    help="Policy for the C and C++ runtimes.",
)
@click.option(
    "--macos",
    "-o",
    default=None,
    metavar="VERSION",
    help="Newest macOS that libraries may need [15.0; for Metal 26.0].",
)
@click.option(
    "--python-abi", "-p", default="3.9", show_default=True, metavar="VERSION", help="Oldest supported Python."
)
@click.option("--torch-stable-abi", metavar="VERSION", help="Libraries must stay within the stable ABI of this torch.")
def command(
    directory: Path, *, manylinux: str, macos: str | None, python_abi: str, torch_stable_abi: str | None
) -> int:
    """Check the libraries of the variants in DIRECTORY: like 'check --select KB1', with other defaults."""
    settings = make_settings(policy=manylinux, python_floor=python_abi, torch_stable_abi=torch_stable_abi, macos=macos)
    return run_check((directory,), settings, select=("KB0", "KB1"))
