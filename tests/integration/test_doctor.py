"""``doctor`` on machines that have something, nothing, or something broken; one test alone needs the network."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, serve

from conftest import ProjectMaker, Result, Tool
from kernel_builder.cli import run

NOARCH = """\
[general]
name = "plain"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[general.hub]
repo-id = "someone/plain"

[torch-noarch]
"""
REAL = {name: shutil.which(name) for name in ("g++", "as", "ld", "ar", "git")}
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture
def index() -> Iterator[LoopbackIndex]:
    with serve() as served:
        yield served


class Doctor:
    """Runs ``doctor`` in this process, with a store, a home and a PATH of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        (folder / "work").mkdir()
        for name in os.environ:
            if name.startswith(("PIP_", "UV_", "CUDA_", "CXX", "KERNEL_BUILDER_")):
                monkeypatch.delenv(name)
        monkeypatch.setenv("PATH", str(self.bin))
        monkeypatch.setenv("HOME", str(folder / "home"))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.setenv("KERNEL_BUILDER_CACHE", str(folder / "store"))
        monkeypatch.setenv("KERNEL_BUILDER_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.chdir(folder / "work")
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Result:
        self._capsys.readouterr()
        code = run(["doctor", *map(str, arguments)])
        output = self._capsys.readouterr()
        assert "Traceback" not in output.err, output.err
        return Result(code, output.out, output.err)

    def stub(self, name: str, body: str) -> None:
        """Put a program on its PATH."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def real(self, *names: str) -> None:
        """Let it have these programs of the machine."""
        for name in names:
            self.stub(name, f'exec {REAL[name]} "$@"')


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(tmp_path / "doctor", monkeypatch, capsys)


def checks(result: Result) -> list[dict[str, str | None]]:
    """The checks of a JSON report."""
    found = result.json["checks"]
    assert isinstance(found, list)
    return found


def check(result: Result, name: str) -> dict[str, str | None]:
    """The first check of that name."""
    return next(entry for entry in checks(result) if entry["name"] == name)


def variants(result: Result) -> list[dict[str, str | bool | None]]:
    """The variants of a JSON report."""
    found = result.json["variants"]
    assert isinstance(found, list)
    return found


def test_a_machine_with_nothing_is_told_what_to_install(doctor: Doctor) -> None:
    result = doctor("--offline", "--json")
    assert result.code == 4
    assert result.json["ok"] is False
    assert check(result, "C++ compiler")["standing"] == "missing"
    assert "g++" in str(check(result, "C++ compiler")["remedy"])
    assert {name: check(result, name)["standing"] for name in ("git", "gpgv")} == {"git": "absent", "gpgv": "absent"}
    assert len(variants(result)) >= 8
    assert all(not entry["can-be-built"] and entry["remedy"] for entry in variants(result))
    assert not any((doctor.folder / "work").iterdir())


def test_people_get_the_same_as_text(doctor: Doctor) -> None:
    result = doctor("--offline")
    assert result.code == 4
    assert "missing  C++ compiler" in result.stdout
    assert "no g++ or clang++ for " in result.stdout
    assert "0 of " in result.stdout.splitlines()[-1]
    assert result.stderr == ""


def test_a_kernel_of_python_alone_can_be_built_with_nothing(doctor: Doctor, make_project: ProjectMaker) -> None:
    project = make_project("plain", {"README.md": "plain\n"}, toml=NOARCH)
    result = doctor(project, "--offline", "--json")
    assert result.code == 0, result.stdout
    assert [entry["variant"] for entry in variants(result)] == ["torch-cpu"]
    assert result.json["project"] == str(project)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("exit 1", "it does not run"),
        ('case "$1" in -std*) exit 1;; *) echo "15.0.0 clang";; esac', "it is clang, but finds no libstdc++"),
        ('case "$1" in -dumpm*) echo vax-dec-ultrix;; *) echo 12.4.0;; esac', "compiles for vax-dec-ultrix"),
    ],
)
def test_a_compiler_that_is_no_good_is_named_with_the_reason(body: str, reason: str, doctor: Doctor) -> None:
    doctor.stub("g++", body)
    result = doctor("--offline", "--json")
    assert result.code == 4
    found = check(result, "C++ compiler")
    assert found["standing"] == "missing"
    assert f"{doctor.bin}/g++" in str(found["found"])
    assert reason in str(found["found"])


def test_what_a_compiler_does_not_serve_is_said(doctor: Doctor) -> None:
    target = f"{platform.machine()}-linux-gnu"
    for major, limit in ((9, "too old for torch 2.12 and later"), (15, "not for CUDA 11.8")):
        doctor.stub("g++", f'case "$1" in -dumpm*) echo {target};; -dump*) echo {major}.4.0;; *) echo "g++ (x)";; esac')
        assert limit in str(check(doctor("--offline", "--json"), "C++ compiler")["found"])


def test_the_sources_of_the_configuration_are_named_and_its_mistakes(doctor: Doctor) -> None:
    config = doctor.folder / "home" / ".config" / "kernel-builder" / "kernel-builder.toml"
    config.parent.mkdir(parents=True)
    config.write_text('sources = ["local"]\n')
    result = doctor("--json")
    assert str(check(result, "sources")["found"]).startswith("local (")
    assert not any(entry["name"] == "package index" for entry in checks(result))
    config.write_text('sources = ["moon"]\n')
    result = doctor("--json")
    assert result.code == 3
    assert "moon" in str(result.json["problem"])
    assert check(result, "C++ compiler")


@needs_gcc
def test_a_compiler_without_binutils_or_library_is_not_enough(doctor: Doctor) -> None:
    gcc = REAL["g++"]
    doctor.real("as", "ar")
    doctor.stub("g++", f'case "$1" in -print-prog-name=ld) echo ld-that-is-not-there;; *) exec {gcc} "$@";; esac')
    result = doctor("--offline", "--json")
    assert result.code == 4
    assert check(result, "binutils")["found"] == "no ld"
    assert "binutils" in str(check(result, "binutils")["remedy"])
    doctor.stub("g++", f'case "$1" in -print-file-name=libstdc++.a) echo libstdc++.a;; *) exec {gcc} "$@";; esac')
    doctor.real("ld")
    result = doctor("--offline", "--json")
    assert check(result, "static libstdc++")["standing"] == "missing"
    assert all("static libstdc++" in str(entry["reason"]) for entry in variants(result))


@needs_gcc
def test_offline_nothing_is_asked_and_an_empty_store_is_named(
    doctor: Doctor, index: LoopbackIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_BUILDER_INDEX_URL", index.url)
    doctor.real("g++", "as", "ld", "ar", "git")
    result = doctor("--offline", "--json")
    assert result.code == 4
    assert index.requests == []
    assert "not contacted" in str(check(result, "package index")["found"])
    cpu = [entry for entry in variants(result) if "cpu" in str(entry["variant"])]
    assert cpu
    assert all("--offline" in str(entry["reason"]) for entry in cpu)


@needs_gcc
def test_an_index_that_cannot_be_reached_is_the_reason(doctor: Doctor) -> None:
    doctor.real("g++", "as", "ld", "ar", "git")
    result = doctor("--json")
    assert result.code == 4
    assert check(result, "package index")["standing"] == "absent"
    assert all("no connection" in str(entry["reason"]) for entry in variants(result) if "cpu" in str(entry["variant"]))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the cross compiler that is known is one on x86_64")
def test_another_platform_needs_its_compiler(doctor: Doctor) -> None:
    result = doctor("--offline", "--json", "--platform", "aarch64-linux")
    assert result.code == 4
    assert "aarch64-linux" in str(check(result, "C++ compiler")["found"])
    assert "CXX_AARCH64_LINUX" in str(check(result, "C++ compiler")["remedy"])
    assert all(str(entry["variant"]).endswith("-aarch64-linux") for entry in variants(result))
    assert doctor("--platform", "amiga").code == 2


@needs_gcc
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the cross compiler that is known is one on x86_64")
def test_the_compiler_that_the_variable_names_is_the_one_for_aarch64(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor.real("g++", "as", "ld", "ar")
    monkeypatch.setenv("CXX_AARCH64_LINUX", "g++")
    entry = check(doctor("--offline", "--json"), "compiler for aarch64")
    assert (entry["standing"], entry["found"]) == ("absent", "none; CXX_AARCH64_LINUX is g++")
    assert "unset CXX_AARCH64_LINUX" in str(entry["remedy"])


def test_a_store_that_cannot_be_is_missing(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_BUILDER_CACHE", str(doctor.folder / "file" / "store"))
    (doctor.folder / "file").touch()
    result = doctor("--offline", "--json")
    assert result.code == 4
    assert check(result, "store")["standing"] == "missing"
    assert "KERNEL_BUILDER_CACHE" in str(check(result, "store")["remedy"])


@needs_gcc
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_can_only_be_read_still_counts(doctor: Doctor) -> None:
    store = doctor.folder / "store"
    (store / "store").mkdir(parents=True)
    store.chmod(0o500)
    try:
        found = check(doctor("--offline", "--json"), "store")
    finally:
        store.chmod(0o700)
    assert found["standing"] == "absent"
    assert "is not writable" in str(found["found"])


def test_mistakes_in_build_toml_do_not_hide_the_machine(doctor: Doctor, make_project: ProjectMaker) -> None:
    project = make_project("bad", {}, toml="[general]\nname = 1\n")
    result = doctor(project, "--offline", "--json")
    assert result.code == 3
    assert check(result, "C++ compiler")
    assert "build.toml" in str(result.json["problem"])
    assert "general" in result.stderr


def test_a_directory_that_is_not_there_is_a_mistake_of_the_command_line(doctor: Doctor) -> None:
    result = doctor("nowhere", "--offline")
    assert result.code == 2
    assert "nowhere is not a directory" in result.stderr


@pytest.mark.network
@pytest.mark.slow
@needs_gcc
def test_a_cpu_kernel_can_be_built_where_there_is_an_index(tool: Tool, make_project: ProjectMaker) -> None:
    project = make_project("relu-like", {"cpu/a.cpp": "int a;\n"})
    result = tool("doctor", project, "--json")
    assert result.code == 0, result.stdout + result.stderr
    assert check(result, "package index")["standing"] == "ok"
    assert len(variants(result)) >= 2


def test_settings_count_where_there_is_no_project(doctor: Doctor) -> None:
    (doctor.folder / "work" / "kernel-builder.toml").write_text('sources = ["local"]\n')
    result = doctor("--offline", "--json")
    assert str(check(result, "sources")["found"]).startswith("local (")
