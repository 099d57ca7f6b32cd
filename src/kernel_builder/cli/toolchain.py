"""``kernel-builder toolchain``: what kernels are compiled with, and the store that keeps it."""

from __future__ import annotations

import click

from kernel_builder.cli.lazy import Entry, LazyGroup

COMMANDS: dict[str, Entry] = {
    "fetch": Entry("toolchain_fetch", "Fetch toolchains ahead of a build."),
    "explain": Entry("toolchain_explain", "Show where each part of a variant's toolchain comes from, and why."),
    "list": Entry("toolchain_list", "List the store: sizes, last use, origin."),
    "verify": Entry("toolchain_verify", "Verify all files in the store against their manifests."),
    "gc": Entry("toolchain_gc", "Remove entries that have not been used for a while."),
    "export": Entry("toolchain_export", "Export toolchains to one file, for machines without network access."),
    "import": Entry("toolchain_import", "Import toolchains from an exported file into the store."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def command() -> None:
    """Fetch, inspect, verify, clean up and move toolchains."""
