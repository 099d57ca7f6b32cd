"""Measure what slim headers save for real kernels, and whether the code is the same: the table of docs/slim-passes.md.

    python benchmarks/slim_passes.py [--variant NAME] [--architecture 9.0] [--source PATTERN] [--jobs N] PROJECT...

Each PROJECT is a directory with a build.toml. Every source with device code and every C++ source, or those that
--source selects, goes through the steps that `build --verify-slim` plans for one architecture, with all PyTorch headers
and with slim ones. Device code and stubs must be the same. The host passes, or the objects of a C++ source, compiled
without optimization, must contain the same functions. --variant and --architecture choose the backend, such as
`torch213-cxx11-rocm72-x86_64-linux` and `gfx90a`. Times are CPU seconds (user and system). With --proof-only, host code
is compiled only for the comparison. Each source is a line of JSON on stdout, or of a table with --table. Compiled files
are in the projects' work directories, and stay there if anything differs.
"""

from __future__ import annotations

import fnmatch
import json
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from kernel_builder.actions.headers import Headers
from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import SLIM, Action, ActionKind, Step
from kernel_builder.binary.device_proof import comparable
from kernel_builder.binary.relocatable import compare_objects
from kernel_builder.cli.session import open_run
from kernel_builder.errors import ConfigError, KernelBuilderError, UsageError
from kernel_builder.plan.model import BuildPlan
from kernel_builder.toolchain.torch_slim import OPERATOR_MACRO, provide_slim_headers
from kernel_builder.workflow.build import BuildRequest, prepare_build
from kernel_builder.workflow.toolchains import provide

Kinds = dict[ActionKind, Action]


class StepError(Exception):
    """A step failed; the message is its first complaint."""


@dataclass
class Bench:
    """Runs steps of ``plan``; ``seconds`` are those of each kind."""

    plan: BuildPlan
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, action: Action, steps: Iterable[Step], kind: str | None = None) -> None:
        """Run ``steps`` of ``action`` one after the other. Raises :class:`StepError`."""
        for step in steps:
            command = self.plan.places.expanded(action, step.command)
            log = self.path(action.log)
            with log.open("wb") as file:
                streams = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number in (1, 2)]
                here = ("env", "-C", str(self.plan.places.work))
                child = os.posix_spawnp("env", [*here, *command], os.environ, file_actions=streams)
                _, status, usage = os.wait4(child, 0)
            if kind is not None:
                self.seconds[kind] = round(self.seconds.get(kind, 0) + usage.ru_utime + usage.ru_stime, 1)
            if status:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                raise StepError(next((line for line in lines if "error" in line), f"status {status}"))

    def prepare(self, action: Action) -> None:
        """Make the directories that ``action`` writes to."""
        for word in (*action.makes, *action.scratch, action.log):
            self.path(word).parent.mkdir(parents=True, exist_ok=True)

    def path(self, word: str) -> Path:
        """The file of ``word``."""
        return self.plan.places.path(word)


def measure(bench: Bench, kinds: Kinds, *, proof_only: bool) -> Iterator[tuple[str, object]]:
    """What the passes over one source cost with all headers and with slim ones, and what differs.

    Raises :class:`StepError` where all headers do not do either.
    """
    device, split, last = kinds[ActionKind.DEVICE], kinds[ActionKind.SPLIT], kinds[ActionKind.COMPILE]
    # The module's id comes with the first half.
    half, host = tuple(split.steps[:2]), None
    try:
        bench.run(split, half, "host, slim")
        bench.run(split, split.steps[2:4], "host, all")
    except StepError as error:
        host = str(error)
        bench.run(split, split.fallback[:2], "host, all")
    *slim, proof = device.steps
    slim, full = slim[: len(slim) // 2], slim[len(slim) // 2 :]
    bench.run(device, full, "device, all")
    try:
        bench.run(device, slim, "device, slim")
    except StepError as error:
        yield "device", f"all headers: {error}"
        return
    yield "device", device_verdict(bench, proof)
    if host is not None:
        yield "host", f"all headers: {host}"
        return
    *bundle, plain, proved, proof, compiler = last.steps
    try:
        bench.run(last, (*bundle, plain))
        yield from proof_of_host(bench, last, proved, proof)
        if not proof_only:
            bench.run(last, last.fallback[-1:], "host, all")
            bench.run(last, (compiler,), "host, slim")
    except StepError as error:
        yield "host", f"all headers: {error}"


def measure_hip(bench: Bench, kinds: Kinds, *, proof_only: bool) -> Iterator[tuple[str, object]]:
    """What :func:`measure` finds of a HIP source, whose device code and host half clang compiles one by one."""
    device, bundle, last = kinds[ActionKind.DEVICE], kinds[ActionKind.BUNDLE], kinds[ActionKind.COMPILE]
    full, slim, proof = device.steps
    bench.run(device, (full,), "device, all")
    try:
        bench.run(device, (slim,), "device, slim")
    except StepError as error:
        bench.run(device, device.fallback)
        yield "device", f"all headers: {error}"
    else:
        yield "device", device_verdict(bench, proof)
    bench.run(bundle, bundle.steps)
    yield from measure_host(bench, last, proof_only=proof_only)


def device_verdict(bench: Bench, proof: Step) -> str:
    """Whether what ``proof`` compares is the same."""
    pairs = proof.command[3:]
    differing = [
        name.rpartition("/")[2]
        for one, name in zip(pairs[::2], pairs[1::2], strict=True)
        if comparable(bench.path(one)) != comparable(bench.path(name))
    ]
    return f"another {', '.join(differing)}" if differing else "same"


def proof_of_host(bench: Bench, last: Action, proved: Step, proof: Step) -> Iterator[tuple[str, object]]:
    """Whether host code with slim headers is the same, and how many functions were compared."""
    bench.run(last, (proved,))
    one, other = (bench.path(word) for word in proof.command[3:])
    found = compare_objects(one, other)
    yield "host", found.verdict or "same"
    yield "functions", found.common


def measure_host(bench: Bench, last: Action, *, proof_only: bool) -> Iterator[tuple[str, object]]:
    """What :func:`measure` finds of a C++ source."""
    plain, proved, proof, compiler = last.steps
    bench.run(last, (plain,))
    if not proof_only:
        bench.run(last, last.fallback, "host, all")
    try:
        yield from proof_of_host(bench, last, proved, proof)
        if not proof_only:
            bench.run(last, (compiler,), "host, slim")
    except StepError as error:
        yield "host", f"all headers: {error}"


def sources_of(plan: BuildPlan) -> dict[str, Kinds]:
    """The actions of each source with device code, for one architecture, and those of each C++ source."""
    found: dict[str, Kinds] = {}
    for action in plan.actions:
        if action.kind in (ActionKind.DEVICE, ActionKind.SPLIT, ActionKind.BUNDLE, ActionKind.COMPILE):
            found.setdefault(action.source, {}).setdefault(action.kind, action)
    return {source: kinds for source, kinds in found.items() if source != MODULE_SOURCE}


def planned(root: Path, variant: str, architecture: str) -> BuildPlan:
    """The plan of the project in ``root`` for one architecture, or for its own, in which slim headers are proved."""
    request = BuildRequest(
        root=root,
        patterns=(variant,),
        architectures=(architecture,),
        headers=Headers.VERIFY,
        ignore=("KB2", "KB3", "KB4"),
    )
    with open_run(quiet=True) as run:
        try:
            prepared = prepare_build(request, run)
        except (ConfigError, UsageError):  # it is not compiled for that architecture, or for none
            prepared = prepare_build(replace(request, architectures=()), run)
        provide(prepared.chosen, prepared.matrix, run)
        for toolchain in prepared.planning.toolchains.values():
            provide_slim_headers(run.store, toolchain.framework)
        return prepared.planned_again().plan


def tried(plan: BuildPlan, source: str, kinds: Kinds, *, proof_only: bool) -> dict[str, object]:
    """What :func:`measure` finds, or why there is nothing to find."""
    found: dict[str, object] = {"source": source}
    is_host = ActionKind.DEVICE not in kinds
    first = kinds[ActionKind.COMPILE if is_host else ActionKind.DEVICE]
    if not any(tree.name == SLIM for tree in first.trees):
        return found | {"device": "not tried: it includes no headers of torch, or needs most of torch"}
    bench = Bench(plan=plan)
    for action in kinds.values():
        bench.prepare(action)
    asked = max(sum(word.startswith(f"-D{OPERATOR_MACRO}") for word in step.command) for step in first.steps)
    found |= {"operators": asked, "architecture": first.architecture, "seconds": bench.seconds}
    try:
        if is_host:
            found |= {"device": "none", **dict(measure_host(bench, first, proof_only=proof_only))}
        elif ActionKind.SPLIT in kinds:
            found.update(measure(bench, kinds, proof_only=proof_only))
        else:
            found.update(measure_hip(bench, kinds, proof_only=proof_only))
    except StepError as error:
        found["device"] = f"fails with all headers: {error}"
    if found.get("device") in ("same", "none") and found.get("host", "same") == "same":
        for action in kinds.values():
            for word in (*action.outputs, *action.scratch):
                bench.path(word).unlink(missing_ok=True)
    return found


def row(found: dict[str, Any]) -> str:
    """A line of the table: source, seconds of both passes with all headers and with slim ones, what came of it."""
    took = found.get("seconds", {})
    seconds = (str(took.get(f"{which}, {how}", "")) for which in ("device", "host") for how in ("all", "slim"))
    functions = f"{found['functions']}: {found['host']}" if "functions" in found else found.get("host", "")
    cells = (f"{found['project']} `{Path(str(found['source'])).name}`", *seconds, found["device"], functions)
    return f"| {' | '.join(map(str, cells))} |"


@click.command(help=__doc__)
@click.argument("projects", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--variant", default="torch213-cxx11-cu130-x86_64-linux", show_default=True)
@click.option("--architecture", default="9.0", show_default=True)
@click.option("--source", "patterns", multiple=True, metavar="PATTERN", help="Only sources whose paths match.")
@click.option("--jobs", type=int, default=1, show_default=True)
@click.option("--proof-only", is_flag=True)
@click.option("--table", is_flag=True)
def main(
    *,
    projects: tuple[Path, ...],
    variant: str,
    architecture: str,
    patterns: tuple[str, ...],
    jobs: int,
    proof_only: bool,
    table: bool,
) -> None:
    """See the module."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    context = click.get_current_context()

    def work(root: Path, plan: BuildPlan, source: str, kinds: Kinds) -> None:
        own = {"project": root.resolve().name, "variant": variant}
        found = own | tried(plan, source, kinds, proof_only=proof_only)
        print(row(found) if table else json.dumps(found), flush=True)

    with ThreadPoolExecutor(jobs) as pool, context:
        waiting = []
        for root in projects:
            try:
                plan = planned(root.resolve(), variant, architecture)
            except KernelBuilderError as error:
                click.echo(f"{root.name}: {error}", err=True)
                continue
            for file in plan.generated:
                path = plan.places.path(file.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.content, encoding="utf-8")
            bench = Bench(plan=plan)
            for action in plan.actions:
                if action.kind is ActionKind.TRANSLATE:
                    bench.prepare(action)
                    bench.run(action, action.steps)
            for source, kinds in sources_of(plan).items():
                if not patterns or any(fnmatch.fnmatch(source, pattern) for pattern in patterns):
                    waiting.append(pool.submit(work, root, plan, source, kinds))
        for one in waiting:
            one.result()
    sys.stdout.flush()


if __name__ == "__main__":
    main(obj=dict(os.environ))
