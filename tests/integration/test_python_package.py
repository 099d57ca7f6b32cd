"""A generated project that pip installs: it imports, runs, and is loaded beside the Hub form in one process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed in this environment")
pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch]

USE = """
import json, sys, torch, my_scale
from pathlib import Path
from kernels import get_local_kernel
hub = get_local_kernel(Path(sys.argv[1]), backend="cpu")
x = torch.ones(3)
print(json.dumps({"file": my_scale.__file__, "package": my_scale.my_scale(x, 3.0).tolist(),
                  "hub": hub.my_scale(x, 4.0).tolist(), "spaces": [my_scale._ops.ops.name, hub._ops.ops.name]}))
"""


def assert_is_what_auditwheel_takes(wheel: Path) -> None:
    """Its tag is the one that auditwheel finds: nothing in it needs a newer system than the floor, but torch."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "my_scale-1.dist-info/licenses/LICENSE" in names
        assert "License-File: LICENSE\n" in archive.read("my_scale-1.dist-info/METADATA").decode()
    pytest.importorskip("auditwheel", reason="auditwheel is not installed in this environment")
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert 'consistent with the following platform tag: "linux_x86_64"' in told
    assert int(re.findall(r"manylinux_2_(\d+)_", told)[0]) <= 27


def test_wheel_and_editable_install_load_beside_the_hub_form(
    init_project: Path, tmp_path: Path, session_store: Path
) -> None:
    root = tmp_path / "my-scale"
    shutil.copytree(init_project, root)
    environment = {**os.environ, "KERNEL_BUILDER_CACHE": str(session_store), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("VIRTUAL_ENV", None)
    target = tmp_path / "environment"
    venv.create(target, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(target), "platbase": str(target)}))
    (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")

    def call(*words: str | Path, python: Path = Path(sys.executable)) -> str:
        done = subprocess.run([python, *words], cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def hook(name: str) -> Path:
        code = "import sys; from kernel_builder.cli import pep517; print(getattr(pep517, sys.argv[1])(sys.argv[2]))"
        return tmp_path / call("-c", code, name, tmp_path, python=target / "bin" / "python").splitlines()[-1]

    def used(archive: Path) -> dict[str, object]:
        call("-m", "pip", "--python", target / "bin" / "python", "install", "--no-deps", "--force-reinstall", archive)
        found: dict[str, object] = json.loads(call("-c", USE, root, python=target / "bin" / "python").splitlines()[-1])
        spaces = found["spaces"]
        assert isinstance(spaces, list)
        assert spaces[0].endswith("_wheel")
        assert len(set(spaces)) == 2
        assert (found["package"], found["hub"]) == ([3.0] * 3, [4.0] * 3)
        return found

    call("-m", "kernel_builder", "create-pyproject")
    archive = hook("build_wheel")
    assert_is_what_auditwheel_takes(archive)
    wheel = used(archive)
    assert str(wheel["file"]).startswith(str(site))
    editable = used(hook("build_editable"))
    assert editable["file"] == str(root / "torch-ext" / "my_scale" / "__init__.py")
    with tarfile.open(hook("build_sdist")) as sdist:
        names = sdist.getnames()
    assert {"my_scale-1/build.toml", "my_scale-1/pyproject.toml", "my_scale-1/torch-ext/torch_binding.h"} <= {*names}
