"""What is taken for an upload, and what is refused before the Hub is asked."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from hub.kernels import seal, write_project, write_variant
from kernel_builder.artifact.built import variants_in
from kernel_builder.artifact.digest import hash_variant
from kernel_builder.cli import run
from kernel_builder.errors import BuildError, ExitCode, KernelBuilderError, UsageError
from kernel_builder.hub.local import UploadSource, find_source, variant_files

CPU = "torch-cpu"


def files(folder: Path) -> dict[str, str]:
    (variant,) = variants_in(folder)
    return {file.path.removeprefix(f"build/{variant.name}/"): file.sha256 for file in variant_files(variant, folder)}


def refusal(folder: Path) -> str:
    with pytest.raises(BuildError) as caught:
        files(folder)
    return f"{caught.value.message}\n{caught.value.hint}"


def test_variants_of_the_build_folder_are_found(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", version=3)
    write_variant(root / "build", CPU, version=3)
    for named in (root, root / "build"):
        source = find_source(named)
        assert (source.folder, source.directory, source.version) == (root / "build", root, 3)
        assert source.project is not None


def test_a_link_to_nowhere_is_passed_over_and_said(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    write_variant(root / "build", CPU)
    (root / "result").symlink_to(tmp_path / "collected")
    source = find_source(root)
    assert source.folder == root / "build"
    assert "broken link" in source.notes[0]


def test_different_variants_in_two_places_are_a_question(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    write_variant(root / "result", CPU)
    write_variant(root / "build", CPU, {"more.py": b""})
    os.utime(root / "result" / CPU / "metadata.json", (1, 1))
    with pytest.raises(UsageError) as caught:
        find_source(root)
    assert f"{root / 'build'} (1 variant, the newest)" in caught.value.message
    assert str(root / "result") in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.endswith(f"kernel-builder upload {root / 'build'}")
    assert find_source(root / "result").folder == root / "result"


def test_the_same_variants_in_two_places_are_no_question(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    write_variant(root / "result", CPU)
    write_variant(root / "build", CPU)
    assert find_source(root).folder == root / "build"


def test_a_result_that_is_a_link_to_the_build_is_one_place(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    write_variant(root / "build", CPU)
    (root / "result").symlink_to("build")
    assert find_source(root).variants[0].name == CPU


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (".", "kernel-builder build"),
        ("torch-ext", "builds are needed, not sources"),
        ("torch-ext/scale", "builds are needed, not sources"),
    ],
)
def test_a_folder_without_variants_is_refused(tmp_path: Path, where: str, words: str) -> None:
    root = write_project(tmp_path / "p")
    with pytest.raises(UsageError) as caught:
        find_source(root / where)
    assert "no built variant" in caught.value.message
    assert caught.value.hint is not None
    assert words in caught.value.hint


def test_half_a_variant_is_refused(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p")
    write_variant(root / "build", CPU)
    (root / "build" / "torch-cuda").mkdir()
    (root / "build" / "notes").mkdir()
    with pytest.raises(BuildError, match=r"torch-cuda is incomplete: it has no metadata\.json"):
        find_source(root)


def test_variants_of_different_versions_are_refused(tmp_path: Path) -> None:
    write_variant(tmp_path / "build", CPU, version=1)
    write_variant(tmp_path / "build", "torch-cuda", version=2)
    with pytest.raises(BuildError, match="have different versions") as caught:
        _ = find_source(tmp_path).version
    assert "torch-cuda: version 2" in caught.value.message


@pytest.mark.parametrize("name", ["", "nothing"])
def test_no_directory_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KernelBuilderError, match="is not a directory"):
        find_source(tmp_path / (name or "file"))


def test_exactly_what_the_digest_covers_is_published(tmp_path: Path) -> None:
    directory = write_variant(tmp_path, CPU, {"a/b.py": b"1", "empty": b""})
    (directory / "__pycache__").mkdir()
    (directory / "__pycache__" / "x.pyc").write_bytes(b"")
    (directory / "y.pyc").write_bytes(b"")
    (directory / "metadata.json.sigstore").write_text("{}")
    published = files(tmp_path)
    assert set(published) == {*hash_variant(directory), "metadata.json", "metadata.json.sigstore"}
    for path, digest in hash_variant(directory).items():
        assert base64.b64encode(bytes.fromhex(published[path])).decode() == digest


def test_a_changed_byte_is_refused(tmp_path: Path) -> None:
    directory = write_variant(tmp_path, CPU, {"a.py": b"1", "b.py": b"2", "c.py": b"3"})
    (directory / "a.py").write_bytes(b"2")
    (directory / "b.py").unlink()
    (directory / "d.py").touch()
    text = refusal(tmp_path)
    assert "a.py was changed after the build" in text
    assert "b.py is missing" in text
    assert "d.py is not in the digest" in text
    assert "c.py" not in text


def test_metadata_without_a_digest_is_refused(tmp_path: Path) -> None:
    file = write_variant(tmp_path, CPU) / "metadata.json"
    document = json.loads(file.read_text())
    del document["digest"]
    file.write_text(json.dumps(document))
    assert "has no digest" in refusal(tmp_path)


def test_a_digest_of_the_other_algorithm_is_verified_too(tmp_path: Path) -> None:
    file = write_variant(tmp_path, CPU) / "metadata.json"
    document = json.loads(file.read_text())
    raw = hashlib.sha512((file.parent / "__init__.py").read_bytes()).digest()
    document["digest"] = {"algorithm": "sha512", "files": {"__init__.py": base64.b64encode(raw).decode()}}
    file.write_text(json.dumps(document))
    assert "__init__.py" in files(tmp_path)
    document["digest"]["files"]["__init__.py"] = base64.b64encode(b"0" * 64).decode()
    file.write_text(json.dumps(document))
    assert "was changed after the build" in refusal(tmp_path)


def test_a_link_inside_is_published_as_what_it_points_to(tmp_path: Path) -> None:
    directory = write_variant(tmp_path, CPU, {"data.py": b"1"})
    (directory / "alias.py").symlink_to("data.py")
    seal(directory)
    published = files(tmp_path)
    assert published["alias.py"] == published["data.py"]


def test_a_variant_that_is_itself_a_link_is_followed(tmp_path: Path) -> None:
    write_variant(tmp_path / "store", "somewhere-else")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / CPU).symlink_to(tmp_path / "store" / "somewhere-else")
    assert "__init__.py" in files(tmp_path / "build")


@pytest.mark.parametrize(("target", "words"), [("/etc/hostname", "is a link out of"), ("nowhere", "is a broken link")])
def test_a_link_out_of_the_build_is_refused(tmp_path: Path, target: str, words: str) -> None:
    directory = write_variant(tmp_path, CPU)
    (directory / "secret").symlink_to(target)
    assert words in refusal(tmp_path)


def test_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    directory = write_variant(tmp_path, CPU, {"a/x.py": b""})
    (directory / "b").symlink_to("a")
    assert "is a link to a directory" in refusal(tmp_path)


def test_something_that_is_no_file_is_refused(tmp_path: Path) -> None:
    directory = write_variant(tmp_path, CPU)
    os.mkfifo(directory / "pipe")
    assert "is not a regular file" in refusal(tmp_path)


def test_without_build_toml_the_folder_is_enough(tmp_path: Path) -> None:
    write_variant(tmp_path, CPU)
    source = find_source(tmp_path)
    assert isinstance(source, UploadSource)
    assert source.project is None


@pytest.mark.parametrize("command", ["attest", "upload"])
def test_every_command_that_needs_builds_says_so_in_an_empty_folder(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, str(tmp_path)]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert f"no built variant (a directory with metadata.json) in {tmp_path}" in err
    assert "pass the project (the directory that contains build.toml)" in err
