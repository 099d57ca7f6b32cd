from __future__ import annotations

import json
from pathlib import Path

from kernels_data import Digest, DigestAlgorithm

from kernel_builder.artifact.digest import hash_variant
from kernel_builder.artifact.rehash import rehash_variants


def sample(root: Path) -> Path:
    for path, text in {
        "__init__.py": "x = 1\n",
        "sub/b.py": "",
        "hello": "hello world",
        "metadata.json": "{}",
        "metadata.json.sigstore": "{}",
        "sub/metadata.json": "{}",
        "__pycache__/a.py": "no",
        "sub/__pycache__/c.txt": "no",
        "old.pyc": "no",
        "N=1,block=[128, 128] ü.json": "[]",
    }.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (root / "link").symlink_to("hello")
    (root / "outside").mkdir()
    (root / "outside/file").write_text("1", encoding="ascii")
    (root / "linked").symlink_to("outside")
    return root


def test_names_and_hashes_agree_with_kernels_data(tmp_path: Path) -> None:
    root = sample(tmp_path)
    theirs = Digest.hash_variant(DigestAlgorithm.SHA256, root)
    assert hash_variant(root) == dict(theirs.files)


def test_known_value_and_what_is_left_out(tmp_path: Path) -> None:
    found = hash_variant(sample(tmp_path))
    assert found["hello"] == "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="
    assert found["link"] == found["hello"]
    assert found["sub/b.py"] == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    assert "sub/metadata.json" in found
    assert not found.keys() & {"metadata.json", "metadata.json.sigstore", "old.pyc", "linked/file"}
    assert list(found) == sorted(found, key=str.encode)


def test_linked_metadata_is_renewed_where_it_lies(tmp_path: Path) -> None:
    variant = sample(tmp_path / "variant")
    elsewhere = tmp_path / "metadata.json"
    elsewhere.write_text('{"mine": 1}', encoding="utf-8")
    (variant / "metadata.json").unlink()
    (variant / "metadata.json").symlink_to(elsewhere)
    assert rehash_variants([variant]) == (True,)
    assert (variant / "metadata.json").is_symlink()
    written = json.loads(elsewhere.read_text(encoding="utf-8"))
    assert written["mine"] == 1
    assert written["digest"]["files"] == hash_variant(variant)
    assert rehash_variants([variant]) == (False,)
