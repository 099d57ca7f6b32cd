"""``kernel-builder toolchain explain``: what a variant is compiled with, from where, and why not something else."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from kernel_builder.backends import toolkit_kinds
from kernel_builder.cli.console import size_text
from kernel_builder.cli.options import PathName, offline_option, source_option
from kernel_builder.cli.session import open_run
from kernel_builder.config.backends import Backend
from kernel_builder.toolchain.choice import Taken
from kernel_builder.toolchain.settings import LOCAL
from kernel_builder.workflow.explain import Explanation, explain


@click.command(name="explain")
@click.argument("variant")
@click.option(
    "--project",
    type=PathName(exists=True, file_okay=False),
    metavar="DIR",
    help="The project whose kernel-builder.toml applies. Default: here.",
)
@source_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@offline_option
def command(variant: str, *, project: Path | None, as_json: bool) -> None:
    """Show what VARIANT is compiled with: where each part comes from, and why other candidates were not used.

    Queries the sources again, in the order of kernel-builder.toml, and fetches only what that needs.
    """
    with open_run() as run:
        found = explain(variant, run, root=(project or Path.cwd()).resolve())
    click.echo(json.dumps(_report(found), indent=2) if as_json else _text(found))


def _text(found: Explanation) -> str:
    resolved = found.resolved
    rows = [("host compiler", _source_of_host(found), f"{resolved.host.cxx} ({resolved.host})")]
    shown: set[str] = set()
    for taken in resolved.chain.taken:
        rows.append((taken.part, taken.source, _describe(taken, found, again=taken.artefact.filename in shown)))
        shown.add(taken.artefact.filename)
    refused = [("host compiler", "local", str(entry)) for entry in found.rejected]
    refused += [(entry.part, entry.source, f"{entry.candidate}: {entry.reason}") for entry in resolved.chain.refused]
    width = max(len(part) for part, _, _ in rows + refused)
    across = max(len(source) for _, source, _ in rows + refused)
    lines = [f"{found.variant}: {found.request}", f"sources, in order: {', '.join(found.settings.order)}"]
    lines += [f"settings: {file}" for file in found.settings.files]
    lines += [f"note: {part}" for part in resolved.by_project]
    lines += ["used:", *(f"  {part:<{width}}  {source:<{across}}  {text}" for part, source, text in rows)]
    lines.append(f"to fetch: {size_text(sum(found.fetched.values()))}")
    if refused:
        lines += ["not used:", *(f"  {part:<{width}}  {source:<{across}}  {text}" for part, source, text in refused)]
    return "\n".join(lines)


def _source_of_host(found: Explanation) -> str:
    """Where the host compiler comes from."""
    packages = found.resolved.host.packages
    return ", ".join(dict.fromkeys(one.source for package in packages for one in package.artefacts)) or LOCAL


def _describe(taken: Taken, found: Explanation, *, again: bool) -> str:
    if taken.root is not None:
        return f"{taken.root} ({taken.artefact.version})"
    left = found.fetched[taken.artefact.filename]
    what = "the same file" if again else f"{size_text(left)} to fetch" if left else "nothing to fetch"
    return f"{taken.artefact.filename} ({what})"


def _report(found: Explanation) -> dict[str, object]:
    chain = found.resolved.chain
    return {
        "variant": found.variant,
        found.request.framework.value: found.request.release,
        "abi": found.request.abi,
        **{backend.value: _version(found, backend) for backend in toolkit_kinds()},
        "sources": list(found.settings.order),
        "settings": [str(file) for file in found.settings.files],
        "host-compiler": {
            "path": str(found.resolved.host.cxx),
            "family": found.resolved.host.family.value,
            "version": found.resolved.host.version,
            "source": _source_of_host(found),
            "refused": [{"path": str(entry.path), "reason": entry.reason} for entry in found.rejected],
        },
        "complete": found.resolved.expected_bytes == 0,
        "taken": [
            {
                "part": taken.part,
                "source": taken.source,
                "artefact": asdict(taken.artefact),
                "bytes-to-fetch": found.fetched[taken.artefact.filename],
                "root": str(taken.root) if taken.root is not None else None,
                "named-by-project": taken.source in found.settings.by_project,
            }
            for taken in chain.taken
        ],
        "refused": [asdict(entry) for entry in chain.refused],
    }


def _version(found: Explanation, backend: Backend) -> str | None:
    """The version of that backend's toolkit, if it is what the variant is compiled with."""
    toolkit = found.request.toolkit
    return toolkit.version if toolkit is not None and toolkit.backend is backend else None
