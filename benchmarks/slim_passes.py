"""What slim headers save, and whether they make the same code, over real kernels: the table of docs/slim-passes.md.

    python benchmarks/slim_passes.py [--host] [--architecture compute_90] [--variant NAME] [--most N] PROJECT...

Each PROJECT is a directory with a build.toml. Every CUDA source of it, or the first N, is taken through the very steps
that a build plans, with all of torch's headers and with slim ones. Seconds are those of the processor (user and
system), so that a busy machine does not change them. With --host, the pass that makes the host's half is compared, too:
both halves are compiled at -O0 and must hold the same functions, instruction by instruction. A source is one line
of JSON on stdout, with --table one of a table; what is compiled is below the current directory, in slim-passes/.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from kernel_builder.actions.model import SLIM, Action, ActionKind, Step
from kernel_builder.actions.slim import Headers
from kernel_builder.backends.cuda.prove import comparable
from kernel_builder.binary.relocatable import Comparison, compare_objects
from kernel_builder.cli.session import open_run
from kernel_builder.plan.model import BuildPlan
from kernel_builder.toolchain.torch_slim import DEFINITIONS, OPERATOR_MACRO, PART_MACRO, provide_slim_headers
from kernel_builder.workflow.build import BuildRequest, prepare_build

_OWN = tuple(f"-D{name}" for name in (*DEFINITIONS, OPERATOR_MACRO, PART_MACRO))
PLAIN = ("-O0", "-fmerge-constants", "-fno-jump-tables")
"""So that functions refer to nothing by its position."""


class StepError(Exception):
    """A step failed; the message is its first complaint."""


@dataclass
class Bench:
    """Runs steps of ``plan`` in ``folder``; ``seconds`` are those of each kind."""

    plan: BuildPlan
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, action: Action, steps: tuple[Step, ...], kind: str) -> None:
        """Run ``steps`` of ``action`` one after the other. Raises :class:`StepError`."""
        for step in steps:
            command = self.plan.places.expanded(action, step.command)
            for word in step.writes:
                self.path(word).parent.mkdir(parents=True, exist_ok=True)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(command, cwd=self.plan.places.work, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            self.seconds[kind] = round(self.seconds.get(kind, 0) + took, 1)
            if done.returncode:
                lines = (done.stderr + done.stdout).splitlines()
                raise StepError(next((line for line in lines if "error" in line), f"code {done.returncode}"))

    def path(self, word: str) -> Path:
        """The file of ``word``."""
        return self.plan.places.path(word)

    def equal(self, words: tuple[str, ...]) -> bool:
        """Whether files with slim headers, which have names of their own, are the same as the others."""
        return all(
            comparable(self.path(word)) == comparable(self.path(word).with_name(f"slim-{self.path(word).name}"))
            for word in words
        )


def halves(action: Action) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The steps with slim headers, and those with all, of an action that proves them."""
    half = len(action.steps) // 2
    return action.steps[:half], action.steps[half : 2 * half]


def measure(bench: Bench, device: Action, others: dict[ActionKind, Action], *, host: bool) -> dict[str, object]:
    """One source: what its passes cost with all headers and with slim ones, and what differs."""
    split, last = others[ActionKind.SPLIT], others[ActionKind.COMPILE]
    slim, full = halves(device)
    definitions = [word.removeprefix("-D") for word in slim[0].command if word.startswith(f"-D{OPERATOR_MACRO}")]
    result: dict[str, object] = {"source": device.source, "operators": len(definitions), "seconds": bench.seconds}
    if host:
        bench.run(split, split.steps, "split, all")
    else:
        # The name of the module is part of other names; it comes from the other pass.
        for word in device.inputs:
            if word in split.outputs:
                bench.path(word).parent.mkdir(parents=True, exist_ok=True)
                bench.path(word).write_text("_0badcafe_4_k_cu_00c0ffee", encoding="ascii")
    bench.run(device, full, "device, all")
    try:
        bench.run(device, slim, "device, slim")
    except StepError as error:
        return result | {"device": f"all headers: {error}"}
    binary = tuple(word for word in full[-1].writes)
    result["cubin"] = bench.equal(binary)
    result["stub"] = bench.equal(tuple(word for word in device.outputs if word not in binary))
    return result | (compare_hosts(bench, slim[0], split, last) if host else {})


def compare_hosts(bench: Bench, preprocess: Step, split: Action, last: Action) -> dict[str, object]:
    """The host's half, made with the same headers as ``preprocess`` and with all of them."""
    words = (*preprocess.command[1:3], *(word for word in preprocess.command[3:] if word.startswith(_OWN)))
    made = {word for step in split.steps for word in step.writes}

    def apart(word: str) -> str:
        return f"{word.rpartition('/')[0]}/slim-{word.rpartition('/')[2]}" if word in made else word

    def renamed(step: Step, *before: str) -> Step:
        command = (step.command[0], *before, *map(apart, step.command[1:]))
        return Step(command=command, writes=tuple(map(apart, step.writes)))

    first, second = split.steps
    try:
        bench.run(split, (renamed(first, *words), renamed(second)), "split, slim")
    except StepError as error:
        return {"host": f"all headers: {error}"}
    bench.run(last, last.steps[:-1], "bundle")

    def plainly(step: Step, name: str) -> tuple[Step, Path]:
        target = bench.folder / name
        out = step.command.index("-o") + 1
        command = [*step.command[:out], str(target), *step.command[out + 1 :]]
        return Step(command=tuple(w for word in command for w in (PLAIN if word == "-O3" else (word,)))), target

    whole, one = plainly(last.steps[-1], "all.o")
    bench.run(last, (whole,), "host at -O0, all")
    half, other = plainly(renamed(last.steps[-1]), "slim.o")
    try:
        bench.run(last, (half,), "host at -O0, slim")
    except StepError as error:
        return {"host": f"all headers: {error}"}
    found: Comparison = compare_objects(one, other)
    return {"host": found.verdict or "equal", "functions": found.common}


def sources_of(plan: BuildPlan, architecture: str) -> dict[str, dict[ActionKind, Action]]:
    """The actions of each CUDA source, that for ``architecture``, or else the first one, among them."""
    found: dict[str, dict[ActionKind, Action]] = {}
    for action in plan.actions:
        if action.kind is ActionKind.DEVICE:
            kinds = found.setdefault(action.source, {})
            if action.architecture == architecture or ActionKind.DEVICE not in kinds:
                kinds[ActionKind.DEVICE] = action
    for action in plan.actions:
        if action.source in found and action.kind in (ActionKind.SPLIT, ActionKind.COMPILE):
            found[action.source][action.kind] = action
    return found


def planned(root: Path, variant: str) -> BuildPlan:
    """The plan of the project in ``root``, in which slim headers are proved."""
    with open_run(quiet=True) as run:
        request = BuildRequest(root=root, patterns=(variant,), headers=Headers.VERIFY, ignore=("KB3", "KB4"))
        prepared = prepare_build(request, run)
        for toolchain in prepared.planning.toolchains.values():
            provide_slim_headers(run.store, toolchain.framework)
        return prepared.planned_again().plan


def tried(plan: BuildPlan, kinds: dict[ActionKind, Action], folder: Path, *, host: bool) -> dict[str, object]:
    """What :func:`measure` finds, or why there is nothing to find."""
    device = kinds[ActionKind.DEVICE]
    if not any(tree.name == SLIM for tree in device.trees):
        return {"source": device.source, "device": "not tried: it includes no umbrella header, or needs most of torch"}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bench = Bench(plan=plan, folder=folder)
    for file in plan.generated:
        path = bench.path(file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
    for action in kinds.values():
        bench.path(action.log).parent.mkdir(parents=True, exist_ok=True)
    try:
        return {"architecture": device.architecture, **measure(bench, device, kinds, host=host)}
    except StepError as error:
        return {"source": device.source, "failed with all headers": str(error)}
    finally:
        shutil.rmtree(folder)


def row(found: dict[str, object]) -> str:
    """A line of the table: source, operators, seconds with all headers and with slim ones, and what came of it."""
    seconds = found.get("seconds")
    took = seconds if isinstance(seconds, dict) else {}
    equal = found.get("cubin") and found.get("stub")
    verdict = found.get("failed with all headers") or found.get("device") or ("same" if equal else "differs")
    cells = [
        f"{found['project']} `{Path(str(found['source'])).name}`",
        str(found.get("operators", "")),
        *(str(took.get(f"device, {which}", "")) for which in ("all", "slim")),
        str(verdict),
        *([str(found["host"])] if "host" in found else []),
    ]
    return f"| {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.argument("projects", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--variant", default="torch213-cxx11-cu130-x86_64-linux", show_default=True)
@click.option("--architecture", default="compute_90", show_default=True)
@click.option("--most", type=int, default=sys.maxsize, metavar="N")
@click.option("--host", is_flag=True)
@click.option("--table", is_flag=True)
def main(*, projects: tuple[Path, ...], variant: str, architecture: str, most: int, host: bool, table: bool) -> None:
    """See the module."""
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    for root in projects:
        plan = planned(root.resolve(), variant)
        for kinds in list(sources_of(plan, architecture).values())[:most]:
            folder = Path.cwd() / "slim-passes" / root.name
            found = {"project": root.name, **tried(plan, kinds, folder, host=host)}
            print(row(found) if table else json.dumps(found), flush=True)


if __name__ == "__main__":
    main(obj=dict(os.environ))
