# Runs in an environment, as a program of its own. Python 3.9 syntax.
"""Measures one build of a kernel with the benchmarks of a project, as it is told, a line of JSON at a time:

``load``      the kernel and the scripts; answers which workloads there are, and what this machine is
``prepare``   sets a workload up, runs it once, and compares what it made with the reference
``measure``   times it, some calls for each of some samples
``readings``  what the device says of itself: clocks, temperature

Each answer is a line of JSON on the descriptor that was standard output when it started. What scripts print goes to
standard error. The classes are those of ``kernels.benchmark``: ``setup_<workload>`` or ``setup``,
``benchmark_<workload>``, ``verify_<workload>``. Besides what the client knows, a class or its setup may set ``size``
and ``bytes_moved``, for figures over size, and ``atol`` and ``rtol``, for the comparison.
"""

from __future__ import annotations

import csv
import gc
import importlib.util
import inspect
import io
import json
import math
import os
import platform
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ATOL, RTOL = 1e-2, 1e-5
"""As ``kernels benchmark`` has them."""
_WARM_SECONDS, _WARM_CALLS = 0.05, 3
_MOST = 50
"""Samples that are taken in one go at most."""
_FLUSH_BYTES = 256 << 20
_METHOD, _SETUP, _VERIFY = "benchmark_", "setup_", "verify_"


class Told(Exception):  # noqa: N818 (it is no error of this program)
    """What people are to read."""


class Workload:
    """One of a class: the names of its methods."""

    def __init__(self, cls: Any, name: str) -> None:
        self.cls, self.name = cls, name

    @property
    def title(self) -> str:
        return f"{self.cls.__name__}.{self.name}"

    @property
    def is_verified(self) -> bool:
        return callable(getattr(self.cls, _VERIFY + self.name, None))


class HostClock:
    """The processor: what is called has ended when it returns."""

    flushes = False

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def wait(self) -> None:
        """Nothing runs on."""

    def facts(self) -> dict[str, Any]:
        threads = self.torch.get_num_threads() if self.torch is not None else None
        return {"name": _processor(), "threads": threads, "processors": _usable()}

    def samples(self, call: Callable[[], object], calls: int, seconds: float, most: int) -> list[float]:
        found: list[float] = []
        clock = time.perf_counter_ns
        end = clock() + seconds * 1e9
        while len(found) < most:
            before = clock()
            for _ in range(calls):
                call()
            after = clock()
            found.append((after - before) / calls / 1e9)
            if after >= end:
                break
        return found


class DeviceClock:
    """What runs what it is given later: it is asked when it began and when it ended, between two events.

    Before each call its cache is filled with something else, so that the call finds it as the first one does; meanwhile
    the next call is handed over, so that what is measured is the device and not the way to it.
    """

    def __init__(self, torch: Any, kind: str) -> None:
        self.torch, self.kind, self.module = torch, kind, getattr(torch, kind)
        properties = getattr(self.module, "get_device_properties", None)
        self.properties = properties(self.module.current_device()) if properties else None
        self.cache = int(getattr(self.properties, "L2_cache_size", 0) or 0)
        size = max(2 * self.cache, _FLUSH_BYTES) if self.cache else 0
        self.filler = torch.empty(size // 4, dtype=torch.int32, device=kind) if size else None

    @property
    def flushes(self) -> bool:
        return self.filler is not None

    def wait(self) -> None:
        self.module.synchronize()

    def facts(self) -> dict[str, Any]:
        units = getattr(self.properties, "multi_processor_count", None)
        return {"name": str(getattr(self.properties, "name", self.kind)), "units": units, "cache": self.cache or None}

    def samples(self, call: Callable[[], object], calls: int, seconds: float, most: int) -> list[float]:
        end = time.perf_counter() + seconds
        pairs: list[tuple[Any, Any]] = []
        while len(pairs) < most:
            begin, done = (self.module.Event(enable_timing=True) for _ in range(2))
            if self.filler is not None:
                self.filler.zero_()
            begin.record()
            for _ in range(calls):
                call()
            done.record()
            pairs.append((begin, done))
            if time.perf_counter() >= end:
                break
        self.wait()
        return [begin.elapsed_time(done) / calls / 1e3 for begin, done in pairs]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, platform.machine())


def _usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Session:
    """A kernel that was loaded, its workloads, and the one that is measured now."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.torch = _torch()
        self.device, self.reference = str(request["device"]), bool(request["reference"])
        self.command = request["readings"]
        self.kernel = _load(request)
        self.runner: Any = HostClock(self.torch) if request["host"] else DeviceClock(self.torch, self.device)
        self.workloads = [workload for script in request["scripts"] for workload in _workloads(Path(script))]
        self.call: Callable[[], object] = lambda: None

    def loaded(self) -> dict[str, Any]:
        version = str(self.torch.__version__) if self.torch is not None else None
        return {
            "workloads": [{"title": one.title, "verified": one.is_verified} for one in self.workloads],
            "facts": {**self.runner.facts(), "torch": version, "flushes": self.runner.flushes},
        }

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        workload = self.workloads[request["workload"]]
        self.call = lambda: None  # what the last one holds is freed
        gc.collect()
        instance = workload.cls()
        instance.kernel, instance.device = self.kernel, self.device
        if instance.seed is not None:
            random.seed(instance.seed)
            if self.torch is not None:
                self.torch.manual_seed(instance.seed)
            else:
                _numpy().random.seed(instance.seed)
        getattr(instance, _SETUP + workload.name, instance.setup)()
        method = getattr(instance, _METHOD + workload.name)
        verify = getattr(instance, _VERIFY + workload.name, None)
        method()
        self.runner.wait()
        checked = self._checked(instance, verify) if verify is not None else None
        self.call = verify if self.reference and verify is not None else method
        return {
            "checked": checked,
            "size": self._size(instance),
            "bytes": _number(getattr(instance, "bytes_moved", None), "bytes_moved"),
            "estimate": self._warm(),
        }

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        collects = gc.isenabled()
        gc.disable()
        try:
            self.call()  # others ran meanwhile: what they left in caches is not part of it
            self.runner.wait()
            return {"times": self.runner.samples(self.call, request["calls"], request["seconds"], _MOST)}
        finally:
            if collects:
                gc.enable()

    def readings(self) -> dict[str, Any]:
        return {"readings": _readings(self.command, getattr(getattr(self.runner, "properties", None), "uuid", None))}

    def _warm(self) -> float:
        """Seconds that a call takes, about, once it is warm."""
        calls, begin = 0, time.perf_counter()
        while calls < _WARM_CALLS or time.perf_counter() - begin < _WARM_SECONDS:
            self.call()
            calls += 1
        self.runner.wait()
        return (time.perf_counter() - begin) / calls

    def _checked(self, instance: Any, verify: Callable[[], Any]) -> dict[str, Any]:
        """Whether what was made is the reference. A method that returns nothing compares by itself, and raises."""
        expected, made = verify(), instance.out
        self.runner.wait()
        if expected is None:
            return {"right": True, "difference": None}
        if not self._is_array(made):
            raise Told("there is a verify method, but the benchmark puts no tensor into self.out")
        if made.shape != expected.shape:
            raise Told(f"the result has shape {tuple(made.shape)}, the reference {tuple(expected.shape)}")
        atol, rtol = getattr(instance, "atol", ATOL), getattr(instance, "rtol", RTOL)
        if not self._is_tensor(made):
            numpy = _numpy()
            close = bool(numpy.allclose(made, expected, rtol=rtol, atol=atol, equal_nan=True))
            apart = numpy.abs(numpy.subtract(made, expected, dtype="float64"))
            return {"right": close, "difference": _finite(apart.max(initial=0.0)), "atol": atol, "rtol": rtol}
        kind = self.torch.promote_types(made.dtype, expected.dtype)
        left, right = made.to(kind), expected.to(kind)
        close = bool(self.torch.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True))
        return {"right": close, "difference": _difference(left, right), "atol": atol, "rtol": rtol}

    def _size(self, instance: Any) -> int | None:
        """What it works on: what it says, else how many elements its result has, else its largest tensor."""
        said = _number(getattr(instance, "size", None), "size")
        if said is not None or self._is_array(instance.out):
            return said if said is not None else self._elements(instance.out)
        return max((self._elements(value) for value in vars(instance).values() if self._is_array(value)), default=None)

    def _is_tensor(self, value: Any) -> bool:
        return self.torch is not None and isinstance(value, self.torch.Tensor)

    def _is_array(self, value: Any) -> bool:
        return self._is_tensor(value) or ("numpy" in sys.modules and isinstance(value, _numpy().ndarray))

    def _elements(self, array: Any) -> int:
        return int(array.numel() if self._is_tensor(array) else array.size)


def _torch() -> Any:
    """torch; ``None`` where it is not installed: kernels for tvm-ffi do without."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch  # noqa: PLC0415

    return torch


def _numpy() -> Any:
    import numpy  # noqa: PLC0415

    return numpy


def _finite(value: Any) -> float | None:
    """``None`` for what JSON has no number for."""
    return float(value) if math.isfinite(value) else None


def _number(value: Any, name: str) -> int | None:
    if value is None or callable(value):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise Told(f"self.{name} is {value!r}; it must be a positive number")
    return int(value)


def _difference(left: Any, right: Any) -> float | None:
    """The largest difference; ``None`` for what JSON has no number for."""
    if not left.numel():
        return 0.0
    return _finite((left.double() - right.double()).abs().max()) if left.device.type != "mps" else None


def _load(request: dict[str, Any]) -> Any:
    from kernels import get_local_kernel  # noqa: PLC0415

    path = Path(request["kernel"])
    return get_local_kernel(path, backend=request["backend"]) if request["backend"] else get_local_kernel(path)


def _workloads(script: Path) -> list[Workload]:
    """Those of the classes that are written in ``script``, in the order in which they stand there."""
    from kernels.benchmark import Benchmark  # noqa: PLC0415

    name = f"kernel_benchmark_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    if spec is None or spec.loader is None:
        raise Told(f"{script} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Benchmark) and value.__module__ == name
    ]
    return [Workload(cls, method[len(_METHOD) :]) for cls in dict.fromkeys(classes) for method in _methods(cls)]


def _methods(cls: Any) -> list[str]:
    written = [name for base in reversed(cls.__mro__) for name in vars(base)]
    return [name for name in dict.fromkeys(written) if name.startswith(_METHOD) and callable(getattr(cls, name))]


def _readings(command: list[str] | None, uuid: Any) -> dict[str, str]:
    """What ``command`` prints of this device: a line of names, then a line for each device, as CSV."""
    if not command:
        return {}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(done.stdout)) if row]
    devices = [dict(zip(rows[0], row)) for row in rows[1:]] if rows else []  # noqa: B905 (Python 3.9)
    own = [one for one in devices if uuid is not None and any(str(uuid) in value for value in one.values())]
    return (own or devices or [{}])[0]


def _problem(error: BaseException) -> str:
    """What went wrong, and where in the benchmark."""
    if isinstance(error, Told):
        return str(error)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    scripts = [frame for frame in own if "benchmark" in Path(frame.filename).name]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    where = scripts or own
    return f"{text} ({Path(where[-1].filename).name}, line {where[-1].lineno})" if where else text


def serve(answers: int) -> None:
    """Do what each line of standard input says, until it ends."""
    session: Any = None
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        try:
            if request["do"] == "load":
                session = Session(request)
                answer = session.loaded()
            elif request["do"] == "readings":
                answer = session.readings()
            else:
                answer = getattr(session, request["do"])(request)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            traceback.print_exc()
            answer = {"problem": _problem(error)}
        os.write(answers, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)  # what scripts and libraries print is no answer
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (as `python -m` has it)
    serve(answers)
