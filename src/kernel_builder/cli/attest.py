"""``kernel-builder attest``: say what built variants were made from, sign them, and verify signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.options import PathName, project_argument
from kernel_builder.cli.session import environment
from kernel_builder.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.artifact.built import BuiltVariant
    from kernel_builder.hub.local import UploadSource


@click.command(name="attest")
@project_argument()
@click.option("--output", "-o", type=PathName(), help="Write the statements to this file ('-': stdout).")
@click.option("--sign", "signs", is_flag=True, help="Sign each variant's metadata with Sigstore.")
@click.option("--verify", "verifies", is_flag=True, help="Verify existing signatures; write nothing.")
@click.option("--identity", help="With --verify: the expected signer (e-mail address or workflow URI).")
@click.option("--issuer", help="With --verify: the OIDC issuer of --identity.")
@click.option(
    "--trust-config",
    type=PathName(exists=True),
    help="With --verify: trust configuration of your own Sigstore instance.",
)
@click.option("--offline", is_flag=True, help="With --verify: use the local trust root, contact no server.")
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

    Each lists every file of the variant with its SHA-256, the commit and tool it was built with, and the files of its
    toolchain if kernel-builder.lock has them. Fails for variants whose files have changed since the build.
    """
    from kernel_builder.hub.local import find_source  # noqa: PLC0415  (start-up time)

    source = find_source(directory)
    if verifies:
        if signs or output is not None:
            raise UsageError(
                "--verify writes nothing", hint="run kernel-builder attest --verify without --sign and --output"
            )
        from kernel_builder.store.offline import asks_for_offline  # noqa: PLC0415  (start-up time)

        offline = offline or asks_for_offline(environment())
        return _verify(source.variants, identity, issuer, trust_config, offline=offline)
    extra = [
        name
        for name, value in (("--identity", identity), ("--issuer", issuer), ("--trust-config", trust_config))
        if value is not None
    ] + (["--offline"] if offline else [])
    if extra:
        raise UsageError(f"{', '.join(extra)} needs --verify")
    _attest(source, output, signs=signs)
    return ExitCode.OK


def _attest(source: UploadSource, output: Path | None, *, signs: bool) -> None:
    from kernel_builder.files import write_text  # noqa: PLC0415  (start-up time)
    from kernel_builder.hub.attest import (  # noqa: PLC0415
        STATEMENTS,
        make_statement,
        sign,
        statements_text,
    )
    from kernel_builder.hub.local import variant_files  # noqa: PLC0415
    from kernel_builder.toolchain.lock import read_lock  # noqa: PLC0415

    for variant in source.variants:
        if variant.is_dirty:
            click.echo(f"warning: {variant.name} was built from uncommitted sources", err=True)
    lock = read_lock(source.project.root) if source.project is not None else None
    statements = []
    for variant in source.variants:
        locked = lock.get(variant.name) if lock is not None else None
        statements.append(
            make_statement(
                variant,
                variant_files(variant, source.folder),
                source.project,
                dependencies=locked.artefacts if locked is not None else (),
                environment=environment(),
            )
        )
    text = statements_text(statements)
    if str(output) == "-":
        click.echo(text, nl=False)
    else:
        target = output or source.folder / STATEMENTS
        write_text(target, text)
        click.echo(f"wrote {target}: {len(statements)} statement{'s' if len(statements) != 1 else ''}", err=True)
    if signs:
        for bundle in sign(source.variants):
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
