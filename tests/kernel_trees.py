"""Kernels of a few files, for tests of the rules about Python, layout and metadata."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_builder.check.engine import check_paths
from kernel_builder.check.model import Finding, Settings

TOML = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = [{backends}]
{general}
[torch-noarch]
"""
COMPILED = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["{binding}"]

[kernel.{section}]
backend = "cpu"
depends = ["torch"]
src = ["{source}"]
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OPS = """\
import torch

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name):
    return f"{id}::{{op_name}}"
"""


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write ``files`` below ``root``."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.write_text(content, encoding="utf-8")
        else:
            target.write_bytes(content)
    return root


def compiled_toml(binding: str, native: str, *, section: str = "cpu") -> str:
    """A build.toml that compiles ``binding``, and ``native`` in its ``section``."""
    return COMPILED.format(binding=binding, source=native, section=section)


def source(
    root: Path, package: Mapping[str, str], *, backends: str = '"cuda"', general: str = "", toml: str | None = None
) -> Path:
    """A source tree whose package holds ``package``, with an empty ``__all__`` if it says nothing else."""
    files = {"__init__.py": "__all__ = []\n", **package}
    return write(
        root,
        {
            "build.toml": toml or TOML.format(backends=backends, general=general),
            **{f"torch-ext/my_kernel/{path}": text for path, text in files.items()},
        },
    )


def hashes(root: Path) -> dict[str, str]:
    """The digest's files, made here without the code under test."""
    return {
        path.relative_to(root).as_posix(): base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "metadata.json"
    }


def variant(
    build: Path,
    name: str = "torch-cuda",
    /,
    files: Mapping[str, str | bytes] | None = None,
    *,
    ops_id: str = "_my_kernel_cuda_1a2b3c4",
    **changes: Any,
) -> Path:
    """A conforming variant in ``build``, but for ``changes`` of its metadata; ``None`` removes a key."""
    root = write(
        build / name,
        {
            "__init__.py": "from . import _ops\n\n__all__ = []\n",
            "_ops.py": OPS.format(id=ops_id),
            "my_kernel/__init__.py": "",
            **(files or {}),
        },
    )
    metadata: dict[str, Any] = {
        "name": "my-kernel",
        "id": ops_id,
        "version": 1,
        "license": "MIT",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": "cuda", "archs": ["8.0", "9.0a"]},
        "digest": {"algorithm": "sha256", "files": hashes(root)},
        "provenance": {"kernel-builder": {"version": "1.0"}, "kernel": {"commit": COMMIT, "dirty": False}},
    }
    metadata |= {key.replace("_", "-"): value for key, value in changes.items()}
    document = {key: value for key, value in metadata.items() if value is not None}
    (root / "metadata.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    return root


def findings(path: Path, *rules: str, **settings: Any) -> list[Finding]:
    """What rules (all of the groups 2 to 4, when none is named) find."""
    settings.setdefault("required", False)
    return list(check_paths([path], Settings(**settings), select=rules or ("KB2", "KB3", "KB4")).findings)


def codes(path: Path, *rules: str, **settings: Any) -> list[str]:
    """Codes of what is found."""
    return [finding.rule.code for finding in findings(path, *rules, **settings)]
