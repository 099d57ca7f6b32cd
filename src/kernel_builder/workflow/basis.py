"""What the outcome of a build rests on: every file, directory and program of this machine that could change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernel_builder.artifact.built import CARD
from kernel_builder.artifact.digest import METADATA
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.git import deciding_files
from kernel_builder.load.client import Environment, NoEnvironment
from kernel_builder.seen import Sighting
from kernel_builder.store.settings import index_files
from kernel_builder.toolchain.host import MadeOf, parts_of
from kernel_builder.toolchain.lock import LOCK_NAME
from kernel_builder.toolchain.model import HostCompiler
from kernel_builder.toolchain.provide import CHOICE_SECONDS
from kernel_builder.toolchain.settings import user_file
from kernel_builder.toolchain.sysroot import host_libraries
from kernel_builder.walking import BYTECODE
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.slim import FILE as DIFFERING
from kernel_builder.workflow.unchanged import Basis, KnownTree


def basis_of(
    prepared: Prepared,
    outcome: BuildOutcome,
    environment: Environment | NoEnvironment,
    run: Run,
    sighting: Sighting,
) -> Basis | None:
    """What ``outcome`` rests on, which was made of ``prepared`` since ``sighting`` began; ``None`` where not all of it
    can be told, or some of it changed meanwhile.
    """
    kept = _kept_choices(prepared)
    git = deciding_files(prepared.project.root, run.environ)
    if kept is None or git is None or not prepared.identity.lasts or not outcome.ok:
        return None
    if any(host.is_apple for host in _hosts(prepared)):
        return None  # xcrun has settings of its own that decide what it finds
    for path in (*git, *_settings(prepared, run), *_host_files(prepared, run)):
        sighting.file(path)
    for name in prepared.identity.tracked:
        sighting.file(prepared.project.root / name)
    for path in (*kept, prepared.plan.places.work / DIFFERING):
        sighting.file(path, own=True)
    compilers = {host: parts_of(host, run.environ, run.answers) for host in _hosts(prepared)}
    for parts in compilers.values():
        for folder in parts.listed:
            sighting.names(folder)
    _look_at_output(sighting, prepared, outcome)
    read = prepared.planning.survey.inputs.seen
    seen = _together([environment.seen, *run.answers.sightings, read.to_json(), sighting.to_json()])
    if seen is None or sighting.disturbed or read.disturbed or _is_late(read, sighting.since):
        return None
    return Basis(
        seen=seen,
        trees=tuple(_trees(compilers, prepared)),
        entries=tuple(str(run.store.entries / name) for name in sorted(run.store.used)),
        until=min((path.stat().st_mtime + CHOICE_SECONDS for path in kept), default=None),
    )


def _is_late(part: Sighting, since: int) -> bool:
    """Whether a file was changed after ``since``: what was read of it before may be something else."""
    return any(entry is not None and entry[0][4] >= since for entry in part.files.values())


def _together(parts: Iterable[Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    found: dict[str, dict[str, Any]] = {"files": {}, "folders": {}, "links": {}}
    for part in parts:
        if part is None:
            return None
        for key, entries in found.items():
            entries.update(part[key])
    return found


def _kept_choices(prepared: Prepared) -> tuple[Path, ...] | None:
    """The files that keep which toolchains were chosen; ``None`` where one rests on more than that: on what sources
    answered just now, or on parts that are used where they lie.
    """
    chosen, found = prepared.chosen, []
    blocked = {entry.name for entry in prepared.matrix.kept if entry.obstacle is not None}
    if any(one.name not in blocked for one in chosen.unavailable):
        return None
    for name, resolved in chosen.resolved.items():
        if any(taken.root is not None for taken in resolved.chain.taken):
            return None
        if name in chosen.locked:
            continue
        file = chosen.provider.kept_file(resolved.request) if chosen.provider is not None else None
        if file is None:
            return None
        found.append(file)
    return tuple(dict.fromkeys(found))


def _settings(prepared: Prepared, run: Run) -> Iterator[Path]:
    """The files that settings come from, whether or not they exist."""
    root = prepared.project.root
    yield from (root / FILE_NAME, root / LOCK_NAME, root / CARD, user_file(run.environ))
    yield from index_files(run.environ)


def _host_files(prepared: Prepared, run: Run) -> Iterator[Path]:
    """The compilers that are used, and the libraries of theirs that the link-time view of the C library is made of."""
    for host in _hosts(prepared):
        yield host.cxx
        yield from host_libraries(host, run.environ, run.answers).values()


def _hosts(prepared: Prepared) -> tuple[HostCompiler, ...]:
    """The compilers that are used, measured."""
    return tuple(dict.fromkeys(toolchain.host for toolchain in prepared.planning.toolchains.values()))


def _trees(compilers: Mapping[HostCompiler, MadeOf], prepared: Prepared) -> Iterator[KnownTree]:
    """Compilers, with the headers of the system, and Python's headers: thousands of files, as they were measured before
    anything was compiled.
    """
    for host, parts in compilers.items():
        identity = host.fingerprint.removeprefix(parts.driver)
        yield tuple(map(str, parts.files)), tuple(map(str, parts.folders)), identity
    pythons = (toolchain.python for toolchain in prepared.planning.toolchains.values())
    for python in dict.fromkeys(python for python in pythons if python is not None):
        yield (), tuple(map(str, python.folders)), python.identity


def _look_at_output(sighting: Sighting, prepared: Prepared, outcome: BuildOutcome) -> None:
    """The variants, and the card beside them, which describes all variants that are there."""
    for variant in outcome.variants:
        if variant.path is not None:
            sighting.link(variant.path)
            sighting.below(variant.path, {BYTECODE})
    if (prepared.project.root / CARD).is_file():
        sighting.names(outcome.output)
        sighting.file(outcome.output / CARD, own=True)
        for path in sorted(outcome.output.glob(f"*/{METADATA}")):
            sighting.file(path, own=True)
