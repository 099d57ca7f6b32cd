"""Builds and workers without dask between them: what it would carry is handed on in this process."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine_actions import SHELL, action, plan_of, shell, until
from kernel_builder.actions.model import Action, ActionKind, Tree
from kernel_builder.cluster import client as client_module
from kernel_builder.cluster.client import Cluster, Parcel
from kernel_builder.cluster.messages import Provisions, action_from_json, action_to_json, to_blob
from kernel_builder.cluster.service import Abilities, Service
from kernel_builder.cluster.tasks import ATTRIBUTE, resources_of
from kernel_builder.engine.cache import ActionCache
from kernel_builder.engine.contents import blob_digest
from kernel_builder.engine.local import LocalEngine
from kernel_builder.engine.protocol import ActionStatus, EngineOptions, EngineResult
from kernel_builder.engine.resources import Resources
from kernel_builder.engine.timeline import spans_in
from kernel_builder.errors import BuildError
from kernel_builder.events import Notice, Recorder
from kernel_builder.plan.model import BuildPlan

GIB = 1 << 30
COMPILER = replace(SHELL, digest="gcc-1")


@dataclass(eq=False)
class FakeFuture:
    """What a task will have come to."""

    answer: dict[str, Any] | Exception | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    calls: list[Callable[[object], None]] = field(default_factory=list)

    def add_done_callback(self, call: Callable[[object], None]) -> None:
        self.calls.append(call)
        if self.ended.is_set():
            call(self)

    def end(self) -> None:
        self.ended.set()
        for call in self.calls:
            call(self)

    def result(self, **_: object) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer

    def done(self) -> bool:
        return self.ended.is_set()

    def release(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True


class FakeDask:
    """Stands in for dask's client: workers are services of this process."""

    def __init__(self, **services: Service | None) -> None:
        self.services = dict(services)
        self.sent: list[tuple[str, str, int]] = []
        self.change: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer
        self.scheduler = SimpleNamespace(identity=None)
        self.answers = True

    def sync(self, _function: object, **_: object) -> dict[str, Any]:
        if not self.answers:
            raise OSError("connection refused")
        return {"workers": {name: {"name": name} for name in self.services}}

    def run(self, function: Callable[..., Any], *arguments: Any, workers: list[str], **_options: object) -> Any:
        found = {}
        for name in workers:
            worker = SimpleNamespace(**{ATTRIBUTE: self.services[name]})
            if function.__name__ == "put":
                self.sent += [(name, digest, len(data)) for digest, data in arguments[0].items()]
            if function.__name__ == "end":
                service = self.services[name]
                if service is not None:
                    service.end(*arguments)
                continue
            found[name] = function(*arguments, dask_worker=worker)
        return found

    def submit(self, _function: object, message: Mapping[str, Any], *, workers: list[str], **_: object) -> FakeFuture:
        future = FakeFuture()

        def work() -> None:
            service = self.services[workers[0]]
            assert service is not None
            answer = service.perform(message, lambda: not future.cancelled)
            future.answer = self.change(answer)
            future.end()

        threading.Thread(target=work, daemon=True).start()
        return future

    def close(self, **_: object) -> None:
        pass


@dataclass
class Place:
    """A kernel of shell scripts, and what its workers have."""

    root: Path
    actions: tuple[Action, ...]
    recorder: Recorder = field(default_factory=Recorder)
    patience: float = 60

    def plan(self) -> BuildPlan:
        return plan_of(self.root, *self.actions)

    def service(self, name: str, *compilers: str, limit: int = GIB, **changes: Any) -> Service:
        values: dict[str, Any] = {
            "store": self.root / "store",
            "environ": os.environ,
            "abilities": Abilities(
                resources=Resources(processors=2, memory=GIB), compilers={one: f"g++ ({one})" for one in compilers}
            ),
            "provide": lambda _root, _brief, _compiler: Provisions.of(self.actions),
            "cache": None,
            "limit": limit,
        }
        return Service(self.root / "workers" / name, **{**values, **changes})

    def run(self, dask: FakeDask, **options: Any) -> EngineResult:
        plan = self.plan()
        sources = {
            word.removeprefix("{project}/"): plan.places.path(word) for one in self.actions for word in one.inputs
        }
        parcel = Parcel(
            files={path: file for path, file in sources.items() if not path.startswith("{")},
            links={},
            texts={"kernel-builder.lock": "x"},
            brief={"variants": []},
            compilers={"gcc-1": "g++ 12 (gcc-1)"},
        )
        cluster = Cluster(dask, "somewhere:1", parcel, self.recorder, patience=self.patience)
        try:
            cluster.start()
            given = EngineOptions(environ=os.environ, reporter=self.recorder, elsewhere=cluster)
            return LocalEngine().run(plan, replace(given, **options))
        finally:
            cluster.close()

    def clean(self) -> None:
        shutil.rmtree(self.root / ".kernel-builder")

    @property
    def told(self) -> list[str]:
        return [event.message for event in self.recorder.events if isinstance(event, Notice)]

    def made(self, source: str) -> str:
        return (self.root / ".kernel-builder" / f"{source}.out").read_text()


def copies(*sources: str, **changes: Any) -> tuple[Action, ...]:
    """An action for each source, which copies it, and one that joins what they make."""
    script = 'echo "said $1"; cat "$1" > "$2"'
    words = [(f"{{project}}/{source}", f"{{work}}/{source}.out") for source in sources]
    made = [
        action(source, "", steps=shell(script, "sh", *pair), tools=(COMPILER,), **changes)
        for source, pair in zip(sources, words, strict=True)
    ]
    inputs = tuple(out for _, out in words)
    joined = shell('shift 0; out=$1; shift; cat "$@" > "$out"', "sh", "{work}/all.out", *inputs)
    made.append(action("all", "", steps=joined, inputs=inputs, tools=(COMPILER,), kind=ActionKind.LINK, **changes))
    return tuple(made)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "k", copies("a", "b"))
    for name in ("a", "b"):
        (made.root / name).parent.mkdir(parents=True, exist_ok=True)
        (made.root / name).write_text(f"text of {name}\n")
    return made


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_POLL_SECONDS", 0.05)


def test_an_action_is_the_same_there(place: Place) -> None:
    given = replace(
        place.actions[0],
        depfile="{work}/a.d",
        trees=(Tree(name="python", identity="7", root=Path("/usr/include")),),
        fallback=shell("exit 1"),
        architecture="9.0",
    )
    assert action_from_json(action_to_json(given), Provisions.of([given])) == given


def test_results_come_back_and_contents_go_once(place: Place) -> None:
    dask = FakeDask(one=place.service("one", "gcc-1"), two=place.service("two", "gcc-1"))
    result = place.run(dask)
    assert {one.status for one in result.results.values()} == {ActionStatus.DONE}
    assert place.made("all") == "text of a\ntext of b\n"
    assert len(dask.sent) == len({(worker, digest) for worker, digest, _ in dask.sent})
    log = (place.root / ".kernel-builder" / "log" / "a.log").read_text().splitlines()
    assert log[1] == f"said {place.root / 'a'}"
    spans = {span.source: span for span in spans_in(place.root / ".kernel-builder")}
    assert {spans["a"].worker, spans["b"].worker} == {"one", "two"}
    assert sum(span.sent for span in spans.values()) == sum(size for _, _, size in dask.sent)
    assert list((place.root / "workers").glob("*/run-*")) == []

    again = place.run(FakeDask(one=place.service("one", "gcc-1")))
    assert {one.status for one in again.results.values()} == {ActionStatus.UP_TO_DATE}


def test_the_cache_here_is_asked_first_and_those_of_workers_next(place: Place, tmp_path: Path) -> None:
    shared = ActionCache(tmp_path / "shared")
    place.run(FakeDask(one=place.service("one", "gcc-1", cache=shared)), cache=ActionCache(tmp_path / "other"))
    place.clean()
    result = place.run(FakeDask(two=place.service("two", "gcc-1", cache=shared)), cache=ActionCache(tmp_path / "own"))
    assert {one.status for one in result.results.values()} == {ActionStatus.RECALLED}
    place.clean()
    unasked = place.run(FakeDask(two=place.service("two", "gcc-1", cache=shared)))
    assert {one.status for one in unasked.results.values()} == {ActionStatus.DONE}
    place.clean()
    dask = FakeDask(three=place.service("three", "gcc-1"))
    result = place.run(dask, cache=ActionCache(tmp_path / "own"))
    assert {one.status for one in result.results.values()} == {ActionStatus.RECALLED}
    assert dask.sent == []


def test_who_lacks_something_gets_nothing_and_that_is_said_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    old = place.service("old", "gcc-1")
    monkeypatch.setattr(old, "describe", lambda: {**Service.describe(old), "versions": {"Python": "3.9.1"}})
    services = {
        "old": old,
        "other": place.service("other", "gcc-2"),
        "plain": None,
        "one": place.service("one", "gcc-1"),
    }
    place.run(FakeDask(**services))
    assert {span.worker for span in spans_in(place.root / ".kernel-builder")} == {"one"}
    (lacking,) = [text for text in place.told if "the worker other" in text]
    assert "no work that needs g++ 12 (gcc-1)" in lacking
    assert "it has g++ (gcc-2)" in lacking
    (wrong,) = [text for text in place.told if "the worker old" in text]
    assert "Python 3.9.1, not 3." in wrong
    assert "kernel-builder None, not 0." in wrong
    (plain,) = [text for text in place.told if "the worker plain" in text]
    assert "was not started by 'kernel-builder worker'" in plain


def test_where_nobody_fits_the_build_ends(place: Place) -> None:
    with pytest.raises(
        BuildError, match=r"no worker .* can do compile .* which is compiled with g\+\+ 12 \(gcc-1\)"
    ) as told:
        place.run(FakeDask(other=place.service("other", "gcc-2")))
    assert "other: it has g++ (gcc-2)" in told.value.message
    place.patience = 0.2
    with pytest.raises(BuildError, match="has had no workers for 0 s"):
        place.run(FakeDask())


def test_a_worker_that_comes_later_is_taken(place: Place) -> None:
    dask = FakeDask()

    def come() -> None:
        time.sleep(0.3)
        dask.services["late"] = place.service("late", "gcc-1")

    threading.Thread(target=come).start()
    assert {one.status for one in place.run(dask).results.values()} == {ActionStatus.DONE}


def test_a_lost_worker_costs_its_own_action(place: Place) -> None:
    gate = place.root / "gate"
    place.actions = copies("a", "b")
    held = shell(
        f'echo $$ >> {gate}; while [ -e {gate} ]; do sleep 0.02; done; cat "$1" > "$2"',
        "sh",
        "{project}/a",
        "{work}/a.out",
    )
    place.actions = (replace(place.actions[0], steps=held), *place.actions[1:])
    gate.touch()
    dask = FakeDask(one=place.service("one", "gcc-1"))

    def lose() -> None:
        until(lambda: bool(gate.read_text()))
        dask.services["two"] = place.service("two", "gcc-1")
        service = dask.services.pop("one")
        time.sleep(0.3)
        gate.unlink()
        assert service is not None
        service.close()

    threading.Thread(target=lose).start()
    result = place.run(dask)
    assert {one.status for one in result.results.values()} == {ActionStatus.DONE}
    assert next(text for text in place.told if "trying again" in text).endswith("the worker one was lost; trying again")
    spans = {span.source: span.worker for span in spans_in(place.root / ".kernel-builder")}
    assert spans["a"] == "two"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answer: {**answer, "contents": dict.fromkeys(answer["contents"], b"damaged")}, "arrived damaged"),
        (lambda answer: {**answer, "contents": {}}, "arrived damaged"),
        (lambda answer: {**answer, "outside": {"/usr/include/nowhere.h": "7"}}, "is a different file there"),
    ],
)
def test_what_is_not_as_it_was_made_is_not_taken(
    place: Place, change: Callable[[dict[str, Any]], dict[str, Any]], said: str
) -> None:
    dask = FakeDask(one=place.service("one", "gcc-1"))
    dask.change = lambda answer: change(answer) if "code" in answer else answer
    with pytest.raises(BuildError, match="no worker"):
        place.run(dask)
    assert any(said in text for text in place.told)
    assert not (place.root / ".kernel-builder" / "a.out").exists()


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("fatal error: error writing to -: No space left on device", "its disk is full"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "it has too little memory"),
    ],
)
def test_what_a_machine_lacks_is_no_fault_of_the_source(place: Place, says: str, kind: str) -> None:
    place.actions = (action("a", f"echo '{says}'; exit 1", tools=(COMPILER,)),)
    with pytest.raises(BuildError) as told:
        place.run(FakeDask(one=place.service("one", "gcc-1")))
    assert kind in " ".join([told.value.message, *place.told])
    place.actions = (action("a", "echo 'error: no such thing'; exit 1", tools=(COMPILER,)),)
    (failed,) = place.run(FakeDask(one=place.service("one", "gcc-1"))).results.values()
    assert (failed.status, failed.output) == (ActionStatus.FAILED, ("error: no such thing",))


def test_contents_that_went_are_sent_again(place: Place) -> None:
    service = place.service("one", "gcc-1")
    dask = FakeDask(one=service)
    place.run(dask)
    before = len(dask.sent)
    for blob in (place.root / "workers" / "one" / "blobs" / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    (place.root / "a").write_text("another text\n")
    place.run(dask)
    assert place.made("all") == "another text\ntext of b\n"
    assert len(dask.sent) > before
    # Where there is never room, that is said.
    (place.root / "a").write_text("a third text\n")
    with pytest.raises(BuildError, match=r"its limit .* is too small"):
        place.run(FakeDask(small=place.service("small", "gcc-1", limit=1)))


@pytest.mark.parametrize(("share", "at_once"), [(0.6, 1), (0.4, 2)])
def test_all_builds_together_take_no_more_memory_than_there_is(tmp_path: Path, share: float, at_once: int) -> None:
    """With dask itself between them, and a worker with two threads."""
    distributed = pytest.importorskip("distributed", reason="dask is not installed in this environment")
    told = tmp_path / "told"
    script = f'echo begin >> {told}; sleep 0.7; echo end >> {told}; cat "$1" > "$2"'
    steps = shell(script, "sh", "{project}/a", "{work}/a.out")
    places = [
        Place(tmp_path / name, (action("a", "", steps=steps, tools=(COMPILER,), memory=int(share * GIB)),))
        for name in ("first", "second")
    ]
    service = places[0].service("one", "gcc-1")
    options = {"n_workers": 1, "processes": False, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.LocalCluster(**options, resources=resources_of(service)) as cluster:
        (worker,) = cluster.workers.values()
        setattr(worker, ATTRIBUTE, service)

        def build(place: Place) -> None:
            (place.root / "a").parent.mkdir(parents=True, exist_ok=True)
            (place.root / "a").write_text("text\n")
            with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
                (result,) = place.run(client).results.values()
            assert result.status is ActionStatus.DONE, place.told

        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(build, place) for place in places]:
                done.result()
    marks = told.read_text().split()
    running = list(accumulate(1 if mark == "begin" else -1 for mark in marks))
    assert (len(marks), max(running)) == (4, at_once)


def test_a_scheduler_that_is_gone_ends_the_build(place: Place) -> None:
    gate = place.root / "gate"
    gate.touch()
    place.actions = (action("a", f"echo $$ >> {gate}; while [ -e {gate} ]; do sleep 0.02; done", tools=(COMPILER,)),)
    service = place.service("one", "gcc-1")
    dask = FakeDask(one=service)

    def lose() -> None:
        until(lambda: bool(gate.read_text()))
        dask.answers = False

    threading.Thread(target=lose).start()
    with pytest.raises(BuildError, match="lost the scheduler at somewhere:1: OSError: connection refused"):
        place.run(dask)
    number = int(gate.read_text())
    service.close()
    assert not Path(f"/proc/{number}").exists()
    assert not (place.root / "workers" / "one").exists()


def test_a_build_that_waits_no_more_is_ended_there(place: Place) -> None:
    gate = place.root / "gate"
    gate.touch()
    place.actions = (action("a", f"echo $$ >> {gate}; while [ -e {gate} ]; do sleep 0.02; done", tools=(COMPILER,)),)
    service = place.service("one", "gcc-1")
    wanted = [True]
    for digest, data in _messages(place):
        assert service.put({digest: data}) == ""
    message = _message(place)
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(service.perform(message, lambda: wanted[0])))
    thread.start()
    until(lambda: bool(gate.read_text()))
    number = int(gate.read_text())
    wanted[0] = False
    thread.join(10)
    assert not Path(f"/proc/{number}").exists()
    assert list((place.root / "workers" / "one").glob("run-*")) == []
    assert service.put({"00": b"not that"}) == "received contents do not match their digest"


def _blobs(place: Place) -> tuple[bytes, bytes, bytes]:
    source = b"text of a\n"
    return source, to_blob({"{project}/a": blob_digest(source)}), to_blob({})


def _messages(place: Place) -> list[tuple[str, bytes]]:
    return [(blob_digest(data), data) for data in _blobs(place)]


def _message(place: Place) -> dict[str, Any]:
    (_, _), (layout, _), (brief, _) = _messages(place)
    return {
        "run": "r",
        "layout": layout,
        "brief": brief,
        "compiler": "gcc-1",
        "action": action_to_json(place.actions[0]),
        "files": {},
        "variables": {},
        "threads": 1,
        "cache": False,
    }
