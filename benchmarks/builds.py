"""Compare build times of kernel-builder, torch's cpp_extension, scikit-build-core with CMake, and nvcc in one run.

    python benchmarks/builds.py KERNEL... [--scenario NAME]... [--tool NAME]... [--cores N] [--output DIR]

Each KERNEL is a directory with a ``build.toml``; the benchmark works on a copy. The other tools compile the same
sources with the same flags, which come from ``build --dry-run --json``. Each kernel is built once before anything is
measured, which fetches toolchains. Then the tools take turns, so that all run under the same conditions. The benchmark
has its own store in ``--output`` and does not use yours. It also writes ``builds.json``, ``builds.md`` and
``builds.svg`` there. Compare only ratios: times depend on the machine. See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OURS = "kernel-builder"
KB = [sys.executable, "-m", "kernel_builder"]
# The plan with the driver's own command for each of its sources, which steps of it take the place of otherwise.
WITH_DRIVER = """
import sys
from kernel_builder.backends.cuda import compile
from kernel_builder.backends.cuda.driver import UnknownStepError
def split_actions(*_arguments, **_named):
    raise UnknownStepError("benchmark")
compile.split_actions = split_actions
from kernel_builder.cli import run
sys.exit(run(sys.argv[1:]))
"""
CPP_EXTENSION = """
import json, sys
from torch.utils.cpp_extension import load
load(**json.load(open(sys.argv[1])))
"""
# registration.h calls it; the generated module, which is C, has it otherwise.
BINDING = """extern "C" __attribute__((visibility("hidden"))) const char *kernel_builder_bind(const char *name) {
  return name;
}
"""
SCENARIOS = ("cold", "no change", "python", "source", "header", "clean", "variants", "architectures")
"""All that is measured unless ``--scenario`` names what is."""
MORE_SCENARIOS = ("empty store", "warm toolchain", "next variant", "help")
"""What only ``--scenario`` asks for: it fetches again, is much like another, takes two variants, or builds nothing."""
FLAGS = ("-D", "-O", "-m", "-f", "-std=", "-W")
NOT_OURS = ("-fdebug-prefix-map", "-ffile-prefix-map", "-fmacro-prefix-map", "-flarge", "-fpch", "-fclang", "-flto")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured build. ``memory`` is the largest sum over all its processes, in bytes."""

    kernel: str
    tool: str
    scenario: str
    seconds: float
    cpu: float
    memory: int
    size: int = 0
    floor: float = 0.0


def processes_below(root: int) -> int:
    """The resident memory of ``root`` and all its descendants, in bytes."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in (path.name for path in Path("/proc").iterdir() if path.name.isdigit()):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (
                Path(f"/proc/{entry}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            parents[int(entry)], sizes[int(entry)] = int(fields[1]), int(fields[21]) * page
    found, added = {root}, True
    while added:
        more = {child for child, parent in parents.items() if parent in found} - found
        found, added = found | more, bool(more)
    return sum(sizes.get(one, 0) for one in found)


def measured(command: Sequence[str], where: Path, environ: dict[str, str]) -> tuple[float, float, int]:
    """Seconds, CPU seconds, and peak memory of ``command``. Raises ``RuntimeError`` with what it said."""
    peak, done = [0], threading.Event()
    before, start = os.times(), time.perf_counter()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=where, env=environ, stdout=said, stderr=subprocess.STDOUT)

        def watch() -> None:
            while not done.wait(0.1):
                peak[0] = max(peak[0], processes_below(child.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        code = child.wait()
        seconds, after = time.perf_counter() - start, os.times()
        done.set()
        watcher.join()
        if code:
            said.seek(0)
            raise RuntimeError(f"{shlex.join(command)} failed:\n{said.read().decode(errors='replace')[-3000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, cpu, peak[0]


def removed(*paths: Path) -> None:
    """See that none of ``paths`` exists."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


class Ours:
    """kernel-builder, in a copy of the kernel."""

    name = OURS

    def __init__(self, root: Path, environ: dict[str, str], options: Sequence[str]) -> None:
        self.root, self.environ, self.options = root, environ, tuple(options)
        self._store = Path(environ["KERNEL_BUILDER_CACHE"])

    def command(self) -> list[str]:
        return [*KB, "build", str(self.root), *self.options, "--quiet"]

    def clean(self) -> None:
        """As after ``git clean -xdf``: the store stays."""
        removed(self.root / ".kernel-builder", self.root / "build")

    def forget_results(self) -> None:
        """What is left are toolchains and the precompiled headers that belong to them."""
        self.clean()
        removed(self._store / "actions", self._store / "proofs")

    def forget(self) -> None:
        """What is left are toolchains: nothing that was ever compiled."""
        self.forget_results()
        for entry in (self._store / "store").glob("headers-*"):
            removed(entry)

    def size(self) -> int:
        return sum(path.stat().st_size for path in (self.root / "build").rglob("*.so"))

    def purge(self) -> None:
        """Not even toolchains are left."""
        self.clean()
        removed(self._store)

    def floor(self) -> float:
        """What no order of the same actions takes less than, as ``kernel-builder timing`` says."""
        asked = [*KB, "timing", str(self.root), "--json", "--no-headers"]
        answer = subprocess.run(asked, env=self.environ, capture_output=True, text=True, check=True)
        return float(json.loads(answer.stdout)["seconds"]["floor"])


class Help(Ours):
    """``kernel-builder --help``."""

    def command(self) -> list[str]:
        return [*KB, "--help"]


class Peer:
    """Another tool that builds in ``work`` out of the sources in ``root``."""

    name = ""

    def __init__(self, root: Path, environ: dict[str, str], plan: dict[str, Any]) -> None:
        self.root, self.environ, self.work = root, environ, root.parent / f"{root.name}-work"
        self.units = list(units_of(plan, root))
        self.binding = self.work / "kernel_builder_stand_in.cpp"
        for file in plan["generated"]:
            path = Path(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"], encoding="utf-8")

    def clean(self) -> None:
        removed(self.work)
        self.work.mkdir(parents=True)
        self.binding.write_text(BINDING, encoding="ascii")
        self.prepare()

    forget = clean
    forget_results = clean
    purge = clean

    def prepare(self) -> None:
        """Write what the tool reads."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def size(self) -> int:
        return max((path.stat().st_size for path in self.work.rglob("*.so")), default=0)

    def floor(self) -> float:
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A source, as the plan compiles it: the flags that every tool takes, folders of headers, the whole command."""

    source: Path
    flags: tuple[str, ...]
    include: tuple[str, ...]
    command: tuple[str, ...]
    target: Path


def units_of(plan: dict[str, Any], root: Path) -> Iterator[Unit]:
    """The sources of a variant of the plan. What belongs to its toolchain is left to each tool."""
    for step in plan["steps"]:
        if step["kind"] != "compile" or not (root / step["source"]).is_file():
            continue
        words = list(step["commands"][0]["command"])
        flags = [word.removeprefix("-Xcompiler=") for word in words]
        kept = [word for word in flags if word.startswith(FLAGS) and not word.startswith(NOT_OURS)]
        folders = [value for word, value in zip(words, [*words[1:], ""], strict=True) if word in ("-I", "-isystem")]
        folders += [word[2:] for word in words if word.startswith("-I") and len(word) > 2]
        yield Unit(
            source=root / step["source"],
            flags=tuple(dict.fromkeys(kept)),
            include=tuple(folder for folder in dict.fromkeys(folders) if folder.startswith(str(root))),
            command=tuple(words),
            target=Path(step["outputs"][0]),
        )


def split_by_language(units: Sequence[Unit]) -> tuple[list[str], list[str], list[str]]:
    """The union of host flags, of nvcc's, and of folders: tools that take one set for all get this one."""
    host = dict.fromkeys(flag for unit in units if unit.source.suffix != ".cu" for flag in unit.flags)
    device = dict.fromkeys(
        word
        for unit in units
        if unit.source.suffix == ".cu"
        for word in unit.command
        if word.startswith(("-gencode", "-D", "-O", "-std=", "--expt"))
    )
    return list(host), list(device), list(dict.fromkeys(folder for unit in units for folder in unit.include))


class CppExtension(Peer):
    """``torch.utils.cpp_extension.load``, with ninja. One set of flags for all sources: their union."""

    name = "cpp_extension"

    def prepare(self) -> None:
        host, device, include = split_by_language(self.units)
        request = {
            "name": "benchmark",
            "sources": [*(str(unit.source) for unit in self.units), str(self.binding)],
            "extra_cflags": host,
            "extra_cuda_cflags": device,
            "extra_include_paths": include,
            "build_directory": str(self.work / "objects"),
            "is_python_module": False,
            "is_standalone": False,
        }
        (self.work / "objects").mkdir()
        (self.work / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def command(self) -> list[str]:
        return [sys.executable, "-c", CPP_EXTENSION, str(self.work / "request.json")]


class ScikitBuild(Peer):
    """scikit-build-core and CMake with ninja: ``pip install`` of a project whose build directory is kept."""

    name = "scikit-build-core"

    def prepare(self) -> None:
        has_device = any(unit.source.suffix == ".cu" for unit in self.units)
        sources = [*(unit.source for unit in self.units), self.binding]
        lines = [
            "cmake_minimum_required(VERSION 3.24)",
            f"project(benchmark LANGUAGES C CXX{' CUDA' if has_device else ''})",
            "set(CMAKE_POSITION_INDEPENDENT_CODE ON)",
            "find_package(Torch REQUIRED)",
            f"add_library(benchmark MODULE {' '.join(map(quoted, sources))})",
            "set_target_properties(benchmark PROPERTIES CUDA_ARCHITECTURES OFF)",
            "target_link_libraries(benchmark PRIVATE ${TORCH_LIBRARIES})",
            "install(TARGETS benchmark DESTINATION benchmark)",
        ]
        for unit in self.units:
            _, device, _ = split_by_language([unit])
            options = ";".join(device if unit.source.suffix == ".cu" else unit.flags)
            folders = ";".join(unit.include)
            lines.append(
                f"set_source_files_properties({quoted(unit.source)} PROPERTIES COMPILE_OPTIONS {quoted(options)}"
                f" INCLUDE_DIRECTORIES {quoted(folders)})"
            )
        (self.work / "CMakeLists.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.work / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n'
            '[project]\nname = "benchmark"\nversion = "1"\n'
            '[tool.scikit-build]\nbuild-dir = "objects"\nwheel.packages = []\n',
            encoding="utf-8",
        )

    def command(self) -> list[str]:
        prefix = subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.utils.cmake_prefix_path)"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        options = ["--no-build-isolation", "--no-deps", "--no-index", "--upgrade", "--target", str(self.work / "out")]
        return [
            sys.executable, "-m", "pip", "install", "-q", *options, str(self.work),
            "-C", f"cmake.define.CMAKE_PREFIX_PATH={prefix}",
        ]  # fmt: skip


def driver_commands(units: Sequence[Unit]) -> Iterator[tuple[Unit, list[str]]]:
    """The ``.cu`` files, each with the one command of nvcc that compiles it. Raises ``RuntimeError`` where the plan has
    another one: then the plan was not made by :func:`planned`.
    """
    for unit in units:
        if unit.source.suffix == ".cu":
            words = list(unit.command)
            if Path(words[0]).name != "nvcc" or "-c" not in words or str(unit.source) not in words:
                raise RuntimeError(f"{unit.source} is not compiled by nvcc itself: {shlex.join(words)}")
            yield unit, words


class Driver(Peer):
    """nvcc alone, for the ``.cu`` files alone: the plan's own command lines, as many at once as ninja starts."""

    name = "nvcc"

    def prepare(self) -> None:
        lines = ["rule compile", "  command = $line", "  depfile = $out.d", ""]
        for unit, words in driver_commands(self.units):
            target = self.work / f"{len(lines)}.o"
            for option, value in (("-o", str(target)), ("-MF", f"{target}.d"), ("-MQ", str(target))):
                if option in words:
                    words[words.index(option) + 1] = value
            line = shlex.join(words).replace("$", "$$")
            lines += [f"build {target}: compile {unit.source}", f"  line = {line}"]
        (self.work / "build.ninja").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def command(self) -> list[str]:
        return ["ninja", "-C", str(self.work)]

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.work.glob("*.o"))


def quoted(text: Path | str) -> str:
    """A word of CMake's."""
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


PEERS: tuple[type[Peer], ...] = (CppExtension, ScikitBuild, Driver)
TOOLS = (OURS, *(peer.name for peer in PEERS))


def why_not(peer: type[Peer], plan: dict[str, Any]) -> str | None:
    """Why a tool cannot take part."""
    has_device = any(step["source"].endswith(".cu") for step in plan["steps"])
    if peer is Driver and not has_device:
        return "no .cu files"
    modules = {CppExtension: ("torch",), ScikitBuild: ("torch", "scikit_build_core"), Driver: ()}[peer]
    for name in modules:
        if subprocess.run([sys.executable, "-c", f"import {name}"], check=False, capture_output=True).returncode:
            return f"{name} is not installed for {sys.executable}"
    wanted = {CppExtension: ("ninja", "g++"), ScikitBuild: ("cmake", "ninja"), Driver: ("ninja",)}[peer]
    missing = [program for program in wanted if shutil.which(program) is None]
    return f"{', '.join(missing)} not on PATH" if missing else None


def partakers(bench: Bench, plan: dict[str, Any], wanted: Sequence[str]) -> list[type[Ours | Peer]]:
    """The tools that take part, of those that are wanted (all, where none is named); why others do not is noted."""
    kinds: list[type[Ours | Peer]] = [Ours] if not wanted or OURS in wanted else []
    for kind in PEERS:
        if wanted and kind.name not in wanted:
            continue
        reason = why_not(kind, plan)
        if reason is None:
            kinds.append(kind)
        else:
            bench.failed[kind.name] = reason
    return kinds


def planned(root: Path, environ: dict[str, str], *options: str) -> dict[str, Any]:
    """The plan with the driver's own commands, and all of torch's headers."""
    command = [sys.executable, "-c", WITH_DRIVER, "build", str(root), "--dry-run", "--json", "--full-headers", *options]
    answer = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(answer.stderr)
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def edited(root: Path, kind: str, sources: Sequence[str]) -> Path:
    """The header, source or Python file of the kernel that is changed. ``sources`` are what its plan compiles: of these
    it is the first with device code, if any has such code. Raises ``LookupError`` where there is none.
    """
    if kind == "source":
        found = [root / name for name in sorted(sources, key=lambda name: (not name.endswith(".cu"), name))]
    else:
        suffixes = {"header": (".h", ".hpp", ".cuh"), "python": (".py",)}[kind]
        skipped = {"tests", "build", ".kernel-builder", "benchmarks", ".git"}
        found = [path for path in sorted(root.rglob("*")) if path.suffix in suffixes and path.is_file()]
        found = [path for path in found if not set(path.relative_to(root).parts) & skipped]
        found.sort(key=lambda path: ("_cpu" not in str(path) and "_cuda" not in str(path), str(path)))
    if not found:
        raise LookupError(f"it has no {kind}")
    return found[0]


def edit(path: Path, number: int) -> None:
    """Change a header, a source or a Python file, so that what is made of it changes."""
    # A constructor: linkers drop functions that nobody calls, and then nothing has changed.
    code = f"__attribute__((constructor)) static void bench_{number}() {{ static volatile int kept; kept = {number}; }}"
    if path.suffix == ".cu":
        code += f"\n__global__ void bench_device_{number}(int *at) {{ at[threadIdx.x] += {number}; }}"
    line = f"BENCHMARK_{number} = {number}" if path.suffix == ".py" else code
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".h", ".hpp", ".cuh") and text.rstrip().endswith("#endif"):
        head, _, _ = text.rpartition("#endif")
        text = f"{head}{line}\n#endif\n"
    else:
        text = f"{text}\n{line}\n"
    path.write_text(text, encoding="utf-8")


class Bench:
    """Runs scenarios of one kernel with all tools in turn, and notes what each run took."""

    def __init__(self, kernel: str, repeat: int, keep: Callable[[], None]) -> None:
        self.kernel, self.repeat, self._keep = kernel, repeat, keep
        self.tools: Sequence[Ours | Peer] = ()
        self.sources: Sequence[str] = ()
        self.runs: list[Run] = []
        self.failed: dict[str, str] = {}
        self._number = 0

    def scenario(
        self, name: str, before: Callable[[Ours | Peer], None], kind: str | None = None, *, times: int | None = None
    ) -> None:
        """``before`` runs for each tool, unmeasured; ``kind`` is what is edited, once for all tools."""
        for _ in range(times or self.repeat):
            if kind is not None:
                self._number += 1
                for root in {tool.root for tool in self.tools}:
                    try:
                        edit(edited(root, kind, self.sources), self._number)
                    except LookupError as error:
                        self.failed[f"all, {name}"] = str(error)
                        return
            for tool in self.tools:
                if tool.name not in self.failed:
                    before(tool)
                    self._measure(tool, name)
        self._keep()

    def build_all(self) -> None:
        """Build with all tools, unmeasured."""
        for tool in self.tools:
            tool.clean()
            measured(tool.command(), tool.root, tool.environ)

    def _measure(self, tool: Ours | Peer, name: str) -> None:
        try:
            seconds, cpu, memory = measured(tool.command(), tool.root, tool.environ)
        except RuntimeError as error:
            self.failed[tool.name] = str(error)
            print(f"{self.kernel}: {tool.name} takes no part: {error}", file=sys.stderr, flush=True)
            return
        run = Run(
            kernel=self.kernel, tool=tool.name, scenario=name, seconds=seconds, cpu=cpu, memory=memory,
            size=tool.size(), floor=tool.floor() if name.startswith(("cold", "warm toolchain", "first")) else 0.0,
        )  # fmt: skip
        self.runs.append(run)
        print(f"{self.kernel} {name}, {tool.name}: {seconds:.2f} s, {cpu:.1f} CPU s", flush=True)


def main_scenarios(bench: Bench, wanted: Sequence[str]) -> None:
    """From nothing, from what was built before, and after edits."""
    if "empty store" in wanted:
        bench.scenario("cold, empty store", lambda tool: tool.purge())
    if "cold" in wanted:
        bench.scenario("cold", lambda tool: tool.forget())
    if "warm toolchain" in wanted:
        bench.scenario("warm toolchain", lambda tool: tool.forget_results())
    needs_a_build = {"no change", "python", "source", "header", "clean"} & set(wanted)
    if needs_a_build and not {"cold", "warm toolchain"} & set(wanted):
        bench.build_all()
    if "no change" in wanted:
        bench.scenario("no change", lambda _tool: None)
    for kind, name in (("python", "one Python file"), ("source", "one source"), ("header", "one header")):
        if kind in wanted:
            bench.scenario(name, lambda _tool: None, kind)
    if "clean" in wanted:
        bench.scenario("warm (git clean)", lambda tool: tool.clean())


def next_variant(bench: Bench, first: Ours, both: Ours) -> None:
    """A variant, and another one beside it while what the first one made is in the action cache."""
    for _ in range(bench.repeat):
        bench.tools = (first,)
        bench.scenario("first variant", lambda tool: tool.forget(), times=1)
        bench.tools = (both,)
        bench.scenario("second variant", lambda _tool: None, times=1)


def copied(kernel: Path, work: Path, name: str) -> Path:
    """A copy with a repository of its own: names of kernels come from commits."""
    root = work / name
    shutil.copytree(kernel, root, ignore=shutil.ignore_patterns(".git", "build", ".kernel-builder"))
    (root / ".gitignore").write_text("build\n.kernel-builder\n", encoding="ascii")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "benchmark"]):
        own = ["git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost", *command]
        subprocess.run(own, cwd=root, check=True, capture_output=True)
    return root


def run_all(bench: Bench, kernel: Path, work: Path, options: argparse.Namespace, environ: dict[str, str]) -> None:
    """All figures of one kernel."""
    root = copied(kernel, work, kernel.name)
    wanted = scenarios_of(options)
    chosen = [word for name in options.variant for word in ("--variant", name)] or ["--local"]
    document = planned(root, environ, *chosen)
    names = [variant["name"] for variant in document["variants"]]
    plan = document["variants"][0]
    bench.sources = [str(unit.source.relative_to(root)) for unit in units_of(plan, root)]
    archs = list(dict.fromkeys(arch for section in plan["sections"] for arch in section["capabilities"]))
    narrowed = [word for arch in options.arch for word in ("--arch", arch)]
    first = ["--variant", names[0], *narrowed]
    if not options.fetched:
        subprocess.run(Ours(root, environ, first).command(), check=True, env=environ)  # whatever has to be fetched
    kinds = partakers(bench, plan, options.tool)

    def all_tools(*options: str) -> tuple[Ours | Peer, ...]:
        tools: list[Ours | Peer] = []
        for kind in kinds:
            place = work / f"{kernel.name}-{kind.name}"
            removed(place)
            own = copied(kernel, work, place.name)
            if kind is Ours:
                tools.append(Ours(own, environ, options))
            else:
                tools.append(kind(own, environ, planned(own, environ, *options)["variants"][0]))
        return tuple(tools)

    bench.tools = all_tools(*first)
    main_scenarios(bench, wanted)
    if "help" in wanted:
        bench.tools = (Help(root, environ, ()),)
        bench.scenario("help", lambda _tool: None)
    if "next variant" in wanted and len(names) > 1:
        both = [word for name in names[:2] for word in ("--variant", name)]
        next_variant(bench, Ours(root, environ, first), Ours(root, environ, [*both, *narrowed]))
    for count in (2, 4, 8) if "variants" in wanted else ():
        if count <= len(names):
            more = Ours(root, environ, [word for name in names[:count] for word in ("--variant", name)])
            bench.tools = (more,)
            bench.scenario(f"cold, {count} variants", lambda tool: tool.forget())
            bench.scenario(f"no change, {count} variants", lambda _tool: None)
    for count in (1, 2, 5, 10) if "architectures" in wanted else ():
        if count <= len(archs):
            bench.tools = all_tools("--variant", names[0], *[word for one in archs[:count] for word in ("--arch", one)])
            bench.scenario(f"cold, {count} architectures", lambda tool: tool.forget())


def summary(runs: Sequence[Run]) -> list[dict[str, object]]:
    """A row for each kernel, scenario and tool: median and spread, and ours over it."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.kernel, run.scenario, run.tool), []).append(run)
    rows: list[dict[str, object]] = []
    for (kernel, scenario, tool), several in groups.items():
        seconds = [run.seconds for run in several]
        ours = [run.seconds for run in groups.get((kernel, scenario, OURS), ())]
        row: dict[str, object] = {
            "kernel": kernel, "scenario": scenario, "tool": tool, "runs": len(several),
            "median": statistics.median(seconds), "least": min(seconds), "most": max(seconds),
            "cpu": statistics.median(run.cpu for run in several), "memory": max(run.memory for run in several),
            "size": several[-1].size, "floor": statistics.median(run.floor for run in several) or None,
        }  # fmt: skip
        if ours and tool != OURS:
            row["ours over it"] = statistics.median(ours) / statistics.median(seconds)
        rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| kernel | scenario | tool | s (min-max) | CPU s | peak memory | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = f"{row['ours over it']:.2f}" if "ours over it" in row else ""
        floor = f", floor {row['floor']:.1f}" if row["floor"] else ""
        lines.append(
            f"| {row['kernel']} | {row['scenario']} | {row['tool']} | {row['median']:.1f} ({row['least']:.1f}-"
            f"{row['most']:.1f}{floor}) | {row['cpu']:.1f} | {row['memory'] / 2**30:.1f} GiB | {ratio} |"
        )
    return "\n".join(lines) + "\n"


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """Bars, as SVG: one for each row, as long as its median."""
    colors = {OURS: "#2563eb", "cpp_extension": "#f59e0b", "scikit-build-core": "#10b981", "nvcc": "#6b7280"}
    longest = max((float(row["median"]) for row in rows), default=1.0)
    lines = []
    for number, row in enumerate(rows):
        top, width = 20 + 20 * number, 500 * float(row["median"]) / longest
        label = f"{row['kernel']}, {row['scenario']}, {row['tool']}"
        lines.append(f'<text x="395" y="{top + 12}" text-anchor="end">{label}</text>')
        lines.append(f'<rect x="400" y="{top}" width="{width:.1f}" height="15" fill="{colors[str(row["tool"])]}"/>')
        lines.append(f'<text x="{405 + width:.1f}" y="{top + 12}">{float(row["median"]):.1f} s</text>')
    size = f'width="980" height="{40 + 20 * len(rows)}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(lines) + "\n</svg>\n"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", type=kernel_directory, metavar="KERNEL")
    parser.add_argument(
        "--variant", action="append", default=[], help="build this variant; can be repeated to measure several at once"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--arch", action="append", default=[], help="build only for this architecture; can be repeated")
    parser.add_argument(
        "--tool", action="append", default=[], choices=TOOLS, help="measure this tool; can be repeated (default: all)"
    )
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        choices=[*SCENARIOS, *MORE_SCENARIOS],
        help=f"measure this scenario; can be repeated (default: {', '.join(SCENARIOS)})",
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out the edited header and several variants and architectures"
    )
    parser.add_argument("--cores", type=int, help="CPUs for every tool, each on its own core (default: all)")
    parser.add_argument(
        "--fetched", action="store_true", help="toolchains are in the store: skip the build that fetches them"
    )
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"))
    return parser.parse_args()


def kernel_directory(word: str) -> Path:
    """The directory of a kernel. Raises :class:`argparse.ArgumentTypeError` for anything else."""
    if not (Path(word) / "build.toml").is_file():
        raise argparse.ArgumentTypeError(f"{word} is not the directory of a kernel: it has no build.toml")
    return Path(word).resolve()


def scenarios_of(options: argparse.Namespace) -> Sequence[str]:
    """What is measured."""
    if options.scenario:
        return tuple(options.scenario)
    return (
        SCENARIOS
        if not options.quick
        else tuple(name for name in SCENARIOS if name not in ("header", "variants", "architectures"))
    )


def cores(count: int, topology: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """``count`` processors of those that this process may use, of which no two are threads of one core. Raises
    ``SystemExit`` where there are fewer.
    """
    seen: dict[str, int] = {}
    for number in sorted(os.sched_getaffinity(0)):
        siblings = topology / f"cpu{number}" / "topology" / "thread_siblings_list"
        seen.setdefault(siblings.read_text(encoding="ascii") if siblings.is_file() else str(number), number)
    if not 0 < count <= len(seen):
        sys.exit(f"--cores {count}: this process has {len(seen)} cores")
    return list(seen.values())[:count]


def main() -> int:
    """Measure, and write what came of it."""
    options = arguments()
    if options.cores is not None:
        # Inherited: ninja, nvcc and kernel-builder all count the processors that they may use.
        os.sched_setaffinity(0, cores(options.cores))
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    # Never the user's: cold builds begin by emptying what was ever compiled there.
    environ["KERNEL_BUILDER_CACHE"] = str(options.output.absolute() / "store")
    benches: list[Bench] = []
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as work:
        for kernel in options.kernels:
            benches.append(Bench(kernel.name, options.repeat, lambda: write(options.output, benches)))
            run_all(benches[-1], kernel, Path(work), options, environ)
    return 0


def write(output: Path, benches: Sequence[Bench]) -> None:
    """``builds.json``, ``builds.md`` and ``builds.svg`` in ``output``."""
    runs = [run for bench in benches for run in bench.runs]
    rows = summary(runs)
    machine = {"processors": len(os.sched_getaffinity(0)), "load": os.getloadavg(), "python": sys.version}
    took_no_part = {bench.kernel: bench.failed for bench in benches}
    document = {"machine": machine, "rows": rows, "took no part": took_no_part, "runs": [asdict(run) for run in runs]}
    (output / "builds.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (output / "builds.md").write_text(table(rows), encoding="utf-8")
    (output / "builds.svg").write_text(plot(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
