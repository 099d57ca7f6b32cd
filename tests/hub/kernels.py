"""Small variants that look as if they were built, for tests that are about moving files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

BUILD_TOML = """\
[general]
name = "{name}"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[general.hub]
repo-id = "{repo_id}"

[torch-noarch]
"""


def write_project(root: Path, *, name: str = "scale", version: int = 1, repo_id: str = "me/scale") -> Path:
    """A project without variants: ``build.toml`` and the package."""
    package = root / "torch-ext" / name.replace("-", "_")
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""A kernel."""\n\n__all__ = ["scale"]\n\n\ndef scale(x):\n    return x\n')
    (root / "build.toml").write_text(BUILD_TOML.format(name=name, version=version, repo_id=repo_id))
    return root


def write_variant(
    folder: Path,
    variant: str,
    files: Mapping[str, bytes] | None = None,
    *,
    version: int = 1,
    dirty: bool = False,
    backend: str | None = None,
) -> Path:
    """A variant with a right digest: ``files`` and an ``__init__.py``, below ``folder``."""
    directory = folder / variant
    contents = {"__init__.py": b'__all__ = ["scale"]\n\n\ndef scale(x):\n    return x\n', **(files or {})}
    for path, data in contents.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    seal(directory, version=version, dirty=dirty, backend=backend)
    return directory


def seal(directory: Path, *, version: int = 1, dirty: bool = False, backend: str | None = None) -> None:
    """Write ``metadata.json`` with the digest of what is in ``directory``."""
    digest: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory).as_posix()
        if path.is_file() and relative not in {"metadata.json", "metadata.json.sigstore"}:
            with path.open("rb") as file:
                raw = hashlib.file_digest(file, "sha256").digest()
            digest[relative] = base64.b64encode(raw).decode()
    kind = backend or ("cuda" if "-cu" in directory.name else "cpu")
    document = {
        "name": "scale",
        "id": f"_scale_{kind}_1a2b3c4",
        "version": version,
        "license": "Apache-2.0",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": kind},
        "digest": {"algorithm": "sha256", "files": digest},
        "provenance": {
            "kernel-builder": {"version": "0.1.0"},
            "kernel": {"commit": "1a2b3c4" + "0" * 33, "dirty": dirty},
        },
    }
    (directory / "metadata.json").write_text(json.dumps(document, indent=2) + "\n")
