"""The whole way: init, build, upload to the Hub on loopback, and load from there with the real client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from conftest import CPU, LIKE_A_CUDA_BUILD, Tool, commit
from hub import Account, Hub, State, serve

pytest.importorskip("torch", reason="torch is not installed in this environment")

pytestmark = [pytest.mark.network, pytest.mark.slow, pytest.mark.torch, pytest.mark.xdist_group("upload and load")]

ME = "hf_me"
REPO = "trusted/my-scale"
OTHER = CPU.replace("torch213", "torch212")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub with an organisation whose kernels the client trusts."""
    account = Account(name="me", token=ME, organisations={"trusted": "write"})
    state = State(tmp_path_factory.mktemp("hub"), accounts=[account], trusted=["trusted"])
    with serve(state, keep=False) as running:
        yield running


@pytest.fixture(scope="module")
def publisher(hub: Hub, tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """``kernel-builder``, logged in."""
    return Tool({**tool.environment, **hub.environment(ME, tmp_path_factory.mktemp("publisher"))})


@pytest.fixture(scope="module")
def versions(hub: Hub, publisher: Tool, init_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 as ``init`` wrote it and version 2 with another interface, both published. The project of version 2."""
    root = tmp_path_factory.mktemp("second") / "my-scale"
    shutil.copytree(init_project, root, symlinks=True, ignore=shutil.ignore_patterns(".kernel-builder"))
    first = publisher("upload", root, "--repo-id", REPO)
    assert first.code == 0, first.stderr
    assert first.stdout == f"{hub.url}/kernels/{REPO}/tree/v1\n"
    _edit(root / "build.toml", {"version = 1": "version = 2", "me/my-scale": REPO})
    _edit(
        root / "torch-ext" / "my_scale" / "__init__.py",
        {
            '__all__ = ["my_scale", "layers"]': '__all__ = ["scale_by", "layers"]\n\n\n'
            "def scale_by(factor: float, x: torch.Tensor) -> torch.Tensor:\n"
            '    """Return ``x * factor``."""\n'
            "    return my_scale(x, factor)",
        },
    )
    commit(root, "another interface")
    second = publisher("build-and-upload", root, "--local", "--backend", "cpu")
    assert second.code == 0, second.stderr
    assert second.stdout == f"{hub.url}/kernels/{REPO}/tree/v2\n"
    return root


def _edit(path: Path, words: Mapping[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in words.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def stranger(hub: Hub, home: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` as somebody who is not logged in and has an empty cache.

    Telemetry stays on, as by default (it goes to the loopback Hub, too): when it is off, kernels 0.17.2 with
    huggingface_hub 2.4.0 makes a header that its own HTTP library refuses.
    """
    dropped = ("HF_", "PYTEST_", "DO_NOT_TRACK", "DISABLE_TELEMETRY")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    completed = subprocess.run(
        [sys.executable, "-B", "-c", LIKE_A_CUDA_BUILD + code],
        cwd=home,
        env={**environment, **hub.environment(None, home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed


@pytest.mark.usefixtures("versions")
def test_a_stranger_gets_the_kernel_and_the_right_answer(hub: Hub, tmp_path: Path) -> None:
    mark = hub.traffic.mark()
    code = f"""
import json, torch, kernels
kernel = kernels.get_kernel({REPO!r}, version=1, backend="cpu")
x = torch.arange(-5.0, 5.0)
print(json.dumps([torch.equal(kernel.my_scale(x, 3.0), x * 3.0), kernel.__file__]))
"""
    right, file = json.loads(stranger(hub, tmp_path, code).stdout.splitlines()[-1])
    assert right is True
    assert str(tmp_path) in file
    fetched = [path for entry in hub.traffic.since(mark) if entry.status == 200 for path in entry.paths]
    assert fetched
    assert all(path.startswith(f"build/{CPU}/") for path in fetched)
    assert any(entry.server == "storage" and entry.sent for entry in hub.traffic.since(mark))


@pytest.mark.usefixtures("versions")
def test_two_versions_with_different_interfaces_load_side_by_side(hub: Hub, tmp_path: Path) -> None:
    code = f"""
import json, torch, kernels
first = kernels.get_kernel({REPO!r}, version=1, backend="cpu")
second = kernels.get_kernel({REPO!r}, version=2, backend="cpu")
x = torch.arange(-5.0, 5.0)
print(json.dumps({{
    "first": torch.equal(first.my_scale(x, 3.0), x * 3.0),
    "second": torch.equal(second.scale_by(4.0, x), x * 4.0),
    "apart": first.__name__ != second.__name__,
    "old": hasattr(first, "scale_by"),
}}))
"""
    found = json.loads(stranger(hub, tmp_path, code).stdout.splitlines()[-1])
    assert found == {"first": True, "second": True, "apart": True, "old": False}


@pytest.mark.usefixtures("versions")
def test_the_clients_commands_work(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = 1\n')
    commands = [
        ["versions", REPO],
        ["info", REPO, "--version", "1", "--json"],
        ["lock", str(tmp_path)],
        ["download", str(tmp_path)],
    ]
    # One process for all of them: importing torch is what takes the time. `download` cannot be told a backend.
    code = f"""
import contextlib, io, json, sys
torch.version.cuda = None
from kernels.cli import main
for command in {commands!r}:
    sys.argv = ["kernels", *command]
    with contextlib.redirect_stdout(io.StringIO()) as written:
        main()
    print(json.dumps(written.getvalue()))
"""
    listed, info, *_ = map(json.loads, stranger(hub, tmp_path, code).stdout.splitlines())
    assert "Version 1" in listed
    assert "Version 2" in listed
    assert CPU in listed
    told = json.loads(info)
    assert (told["name"], told["version"], told["revision"]) == ("my-scale", 1, "v1")
    assert hub.heads(REPO)["v1"] in (tmp_path / "kernels.lock").read_text()
    snapshot = tmp_path / "hub" / "kernels--trusted--my-scale" / "snapshots" / hub.heads(REPO)["v1"]
    assert (snapshot / "build" / CPU / "metadata.json").is_file()


def test_the_snippet_of_the_card_runs_whoever_published_the_kernel(
    hub: Hub, versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.state, "trusted", set())
    readme = hub.files(REPO, "main")["README.md"].decode()
    snippet = readme.split("```python\n")[1].split("```")[0]
    assert f'get_kernel("{REPO}", version=2' in snippet
    # The card calls the first function of __all__ as its own first signature wants it; here that is (factor, x).
    code = snippet.split("result =")[0] + "print(kernel.scale_by(2.0, torch.ones(3)))"
    assert "tensor([2., 2., 2.])" in stranger(hub, tmp_path, code).stdout
    trusting = ", trust_remote_code=True"
    assert trusting in code
    careful = textwrap.indent(code.replace(trusting, ""), "    ")
    careful = f"try:\n{careful}\nexcept ValueError as error:\n    print(error)"
    assert "is not from a trusted publisher" in stranger(hub, tmp_path, careful).stdout
    assert "you trust this repository" in readme


def test_a_build_that_changes_one_variant_sends_that_one_alone(hub: Hub, publisher: Tool, versions: Path) -> None:
    """The second variant is a copy of the first: what is in it is not the point, nobody loads it here."""
    build = versions / "build"
    shutil.copytree(build / CPU, build / OTHER)
    metadata = build / OTHER / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"2.13.0', '"2.12.0'))
    assert publisher("hash", versions).code == 0
    both = publisher("upload", versions)
    assert both.code == 0, both.stderr
    module = build / OTHER / "__init__.py"
    module.write_text(module.read_text() + "\n# A fix for this release of torch alone.\n")
    hashed = publisher("hash", versions)
    assert hashed.code == 0, hashed.stderr
    mark = hub.traffic.mark()
    again = publisher("upload", versions)
    assert again.code == 0, again.stderr
    assert set(hub.traffic.content_sent(mark)) == {f"build/{OTHER}/__init__.py", f"build/{OTHER}/metadata.json"}
