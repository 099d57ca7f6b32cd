"""``kernel-builder attest``: say what built variants were made from, sign them, and verify signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.errors import ConfigError, ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.artifact.built import BuiltVariant
    from kernel_builder.config.model import Project


@click.command(name="attest")
@click.argument("directory", default=".", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write the statements to this file ('-': stdout)."
)
@click.option("--sign", "signs", is_flag=True, help="Sign each variant's metadata with Sigstore.")
@click.option("--verify", "verifies", is_flag=True, help="Verify the signatures that are there; write nothing.")
@click.option("--identity", help="With --verify: who must have signed (e-mail address, or URI of a workflow).")
@click.option("--issuer", help="With --verify: the OIDC issuer that vouches for --identity.")
@click.option(
    "--trust-config", type=click.Path(path_type=Path, exists=True), help="With --verify: a Sigstore of your own."
)
@click.option("--offline", is_flag=True, help="With --verify: use the trust root at hand, ask no server.")
def command(
    directory: Path,
    *,
    output: Path | None,
    signs: bool,
    verifies: bool,
    identity: str | None,
    issuer: str | None,
    trust_config: Path | None,
    offline: bool,
) -> int:
    """Write provenance statements about the variants built in DIRECTORY to build/provenance.intoto.jsonl.

    Each names every file of the variant with its SHA-256, the commit and the tool it was built with, and the files of
    its toolchain if kernel-builder.lock tells them. Variants whose files are not as they were built are refused.
    """
    project, folder, variants = _find(directory)
    if verifies:
        if signs or output is not None:
            raise UsageError("--verify writes nothing", hint="leave out --sign and --output")
        return _verify(variants, identity, issuer, trust_config, offline=offline)
    extra = [
        name
        for name, value in (("--identity", identity), ("--issuer", issuer), ("--trust-config", trust_config))
        if value is not None
    ] + (["--offline"] if offline else [])
    if extra:
        raise UsageError(f"{', '.join(extra)} goes with --verify")
    _attest(project, folder, variants, output, signs=signs)
    return ExitCode.OK


def _find(directory: Path) -> tuple[Project | None, Path, tuple[BuiltVariant, ...]]:
    from kernel_builder.artifact.built import variants_in  # noqa: PLC0415  (start-up time)
    from kernel_builder.config.reader import FILE_NAME, load_project  # noqa: PLC0415
    from kernel_builder.plan.tree import OUTPUT_DIRECTORY  # noqa: PLC0415

    project = load_project(directory)[0] if (directory / FILE_NAME).exists() else None
    for folder in (directory / OUTPUT_DIRECTORY, directory):
        variants = variants_in(folder)
        if variants:
            return project, folder, variants
    raise ConfigError(
        f"there are no built variants in {directory} or {directory / OUTPUT_DIRECTORY}",
        hint="build them first: kernel-builder build",
    )


def _attest(
    project: Project | None, folder: Path, variants: tuple[BuiltVariant, ...], output: Path | None, *, signs: bool
) -> None:
    import os  # noqa: PLC0415  (start-up time)

    from kernel_builder.files import write_text  # noqa: PLC0415
    from kernel_builder.hub.attest import (  # noqa: PLC0415
        STATEMENTS,
        make_statement,
        refuse_altered,
        sign,
        statements_text,
    )

    for variant in variants:
        refuse_altered(variant)
        if variant.is_dirty:
            click.echo(f"warning: {variant.name} was built from sources that are in no commit", err=True)
    text = statements_text(make_statement(variant, project, environment=os.environ) for variant in variants)
    if str(output) == "-":
        click.echo(text, nl=False)
    else:
        target = output or folder / STATEMENTS
        write_text(target, text)
        click.echo(f"wrote {target}: {len(variants)} statement{'s' if len(variants) != 1 else ''}", err=True)
    if signs:
        for bundle in sign(variants):
            click.echo(f"signed: {bundle}", err=True)


def _verify(
    variants: tuple[BuiltVariant, ...],
    identity: str | None,
    issuer: str | None,
    trust_config: Path | None,
    *,
    offline: bool,
) -> int:
    from kernel_builder.hub.attest import identity_policy, make_verifier, verify  # noqa: PLC0415  (start-up time)

    policy = identity_policy(identity, issuer)
    verifier = make_verifier(offline=offline, trust_config=trust_config)
    failed = False
    for variant in variants:
        problem = verify(variant, verifier, policy)
        failed = failed or problem is not None
        click.echo(f"{variant.name}: {problem or f'signed by {identity}'}")
    return ExitCode.FAILED if failed else ExitCode.OK
