"""``kernel-builder toolchain``: what kernels are compiled with, and the store that keeps it."""

from __future__ import annotations

import click

from kernel_builder.cli.lazy import Entry, LazyGroup

COMMANDS: dict[str, Entry] = {
    "fetch": Entry("toolchain_fetch", "Fetch what variants are compiled with, before it is needed."),
    "explain": Entry("toolchain_explain", "Tell where each part of a variant's toolchain comes from, and why."),
    "list": Entry("toolchain_list", "List what is in the store: sizes, last use, origin."),
    "verify": Entry("toolchain_verify", "Read everything in the store again and compare it with its manifests."),
    "gc": Entry("toolchain_gc", "Remove what has not been used for long."),
    "export": Entry("toolchain_export", "Write toolchains into one file, for machines without a network."),
    "import": Entry("toolchain_import", "Bring toolchains from such a file into the store."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def command() -> None:
    """Fetch, inspect, verify, clean up and move what kernels are compiled with."""
