"""Statements about what was built, and signatures that do not hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Tool
from hub.kernels import write_project, write_variant
from kernel_builder.artifact.built import BuiltVariant, variants_in
from kernel_builder.artifact.digest import hash_variant
from kernel_builder.errors import KernelBuilderError, UsageError
from kernel_builder.hub.attest import (
    identity_policy,
    make_statement,
    make_verifier,
    statements_text,
    verify,
)
from kernel_builder.hub.local import variant_files
from kernel_builder.store.artefact import Artefact
from kernel_builder.toolchain.lock import Lock, LockedVariant, write_lock
from kernel_builder.toolchain.model import Family
from sigstore_instance import Instance

COMMIT = "0123456789" * 4
WHEEL = "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl"


@pytest.fixture
def variant(tmp_path: Path) -> BuiltVariant:
    directory = tmp_path / "torch-cpu"
    directory.mkdir()
    (directory / "__init__.py").write_text("")
    document = {
        "name": "k",
        "id": "_k_cpu_0123456",
        "version": 1,
        "source": "https://example.org/k",
        "backend": {"type": "cpu"},
        "digest": {"algorithm": "sha256", "files": hash_variant(directory)},
        "provenance": {"kernel-builder": {"version": "9.9"}, "kernel": {"commit": COMMIT, "dirty": True}},
    }
    (directory / "metadata.json").write_text(json.dumps(document))
    return variants_in(tmp_path)[0]


def test_a_statement_names_every_file_and_where_it_came_from(variant: BuiltVariant) -> None:
    statement: Any = make_statement(
        variant,
        variant_files(variant, variant.path.parent),
        None,
        dependencies=[Artefact(name="torch", version="2", filename="torch.whl", sha256="ab")],
    )
    metadata = hashlib.sha256((variant.path / "metadata.json").read_bytes()).hexdigest()
    assert statement["subject"] == [
        {"name": "torch-cpu/__init__.py", "digest": {"sha256": hashlib.sha256(b"").hexdigest()}},
        {"name": "torch-cpu/metadata.json", "digest": {"sha256": metadata}},
    ]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"] == [
        {
            "name": "sources",
            "uri": "git+https://example.org/k",
            "digest": {"gitCommit": COMMIT},
            "annotations": {"dirty": True},
        },
        {"name": "torch.whl", "digest": {"sha256": "ab"}},
    ]
    details = statement["predicate"]["runDetails"]
    assert details["builder"] == {"id": "urn:kernel-builder:local", "version": {"kernel-builder": "9.9"}}
    assert "metadata" not in details


def test_the_builder_is_the_workflow_where_one_runs(variant: BuiltVariant) -> None:
    environment = {
        "GITHUB_SERVER_URL": "https://git.example",
        "GITHUB_REPOSITORY": "me/k",
        "GITHUB_WORKFLOW_REF": "me/k/.github/workflows/build.yml@refs/heads/main",
        "GITHUB_RUN_ID": "7",
    }
    statement: Any = make_statement(variant, variant_files(variant, variant.path.parent), None, environment=environment)
    details = statement["predicate"]["runDetails"]
    assert details["builder"]["id"] == "https://git.example/me/k/.github/workflows/build.yml@refs/heads/main"
    assert details["metadata"] == {"invocationId": "https://git.example/me/k/actions/runs/7/attempts/1"}


def test_statements_are_json_lines_and_the_same_each_time(variant: BuiltVariant) -> None:
    text = statements_text([make_statement(variant, variant_files(variant, variant.path.parent), None)] * 2)
    assert text == statements_text([make_statement(variant, variant_files(variant, variant.path.parent), None)] * 2)
    assert [json.loads(line)["_type"] for line in text.splitlines()] == ["https://in-toto.io/Statement/v1"] * 2


def test_signatures_need_a_known_signer() -> None:
    with pytest.raises(UsageError, match="unless the signer is known"):
        identity_policy("a@example.org", None)


def test_what_is_not_signed_or_no_bundle_is_named(
    variant: BuiltVariant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    verifier = make_verifier(offline=True)
    policy = identity_policy("a@example.org", "https://issuer.example")
    assert verify(variant, verifier, policy) == "not signed: there is no metadata.json.sigstore"
    (variant.path / "metadata.json.sigstore").write_text('{"mediaType": "application/vnd.dev.sigstore.bundle+json"}')
    assert str(verify(variant, verifier, policy)).startswith("metadata.json.sigstore is not a Sigstore bundle: ")


def test_a_signature_holds_for_its_bytes_its_signer_and_the_files_they_cover(
    variant: BuiltVariant, tmp_path: Path
) -> None:

    instance = Instance()
    trust = tmp_path / "trust.json"
    trust.write_text(instance.trust_config())
    metadata = variant.path / "metadata.json"
    signer = {"identity": "me@example.org", "issuer": "https://issuer.test"}
    (variant.path / "metadata.json.sigstore").write_text(instance.bundle(metadata.read_bytes(), **signer))
    verifier, policy = make_verifier(offline=True, trust_config=trust), identity_policy(**signer)

    assert verify(variant, verifier, policy) is None
    other = identity_policy("you@example.org", signer["issuer"])
    assert "you@example.org" in str(verify(variant, verifier, other))
    (variant.path / "__init__.py").write_text("changed")
    assert "__init__.py was changed" in str(verify(variant, verifier, policy))
    metadata.write_bytes(metadata.read_bytes() + b"\n")
    assert str(verify(variant, verifier, policy)).startswith("the signature is not valid: ")
    trust.write_text("{}")
    with pytest.raises(KernelBuilderError, match="not a Sigstore trust configuration"):
        make_verifier(offline=True, trust_config=trust)


def test_the_command_names_the_toolchain_that_is_locked(tmp_path: Path, tool: Tool) -> None:
    root = write_project(tmp_path / "scale")
    write_variant(root / "build", "torch-cpu")
    artefact = Artefact(name="torch", version="2.13.0", filename=WHEEL, size=1, sha256="ab" * 32)
    write_lock(
        root, Lock.of([LockedVariant(name="torch-cpu", host_compiler={Family.GCC: ">=11"}, artefacts=(artefact,))])
    )
    result = tool("attest", root)
    assert result.code == 0, result.stderr
    (line,) = (root / "build" / "provenance.intoto.jsonl").read_text().splitlines()
    dependencies = json.loads(line)["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": WHEEL, "digest": {"sha256": "ab" * 32}} in dependencies
