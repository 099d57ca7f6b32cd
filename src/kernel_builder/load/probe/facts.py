# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What this interpreter has: torch, the client, tvm-ffi, and devices."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import sys
from typing import Any

from .answers import answer


def version_facts(torch_file: str) -> dict[str, object]:
    """What torch/version.py says; it stands alone, and importing torch itself takes seconds."""
    facts: dict[str, object] = {}
    path = os.path.join(os.path.dirname(torch_file), "version.py")
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), facts)
    return facts


def has_cxx11_abi(version: str) -> bool:
    """Builds of torch from 2.7 on have the new ABI; before, only torch itself can tell."""
    major, minor = version.split("+", maxsplit=1)[0].split(".")[:2]
    if (int(major), int(minor)) >= (2, 7):
        return True
    import torch

    return bool(torch.compiled_with_cxx11_abi())


def version_of(distribution: str) -> str:
    """The version of a distribution that is installed; ``""`` for none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def devices(driver: dict[str, str]) -> int:
    """How many devices a driver offers; torch itself would take seconds to say."""
    try:
        library = ctypes.CDLL(driver["library"])
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if library[driver["init"]](0) != 0 or library[driver["count"]](ctypes.byref(count)) != 0:
        return 0
    return count.value


def own_paths() -> list[str]:
    """Where this interpreter and what it imports are: directories, and the links that lead to the program."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path}
    program = sys.executable
    for _ in range(20):
        found.add(os.path.dirname(program))
        if not os.path.islink(program):
            break
        program = os.path.join(os.path.dirname(program), os.readlink(program))
    found |= {os.path.realpath(path) for path in found}
    return sorted(path for path in found if os.path.isabs(path) and os.path.exists(path))


def rests_on(*origins: str) -> dict[str, list[str]]:
    """The files, and the directories, that decide what is said here: while none of them changes, it stays true.
    ``origins`` are the files of torch, of the client and of tvm-ffi.
    """
    searched = [os.path.abspath(path) for path in sys.path if path]
    paths = [os.path.join(folder, name) for folder in searched for name in listed(folder) if name.endswith(".pth")]
    settings = [os.path.join(prefix, "pyvenv.cfg") for prefix in (sys.prefix, os.path.dirname(sys.executable))]
    packages = [os.path.dirname(origin) for origin in origins]
    versions = [os.path.join(package, "version.py") for package in packages]
    return {"files": [sys.executable, *settings, *paths, *origins, *versions], "folders": [*searched, *packages]}


def listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def describe(request: dict[str, Any]) -> None:
    spec, client = importlib.util.find_spec("torch"), importlib.util.find_spec("kernels")
    found = [one for one in (spec, client, importlib.util.find_spec("tvm_ffi")) if one is not None]
    basis = rests_on(*(one.origin for one in found if one.origin is not None))
    if client is None:
        answer(torch=None, problem="the kernels client is not installed", rests_on=basis)
        return
    facts: dict[str, Any] = {}
    version, cxx11 = "", True
    try:
        if spec is not None and spec.origin is not None:
            facts = version_facts(spec.origin)
            version = str(facts["__version__"])
            cxx11 = has_cxx11_abi(version)
    except Exception as error:
        answer(torch=None, problem=f"its torch cannot be used: {error}", rests_on=basis)
        return
    answer(
        rests_on=basis,
        torch=version,
        versions={name: facts.get(name) for name in request["versions"]},
        plugins=[name for name in request["plugins"] if importlib.util.find_spec(name) is not None],
        devices={name: devices(driver) for name, driver in request["drivers"].items()},
        client=importlib.metadata.version("kernels"),
        tvm_ffi=version_of(request["tvm-ffi"]),
        cxx11=cxx11,
        paths=own_paths(),
        free_threaded=not getattr(sys, "_is_gil_enabled", lambda: True)(),
    )


def drivers(request: dict[str, Any]) -> None:
    answer(devices={name: devices(driver) for name, driver in request["drivers"].items()})


def packages(_request: dict[str, Any]) -> None:
    """What is installed. The first of two with one name is the one that is imported."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(name, distribution.version)
    answer(packages=found, python=".".join(map(str, sys.version_info[:3])))
