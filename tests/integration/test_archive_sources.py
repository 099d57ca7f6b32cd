"""Compilers out of archives as really published: wheels packed as NVIDIA packs them, and Debian's indexes."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from kernel_builder.backends.cuda.debian import CUDA_PACKAGE, CUDA_SUITES
from kernel_builder.backends.cuda.redistrib import Redistrib, redist_platform
from kernel_builder.events import Silent
from kernel_builder.store.index import SimpleIndex, choose_wheel
from kernel_builder.store.settings import find_index
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.debian import (
    KEYRINGS,
    DebianArchive,
    apt_mirrors,
    debian_architecture,
    find_keyring,
)
from published import make_tar, serve_folder

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("unloaded")]
MACHINE = platform.machine()


@pytest.fixture
def redist(tmp_path: Path) -> Path:
    """A redistributable archive that holds nvcc of CUDA 13.0, out of the wheel on the index, with its manifest."""
    root = tmp_path / "redist"
    project = "nvidia-cuda-nvcc"
    index = SimpleIndex(find_index(os.environ), Silent())
    wheel_file = choose_wheel(
        index.files(project), project=project, allowed=SpecifierSet("==13.0.*"), machine=MACHINE
    ).file
    wheel = index.open(wheel_file, tmp_path, lambda _: None)
    name = f"cuda_nvcc-{redist_platform(MACHINE)}-{wheel_file.version}-archive"
    files = {f"{name}/bin/{part}": wheel.read(f"nvidia/cu13/bin/{part}") for part in ("nvcc", "nvcc.profile")}
    data = lzma.compress(make_tar(files, executable=[f"{name}/bin/nvcc"]), preset=0)
    path = f"cuda_nvcc/{redist_platform(MACHINE)}/{name}.tar.xz"
    (root / path).parent.mkdir(parents=True)
    (root / path).write_bytes(data)
    entry = {"relative_path": path, "sha256": hashlib.sha256(data).hexdigest(), "size": str(len(data))}
    component = {"name": "CUDA NVCC", "version": str(wheel_file.version), redist_platform(MACHINE): entry}
    (root / "redistrib_13.0.2.json").write_text(json.dumps({"release_label": "13.0.2", "cuda_nvcc": component}))
    return root


def test_nvcc_runs_out_of_a_redistributable_archive(redist: Path, tmp_path: Path) -> None:
    into = tmp_path / "tree"
    into.mkdir()
    with serve_folder(redist) as site:
        source = Redistrib(site.url, Transport(find_index(os.environ)))
        (archive,) = source.release("13.0")
        assert source.fetch(archive, into, lambda name: name, lambda _: None) == ("bin/nvcc", "bin/nvcc.profile")
    answer = subprocess.run([into / "bin/nvcc", "--version"], capture_output=True, text=True, check=True)
    assert f"V{archive.version}" in answer.stdout


@pytest.mark.skipif(
    not (apt_mirrors() and any(key.is_file() for key in KEYRINGS) and shutil.which("gpgv")),
    reason="needs apt sources of Debian, its archive keyring and gpgv",
)
@pytest.mark.parametrize("cuda", CUDA_SUITES)
def test_the_mirror_of_this_machine_has_the_compiler_in_a_signed_index(cuda: str) -> None:
    archive = DebianArchive(
        apt_mirrors()[0],
        find_keyring(),
        Transport(find_index(os.environ)),
        architecture=debian_architecture(MACHINE),
        environ=os.environ,
    )
    package = archive.find(CUDA_PACKAGE, CUDA_SUITES[cuda][0])
    assert package.version.startswith(f"{cuda}.")
    assert 50 * 2**20 < package.size < 200 * 2**20
