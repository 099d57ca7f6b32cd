"""Builds one light kernel under many conditions and says whether all of them give the same bytes.

    python scripts/same_bytes.py [--backend cpu --backend cu130 ...]
        [--faketime LIBFAKETIME] [--user UID] [--ccache FILE]

Conditions: two directories, 1 and 2 jobs, with the cache (cold, then warm) and without, in the sandbox, with another
umask, time zone and locale, with variables that compilers and make would heed, with ccache before the compiler (with
--ccache), on two workers of a dask scheduler (where the extra 'cluster' is installed), a year later (with --faketime, a
library that tells programs another time), and as another user with a home and a store of their own (with --user and
--user-python, a Python that they can run; as root). Every file of every variant is compared, and what may be done with
it, but for what metadata.json says of the sandbox and of a program that stands for the compiler. Exits with 1
where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TOML = """\
[general]
name = "alike"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/bind.cpp"]

[kernel.host]
backend = "cpu"
depends = ["torch"]
src = ["src/host.cpp", "src/host.h"]

[kernel.device]
backend = "cuda"
depends = ["torch"]
src = ["src/device.cu", "src/host.h"]
cuda-capabilities = ["8.0", "9.0"]
"""
HOST = """\
#include "host.h"
#include <string>
#include <vector>
namespace { struct Local { static int count; }; int Local::count = LIMIT; }
std::string told(const std::vector<int> &v) {
  return std::string(__FILE__) + __DATE__ __TIME__ + std::to_string(v.size());
}
int counted() { return ++Local::count; }
"""
DEVICE = """\
#include "host.h"
#include <cuda_runtime.h>
namespace {
__device__ int local;
template <class T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; local = LIMIT; }
}
void launch(float *x, int *y) { twice<<<1, LIMIT>>>(x); twice<<<1, LIMIT>>>(y); }
"""
FILES = {
    "build.toml": TOML,
    "src/host.h": "#pragma once\n#define LIMIT 7\n",
    "src/host.cpp": HOST,
    "src/device.cu": DEVICE,
    "torch-ext/bind.cpp": 'extern "C" int alike_bound(void) { return 1; }\n',
    "torch-ext/alike/__init__.py": '"""Nothing but a library."""\n',
}
VARIANTS = {
    "cpu": "torch213-cxx11-cpu-x86_64-linux",
    "cu124": "torch26-cxx98-cu124-x86_64-linux",
    "cu126": "torch213-cxx11-cu126-x86_64-linux",
    "cu130": "torch213-cxx11-cu130-x86_64-linux",
    "cu132": "torch213-cxx11-cu132-x86_64-linux",
}


STRANGE = {
    "MAKEFLAGS": "-j7 --silent",
    "CFLAGS": "-O0 -DLIMIT=1",
    "CXXFLAGS": "-O0 -g3 -march=native",
    "CPPFLAGS": "-DLIMIT=1",
    "LDFLAGS": "-Wl,--build-id=none -s",
    "CPATH": "/usr/include/linux",
    "CPLUS_INCLUDE_PATH": "/usr/include/linux",
    "LIBRARY_PATH": "/usr/lib",
    "LD_RUN_PATH": "/somewhere",
    "GCC_COMPARE_DEBUG": "1",
    "DEPENDENCIES_OUTPUT": "/dev/null",
    "NVCC_APPEND_FLAGS": "-DLIMIT=1 -lineinfo",
    "NVCC_PREPEND_FLAGS": "-O0",
    "PYTHONHASHSEED": "7",
    "DEBUG": "1",
    "USE_NINJA": "0",
    "MAX_JOBS": "3",
    "TORCH_CUDA_ARCH_LIST": "7.0",
}
"""What people have in their environment, and compilers, make or torch would heed."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One way to build: ``before`` goes before the command, ``variables`` into its environment."""

    name: str
    place: str = "one"
    options: tuple[str, ...] = ("--no-cache", "--jobs", "2")
    before: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None
    python: str = ""
    on_workers: bool = False


def conditions(faketime: Path | None, user: int | None, python: str, ccache: Path | None) -> list[Condition]:
    """All that can be tried here."""
    found = [
        Condition(name="here, 2 jobs, no cache"),
        Condition(name="another directory, 1 job", place="far/away/two", options=("--no-cache", "--jobs", "1")),
        Condition(name="into an empty cache", place="three", options=()),
        Condition(name="out of the cache, another directory", place="four", options=()),
        Condition(name="in the sandbox", place="five", options=("--no-cache", "--sandbox")),
        Condition(
            name="umask 077, another time zone and locale",
            place="eight",
            before=("sh", "-c", 'umask 077; exec "$@"', "sh"),
            variables={"TZ": "Asia/Kathmandu", "LC_ALL": "C", "LANG": "tr_TR.UTF-8", "LANGUAGE": "tr"},
        ),
        Condition(name=f"{', '.join(list(STRANGE)[:3])} and others are set", place="nine", variables=STRANGE),
    ]
    if ccache is not None:
        for place, name in (("ten", "ccache stands for the compiler"), ("eleven", "the same again, from its cache")):
            found.append(Condition(name=name, place=place, variables={"CXX": "ccache"}))
    if importlib.util.find_spec("distributed") is not None:
        found.append(Condition(name="on two workers", place="twelve", options=("--no-cache",), on_workers=True))
    if faketime is not None:
        later = {"LD_PRELOAD": str(faketime), "FAKETIME": "+366d"}
        env = ("env", *(f"{name}={value}" for name, value in later.items()))
        # Programs that actions start do not see LD_PRELOAD: the compiler is a script that sets it.
        found.append(Condition(name="a year later", place="six", before=env, variables={"CXX": "later"}))
    if user is not None:
        found.append(Condition(name=f"as user {user}", place="seven", user=user, python=python))
    return found


def make(root: Path, owner: int | None) -> None:
    """The kernel's sources, in a commit that is the same wherever it is made."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    told = {
        "GIT_AUTHOR_DATE": "@1700000000 +0000",
        "GIT_COMMITTER_DATE": "@1700000000 +0000",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "A kernel")):
        who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid")
        subprocess.run(["git", *who, *arguments], cwd=root, env={**os.environ, **told}, check=True)
    if owner is not None:
        subprocess.run(["chown", "-R", str(owner), root], check=True)


def built(
    condition: Condition, scratch: Path, variants: Sequence[str], faketime: Path | None, ccache: Path | None
) -> dict[str, str]:
    """Digests of all files that ``condition`` makes."""
    root, output = scratch / condition.place, scratch / "out" / condition.place
    environ = {**os.environ, "KERNEL_BUILDER_CACHE": str(scratch / "store"), **condition.variables}
    before, python = condition.before, sys.executable
    if condition.variables.get("CXX") == "later":
        environ["CXX"] = str(_later(scratch, faketime))
    elif condition.variables.get("CXX") == "ccache":
        environ |= {"CXX": str(_cached(scratch, ccache)), "CCACHE_DIR": str(scratch / "ccache")}
    if condition.user is not None:
        home = scratch / f"home-{condition.user}"
        home.mkdir()
        own = home / ".cache/kernel-builder"
        _link_toolchains(scratch / "store", own)
        # Not what is below: the files are those of the other store.
        places = [home, own.parent, own, *(path for path in own.iterdir() if path.is_dir())]
        subprocess.run(["chown", str(condition.user), *places], check=True)
        python = condition.python
        path = os.pathsep.join([str(Path(__file__).parents[1] / "src"), *filter(None, sys.path)])
        environ = {"PATH": environ["PATH"], "HOME": str(home), "PYTHONPATH": path}
        who = str(condition.user)
        before = ("setpriv", "--reuid", who, "--regid", who, "--clear-groups")
        output = home / "out"
    make(root, condition.user)
    command = [
        *before,
        python,
        "-m",
        "kernel_builder",
        "build",
        str(root),
        "--no-load",
        "-q",
        "-o",
        str(output),
    ]
    command += [*condition.options, *(word for name in variants for word in ("--variant", name))]
    with ExitStack() as stack:
        if condition.on_workers:
            command += ["--scheduler", stack.enter_context(_cluster(scratch / "cluster", environ))]
        done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{condition.name}: {done.stderr}")
    return {path.relative_to(output).as_posix(): _digest(path) for path in sorted(output.rglob("*")) if path.is_file()}


@contextmanager
def _cluster(folder: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """The address of a scheduler on loopback with two workers, which end with this."""
    folder.mkdir()
    where = folder / "scheduler.json"
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    commands = [[*scheduler, "--scheduler-file", str(where)]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(3):
            log = (folder / f"{number}.log").open("wb")
            program = [sys.executable, "-m", *commands[number]]
            started.append(subprocess.Popen(program, env=environ, stdout=log, stderr=log, cwd=folder))
            log.close()
            while not where.exists():
                if started[0].poll() is not None:
                    raise SystemExit((folder / "0.log").read_text(encoding="utf-8"))
                time.sleep(0.1)
            address = json.loads(where.read_text(encoding="utf-8"))["address"].removeprefix("tcp://")
            commands.append(["kernel_builder", "worker", address, "-j", "1", "--folder", str(folder)])
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def _later(scratch: Path, faketime: Path | None) -> Path:
    """A compiler that believes it is a year later."""
    script = scratch / "later" / "g++"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        f'#!/bin/sh\nLD_PRELOAD={faketime} FAKETIME=+366d exec {shutil.which("g++")} "$@"\n', encoding="ascii"
    )
    script.chmod(0o755)
    return script


def _cached(scratch: Path, ccache: Path | None) -> Path:
    """A link called as the compiler, by which ccache knows what to run."""
    link = scratch / "cached" / "g++"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(str(ccache))
    return link


def _link_toolchains(store: Path, own: Path) -> None:
    """Give another user a store with the same toolchains, which they cannot write."""
    own.mkdir(parents=True, exist_ok=True)
    for name in ("store", "resolutions"):
        if (store / name).is_dir():
            linked = subprocess.run(["cp", "-al", store / name, own / name], check=False, capture_output=True)
            if linked.returncode:  # on another disk
                subprocess.run(["cp", "-a", store / name, own], check=True)


def _digest(path: Path) -> str:
    """Of what is in a file, and of who may do what with it."""
    data = path.read_bytes()
    if path.name == "metadata.json":
        document = json.loads(data)
        document["provenance"].pop("sandbox", None)
        # A script is another file than the compiler that it runs.
        for tool in document["provenance"].get("tools", ()):
            tool.get("sha256", {}).pop("g++", None)
        data = json.dumps(document).encode()
    return hashlib.sha256(b"%o " % path.stat().st_mode + data).hexdigest()


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=VARIANTS, help="default: cpu, cu130 and cu132")
    parser.add_argument("--faketime", type=Path)
    parser.add_argument("--ccache", type=Path)
    parser.add_argument("--user", type=int)
    parser.add_argument("--user-python", default=sys.executable)
    parser.add_argument("--store", type=Path, help="a store with toolchains to start with")
    parser.add_argument("--only", action="append", metavar="TEXT", help="conditions that have this in their names")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    backends = options.backend or ["cpu", "cu130", "cu132"]
    wrong, rows = 0, []
    with tempfile.TemporaryDirectory(prefix="same-bytes-") as text:
        scratch = Path(text)
        scratch.chmod(0o755)
        if options.store is not None:
            _link_toolchains(options.store, scratch / "store")
        first: dict[str, str] = {}
        first_one, *others = conditions(options.faketime, options.user, options.user_python, options.ccache)
        chosen = [one for one in others if not options.only or any(text in one.name for text in options.only)]
        for condition in (first_one, *chosen):
            began = time.monotonic()
            variants = [VARIANTS[name] for name in backends]
            files = built(condition, scratch, variants, options.faketime, options.ccache)
            first = first or files
            differing = sorted(name for name in {*first, *files} if first.get(name) != files.get(name))
            wrong += bool(differing)
            rows.append((condition.name, "the same" if not differing else ", ".join(differing)))
            print(f"{condition.name}: {rows[-1][1]} ({len(files)} files, {time.monotonic() - began:.0f} s)", flush=True)
    if options.markdown:
        print("\n".join(["| Condition | Against the first |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
