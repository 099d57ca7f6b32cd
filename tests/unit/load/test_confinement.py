"""What a kernel's code gets to see while it is loaded."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.errors import UsageError
from kernel_builder.load.client import Environment, Loadable, find_environment, load_variant
from kernel_builder.load.confinement import SWITCH, Sandbox, clean_environment, find_sandbox
from kernel_builder.load.evidence import LoadResult, LoadStatus
from kernel_builder.variants.names import parse_variant
from kernel_trees import variant

SECRETS = {
    "HF_TOKEN": "hf_secret",
    "HUGGING_FACE_HUB_TOKEN": "hf_secret",
    "GITHUB_TOKEN": "ghp_secret",
    "GH_TOKEN": "ghp_secret",
    "AWS_ACCESS_KEY_ID": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "secret",
    "OPENAI_API_KEY": "secret",
    "WANDB_APIKEY": "secret",
    "NVIDIA_API_KEY": "secret",
    "TORCH_REGISTRY_PASSWORD": "secret",
    "TORCH_MIRROR": "https://me:secret@mirror.example/simple",
    "OMP_PROXY": "socks5h://secret@proxy.example:1080",
    "DB_PASSWORD": "secret",
    "SSH_AUTH_SOCK": "/run/secret",
    "HTTPS_PROXY": "http://me:secret@proxy.example:3128",
    "PIP_INDEX_URL": "https://me:secret@index.example/simple",
    "NETRC": "/secret",
    "MY_OWN_THING": "secret",
}
NEEDED = {
    "PATH": os.defpath,
    "LD_LIBRARY_PATH": "/opt/libraries",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "HSA_OVERRIDE_GFX_VERSION": "9.0.0",
    "ZE_AFFINITY_MASK": "0",
    "OMP_NUM_THREADS": "2",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
}


def test_the_environment_holds_what_loading_needs_and_no_secret(tmp_path: Path) -> None:
    cleaned = clean_environment({**SECRETS, **NEEDED, "HOME": "/home/me", "HF_HOME": "/home/me/hf"}, tmp_path)
    assert {name: cleaned.get(name) for name in NEEDED} == NEEDED
    assert [name for name, value in cleaned.items() if "secret" in value or name in SECRETS] == []
    own = {name: value for name, value in cleaned.items() if name not in NEEDED and name != "HF_HUB_OFFLINE"}
    assert {"HOME", "XDG_CACHE_HOME", "HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"} <= own.keys()
    assert all(Path(value).is_relative_to(tmp_path) for value in own.values())


def test_why_there_is_no_sandbox(tmp_path: Path) -> None:
    python = [sys.executable]
    missing = find_sandbox(python, (), {"PATH": str(tmp_path)})
    assert missing.label == "loaded without a sandbox: bwrap (bubblewrap) is not installed"
    off = find_sandbox(python, (), {"PATH": os.defpath, SWITCH: "off"})
    assert off.label == f"loaded without a sandbox: {SWITCH} is off"
    with pytest.raises(UsageError, match=f"{SWITCH}=no"):
        find_sandbox(python, (), {SWITCH: "no"})
    refusing = tmp_path / "bwrap"
    words = "bwrap: setting up uid map: Permission denied"
    refusing.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit 1\n", encoding="ascii")
    refusing.chmod(0o755)
    refused = find_sandbox(python, (), {"PATH": str(tmp_path)})
    assert refused == Sandbox(why_not=f"{refusing} does not work here: {words}")
    assert refused.command(["a", "b"], home=tmp_path, readable=()) == ["a", "b"]


def test_a_sandbox_is_tried_once(tmp_path: Path) -> None:
    program, tried = tmp_path / "bwrap", tmp_path / "tried"
    program.write_text(f"#!/bin/sh\necho one >> '{tried}'\n", encoding="utf-8")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.defpath}"}
    python = [sys.executable]
    assert find_sandbox(python, (), environ) == find_sandbox(python, (), environ)
    assert tried.read_text(encoding="ascii") == "one\n"
    find_sandbox(python, (tmp_path / "other",), environ)  # which shows it other files
    assert tried.read_text(encoding="ascii") == "one\none\n"


def test_a_project_below_the_system_is_hidden_and_the_home_is_never_shown(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    (tmp_path / "bwrap").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "bwrap").chmod(0o755)
    project, top = Path("/usr/src/kernel"), Path(__file__).parents[3]
    sandbox = find_sandbox([sys.executable], (tmp_path, tmp_path / "home", Path("/"), top), environ)
    assert sandbox.visible == (top,)
    command = sandbox.command(["python"], home=tmp_path / "h", readable=(project / "build" / "torch-cpu",))
    words = " ".join(command)
    assert words.index("--ro-bind /usr /usr") < words.index(f"--tmpfs {project} ")
    assert f"--tmpfs {tmp_path}" not in words  # what is not shown needs not be hidden


KERNEL = """
import json, os, socket
from pathlib import Path

def tried(action):
    try:
        return str(action())
    except OSError as error:
        return f"refused: {{type(error).__name__}}"

home = Path.home()
seen = {{
    "secrets": sorted(name for name, value in os.environ.items() if "secret" in value),
    "home": sorted(str(path) for path in home.rglob("*") if not path.is_dir()),
    "token": tried(Path({token!r}).read_text),
    "project": tried(lambda: os.listdir({project!r})),
    "own": tried(lambda: len(os.listdir(os.path.dirname(__file__))) > 2),
    "network": tried(lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5).recv(0) and "" or "open"),
    "write": tried(lambda: Path({project!r}, "written").write_text("x")),
    "parent": tried(lambda: b"hf_secret" in Path("/proc", str(os.getppid()), "environ").read_bytes()),
    "home-write": tried(lambda: (home / "x").write_text("x")),
    "shadow": tried(lambda: os.stat("/etc/shadow") and "there"),
    "disks": tried(lambda: [name for name in os.listdir("/dev") if Path("/dev", name).is_block_device()]),
    "uid": os.getuid(),
    "null": tried(lambda: Path("/dev/null").write_text("x")),
}}
raise RuntimeError("SEEN " + json.dumps(seen))
"""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


OWN = "_my_kernel_cpu_1a2b3c4"


def loaded(root: Path, environment: Environment) -> LoadResult:
    kernel = Loadable(directory=root, variant=parse_variant("torch-cpu"), ops_id=OWN, python_name="my_kernel")
    return load_variant(kernel, environment)


def seen(tmp_path: Path, port: int, *, sandbox: str) -> tuple[dict[str, object], Environment]:
    """What a kernel finds out while it is loaded for a user with secrets."""
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    home, project = tmp_path / "home", tmp_path / "home" / "kernel"
    project.mkdir(parents=True)
    (home / ".token").write_text("hf_secret", encoding="ascii")
    (project / "build.toml").write_text("", encoding="ascii")
    code = KERNEL.format(token=str(home / ".token"), project=str(project), port=port)
    root = variant(project / "build", "torch-cpu", {"__init__.py": code}, ops_id=OWN, backend={"type": "cpu"})
    path = os.environ.get("PATH", os.defpath)
    environ = {**SECRETS, "PATH": path, "HOME": str(home), SWITCH: sandbox}
    environment = find_environment(Path(sys.executable), environ)
    assert isinstance(environment, Environment)
    result = loaded(root, environment)
    assert result.status is LoadStatus.FAILED
    return json.loads((result.reason or "").partition("SEEN ")[2]), environment


@pytest.mark.torch
def test_a_kernel_sees_no_secret_and_an_empty_home(tmp_path: Path, port: int) -> None:
    found, environment = seen(tmp_path, port, sandbox="off")
    assert environment.confinement == f"loaded without a sandbox: {SWITCH} is off"
    assert (found["secrets"], found["home"], found["home-write"]) == ([], [], "1")
    assert found["network"] == "open"  # so that the next test would see it


def bubblewrap() -> str | None:
    """Why the sandbox cannot be tested here."""
    if shutil.which("bwrap") is None:
        return "bwrap is not installed"
    tried = subprocess.run(
        ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if tried.returncode == 0 else f"bwrap does not work here: {tried.stderr.strip()}"


@pytest.mark.torch
@pytest.mark.skipif(bubblewrap() is not None, reason=str(bubblewrap()))
def test_in_a_sandbox_a_kernel_sees_no_network_and_nothing_of_the_user(tmp_path: Path, port: int) -> None:
    found, environment = seen(tmp_path, port, sandbox="on")
    assert environment.confinement == "loaded in a sandbox: no network, none of your files"
    expected = {
        "secrets": [],
        "home": [],
        "token": "refused: FileNotFoundError",
        "project": "['build']",
        "own": "True",
        "network": "refused: ConnectionRefusedError",
        "parent": "False",
        "home-write": "1",
        "shadow": "refused: FileNotFoundError",
        "disks": "[]",
        "uid": os.getuid(),
        "null": "1",
    }
    found.pop("write")  # a temporary folder of its own can be written
    assert found == expected
    assert not list(tmp_path.rglob("written"))


@pytest.mark.torch
@pytest.mark.skipif(bubblewrap() is not None, reason=str(bubblewrap()))
def test_a_crash_in_a_sandbox_is_told_as_one(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed in this environment")
    code = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '3600'])\nos.abort()\n"
    root = variant(tmp_path / "build", "torch-cpu", {"__init__.py": code}, ops_id=OWN, backend={"type": "cpu"})
    environment = find_environment(Path(sys.executable), {"PATH": os.environ.get("PATH", os.defpath)})
    assert isinstance(environment, Environment)
    for confined in (environment, replace(environment, sandbox=Sandbox())):
        result = loaded(root, confined)
        assert (result.status, result.crashed) == (LoadStatus.FAILED, True)
        assert "was killed by signal 6" in (result.reason or "")
