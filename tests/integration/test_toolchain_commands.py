"""``toolchain`` and ``lock`` as users run them, against a loopback index with small wheels: real builds, no torch.

The socket guard below is loaded into every process of the tests that must not use the network: it forbids connections
and name look-ups, whoever makes them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from conftest import CPU, ProjectMaker, Result, Tool
from kernel_builder.errors import ExitCode
from kernel_builder.toolchain.lock import LOCK_NAME

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unloaded")]

TAG = "cp312-cp312-manylinux_2_28_x86_64"
OLDER = "torch212-cxx11-cpu-x86_64-linux"
DEAD = "http://127.0.0.1:9/simple"
HEADER = random.Random(1).randbytes(3_000_000)  # noqa: S311  (does not pack, so the wheel is large)
GUARD = """
import socket
def refuse(*arguments, **named):
    raise RuntimeError(f"the network was used: {arguments!r}")
socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.getaddrinfo = refuse
"""
SOURCE = 'extern "C" __attribute__((visibility("default"))) int seven() { return 7; }\n'


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    if os.uname().machine != "x86_64" or shutil.which("g++") is None:
        pytest.skip("needs g++ on x86_64")
    folder = tmp_path_factory.mktemp("libraries")
    sources = {
        "libc10.so": "#include <string>\nnamespace c10 { void tell(std::string text) { static_cast<void>(text); } }",
        "libtorch.so": "",
        "libtorch_cpu.so": "void torch_cpu() {}",
    }
    made: dict[str, bytes] = {}
    for soname, text in sources.items():
        (folder / "a.cpp").write_text(text)
        command = ["g++", "-shared", "-fPIC", "-o", str(folder / soname), str(folder / "a.cpp")]
        subprocess.run([*command, f"-Wl,-soname,{soname}"], check=True)
        made[f"torch/lib/{soname}"] = (folder / soname).read_bytes()
    return made


def torch_wheel(version: str, libraries: dict[str, bytes]) -> tuple[str, bytes]:
    files = {
        "torch/version.py": f"__version__ = '{version}'\n".encode(),
        "torch/include/torch/all.h": b"#pragma once\n",
        "torch/include/torch/csrc/api/include/torch/torch.h": b"#pragma once\n",
        "torch/include/large.h": HEADER,
        **libraries,
    }
    return f"torch-{version}-{TAG}.whl", make_wheel("torch", version, files)


@pytest.fixture
def server(libraries: dict[str, bytes]) -> Iterator[LoopbackIndex]:
    with serve() as index:
        for version in ("2.12.1", "2.13.0"):
            index.add(*torch_wheel(version, libraries))
        yield index


@dataclass
class Setting:
    """A project, a store of its own, and the command line on them."""

    tool: Tool
    root: Path
    cache: Path
    server: LoopbackIndex

    def __call__(self, *arguments: str | Path) -> Result:
        return self.tool(*arguments, cwd=self.root)

    def ok(self, *arguments: str | Path) -> Result:
        return sound(self(*arguments))

    def apart(self, *arguments: str | Path, **environment: str) -> Result:
        """In a process of its own, with other variables."""
        return self.tool.apart(*arguments, cwd=self.root, env=environment)

    def entry(self, name: str) -> Path:
        (found,) = (self.cache / "store").glob(f"{name}-{'[0-9a-f]' * 16}")
        return found

    @property
    def file_requests(self) -> list[str]:
        return [path for path, _ in self.server.requests if "/files/" in path]


def sound(result: Result) -> Result:
    assert result.code == 0, result.stderr + result.stdout
    return result


@pytest.fixture
def setting(server: LoopbackIndex, tmp_path: Path, make_project: ProjectMaker) -> Setting:
    home = tmp_path / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("KERNEL_BUILDER_", "PIP_"))}
    environment |= {
        "KERNEL_BUILDER_CACHE": str(tmp_path / "cache"),
        "KERNEL_BUILDER_INDEX_URL": server.url,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
    }
    return Setting(Tool(environment), make_project("small", {"a.cpp": SOURCE}), tmp_path / "cache", server)


@pytest.fixture
def guarded(tmp_path: Path) -> dict[str, str]:
    """Variables for a process that cannot use the network, and is told of another index than the one there was."""
    folder = tmp_path / "guard"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(GUARD)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "KERNEL_BUILDER_INDEX_URL": DEAD}


def damage(path: Path) -> None:
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


SAID = "torch 2.13.0 from 'mine', named by kernel-builder.toml"


def test_a_source_that_the_project_names_is_shown_and_recorded(
    setting: Setting, libraries: dict[str, bytes], tmp_path: Path
) -> None:
    wheels = setting.root / "wheels"
    wheels.mkdir()
    name, data = torch_wheel("2.13.0", libraries)
    (wheels / name).write_bytes(data)
    text = f'sources = ["mine"]\n[[index]]\nname = "mine"\npath = "{wheels}"\n'
    (setting.root / "kernel-builder.toml").write_text(text)
    assert f"note: {SAID}\n" in setting.ok("build", "--variant", CPU, "--dry-run").stdout
    assert f"note: {SAID}\n" in setting.ok("toolchain", "explain", CPU).stdout
    assert "mine (named by kernel-builder.toml)" in setting("doctor").stdout
    built = setting.ok("build", "--variant", CPU)
    assert SAID in built.stderr
    metadata = json.loads((setting.root / "build" / CPU / "metadata.json").read_text())
    part = {"name": "torch", "version": "2.13.0", "source": "mine", "named-by": "kernel-builder.toml"}
    assert metadata["provenance"]["toolchain"] == [part]
    setting.ok("attest")
    statement = json.loads((setting.root / "build" / "provenance.intoto.jsonl").read_text())
    recorded = statement["predicate"]["buildDefinition"]["internalParameters"]["provenance"]
    assert recorded["toolchain"] == [part]
    # Named by the user it is nothing to tell, and what the project's source delivered does not count as it.
    (setting.root / "kernel-builder.toml").unlink()
    user = tmp_path / "mine.toml"
    user.write_text(text)
    setting.tool.environment["KERNEL_BUILDER_CONFIG"] = str(user)
    explained = setting.ok("toolchain", "explain", CPU, "--json").json
    assert not explained["complete"]
    again = setting.ok("build", "--variant", CPU)
    assert "named by kernel-builder.toml" not in again.stderr
    assert setting.ok("toolchain", "explain", CPU, "--json").json["complete"]
    metadata = json.loads((setting.root / "build" / CPU / "metadata.json").read_text())
    assert "toolchain" not in metadata["provenance"]


def test_a_compiler_that_the_project_names_is_not_run(setting: Setting, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    nvcc = setting.root / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f"#!/bin/sh\ntouch {marker}\n")
    nvcc.chmod(0o755)
    settings = setting.root / "kernel-builder.toml"
    settings.write_text('[local]\ntoolkits = ["toolkit"]\n')
    for command in (
        ("build", "--dry-run"),
        ("build",),
        ("toolchain", "explain", CPU),
        ("toolchain", "fetch", CPU),
        ("lock",),
        ("doctor",),
    ):
        refused = setting(*command)
        assert refused.code == ExitCode.CONFIG, command
        assert "a project cannot choose programs on this machine" in refused.stderr + refused.stdout
        assert f"{tmp_path / 'home' / 'kernel-builder' / 'kernel-builder.toml'}" in refused.stderr + refused.stdout
    assert not marker.exists()
    # The same words of the user's are an agreement.
    user = tmp_path / "mine.toml"
    user.write_text(f'[local]\ntoolkits = ["{nvcc.parent.parent}"]\n')
    settings.unlink()
    setting.tool.environment["KERNEL_BUILDER_CONFIG"] = str(user)
    setting("doctor")
    assert marker.exists()


def test_outside_of_a_project_the_settings_that_lie_here_count(
    setting: Setting, libraries: dict[str, bytes], tmp_path: Path
) -> None:
    """'toolchain explain' looks at them, so the other commands must not take something else."""
    folder = tmp_path / "elsewhere"
    (folder / "wheels").mkdir(parents=True)
    name, data = torch_wheel("2.13.0", libraries)
    (folder / "wheels" / name).write_bytes(data)
    (folder / "kernel-builder.toml").write_text('sources = ["w"]\n[[index]]\nname = "w"\npath = "wheels"\n')
    setting.root = folder
    taken = json.loads(setting.ok("toolchain", "explain", CPU, "--json").stdout)["taken"]
    assert [(part["source"], part["named-by-project"]) for part in taken] == [("w", True)]
    setting.ok("toolchain", "fetch", CPU)
    damage(setting.entry("torch-2.13.0") / "include" / "large.h")
    setting.ok("toolchain", "verify", "--repair")
    setting.ok("toolchain", "export", tmp_path / "store.tar", CPU)
    assert setting.server.requests == []


def test_fetched_once_everything_builds_offline_without_a_connection(setting: Setting, guarded: dict[str, str]) -> None:
    refused = setting.apart("build", "--offline", "--variant", CPU, **guarded)
    assert refused.code == ExitCode.NETWORK
    assert "the toolchain for torch 2.13 (cxx11) is not complete in the store" in refused.stderr
    assert f"kernel-builder toolchain fetch '{CPU}'" in refused.stderr
    fetched = setting.ok("toolchain", "fetch", "--json")
    assert fetched.json["variants"] == [OLDER, CPU]
    assert fetched.json["unavailable"] == []
    again = sound(setting.apart("toolchain", "fetch", "--json", "--offline", **guarded))
    assert again.json["fetched-bytes"] == 0
    built = sound(setting.apart("build", "--json", KERNEL_BUILDER_OFFLINE="1", **guarded))
    assert built.variant()["status"] == "built"
    assert built.json["fetched-bytes"] == 0
    assert list((setting.root / "build" / CPU).glob("*.abi3.so"))


def test_the_guard_forbids_connections(setting: Setting, guarded: dict[str, str]) -> None:
    guarded["KERNEL_BUILDER_INDEX_URL"] = setting.server.url
    with pytest.raises(AssertionError, match="the network was used"):
        setting.apart("toolchain", "fetch", **guarded)


def test_damage_is_named_repaired_and_told_by_a_build(setting: Setting) -> None:
    setting.ok("toolchain", "fetch", CPU)
    assert "none damaged" in setting.ok("toolchain", "verify").stdout
    header = setting.entry("torch-2.13.0") / "include" / "torch" / "all.h"
    damage(header)
    found = setting("toolchain", "verify")
    assert found.code == ExitCode.FAILED
    assert f"{header}: its contents have changed" in found.stderr
    assert "toolchain verify --repair" in found.stderr
    assert header.read_bytes() != b"#pragma once\n"
    repaired = setting.ok("toolchain", "verify", "--repair")
    assert f"{setting.entry('torch-2.13.0').name}: repaired" in repaired.stdout
    assert header.read_bytes() == b"#pragma once\n"
    damage(header)
    built = sound(setting.apart("build", "--variant", CPU))
    assert "in the store is damaged (include/torch/all.h: its contents have changed)" in built.stderr
    assert header.read_bytes() == b"#pragma once\n"
    header.unlink()
    report = setting("toolchain", "verify", "--json", "torch-2.13.0-*").json
    assert report["ok"] is False
    offline = setting.ok("toolchain", "verify", "--repair", "--offline")
    assert "the next build that needs it will fetch it" in offline.stdout


def test_what_is_there_is_listed_and_cleaned_up(setting: Setting) -> None:
    setting.ok("toolchain", "fetch", CPU)
    listed = setting.ok("toolchain", "list", "--json").json
    assert isinstance(listed["entries"], list)
    entries = {entry["name"].split("-")[0]: entry for entry in listed["entries"] if "stubs" not in entry["name"]}
    (source,) = entries["torch"]["sources"]
    assert (source["name"], source["version"], source["source"]) == ("torch", "2.13.0", "index")
    assert entries["glibc"]["sources"] == []
    assert "used today" in setting.ok("toolchain", "list").stdout
    assert "would remove torch-2.13.0" in setting.ok("toolchain", "gc", "--all", "--dry-run").stdout
    assert setting.ok("toolchain", "list", "--json").json == listed
    assert "0.0 MiB freed" in setting.ok("toolchain", "gc", "--older-than", "1d").stdout
    assert "removed torch-2.13.0" in setting.ok("toolchain", "gc", "--keep-size", "1K").stdout
    assert setting("toolchain", "gc", "--older-than", "soon").code == ExitCode.USAGE
    setting.ok("toolchain", "gc", "--all")
    assert setting.ok("toolchain", "list", "--json").json["entries"] == []


def test_a_machine_without_network_builds_with_what_another_exported(
    setting: Setting, guarded: dict[str, str], tmp_path: Path
) -> None:
    nothing = setting("toolchain", "export", tmp_path / "x.tar", CPU)
    assert nothing.code == ExitCode.NETWORK
    assert "toolchain fetch" in nothing.stderr
    setting.ok("toolchain", "fetch")
    exported = setting.ok("toolchain", "export", tmp_path / "x.tar.gz", CPU)
    assert "1 entries" in exported.stdout
    other = {**guarded, "KERNEL_BUILDER_CACHE": str(tmp_path / "other")}
    sound(setting.apart("toolchain", "import", tmp_path / "x.tar.gz", **other))
    sound(setting.apart("build", "--offline", "--variant", CPU, **other))
    assert setting.apart("build", "--offline", "--variant", OLDER, **other).code == ExitCode.NETWORK
    assert "127.0.0.1" not in "".join(path.read_text() for path in (tmp_path / "other").rglob("*.json"))


def test_a_fetch_that_was_cut_off_goes_on_in_the_next_run(setting: Setting) -> None:
    name = f"torch-2.13.0-{TAG}.whl"
    setting.server.faults[name] = ["ok", "short", "short", "short*"]
    cut = setting("toolchain", "fetch", CPU)
    assert cut.code == ExitCode.NETWORK
    assert "3 times in a row" in cut.stderr
    assert setting.ok("toolchain", "verify").stdout.count("damaged") == 1
    setting.server.faults.clear()
    before = setting.server.sent
    going_on = setting.ok("toolchain", "fetch", CPU)
    assert f"{name}: 3 MiB kept from an earlier attempt" in going_on.stderr
    assert setting.server.sent - before < len(HEADER) / 2
    assert (setting.entry("torch-2.13.0") / "include" / "large.h").read_bytes() == HEADER
    assert not list((setting.cache / "parts").iterdir())


@pytest.mark.parametrize("before", [[], ["ok"]], ids=["its directory", "a library"])
def test_what_arrived_garbled_is_fetched_again_by_the_next_run(setting: Setting, before: list[str]) -> None:
    setting.server.faults[f"torch-2.13.0-{TAG}.whl"] = [*before, "garbled*"]
    result = setting.apart("toolchain", "fetch", CPU)
    assert (result.code, "torch-2.13.0" in result.stderr) == (ExitCode.NETWORK, True), result.stderr
    setting.server.faults.clear()
    setting.ok("toolchain", "fetch", CPU)
    setting.ok("toolchain", "verify")


def test_a_killed_fetch_leaves_a_sound_store_and_the_next_one_goes_on(setting: Setting) -> None:
    name = f"torch-2.13.0-{TAG}.whl"
    setting.server.faults[name] = ["ok", "short", "slow*"]
    process = setting.tool.start("toolchain", "fetch", CPU, cwd=setting.root)
    deadline = time.monotonic() + 60
    while len(setting.file_requests) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate()
    setting.server.faults.clear()
    before = setting.server.sent
    setting.ok("toolchain", "fetch", CPU)
    assert setting.server.sent - before < len(HEADER)
    setting.ok("toolchain", "verify")
    assert not list((setting.cache / "store").glob(".work-*"))


def test_a_lock_names_files_and_builds_use_it(
    setting: Setting, libraries: dict[str, bytes], guarded: dict[str, str]
) -> None:
    missing = setting("build", "--locked", "--variant", CPU)
    assert missing.code == ExitCode.TOOLCHAIN
    assert f"{LOCK_NAME} does not exist in" in missing.stderr
    assert "+ torch213" in setting.ok("lock").stdout
    lock = setting.root / LOCK_NAME
    text = lock.read_text()
    assert "127.0.0.1" not in text
    assert text.count("record-sha256") == 2
    assert "nothing changed" in setting.ok("lock").stdout
    assert lock.read_text() == text
    assert "is up to date" in setting.ok("lock", "--check").stdout

    # A newer patch release changes nothing until it is asked for.
    setting.server.add(*torch_wheel("2.13.1", libraries))
    built = sound(setting.apart("build", "--json", "--locked", "--variant", CPU))
    assert "compiled with what kernel-builder.lock lists" in built.stderr
    assert setting.entry("torch-2.13.0").is_dir()
    sound(setting.apart("build", "--variant", CPU))
    setting.ok("lock", "--check")
    sound(setting.apart("build", "--locked", "--offline", "--variant", CPU, **guarded))
    dry = setting.ok("lock", "--upgrade", "--dry-run")
    assert f"torch 2.13.0 -> 2.13.1 ({CPU})" in dry.stdout
    assert lock.read_text() == text
    setting.ok("lock", "--upgrade")
    assert "torch-2.13.1" in lock.read_text()
    setting.ok("lock", "--check")


def test_a_lock_that_does_not_fit_is_refused_with_what_differs(setting: Setting) -> None:
    setting.ok("lock", "--variant", CPU)
    lock = setting.root / LOCK_NAME
    text = lock.read_text()
    lacking = setting("build", "--locked")
    assert lacking.code == ExitCode.TOOLCHAIN
    assert f"{OLDER}: the lock does not list it" in lacking.stderr
    drift = setting("lock", "--check")
    assert drift.code == ExitCode.FAILED
    told = f"{OLDER}: the project needs it, but the lock does not list it"
    assert told in drift.stdout
    offline = setting("lock", "--check", "--offline")
    assert offline.code == ExitCode.FAILED
    assert told in offline.stdout
    setting.ok("lock")

    wheel = f"torch-2.13.0-{TAG}.whl"
    text = lock.read_text()
    record = next(line for line in reversed(text.splitlines()) if line.startswith("record-sha256"))
    lock.write_text(text.replace(record, f'record-sha256 = "{"0" * 64}"'))
    altered = setting("build", "--locked", "--variant", CPU)
    assert altered.code == ExitCode.NETWORK
    assert f"{wheel} is not the wheel that was chosen: the SHA-256 of its RECORD is" in altered.stderr
    assert f"{wheel}: the SHA-256 of its RECORD is" in setting("lock", "--check").stdout

    lock.write_text(text)
    published = setting.server.pages["torch"].pop(wheel)
    gone = setting("build", "--locked", "--variant", CPU)
    assert gone.code == ExitCode.TOOLCHAIN
    assert f"no longer has {wheel}" in gone.stderr
    setting.server.add(wheel, published[:-1] + b"\1")
    other = setting("build", "--locked", "--variant", CPU)
    assert other.code == ExitCode.NETWORK
    assert "is not the file that was locked: its SHA-256 was" in other.stderr
    assert wheel in setting("lock", "--check").stdout

    lock.write_text(text.replace('gcc = ">=11"', 'gcc = ">=99"'))
    compiler = setting("build", "--locked", "--variant", CPU, "--dry-run")
    assert "the lock accepts g++ >=99" in compiler.stderr

    lock.write_text(text.replace("format = 1", "format = 1\nsurprise = true"))
    strange = setting("build", "--variant", CPU)
    assert strange.code == ExitCode.CONFIG
    assert f"{LOCK_NAME}:5:1: error: surprise: unknown key 'surprise'" in strange.stderr
    assert json.loads(setting("build", "--json", "--variant", CPU).stdout)["ok"] is False
