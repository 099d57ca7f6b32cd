"""Provenance statements about built variants, and signatures of their metadata.

A statement says which sources, which tool and which toolchain files a variant was made from (in-toto Statement v1 with
the SLSA Provenance v1 predicate). A signature is a Sigstore bundle over the exact bytes of ``metadata.json``, which
carries the digest of every other file. The ``sigstore`` package signs and verifies; nothing of that is written here.
Reference: interoperability contract 4.2-4.4 and 5.7; in-toto attestation framework, "Statement"; SLSA, "Provenance".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder import __version__
from kernel_builder.artifact.built import BuiltVariant
from kernel_builder.artifact.digest import METADATA, SIGNATURE
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import BuildError, KernelBuilderError, UsageError
from kernel_builder.files import write_bytes
from kernel_builder.hub.local import variant_files
from kernel_builder.hub.plan import BUILD, LocalFile
from kernel_builder.store.artefact import Artefact

if TYPE_CHECKING:
    from sigstore.verify import Verifier
    from sigstore.verify.policy import VerificationPolicy

STATEMENTS = "provenance.intoto.jsonl"
"""Name of the file with all statements, one a line, in the output directory."""

_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
_BUILD_TYPE = "urn:kernel-builder:hub-kernel:1"
_LOCAL_BUILDER = "urn:kernel-builder:local"


def make_statement(
    variant: BuiltVariant,
    files: Iterable[LocalFile],
    project: Project | None,
    *,
    dependencies: Iterable[Artefact] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The statement about ``variant`` and its ``files``, as :func:`variant_files` found them.

    ``dependencies`` are the files of its toolchain, as the lock names them. ``project`` adds the digest of
    ``build.toml`` and the address of the sources; ``environment`` is looked at for the
    run of a GitHub workflow, which then is the builder. The same inputs give the same statement.
    """
    environment = environment or {}
    parameters: dict[str, object] = {
        "variant": variant.name,
        "name": variant.metadata.get("name"),
        "version": variant.version,
        "id": variant.metadata.get("id"),
    }
    if project is not None:
        build_file = project.root / FILE_NAME
        parameters["config"] = {"path": FILE_NAME, "sha256": hashlib.sha256(build_file.read_bytes()).hexdigest()}
    predicate = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": parameters,
            "internalParameters": {"provenance": variant.metadata.get("provenance", {})},
            "resolvedDependencies": [
                *_sources(variant),
                *map(_dependency, dependencies),
            ],
        },
        "runDetails": _run_details(variant, environment),
    }
    return {
        "_type": _STATEMENT_TYPE,
        "subject": [
            {"name": file.path.removeprefix(f"{BUILD}/"), "digest": {"sha256": file.sha256}}
            for file in sorted(files, key=lambda file: file.path)
            if not file.path.endswith(f"/{SIGNATURE}")
        ],
        "predicateType": _PREDICATE_TYPE,
        "predicate": predicate,
    }


def _dependency(artefact: Artefact) -> dict[str, object]:
    """A file of the toolchain. Where its publisher gives no digest of the whole, that of its RECORD stands for it."""
    if artefact.sha256 is not None:
        return {"name": artefact.filename, "digest": {"sha256": artefact.sha256}}
    digest = {} if artefact.record_sha256 is None else {"digest": {"sha256": artefact.record_sha256}}
    return {"name": f"{artefact.filename}/RECORD", **digest}


def _sources(variant: BuiltVariant) -> list[dict[str, object]]:
    if variant.commit is None:
        return []
    source = variant.metadata.get("source")
    entry: dict[str, object] = {"name": "sources", "digest": {"gitCommit": variant.commit}}
    if isinstance(source, str):
        entry["uri"] = f"git+{source}" if source.startswith("http") else source
    if variant.is_dirty:
        entry["annotations"] = {"dirty": True}
    return [entry]


def _run_details(variant: BuiltVariant, environment: Mapping[str, str]) -> dict[str, object]:
    server, repository = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    workflow, run = environment.get("GITHUB_WORKFLOW_REF"), environment.get("GITHUB_RUN_ID")
    in_workflow = bool(server and repository and workflow and run)
    details: dict[str, object] = {
        "builder": {
            "id": f"{server}/{workflow}" if in_workflow else _LOCAL_BUILDER,
            "version": {"kernel-builder": variant.builder_version or __version__},
        }
    }
    if in_workflow:
        attempt = environment.get("GITHUB_RUN_ATTEMPT", "1")
        details["metadata"] = {"invocationId": f"{server}/{repository}/actions/runs/{run}/attempts/{attempt}"}
    return details


def statements_text(statements: Iterable[Mapping[str, object]]) -> str:
    """Statements as JSON Lines."""
    return "".join(json.dumps(statement, separators=(",", ":"), sort_keys=True) + "\n" for statement in statements)


def _sigstore_missing(error: ImportError) -> UsageError:
    return UsageError(
        "signatures need the sigstore package, which is not installed",
        hint=f"install it with: pip install 'kernel-builder[sign]' ({error})",
    )


def sign(variants: Iterable[BuiltVariant]) -> Iterator[Path]:
    """Sign the metadata of ``variants``, one after the other; yields each bundle's file when it is written.

    The signer is the identity of the CI run if there is one, else that of a person, who is asked in the browser. Raises
    :class:`UsageError` without the ``sigstore`` package, :class:`KernelBuilderError` when no identity is had or the
    servers refuse.
    """
    try:
        from sigstore.errors import Error  # noqa: PLC0415  (an optional package)
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415
        from sigstore.oidc import IdentityError, IdentityToken, Issuer, detect_credential  # noqa: PLC0415
        from sigstore.sign import SigningContext  # noqa: PLC0415
    except ImportError as error:
        raise _sigstore_missing(error) from error
    try:
        config = ClientTrustConfig.production()
        ambient = detect_credential()
        if ambient is not None:
            token = IdentityToken(ambient)
        else:
            token = Issuer(config.signing_config.get_oidc_url()).identity_token()
        with SigningContext.from_trust_config(config).signer(token) as signer:
            for variant in variants:
                bundle = signer.sign_artifact((variant.path / METADATA).read_bytes())
                target = variant.path / SIGNATURE
                write_bytes(target, bundle.to_json().encode())
                yield target
    except (Error, IdentityError) as error:
        raise KernelBuilderError(
            f"cannot sign the variants: {_first_line(error)}",
            hint="signing needs Sigstore's servers, and a browser or a CI job with an OIDC token (id-token: write)",
        ) from error


def make_verifier(*, offline: bool, trust_config: Path | None = None) -> Verifier:
    """A verifier that trusts the public Sigstore instance, or what ``trust_config`` says.

    ``offline`` uses the trust root that the ``sigstore`` package has at hand. Raises :class:`UsageError` without
    that package, :class:`KernelBuilderError` when no trust root is available.
    """
    try:
        from sigstore.errors import Error  # noqa: PLC0415  (an optional package)
        from sigstore.models import ClientTrustConfig  # noqa: PLC0415
        from sigstore.verify import Verifier  # noqa: PLC0415
    except ImportError as error:
        raise _sigstore_missing(error) from error
    try:
        if trust_config is not None:
            config = ClientTrustConfig.from_json(trust_config.read_text(encoding="utf-8"))
            return Verifier(trusted_root=config.trusted_root)
        return Verifier.production(offline=offline)
    except (Error, ValueError) as error:
        what = f"{trust_config} is not a Sigstore trust configuration" if trust_config else "no trust root is available"
        raise KernelBuilderError(
            f"{what}: {error}", hint="try: kernel-builder attest --verify --offline, which uses the local trust root"
        ) from error


def identity_policy(identity: str | None, issuer: str | None) -> VerificationPolicy:
    """Who must have signed: an e-mail address or the URI of a workflow, vouched for by ``issuer``."""
    try:
        from sigstore.verify import policy  # noqa: PLC0415  (an optional package)
    except ImportError as error:
        raise _sigstore_missing(error) from error
    if identity is None or issuer is None:
        raise UsageError(
            "a signature means nothing unless the signer is known",
            hint="run: kernel-builder attest --verify --identity WHO --issuer URL (WHO is an e-mail address or a"
            " workflow URI, URL its OIDC issuer)",
        )
    return policy.Identity(identity=identity, issuer=issuer)


def verify(variant: BuiltVariant, verifier: Verifier, policy: VerificationPolicy) -> str | None:
    """Why the variant is not what ``policy``'s signer signed; ``None`` when it is.

    In this order: the bundle is there, it can be read, it fits the bytes of the metadata and the signer, and the
    digest in the metadata fits the files (interoperability contract 5.7).
    """
    from sigstore.errors import VerificationError  # noqa: PLC0415  (there is a verifier, so there is the package)
    from sigstore.models import Bundle, InvalidBundle  # noqa: PLC0415

    file = variant.path / SIGNATURE
    if not file.is_file():
        return f"not signed: there is no {SIGNATURE}"
    try:
        bundle = Bundle.from_json(file.read_bytes())
    except (InvalidBundle, ValueError) as error:
        return f"{SIGNATURE} is not a Sigstore bundle: {_first_line(error)}"
    try:
        verifier.verify_artifact((variant.path / METADATA).read_bytes(), bundle, policy)
    except VerificationError as error:
        return f"the signature is not valid: {_first_line(error)}"
    try:
        variant_files(variant, variant.path.parent)
    except BuildError as error:
        return error.message
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
