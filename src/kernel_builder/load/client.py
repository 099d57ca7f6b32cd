"""Proof of loading: each finished variant is loaded by the real ``kernels`` client, in a fresh and clean process.

The interpreter is one that has torch and ``kernels``; kernel-builder needs neither. It runs isolated (``-I``): no
PYTHONPATH, no user site-packages, no current directory, so a package that happens to have the kernel's name cannot be
imported in its place (case T10).
"""

from __future__ import annotations

import json
import os.path
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_builder import __version__
from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError
from kernel_builder.load.evidence import Call, CallStatus, Foreign, LoadedOp, LoadResult, LoadStatus
from kernel_builder.variants.names import Abi, ArchVariant, Machine, Platform, StableAbiTag, System, TorchTag, Variant

_PROBE = Path(__file__).with_name("probe") / "__main__.py"
_ANSWER = "kernel-builder-probe: "
_CALLS = "kernel-builder-calls: "
_SECONDS = 300
_EMULATION_FACTOR = 4
_ELF_MACHINES = {62: Machine.X86_64, 183: Machine.AARCH64}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A Python with torch and the ``kernels`` client.

    ``torch`` is its full version, ``client`` that of ``kernels``. ``toolkits`` are the backends that this torch has,
    each with the version of the toolkit that it was built with (``""`` for backends without one); ``devices`` how many
    devices the drivers offer, for the backends whose driver can be asked. ``platform`` is what the interpreter is a
    program for, ``environ`` the environment variables that it is started with.
    """

    python: Path
    torch: str
    toolkits: Mapping[Backend, str]
    devices: Mapping[Backend, int]
    abi: Abi | None
    client: str = ""
    platform: Platform = field(default_factory=Platform.current)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def release(self) -> tuple[int, int]:
        """torch's major and minor."""
        major, minor = self.torch.split("+")[0].split(".")[:2]
        return int(major), int(minor)

    @property
    def label(self) -> str:
        """For people: ``torch 2.13.0+cpu``."""
        return f"torch {self.torch}"

    def proof_key(self, fingerprint: str) -> list[str]:
        """What a proof of loading holds for, where ``fingerprint`` stands for every byte of a variant."""
        toolkits = " ".join(f"{backend}={version}" for backend, version in self.toolkits.items())
        return [__version__, fingerprint, str(self.python), self.torch, toolkits, self.client]

    def has_device(self, backend: Backend) -> bool:
        """Whether code for ``backend`` can run here; where nobody can be asked, it is taken to."""
        return self.devices.get(backend, 1) > 0


@dataclass(frozen=True, kw_only=True)
class NoEnvironment:
    """Why variants cannot be loaded on this machine."""

    reason: str


def _candidates(chosen: Path | None, environ: Mapping[str, str]) -> list[Path]:
    """Interpreters to ask: the chosen one alone, else the active environment's, ours, and PATH's."""
    if chosen is not None:
        return [chosen]
    found: list[Path] = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(variable):
            found.append(Path(environ[variable]) / "bin" / "python")
    found.append(Path(sys.executable))
    on_path = shutil.which("python3", path=environ.get("PATH", ""))
    if on_path:
        found.append(Path(on_path))
    unique: dict[Path, Path] = {}
    for path in found:
        if path.exists():
            # Not resolved: a virtual environment's python is a link, and what it is depends on where it lies.
            unique.setdefault(Path(os.path.abspath(path)), path)  # noqa: PTH100
    return list(unique.values())


def platform_of(python: Path) -> Platform:
    """The platform that an interpreter is a program for; this one's where its file does not tell."""
    here = Platform.current()
    if here.system is not System.LINUX:
        return here
    try:
        with python.open("rb") as file:
            header = file.read(20)
    except OSError:
        return here
    # e_machine of the ELF header: offset 18, two bytes, both platforms are little-endian.
    machine = _ELF_MACHINES.get(int.from_bytes(header[18:20], "little")) if header.startswith(b"\x7fELF") else None
    return here if machine is None else Platform(machine=machine, system=System.LINUX)


def _launcher(python: Path, environ: Mapping[str, str]) -> list[str] | str:
    """What stands before an interpreter of another platform to run it here, or a sentence saying why it cannot run."""
    machine = platform_of(python).machine
    if machine is Platform.current().machine:
        return []
    names = (f"qemu-{machine.value}", f"qemu-{machine.value}-static")
    found = next(filter(None, (shutil.which(name, path=environ.get("PATH", "")) for name in names)), None)
    if found is None:
        return (
            f"{python} is a program for {machine.value}, but {names[0]} is not installed"
            " (Debian, Ubuntu: apt-get install qemu-user; QEMU_LD_PREFIX names the directory with its C library)"
        )
    return [found]


class _Silence(str):
    """Why the probe gave no answer. ``calling`` is the op that it called at its end, if any."""

    calling: str | None = None


def _ask(python: Path, environ: Mapping[str, str], task: str, request: Mapping[str, object]) -> dict[str, Any] | str:
    """The probe's answer, or a sentence saying why there is none."""
    launcher = _launcher(python, environ)
    if isinstance(launcher, str):
        return launcher
    seconds = _SECONDS * (_EMULATION_FACTOR if launcher else 1)
    try:
        completed = subprocess.run(
            [*launcher, python, "-I", "-B", str(_PROBE), task, json.dumps(request)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            cwd=python.parent,
            env=dict(environ),
        )
    except OSError as error:
        return f"{python} does not run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"{python} did not respond within {seconds} s"
    for line in reversed(completed.stdout.splitlines()):
        if line.startswith(_ANSWER):
            answer: dict[str, Any] = json.loads(line.removeprefix(_ANSWER))
            return answer
    words = (completed.stderr.strip() or completed.stdout.strip()).splitlines()
    end = "\n".join(words[-15:])
    code = completed.returncode
    died = f"died of signal {-code}" if code < 0 else f"ended with code {code}"
    silence = _Silence(f"the Python that loads it {died}{f':{chr(10)}{end}' if end else ''}")
    calls = [line.removeprefix(_CALLS) for line in completed.stdout.splitlines() if line.startswith(_CALLS)]
    silence.calling = calls[-1] if calls else None
    return silence


def find_environment(chosen: Path | None, environ: Mapping[str, str]) -> Environment | NoEnvironment:
    """The first Python with torch and ``kernels``: ``chosen`` if given, else the active environment's, ours, PATH's.

    ``environ`` holds the environment variables, by which it is looked for and with which it is started.
    Raises :class:`UsageError` when ``chosen`` has not both.
    """
    reasons: list[str] = []
    request = {
        "versions": sorted({backend.torch.version for backend in Backend if backend.torch.version is not None}),
        "drivers": {backend.value: asdict(backend.driver) for backend in Backend if backend.driver is not None},
    }
    for python in _candidates(chosen, environ):
        answer = _ask(python, environ, "describe", request)
        if isinstance(answer, str):
            reasons.append(answer)
            continue
        if answer.get("problem") is not None:
            reasons.append(f"{python}: {answer['problem']}")
            continue
        if answer["free_threaded"]:
            reasons.append(f"{python} is free-threaded, which the limited API does not support")
            continue
        platform = platform_of(python)
        return Environment(
            python=python,
            torch=str(answer["torch"]),
            toolkits=_toolkits(answer["versions"], platform),
            devices={Backend(name): count for name, count in answer["devices"].items()},
            client=str(answer["client"]),
            platform=platform,
            environ=environ,
            abi=(Abi.CXX11 if answer["cxx11"] else Abi.CXX98) if sys.platform == "linux" else None,
        )
    if chosen is not None:
        why = reasons[0] if reasons else "no such file"
        raise UsageError(f"--python {chosen} cannot load kernels: {why}", hint="pass a Python with torch and kernels")
    return NoEnvironment(reason=reasons[0] if reasons else "no Python was found")


def _toolkits(versions: Mapping[str, str | None], platform: Platform) -> Mapping[Backend, str]:
    """The backends of a torch, with the versions of their toolkits; ``versions`` are those in its version.py."""
    found: dict[Backend, str] = {}
    for backend in Backend:
        version = versions.get(backend.torch.version) if backend.torch.version is not None else None
        if version:
            found[backend] = version
        elif backend.is_host or backend.torch.system == platform.system.value:
            found[backend] = ""
    return found


def why_not_loadable(variant: Variant, environment: Environment) -> str | None:
    """The reason why ``environment`` cannot load ``variant``; ``None`` when it can (contract 5.2)."""
    here = f"{environment.label} is installed here"
    if isinstance(variant, ArchVariant):
        runs_on = Platform(machine=variant.machine, system=variant.system)
        if runs_on != environment.platform:
            return f"it is built for {runs_on}, but {environment.python} is for {environment.platform}"
    backend = variant.backend
    if backend not in environment.toolkits:
        return f"it needs torch with {backend.label}, but {here}"
    if not isinstance(variant, ArchVariant):
        return None
    tag = variant.tag
    if isinstance(tag, TorchTag):
        if tag.version != environment.release:
            return f"it needs torch {tag.version[0]}.{tag.version[1]}, but {here}"
        if tag.abi is not None and tag.abi is not environment.abi:
            return f"it needs the {tag.abi.value} ABI, but {here}"
    if isinstance(tag, StableAbiTag) and tag.version > environment.release:
        return f"it needs torch {tag.version[0]}.{tag.version[1]} or newer, but {here}"
    if variant.compute.version is not None and backend.torch.older_minor:
        toolkit = environment.toolkits[backend]
        major, minor = (int(part) for part in toolkit.split(".")[:2])
        needed_major, needed_minor = variant.compute.version
        if needed_major != major or needed_minor > minor:
            return f"it needs {backend.label} {needed_major}.{needed_minor}, but {here} ({backend.label} {toolkit})"
    return None


def load_variant(
    directory: Path,
    *,
    variant: Variant,
    ops_id: str,
    python_name: str,
    depends: Mapping[str, str],
    environment: Environment | NoEnvironment,
) -> LoadResult:
    """Load the variant in ``directory`` if this machine can.

    ``depends`` maps the Python dependencies that the kernel declares to the modules they bring.
    """
    if isinstance(environment, NoEnvironment):
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=environment.reason)
    reason = why_not_loadable(variant, environment)
    if reason is not None:
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=reason)
    request = _request(variant.backend, python_name, depends, path=str(directory), id=ops_id)
    answer = _ask(environment.python, environment.environ, "load", request)
    if isinstance(answer, str):
        return LoadResult(status=LoadStatus.FAILED, reason=answer, crashed=isinstance(answer, _Silence))
    if answer["status"] == "unavailable":
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=str(answer["reason"]))
    if answer["status"] == "failed":
        return LoadResult(status=LoadStatus.FAILED, reason=str(answer["reason"]), frames=_texts(answer["trace"]))
    return LoadResult(
        status=LoadStatus.LOADED,
        ops=tuple(LoadedOp.from_json(op) for op in answer["ops"]),
        foreign=tuple(Foreign.from_json(one) for one in answer["foreign"]),
    )


def _request(backend: Backend, python_name: str, depends: Mapping[str, str], **more: object) -> dict[str, object]:
    return {
        # The client chooses by the devices that it sees; that it is the host's it must be told.
        "backend": backend.value if backend.is_host else None,
        "device": backend.torch.device,
        "name": python_name,
        "depends": dict(depends),
        **more,
    }


def load_together(
    versions: Mapping[str, Path],
    *,
    backend: Backend,
    python_name: str,
    depends: Mapping[str, str],
    environment: Environment,
) -> LoadResult:
    """Load several versions of one kernel (ops id -> directory) in one process, in order."""
    listed = [{"id": ops_id, "path": str(path)} for ops_id, path in versions.items()]
    request = _request(backend, python_name, depends, versions=listed)
    answer = _ask(environment.python, environment.environ, "together", request)
    if isinstance(answer, str):
        return LoadResult(status=LoadStatus.FAILED, reason=answer, crashed=isinstance(answer, _Silence))
    if answer["status"] == "unavailable":
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=str(answer["reason"]))
    if answer["status"] == "failed":
        return LoadResult(status=LoadStatus.FAILED, reason=str(answer["reason"]), frames=_texts(answer["trace"]))
    return LoadResult(status=LoadStatus.LOADED)


_MOST_CRASHES = 3


def call_ops(
    directory: Path,
    *,
    backend: Backend,
    ops_id: str,
    python_name: str,
    depends: Mapping[str, str],
    environment: Environment,
) -> tuple[Call, ...]:
    """Call the ops that have fakes with small made-up arguments, eagerly and under ``torch.compile(fullgraph=True)``.

    An op that ends the process is left out of another attempt, up to three times.
    """
    crashed: list[Call] = []
    while True:
        request = _request(
            backend, python_name, depends, path=str(directory), id=ops_id, skip=[call.op for call in crashed]
        )
        answer = _ask(environment.python, environment.environ, "call", request)
        if isinstance(answer, str):
            op = answer.calling if isinstance(answer, _Silence) else None
            if op is None:
                return tuple(crashed)
            crashed.append(Call(op=op, status=CallStatus.CRASHED, words=answer.splitlines()[0]))
            if len(crashed) < _MOST_CRASHES:
                continue
            return tuple(crashed)
        results = answer.get("results")
        found = [
            Call(op=str(op), status=CallStatus(status), words=str(words))
            for op, status, words in (results if isinstance(results, list) else ())
        ]
        return (*crashed, *found)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
