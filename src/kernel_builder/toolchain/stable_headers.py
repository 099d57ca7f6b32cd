"""The headers of torch's stable ABI, on their own: a kernel for it cannot include anything else of torch's.

They are copied out of the headers of one release, so what is not stable is not on the include path at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernel_builder.binary.stable_abi import stable_header_roots
from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.toolchain.model import FrameworkSdk


def _key(store: Store, torch: FrameworkSdk) -> StoreKey:
    """The store names an entry by its content; a torch elsewhere may change, and its identity tells."""
    include = torch.include[0]
    facts = {"include": str(include), "version": torch.version, "roots": list(stable_header_roots())}
    if include.is_relative_to(store.root):
        facts["include"] = str(include.relative_to(store.root))
    else:
        facts["identity"] = torch.identity
    return StoreKey.of(f"torch-{torch.version}-stable", **facts)


def stable_sdk(store: Store, torch: FrameworkSdk) -> FrameworkSdk:
    """``torch`` with its stable headers alone, at the place where :func:`provide_stable_headers` puts them."""
    key = _key(store, torch)
    return replace(torch, include=(store.path(key),), identity=key.name)


def provide_stable_headers(store: Store, torch: FrameworkSdk) -> None:
    """Copy the stable headers of ``torch`` (with all of its headers) into the store, if they are not there yet.

    Raises :class:`ToolchainError` for a release that has none, :class:`MachineError` when the store cannot be written.
    """
    include = torch.include[0]

    def build(into: Path) -> Sequence[Artefact]:
        for root in stable_header_roots():
            if (include / root).is_dir():
                shutil.copytree(include / root, into / root, copy_function=shutil.copyfile)
        if not (into / "torch" / "csrc" / "stable").is_dir():
            raise ToolchainError(f"torch {torch.version} has no stable ABI: torch/csrc/stable is missing")
        return ()

    store.ensure(_key(store, torch), build)
