"""What a build costs as it grows: actions, bytes and seconds for 1, 8 and 32 variants on 1, 2, 16 and 256 workers.

    python benchmarks/scale.py KERNEL --variant NAME [--output DIR]
    python benchmarks/scale.py --timeline FILE [--output DIR]

KERNEL is built on one worker and on two, on loopback, each with one thread; the run on one worker is what the model is
made of, and what it says of both is held against what they took. With ``--timeline`` nothing runs: FILE is the
``.kernel-builder/timeline.jsonl`` of a build with ``--scheduler``. ``scale.json``, ``scale.md`` and ``scale.svg`` go to
``--output``.

The model: an action starts when all that it needs is made and a thread is free, in the engine's order. The build is one
program, which sends and receives one thing at a time: so many seconds for each action, and the time that bytes take. A
worker gets the kernel once, and an object that it did not make itself once. Checks run where the build runs.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

KB = [sys.executable, "-m", "kernel_builder"]
VARIANTS, WORKERS = (1, 8, 32), (1, 2, 16, 256)
LAST = ("link", "inspect")


@dataclass(frozen=True, kw_only=True)
class Job:
    """An action: how long it takes, what it needs, how many bytes it makes. ``here``: it runs where the build does."""

    id: str
    kind: str
    seconds: float
    variant: int = 0
    needs: tuple[str, ...] = ()
    makes: int = 0
    here: bool = False


@dataclass(frozen=True, kw_only=True)
class Prices:
    """``busy`` seconds of the build itself go into each action that is sent, ``wait`` more pass until it runs and is
    known to have ended. ``kernel`` are the bytes of the kernel, ``bandwidth`` bytes a second of the build's connection,
    ``setup`` seconds until a worker has made ready for the build, ``cores`` threads that run checks here.
    """

    busy: float
    wait: float
    kernel: int
    setup: float
    bandwidth: float = 125e6
    cores: int = 2


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a build comes to. ``path`` is the longest chain, ``work`` all seconds of actions over the workers,
    ``client`` the seconds that the build is busy with sending and receiving; ``limit`` names the greatest of them.
    """

    variants: int
    workers: int
    actions: int
    bytes: int
    seconds: float
    path: float
    work: float
    client: float

    @property
    def limit(self) -> str:
        """What the time cannot fall below."""
        return max((self.path, "critical path"), (self.work, "workers"), (self.client, "scheduler"))[1]


def paths(jobs: Sequence[Job]) -> dict[str, float]:
    """The seconds from the start of each job to the end of the longest chain that waits for it."""
    users: dict[str, list[Job]] = {}
    for job in jobs:
        for need in job.needs:
            users.setdefault(need, []).append(job)
    found: dict[str, float] = {}

    def of(job: Job) -> float:
        if job.id not in found:
            found[job.id] = job.seconds + max((of(user) for user in users.get(job.id, ())), default=0.0)
        return found[job.id]

    for job in jobs:
        of(job)
    return found


class Simulation:
    """List scheduling of ``jobs`` on ``workers`` of one thread each."""

    def __init__(self, jobs: Sequence[Job], workers: int, prices: Prices) -> None:
        self._jobs, self._prices = {job.id: job for job in jobs}, prices
        self._left = {job.id: len(job.needs) for job in jobs}
        self._users: dict[str, list[str]] = {}
        for job in jobs:
            for need in job.needs:
                self._users.setdefault(need, []).append(job.id)
        length = paths(jobs)
        self._rank = {
            job.id: (job.kind not in LAST, job.variant, -length[job.id], place) for place, job in enumerate(jobs)
        }
        self._free, self._cores = set(range(workers)), prices.cores
        self._held: list[set[str]] = [set() for _ in range(workers)]
        self._known = [False] * workers
        self._client = 0.0
        self.busy, self.bytes = 0.0, 0

    def run(self) -> float:
        """Seconds until the last job has ended."""
        now, order = 0.0, 0
        ready = {name for name, left in self._left.items() if not left}
        events: list[tuple[float, int, str, int]] = []
        while ready or events:
            for name in sorted(ready, key=self._rank.__getitem__):
                started = self._start(self._jobs[name], now)
                if started is not None:
                    ready.discard(name)
                    order += 1
                    heapq.heappush(events, (started[0], order, name, started[1]))
            now, _, name, worker = heapq.heappop(events)
            job = self._jobs[name]
            if worker < 0:
                self._cores += 1
            else:
                self._free.add(worker)
                self._held[worker].add(name)
                now = self._occupied(now, 0.0, job.makes)
            for user in self._users.get(name, ()):
                self._left[user] -= 1
                if not self._left[user]:
                    ready.add(user)
        return now

    def _start(self, job: Job, now: float) -> tuple[float, int] | None:
        """When the job that starts now ends, and on which worker (-1: here); ``None`` where nothing is free."""
        if job.here:
            if not self._cores:
                return None
            self._cores -= 1
            return now + job.seconds, -1
        if not self._free:
            return None
        worker = min(self._free, key=lambda one: (-len(self._held[one] & set(job.needs)), one))
        self._free.discard(worker)
        prices, missing = self._prices, set(job.needs) - self._held[worker]
        size = sum(self._jobs[need].makes for need in missing) + (0 if self._known[worker] else prices.kernel)
        self._held[worker] |= missing
        setup = 0.0 if self._known[worker] else prices.setup
        self._known[worker] = True
        return self._occupied(now, prices.busy, size) + setup + prices.wait + job.seconds, worker

    def _occupied(self, now: float, seconds: float, size: int) -> float:
        """When the build has spent so many seconds, and those that the bytes take, beginning when it is free."""
        spent = seconds + size / self._prices.bandwidth
        self._client = max(self._client, now) + spent
        self.busy += spent
        self.bytes += size
        return self._client


def forecast(jobs: Sequence[Job], variants: int, workers: int, prices: Prices) -> Forecast:
    """What so many variants like those of ``jobs`` come to on so many workers."""
    all_jobs = multiplied(jobs, variants)
    simulation = Simulation(all_jobs, workers, prices)
    seconds = simulation.run()
    sent = [job for job in all_jobs if not job.here]
    return Forecast(
        variants=variants,
        workers=workers,
        actions=len(all_jobs),
        bytes=simulation.bytes,
        seconds=seconds,
        path=max(paths(all_jobs).values(), default=0.0),
        work=sum(job.seconds for job in sent) / workers,
        client=simulation.busy,
    )


def multiplied(jobs: Sequence[Job], variants: int) -> list[Job]:
    """Jobs of so many variants, in turn like those that were measured."""
    measured = sorted({job.variant for job in jobs})
    found = []
    for number in range(variants):
        like = measured[number % len(measured)]
        for job in (job for job in jobs if job.variant == like):
            needs = tuple(f"{number}/{need}" for need in job.needs)
            found.append(replace(job, id=f"{number}/{job.id}", variant=number, needs=needs))
    return found


def read_spans(file: Path) -> list[dict[str, object]]:
    """The spans of a timeline, in the order in which they ended."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "id" in line]


def jobs_of(spans: Iterable[Mapping[str, object]]) -> list[Job]:
    """The jobs that a timeline tells of. Raises ``ValueError`` for one that was not made with ``--scheduler``."""
    listed = list(spans)
    if not any(span.get("worker") for span in listed):
        raise ValueError("no action of this timeline ran on a worker: build with --scheduler and --no-cache")
    turns = {name: turn for turn, name in enumerate(dict.fromkeys(str(span["variant"]) for span in listed))}
    known = {span["id"] for span in listed}
    return [
        Job(
            id=str(span["id"]),
            kind=str(span["kind"]),
            seconds=float(str(span["seconds"])),
            variant=turns[str(span["variant"])],
            needs=tuple(need for need in span["needs"] if need in known),  # type: ignore[attr-defined]
            makes=int(str(span.get("received", 0))),
            here=not span.get("worker"),
        )
        for span in sorted(listed, key=lambda span: float(str(span["begin"])))
    ]


def prices_of(spans: Iterable[Mapping[str, object]], *, bandwidth: float, busy: float) -> Prices:
    """What the runs that a timeline tells of cost besides their actions. The first action of a worker waits until that
    has made ready.
    """
    over: list[float] = []
    firsts: dict[object, tuple[float, int]] = {}
    for span in sorted(spans, key=lambda span: float(str(span["begin"]))):
        if not span.get("worker"):
            continue
        spent = float(str(span["end"])) - float(str(span["begin"])) - float(str(span["seconds"]))
        if span["worker"] not in firsts:
            firsts[span["worker"]] = (spent, int(str(span["sent"])))
        else:
            over.append(spent)
    wait = max(0.0, statistics.median(over) - busy) if over else 0.0
    return Prices(
        busy=busy,
        wait=wait,
        kernel=max(size for _, size in firsts.values()),
        setup=max(0.0, statistics.median(spent for spent, _ in firsts.values()) - wait - busy),
        bandwidth=bandwidth,
        cores=os.cpu_count() or 1,
    )


def check_of(
    jobs: Sequence[Job], prices: Prices, workers: int, real: Sequence[Mapping[str, object]]
) -> dict[str, float]:
    """What the model says of a run, against what it took. How long workers take to make ready depends most on what else
    their processors do, so ``rest`` is the error that is left once that is the run's own ``setup``.
    """
    variants, measured = len({job.variant for job in jobs}), took(real)
    own = prices_of(real, bandwidth=prices.bandwidth, busy=prices.busy).setup
    model, adjusted = (
        forecast(jobs, variants, workers, replace(prices, setup=setup)).seconds for setup in (prices.setup, own)
    )
    return {
        "workers": float(workers),
        "measured": measured,
        "model": model,
        "error": model / measured - 1,
        "setup": own,
        "rest": adjusted / measured - 1,
    }


def took(spans: Sequence[Mapping[str, object]]) -> float:
    """Seconds from the first action's start to the last one's end."""
    return max(float(str(one["end"])) for one in spans) - min(float(str(one["begin"])) for one in spans)


@contextmanager
def cluster(workers: int, folder: Path) -> Iterator[str]:
    """A scheduler on loopback with so many workers of one thread; its address."""
    started: list[subprocess.Popen[bytes]] = []
    log = folder / f"scheduler-{workers}.log"
    try:
        with log.open("w") as out:
            command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
            options = ["--dashboard-address", "127.0.0.1:0"]
            started.append(subprocess.Popen([*command, *options], stdout=out, stderr=out))
        address = said(log, r"Scheduler at:\s+tcp://(\S+)")
        for number in range(workers):
            own = folder / f"worker-{workers}-{number}.log"
            with own.open("w") as out:
                options = ["worker", address, "-j", "1", "--name", f"w{number}", "--folder", str(folder)]
                started.append(subprocess.Popen([*KB, *options], stdout=out, stderr=out))
            said(own, r"^(worker w)")
        yield address
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                process.terminate()
            process.wait(30)


def said(log: Path, pattern: str) -> str:
    """What a log says, once it does. Raises ``TimeoutError``."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = re.search(pattern, log.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1]
        time.sleep(0.1)
    raise TimeoutError(f"{log} says nothing of {pattern}")


def real_run(kernel: Path, variants: Sequence[str], workers: int, folder: Path) -> list[dict[str, object]]:
    """The spans of a build of ``kernel`` on so many workers, whose stores have its toolchains."""
    root = folder / f"kernel-{workers}"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(kernel, root, ignore=shutil.ignore_patterns("build", ".kernel-builder"))
    names = [option for name in variants for option in ("--variant", name)]
    with cluster(workers, folder) as address:
        command = [*KB, "build", str(root), *names, "--no-load", "--no-cache", "--quiet", "--scheduler", address]
        code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise SystemExit(code)  # which said why
    return read_spans(root / ".kernel-builder" / "timeline.jsonl")


def busy_seconds(repeats: int = 200) -> float:
    """Processor seconds that an action costs the program that sends it: a task that does nothing, through dask."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as local,
        Client(local) as client,
    ):
        client.submit(int, 0).result()
        before = time.process_time()
        for number in range(repeats):
            client.submit(int, number, pure=False).result()
        return (time.process_time() - before) / repeats


def table(forecasts: Sequence[Forecast], checks: Sequence[Mapping[str, float]], prices: Prices) -> str:
    """Everything in Markdown."""
    lines = [
        f"Each action: {prices.busy * 1000:.1f} ms of the build, {prices.wait * 1000:.0f} ms more of waiting.",
        f"Each worker: {prices.kernel} bytes and {prices.setup:.1f} s at first.",
        "",
        "| variants | workers | actions | MB moved | s | critical path | work / workers | scheduler | limited by |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for one in forecasts:
        lines.append(
            f"| {one.variants} | {one.workers} | {one.actions} | {one.bytes / 1e6:.1f} | {one.seconds:.1f} |"
            f" {one.path:.1f} | {one.work:.1f} | {one.client:.1f} | {one.limit} |"
        )
    if checks:
        lines += [
            "",
            "| workers | measured s | model s | error | ready after s | error with that |",
            "|---:|---:|---:|---:|---:|---:|",
        ]
        for check in checks:
            lines.append(
                f"| {check['workers']:.0f} | {check['measured']:.2f} | {check['model']:.2f} | {check['error']:+.0%} |"
                f" {check['setup']:.1f} | {check['rest']:+.0%} |"
            )
    return "\n".join(lines) + "\n"


def plot(forecasts: Sequence[Forecast]) -> str:
    """Speed-up over one worker, by workers, on a scale of powers of two; a line for each number of variants."""
    width, height, left = 480, 300, 50
    most = max(one.workers for one in forecasts).bit_length() - 1 or 1
    lines = []
    for at, variants in enumerate(dict.fromkeys(one.variants for one in forecasts)):
        rows = [one for one in forecasts if one.variants == variants]
        alone = max(rows, key=lambda one: one.seconds).seconds
        points = []
        for one in rows:
            x = left + (one.workers.bit_length() - 1) * (width - left - 20) / most
            ratio = max(1.0, alone / one.seconds)
            points.append(f"{x:.0f},{height - 30 - math.log2(ratio) * (height - 60) / most:.0f}")
        color = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")[at % 4]
        lines.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}"/>')
        lines.append(f'<text x="{left + 10}" y="{20 + 16 * at}" fill="{color}">{variants} variants</text>')
    lines.append(f'<text x="{left}" y="{height - 8}">workers: 1 to {2**most}; up: speed-up, 1 to {2**most}</text>')
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="font: 12px sans-serif">\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", nargs="?", type=Path)
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--timeline", type=Path)
    parser.add_argument("--bandwidth", type=float, default=1000.0, help="of the build's connection, in Mbit/s")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"))
    options = parser.parse_args()
    if (options.kernel is None) == (options.timeline is None):
        parser.error("name a kernel or a timeline")
    busy, bandwidth = busy_seconds(), options.bandwidth * 1e6 / 8
    runs: dict[int, list[dict[str, object]]] = {}
    if options.timeline is not None:
        spans = read_spans(options.timeline)
    else:
        with tempfile.TemporaryDirectory(prefix="kernel-builder-scale-") as folder:
            real_run(options.kernel, options.variant, 1, Path(folder))  # fetches toolchains
            runs = {workers: real_run(options.kernel, options.variant, workers, Path(folder)) for workers in (1, 2)}
        spans = runs[1]
    jobs, prices = jobs_of(spans), prices_of(spans, bandwidth=bandwidth, busy=busy)
    checks = [check_of(jobs, prices, workers, real) for workers, real in runs.items()]
    forecasts = [forecast(jobs, variants, workers, prices) for variants in VARIANTS for workers in WORKERS]
    options.output.mkdir(parents=True, exist_ok=True)
    told = {
        "load": os.getloadavg(),
        "processors": os.cpu_count(),
        "prices": asdict(prices),
        "checks": checks,
        "forecasts": [{**asdict(one), "limit": one.limit} for one in forecasts],
    }
    (options.output / "scale.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    text = table(forecasts, checks, prices)
    (options.output / "scale.md").write_text(text, encoding="utf-8")
    (options.output / "scale.svg").write_text(plot(forecasts), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
