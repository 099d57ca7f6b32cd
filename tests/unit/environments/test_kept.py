"""Environments that are kept: made once, bounded, removed; nothing of a failed one stays."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import make_wheel

from kernel_builder.config.backends import HOST
from kernel_builder.environments.adopt import missing_packages
from kernel_builder.environments.indexes import installer_variables
from kernel_builder.environments.install import Installer, find_installer
from kernel_builder.environments.kept import NOTE, Environments
from kernel_builder.environments.wanted import Needs
from kernel_builder.errors import NetworkError, ToolchainError, UsageError
from kernel_builder.events import Recorder
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.settings import ToolchainSettings
from kernel_builder.variants.names import NoarchVariant


def wanted(*torch: str, requirements: tuple[str, ...] = ()) -> Needs:
    return Needs(
        variant=NoarchVariant(backend=HOST), label="torch 2.13", torch=torch, python=(3, 10), requirements=requirements
    )


def installer(wheels: Path) -> Installer:
    """venv and pip, with the wheels of a directory for an index."""
    environ = {"PATH": os.defpath, "PIP_CONFIG_FILE": os.devnull, "HOME": str(wheels)}
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return find_installer(environ, lambda _: None, variables={True: own, False: own})


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, version in (("torch", "2.13.0"), ("torch", "2.13.0+cpu"), ("extra", "1.5"), ("numpy", "2.0")):
        tags = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {f"{name}.py": b"", f"{name}-{version}.dist-info/WHEEL": tags}
        (folder / f"{name}-{version}-py3-none-any.whl").write_bytes(make_wheel(name, version, files))
    return folder


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    return Environments(Store(tmp_path / "store"), Recorder())


def fake(environments: Environments, name: str, *, size: int, days: float = 0.0) -> None:
    """An environment as its note says, for what only reads notes."""
    folder = environments.root / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    note = {"torch": "torch==2.13.0", "requirements": [], "made-with": "x", "size": size}
    (folder / NOTE).write_text(json.dumps(note), encoding="utf-8")
    moment = time.time() - days * 86400
    os.utime(folder / NOTE, (moment, moment))


@pytest.mark.slow
def test_an_environment_is_made_once_with_the_first_build_that_there_is(
    wheels: Path, environments: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = wanted("torch==2.13.0+cu130", "torch===2.13.0", requirements=("extra>=1",))
    made = environments.ensure("a", asked, installer(wheels))
    # `==` would have taken 2.13.0+cpu, which pip thinks newer.
    assert made.torch == "torch===2.13.0"
    assert missing_packages(made.python, ["torch===2.13.0", "extra<2", "extra>=2", "absent"], {}) == [
        "extra>=2",
        "absent",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Installer, "create", lambda *_: pytest.fail("it was made again"))
        assert environments.ensure("a", asked, installer(wheels)).path == made.path
    # Of one that cannot be made nothing stays. (Making an empty one takes seconds, so this is a copy.)
    monkeypatch.setattr(Installer, "create", lambda _, place: shutil.copytree(made.path, place, symlinks=True))
    with pytest.raises(ToolchainError, match=r"no configured index has torch 2\.13") as caught:
        environments.ensure("b", wanted("torch==2.14.0", "torch==2.15.0"), installer(wheels))
    assert "torch==2.14.0" in caught.value.message
    assert "torch==2.15.0" in caught.value.message
    assert [entry.name for entry in environments.listed()] == ["a"]


def uv_of_this_environment() -> Path:
    """uv, which scripts/test installs."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("uv is not installed")
    return Path(found)


def test_an_installer_that_is_stopped_leaves_nothing(
    environments: Environments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, program = tmp_path / "scratch", tmp_path / "uv"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    program.write_text(
        '#!/bin/sh\necho $$ > pid; mkdir "$TMPDIR/unpacked"; echo "Downloading torch (1 MB)"; sleep 60\n'
    )
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)

    def stop(_: str) -> None:
        assert [entry.name for entry in scratch.glob("*/*")] == ["unpacked"]
        raise KeyboardInterrupt

    found = Installer(python=Path(sys.executable), uv=program, environ={"PATH": os.defpath}, heard=stop)
    with pytest.raises(KeyboardInterrupt):
        environments.ensure("a", wanted("torch==2.13.0"), found)
    assert list(scratch.iterdir()) == []
    assert environments.listed() == ()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_index_that_does_not_answer_is_told_as_such(environments: Environments, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nowhere = f"http://somebody:secret@127.0.0.1:{port}/simple"
    variables = {"PIP_INDEX_URL": nowhere, "PIP_RETRIES": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = replace(installer(tmp_path), environ={**installer(tmp_path).environ, "PIP_NO_INDEX": "0", **variables})
    with pytest.raises(NetworkError, match="a package index does not respond") as caught:
        environments.ensure("a", wanted("torch==2.13.0", "torch==2.12.0"), pip)
    told = caught.value.message
    assert "Connection refused" in told
    assert "torch==2.13.0" in told
    for noise in ("Retrying", "No matching distribution", "secret", "2.12.0"):
        assert noise not in told
    assert environments.listed() == ()


def test_uv_says_the_same_of_an_index_that_does_not_answer(environments: Environments, tmp_path: Path) -> None:
    uv = uv_of_this_environment()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    own = {"UV_DEFAULT_INDEX": f"http://127.0.0.1:{port}/simple", "UV_HTTP_RETRIES": "0", "HOME": str(tmp_path)}
    found = Installer(python=Path(sys.executable), uv=uv, environ={"PATH": os.defpath, **own}, heard=lambda _: None)
    with pytest.raises(NetworkError, match="a package index does not respond"):
        environments.ensure("a", wanted("torch==2.13.0"), found)
    assert environments.listed() == ()


@pytest.mark.network
@pytest.mark.parametrize("kind", ["uv", "venv and pip"])
def test_both_installers_make_an_environment_from_the_index(environments: Environments, kind: str) -> None:
    uv = uv_of_this_environment() if kind == "uv" else None
    environ = dict(os.environ)
    settings = ToolchainSettings()
    environ |= installer_variables(settings, environ, uv=uv is not None, offline=False)
    found = Installer(python=Path(sys.executable), uv=uv, environ=environ, heard=lambda _: None)
    made = environments.ensure("small", wanted("iniconfig>=2", requirements=("pluggy>=1.5",)), found)
    done = subprocess.run([made.python, "-I", "-c", "import iniconfig, pluggy; print(pluggy.__file__)"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.startswith(str(made.path))
    assert made.made_with.startswith(kind)


def test_what_a_killed_process_left_does_not_count(environments: Environments) -> None:
    fake(environments, "a", size=1)
    (environments.root / "a" / NOTE).unlink()
    assert environments.find("a") is None
    assert [entry.complete for entry in environments.listed()] == [False]


def test_old_ones_go_and_then_the_least_recently_used(environments: Environments) -> None:
    for name, size, days in (("old", 1, 70), ("large", 50, 10), ("middle", 30, 5), ("new", 30, 1)):
        fake(environments, name, size=size, days=days)
    removed = environments.bound(keep="new", seconds=60 * 86400, size=70)
    assert [entry.name for entry in removed.gone] == ["old", "large"]
    assert [entry.name for entry in environments.listed()] == ["middle", "new"]


def test_what_another_process_uses_stays(environments: Environments, tmp_path: Path) -> None:
    fake(environments, "a", size=1)
    user = Store(tmp_path / "store")
    assert Environments(user, Recorder()).find("a") is not None
    removed = environments.remove(["a"])
    assert (removed.gone, removed.busy) == ((), ("a",))
    user.close()
    assert [entry.name for entry in environments.remove(["a"]).gone] == ["a"]
    with pytest.raises(UsageError, match="environment a does not exist"):
        environments.remove(["a"])
