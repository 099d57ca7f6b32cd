"""The copy of a variant under another id that stands for its next version."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.check.load import another_id, another_version
from kernel_builder.check.subject import VariantDir
from kernel_trees import variant


def gnu_hash(text: str) -> int:
    """The hash of DT_GNU_HASH, as the ELF documents define it."""
    value = 5381
    for byte in text.encode("ascii"):
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


@pytest.mark.parametrize("unique", ["1a2b3c4", "e38ec0c", "0000010", "1a2b3c4_dirty", "deadbeef0123"])
def test_another_id_has_the_same_length_and_hash(unique: str) -> None:
    prefix = "_my_kernel_cpu_"
    other = another_id(prefix + unique, prefix)
    assert other is not None
    assert other != prefix + unique
    assert other.startswith(prefix)
    assert other.isidentifier()
    assert (len(other), gnu_hash(other)) == (len(prefix + unique), gnu_hash(prefix + unique))


def test_an_id_that_cannot_be_changed_so() -> None:
    assert another_id("_k_cpu_aaaa", "_k_cpu_") is None


def test_the_copy_has_the_other_id_everywhere_and_the_variant_is_untouched(tmp_path: Path) -> None:
    own = "_my_kernel_cuda_1a2b3c4"
    library = f"\0PyInit_{own}\0 1a2b3c4 \0001a2b3c4\0".encode()
    root = variant(tmp_path / "build", "torch-cuda", {f"{own}.abi3.so": library})
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    made = another_version(VariantDir(root, "torch-cuda"), own, tmp_path / "copy")
    assert made is not None
    other, copy = made
    assert (copy / f"{other}.abi3.so").read_bytes() == (
        f"\0PyInit_{other}\0 1a2b3c4 \0{other.removeprefix('_my_kernel_cuda_')}\0".encode()
    )
    assert f"ops = torch.ops.{other}\n" in (copy / "_ops.py").read_text(encoding="utf-8")
    assert own not in (copy / "metadata.json").read_text(encoding="utf-8")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
