"""Proof of loading: each finished variant is loaded by the real ``kernels`` client, in a fresh and clean process.

The interpreter is one that has torch and ``kernels``; kernel-builder needs neither.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_builder import __version__
from kernel_builder.binary.elf import ElfError, read_elf_file
from kernel_builder.binary.mangled import readable
from kernel_builder.binary.tvm_ffi import functions_in
from kernel_builder.config.backends import HOST, Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import UsageError
from kernel_builder.files import write_text
from kernel_builder.load.cause import without_native_frames
from kernel_builder.load.child import KILLED, Reply, Standby, ask, launcher, platform_of, waiting
from kernel_builder.load.confinement import Sandbox, clean_environment, find_sandbox
from kernel_builder.load.evidence import (
    Behaviour,
    Call,
    CallStatus,
    Foreign,
    LoadedOp,
    LoadResult,
    LoadStatus,
    Undefined,
)
from kernel_builder.load.standins import stand_ins_for
from kernel_builder.seen import Memory, Sighting, environment_digest
from kernel_builder.variants.names import Abi, ArchVariant, Platform, StableAbiTag, System, TorchTag, TvmFfiTag, Variant

_MOST_CRASHES = 3
# As torch/version.py has them: 13.0, 7.2.53211-e1a6bc5663, 20250302.
_TOOLKIT = re.compile(r"(20\d\d)0(\d)\d\d\Z|(\d+)\.(\d+)")


# What a stand-in says before it ends the process.
_CALLED = re.compile(r"^kernel-builder: the stand-in of (\S+) was called$", re.MULTILINE)
_COMPILER = "triton"
_TVM_FFI = FrameworkKind.TVM_FFI.package
_DRIVERS = ("/etc/ld.so.cache",)
"""What tells where libraries of drivers are."""
_DEVICES = ("/dev", "/dev/dri")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A Python with the ``kernels`` client, and with torch or tvm-ffi.

    ``torch`` is its full version, ``client`` that of ``kernels``, ``tvm_ffi`` that of tvm-ffi (``""``: it has none).
    ``toolkits`` are the backends that this torch has, by itself or with a plugin, each with the version of the toolkit
    that it was built with (``""`` for backends without one); the host alone where there is no torch. ``devices`` is how
    many devices the drivers offer, for the backends whose driver can be asked. ``platform`` is what the interpreter is
    a program for, ``environ`` the environment variables, of which it gets those that loading needs. ``sandbox``
    confines it while it runs a kernel's code. ``seen`` is what all of this rests on; ``None`` where that cannot be
    told, or changed just now. ``ahead`` is one that was started before, and is asked first.
    """

    python: Path
    torch: str
    toolkits: Mapping[Backend, str]
    devices: Mapping[Backend, int]
    abi: Abi | None
    client: str = ""
    tvm_ffi: str = ""
    platform: Platform = field(default_factory=Platform.current)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    sandbox: Sandbox = field(default_factory=Sandbox)
    seen: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    ahead: Standby | None = field(default=None, repr=False, compare=False)

    def ask(self, task: str, request: Mapping[str, object], *readable: Path) -> Reply:
        """What the probe answers about the kernels in ``readable``."""
        reply = self.ahead.ask(task, request, readable) if self.ahead is not None else None
        if reply is not None:
            return reply
        return ask(self.python, self.environ, task, request, sandbox=self.sandbox, readable=readable)

    @contextmanager
    def ahead_of(self, folder: Path) -> Iterator[Environment]:
        """This environment, with a Python that imports torch from now on, for a kernel that will be in ``folder``. It
        ends with this context, used or not.
        """
        with waiting(self.python, self.environ, (folder,), sandbox=self.sandbox) as ahead:
            yield replace(self, ahead=ahead)

    @property
    def release(self) -> tuple[int, int]:
        """torch's major and minor; older than any where there is none."""
        if not self.torch:
            return 0, 0
        major, minor = self.torch.split("+")[0].split(".")[:2]
        return int(major), int(minor)

    @property
    def label(self) -> str:
        """For people: ``torch 2.13.0+cpu``."""
        return f"torch {self.torch}" if self.torch else f"tvm-ffi {self.tvm_ffi} without torch"

    @property
    def confinement(self) -> str:
        """For people: what a kernel's code can do while it is loaded."""
        return self.sandbox.label

    def proof_key(self, fingerprint: str) -> list[str]:
        """What a proof of loading holds for, where ``fingerprint`` stands for every byte of a variant."""
        toolkits = " ".join(f"{backend}={version}" for backend, version in self.toolkits.items())
        devices = " ".join(f"{backend}={count}" for backend, count in self.devices.items())
        variables = environment_digest(clean_environment(self.environ, Path("home")))
        # Python, and what it has of torch and the client, as these files lie on disk.
        stamps = {path: shown[0] if shown else None for path, shown in (self.seen or {"files": {}})["files"].items()}
        parts = hashlib.sha256(json.dumps(stamps, sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()
        facts = [str(self.python), self.torch, toolkits, self.client, self.tvm_ffi, devices, self.confinement]
        return [__version__, fingerprint, *facts, variables, parts]

    @property
    def default_backend(self) -> Backend:
        """The backend whose variants the client looks for when it is told none, devices or not (contract 5.2)."""

        def place(backend: Backend) -> int:
            if backend.torch.plugin is not None:
                return 0 if backend.torch.plugin_first else 2
            return 3 if backend.is_host else 1

        return min(self.toolkits, key=place)

    def has_device(self, backend: Backend) -> bool:
        """Whether code for ``backend`` can run here; where nobody can be asked, it is taken to."""
        return self.devices.get(backend, 1) > 0


@dataclass(frozen=True, kw_only=True)
class NoEnvironment:
    """Why variants cannot be loaded on this machine; ``seen`` as in :class:`Environment`."""

    reason: str
    seen: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def confinement(self) -> str:
        """For people: nothing of a kernel runs."""
        return f"not loaded: {self.reason}"


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


def _drivers() -> dict[str, dict[str, str]]:
    return {backend.value: asdict(backend.driver) for backend in Backend if backend.driver is not None}


def find_devices(environ: Mapping[str, str]) -> Mapping[Backend, int]:
    """How many devices each driver that can be asked offers on this machine, torch or not."""
    answer = ask(Path(sys.executable), environ, "drivers", {"drivers": _drivers()}).answer
    return {} if answer is None else {Backend(name): int(count) for name, count in answer["devices"].items()}


def find_environment(
    chosen: Path | None, environ: Mapping[str, str], memory: Memory | None = None, *, torch: bool = True
) -> Environment | NoEnvironment:
    """The first Python with torch and ``kernels``: ``chosen`` if given, else the active environment's, ours, PATH's.

    ``environ`` holds the environment variables, by which it is looked for and with which it is started. What
    ``memory`` knows of an interpreter is not asked again. Without ``torch``, one that has tvm-ffi instead will do.
    Raises :class:`UsageError` when ``chosen`` has not both.
    """
    reasons: list[str] = []
    basis = _Basis(environ)
    for python in _candidates(chosen, environ):
        reply = _describe(python, environ, memory, basis)
        answer = reply.answer
        if answer is None:
            reasons.append(reply.problem)
            continue
        if answer.get("problem") is not None:
            reasons.append(f"{python}: {answer['problem']}")
            continue
        if not answer["torch"] and (torch or not answer["tvm_ffi"]):
            what = "torch is not" if torch else "neither torch nor tvm-ffi is"
            reasons.append(f"{python}: {what} installed")
            continue
        if answer["free_threaded"]:
            reasons.append(f"{python} is free-threaded, which the limited API does not support")
            continue
        platform = platform_of(python)
        before = launcher(python, environ)
        visible = [Path(path) for path in (*answer["paths"], *_named_paths(environ))]
        command = [*([] if isinstance(before, str) else before), str(python)]
        return Environment(
            python=python,
            torch=str(answer["torch"]),
            toolkits=_toolkits(answer["versions"], answer["plugins"], platform) if answer["torch"] else {HOST: ""},
            devices={Backend(name): count for name, count in answer["devices"].items()},
            client=str(answer["client"]),
            tvm_ffi=str(answer["tvm_ffi"]),
            platform=platform,
            environ=environ,
            sandbox=find_sandbox(command, visible, environ),
            abi=(Abi.CXX11 if answer["cxx11"] else Abi.CXX98) if sys.platform == "linux" else None,
            seen=basis.seen,
        )
    if chosen is not None:
        why, framework = reasons[0] if reasons else "no such file", "torch" if torch else _TVM_FFI
        raise UsageError(
            f"--python {chosen} cannot load kernels: {why}",
            hint=f"run {chosen} -m pip install {framework} kernels, or pass a Python that has both",
        )
    return NoEnvironment(reason=reasons[0] if reasons else "no Python was found", seen=basis.seen)


class _Basis:
    """What an answer about interpreters rests on: programs on PATH, drivers, devices, and what each of them says."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._sighting: Sighting | None = Sighting()
        for variable in ("PATH", "LD_LIBRARY_PATH"):
            for folder in filter(None, environ.get(variable, "").split(os.pathsep)):
                self._sighting.folder(folder)
        for file in _DRIVERS:
            self._sighting.file(file)
        for folder in _DEVICES:
            self._sighting.names(folder)

    def take(self, python: Path, answer: Mapping[str, Any] | None) -> None:
        """What ``python`` says that its ``answer`` rests on; of one that says nothing, nothing is known."""
        told = answer.get("rests_on") if answer is not None else None
        if told is None or self._sighting is None:
            self._sighting = None
            return
        for file in (str(python), *told["files"]):
            self._sighting.file(file)
        for folder in told["folders"]:
            self._sighting.folder(folder)

    @property
    def seen(self) -> Mapping[str, Any] | None:
        return None if self._sighting is None or self._sighting.disturbed is not None else self._sighting.to_json()


def _describe(python: Path, environ: Mapping[str, str], memory: Memory | None, basis: _Basis) -> Reply:
    """What ``python`` has: as it says itself, or as ``memory`` knows it did."""
    question = {
        "versions": sorted({backend.torch.version for backend in Backend if backend.torch.version is not None}),
        "plugins": sorted({backend.torch.plugin for backend in Backend if backend.torch.plugin is not None}),
        "drivers": _drivers(),
        "tvm-ffi": _TVM_FFI,
    }
    key = ("interpreter", __version__, str(python), question, environment_digest(environ))
    recalled = memory.recall(key) if memory is not None else None
    if recalled is not None:
        basis.take(python, recalled.value)
        return Reply(answer=recalled.value)
    reply = ask(python, environ, "describe", question)
    basis.take(python, reply.answer)
    if memory is not None and basis.seen is not None:
        memory.keep(key, reply.answer, basis.seen)
    return reply


def _named_paths(environ: Mapping[str, str]) -> list[str]:
    """What variables tell the loader of programs to use."""
    named = (environ.get(name, "") for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "QEMU_LD_PREFIX"))
    return [path for value in named for path in re.split("[: ]", value) if path.startswith("/")]


def _toolkits(
    versions: Mapping[str, str | None], plugins: Collection[str], platform: Platform
) -> Mapping[Backend, str]:
    """The backends of a torch, with the versions of their toolkits; ``versions`` are those in its version.py,
    ``plugins`` the modules beside it that bring others.
    """
    found: dict[Backend, str] = {}
    for backend in Backend:
        version = versions.get(backend.torch.version) if backend.torch.version is not None else None
        if version:
            found[backend] = version
        elif backend.is_host or backend.torch.system == platform.system.value or backend.torch.plugin in plugins:
            found[backend] = ""
    return found


def why_not_loadable(variant: Variant, environment: Environment) -> str | None:
    """The reason why ``environment`` cannot load ``variant``; ``None`` when it can (contract 5.2)."""
    return why_not_at_all(variant, environment) or what_is_missing(variant, environment)


def why_not_at_all(variant: Variant, environment: Environment) -> str | None:
    """Why not even stand-ins help: another platform, torch release or ABI."""
    here = f"{environment.label} is installed here"
    if variant.needs_torch and not environment.torch:
        return f"it needs torch, but {here}"
    if not isinstance(variant, ArchVariant):
        return None
    runs_on = Platform(machine=variant.machine, system=variant.system)
    if runs_on != environment.platform:
        return f"it is built for {runs_on}, but {environment.python} is for {environment.platform}"
    tag = variant.tag
    if isinstance(tag, TorchTag):
        if tag.version != environment.release:
            return f"it needs torch {tag.version[0]}.{tag.version[1]}, but {here}"
        if tag.abi is not None and tag.abi is not environment.abi:
            return f"it needs the {tag.abi.value} ABI, but {here}"
    if isinstance(tag, TvmFfiTag):
        return _why_not_tvm_ffi(tag, environment)
    if isinstance(tag, StableAbiTag) and tag.version > environment.release:
        return f"it needs torch {tag.version[0]}.{tag.version[1]} or newer, but {here}"
    return None


def _why_not_tvm_ffi(tag: TvmFfiTag, environment: Environment) -> str | None:
    needed = "{}.{}".format(*tag.version)
    if not environment.tvm_ffi:
        install = f"{environment.python} -m pip install '{_TVM_FFI}=={needed}.*'"
        return f"it needs tvm-ffi {needed}; install it: {install}"
    if environment.tvm_ffi.split(".")[:2] != needed.split("."):
        return f"it needs tvm-ffi {needed}, but {environment.tvm_ffi} is installed here"
    return None


def what_is_missing(variant: Variant, environment: Environment) -> str | None:
    """What the torch of ``environment`` lacks to run ``variant``: its backend, or that toolkit. ``None``: nothing."""
    here = f"{environment.label} is installed here"
    backend = variant.backend
    if backend not in environment.toolkits:
        return f"it needs torch with {backend.label}, but {here}"
    toolkit = environment.toolkits[backend]
    needed = variant.compute.version if isinstance(variant, ArchVariant) else None
    if needed is not None and not _serves(backend, toolkit, needed):
        return f"it needs {backend.label} {needed[0]}.{needed[1]}, but {here} ({backend.label} {toolkit})"
    return None


def _serves(backend: Backend, toolkit: str, needed: tuple[int, int]) -> bool:
    """Whether a torch that was built with ``toolkit`` takes code for the version ``needed`` of it. What cannot be
    told is not held against it.
    """
    match = _TOOLKIT.match(toolkit)
    if match is None:
        return True
    major, minor = (int(part) for part in match.groups() if part is not None)
    return major == needed[0] and (needed[1] <= minor if backend.torch.older_minor else needed[1] == minor)


@dataclass(frozen=True, kw_only=True)
class Loadable:
    """A variant as it is loaded: ``directory`` holds it, ``ops_id`` is its op namespace, ``python_name`` its package.
    ``depends`` maps the Python dependencies that it declares to the modules they bring.
    """

    directory: Path
    variant: Variant
    ops_id: str
    python_name: str
    depends: Mapping[str, str] = field(default_factory=dict)

    @property
    def functions(self) -> list[str]:
        """What its library offers through tvm-ffi, where it is for that; sorted."""
        if self.variant.needs_torch:
            return []
        try:
            elf = read_elf_file(self.directory / f"{self.ops_id}.so")
        except (OSError, ElfError):
            return []  # loading says what is wrong with it
        return list(functions_in(symbol.name for symbol in elf.exports))

    def request(self, **more: object) -> dict[str, object]:
        """What the probe is asked."""
        backend = self.variant.backend
        return {
            "path": str(self.directory),
            "id": self.ops_id,
            "name": self.python_name,
            "depends": dict(self.depends),
            "torch": self.variant.needs_torch,
            # The client chooses by the devices that it sees; that it is the host's it must be told.
            "backend": backend.value if backend.is_host else None,
            "device": backend.torch.device,
            "key": backend.torch.dispatch_key,
            "device-modules": _device_modules(backend),
            "functions": _functions(self),
            **more,
        }


def _functions(*kernels: Loadable) -> dict[str, list[str]]:
    """The functions of each kernel that offers some, by its name."""
    return {kernel.ops_id: found for kernel in kernels if (found := kernel.functions)}


def _device_modules(backend: Backend) -> list[str]:
    """Python modules that builds of torch for ``backend`` bring, or that bring it to torch."""
    torch = backend.torch
    triton = () if backend.is_host or torch.triton is False else (_COMPILER,)
    return [*torch.modules, *filter(None, (torch.plugin,)), *triton]


def load_variant(
    kernel: Loadable, environment: Environment | NoEnvironment, *, log: Path | None = None, call: bool = True
) -> LoadResult:
    """Load ``kernel`` if this machine can, or, where it lacks only what runs it, with stand-ins for that.

    What is said about a failure is kept in the file ``log``, all of it. Where the device of the variant is there, and
    with ``call``, its ops are called to see that they do what their schemas say.
    """
    if isinstance(environment, NoEnvironment):
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=environment.reason)
    reason = why_not_at_all(kernel.variant, environment)
    if reason is not None:
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=reason)
    called = call and environment.has_device(kernel.variant.backend)
    return _load("load", (kernel,), environment, log, call=called, skip=[])


def _foreign(reply: Reply) -> tuple[Foreign, ...]:
    """What the kernel in ``reply`` had registered outside its namespace at last."""
    told = reply.registered if reply.registered is not None else (reply.answer or {}).get("foreign", ())
    return tuple(Foreign.from_json(one) for one in told)


def _called(kernel: Loadable, environment: Environment, result: LoadResult, reply: Reply) -> LoadResult:
    """``result`` with what ``reply`` tells of the ops that were called. Where one ended the process, the others are
    called in another, up to three times: what they had registered elsewhere by then, it did not tell.
    """
    found = {one.op: one for one in map(Behaviour.from_json, reply.behaviour)}
    foreign, ended = {*result.foreign}, list[str]()
    while reply.calling is not None and reply.answer is not None:
        ended.append(reply.calling)
        crashed = reply.ended.startswith(KILLED)
        found[reply.calling] = Behaviour(op=reply.calling, problem=reply.ended, crashed=crashed)
        if len(ended) == _MOST_CRASHES:
            break
        reply = environment.ask("load", kernel.request(call=True, skip=ended), kernel.directory)
        for one in map(Behaviour.from_json, reply.behaviour):
            found.setdefault(one.op, one)
        foreign |= {*_foreign(reply)}
    listed = sorted(foreign, key=lambda one: (one.kind, one.namespace, one.name))
    # Devices have threads of their own, which nothing tells of; neither do processes that ended early.
    ran = result.ran if not ended and kernel.variant.backend.is_host else None
    return replace(result, behaviour=tuple(found.values()), foreign=tuple(listed), ran=ran)


def _ran(reply: Reply) -> frozenset[tuple[str, int, str]] | None:
    return None if reply.ran is None else frozenset((str(file), int(line), str(name)) for file, line, name in reply.ran)


def load_together(
    first: Loadable, second: Loadable, environment: Environment, *, log: Path | None = None
) -> LoadResult:
    """Load two versions of one kernel in one process, in order."""
    listed = [{"id": kernel.ops_id, "path": str(kernel.directory)} for kernel in (first, second)]
    functions = _functions(first, second)
    return _load("together", (first, second), environment, log, versions=listed, functions=functions)


def _load(
    task: str, kernels: tuple[Loadable, ...], environment: Environment, log: Path | None, **more: object
) -> LoadResult:
    kernel, folders = kernels[0], [one.directory for one in kernels]
    missing = what_is_missing(kernel.variant, environment)
    is_complete = missing is None and environment.has_device(kernel.variant.backend)
    if is_complete or environment.platform.system is not System.LINUX:
        if missing is not None:
            return LoadResult(status=LoadStatus.NOT_LOADED, reason=missing)
        reply = environment.ask(task, kernel.request(**more), *folders)
        return _called(kernel, environment, _result(reply, log), reply)
    wanted = stand_ins_for(kernel.directory, kernel.variant)
    request = kernel.request(standins=asdict(wanted), alone="", **more)
    reply = environment.ask(task, request, *folders)
    called = _CALLED.findall(reply.log) if reply.died else []
    if called:
        # Its Python called a function of the device. What its libraries register is seen without it.
        request["alone"] = f"its Python code calls {readable(called[0])}, which needs a device, so it was not run"
        reply = environment.ask(task, request, *folders)
        called = _CALLED.findall(reply.log) if reply.died else []
    why = missing or f"this machine has no {kernel.variant.backend.label} device"
    if called:
        reason = f"loading its library calls {readable(called[0])}, which needs a device ({why})"
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=reason)
    if reply.died and "\n" not in reply.problem and wanted.has_objects:
        # It said nothing. Objects that are zero bytes may be why.
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=f"with stand-ins, {reply.problem} ({why})")
    return _result(reply, log, why=why, stood_in=missing is not None)


def _result(reply: Reply, log: Path | None, *, why: str = "", stood_in: bool = False) -> LoadResult:
    """What the probe answered, as evidence. ``why`` says what the machine lacks; with ``stood_in``, at least a build of
    torch was stood in for.
    """
    answer = reply.answer
    if answer is not None and answer["status"] == "loaded":
        note, replaced = str(answer.get("note", "")), tuple(map(str, answer.get("missing", ())))
        return LoadResult(
            status=LoadStatus.STOOD_IN if stood_in or note or replaced else LoadStatus.LOADED,
            reason=note or None,
            ops=tuple(LoadedOp.from_json(op) for op in answer.get("ops", ())),
            functions=tuple(map(str, answer.get("functions", ()))),
            undefined=tuple(Undefined.from_json(one) for one in answer.get("undefined", ())),
            foreign=_foreign(reply),
            stood_in=replaced,
            ran=_ran(reply),
        )
    if answer is not None and answer["status"] == "unavailable":
        because = f" ({why})" if why else ""
        return LoadResult(status=LoadStatus.NOT_LOADED, reason=f"{answer['reason']}{because}")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        write_text(log, reply.log)
    return LoadResult(
        status=LoadStatus.FAILED,
        reason=reply.problem if answer is None else without_native_frames(str(answer["reason"])),
        frames=() if answer is None else tuple(map(str, answer["trace"])),
        foreign=_foreign(reply),
        crashed=reply.died,
        log=log,
    )


def call_ops(kernel: Loadable, environment: Environment, *, skip: Collection[str] = ()) -> tuple[Call, ...]:
    """Call the ops that have fakes, but for those of ``skip``, under ``torch.compile(fullgraph=True)``.

    An op that ends the process is left out of another attempt, up to three times.
    """
    crashed: list[Call] = []
    while True:
        request = kernel.request(skip=[*skip, *(call.op for call in crashed)])
        reply = environment.ask("call", request, kernel.directory)
        if reply.answer is not None:
            found = reply.answer.get("results", ())
            return (*crashed, *(Call(op=op, status=CallStatus(status), words=words) for op, status, words in found))
        if reply.calling is None:
            return tuple(crashed)
        crashed.append(Call(op=reply.calling, status=CallStatus.CRASHED, words=reply.problem.splitlines()[0]))
        if len(crashed) == _MOST_CRASHES:
            return tuple(crashed)
