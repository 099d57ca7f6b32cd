"""Where the time of the last build went: reads its timeline, has headers measured once, and writes trace and page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import Action
from kernel_builder.config.reader import load_project
from kernel_builder.engine.contents import blob_digest
from kernel_builder.engine.read_headers import read_headers
from kernel_builder.engine.records import Records
from kernel_builder.engine.timeline import Recorded, read_timeline
from kernel_builder.errors import KernelBuilderError, UsageError
from kernel_builder.events import Notice
from kernel_builder.files import parse_json, write_text
from kernel_builder.plan.model import BuildPlan
from kernel_builder.timing.figures import Figures, figures_of
from kernel_builder.timing.page import facts_of, page_of
from kernel_builder.timing.texts import SourceText, source_text
from kernel_builder.timing.trace import trace_of
from kernel_builder.workflow.build import BuildRequest, prepare_build
from kernel_builder.workflow.prepare import work_directory
from kernel_builder.workflow.run import Run

if TYPE_CHECKING:
    from kernel_builder.config.model import Project

FOLDER = "timing"
_KEPT = "headers.json"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What the last build of ``project`` came to, and what its sources read; ``remark`` says why that is not known."""

    project: Project
    work: Path
    figures: Figures
    texts: tuple[SourceText, ...] = ()
    remark: str | None = None

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return facts_of(self.figures, self.texts, self.remark)


def time_last_build(request: BuildRequest, run: Run, *, headers: bool = True) -> Timing:
    """Where the time of the last build in the root of ``request`` went; with ``headers`` also what its sources read.

    Raises :class:`UsageError` where no build has run anything, and what reading ``build.toml`` raises.
    """
    project, work, recorded = last_build(request, run)
    timing = Timing(project=project, work=work, figures=figures_of(recorded))
    if not headers:
        return replace(timing, remark="Headers were not measured (--no-headers).")
    try:
        plan = prepare_build(request_for(request, recorded), run).plan
    except KernelBuilderError as error:
        return replace(timing, remark=f"Headers were not measured: {error.message}")
    texts, failed = _measured(plan, recorded, run)
    remark = f"Headers of {', '.join(failed)} were not measured: the preprocessor failed." if failed else None
    return replace(timing, texts=texts, remark=remark)


def last_build(request: BuildRequest, run: Run) -> tuple[Project, Path, Recorded]:
    """The project in the root of ``request``, its work directory, and what its last build recorded.

    Raises :class:`UsageError` where no build has run anything, and what reading ``build.toml`` raises.
    """
    project, _ = load_project(request.root)
    work = work_directory(project, run.store) / request.build_type.folder
    recorded = read_timeline(work)
    if not recorded.spans:
        raise UsageError(
            f"no build of {project.root} has compiled anything yet", hint="run kernel-builder build --timing"
        )
    return project, work, recorded


def write_timing(timing: Timing, folder: Path | None = None) -> tuple[Path, Path]:
    """Write page and trace of ``timing`` into ``folder`` (default: ``timing`` in the work directory); their paths.

    Raises ``OSError``.
    """
    target = timing.work / FOLDER if folder is None else folder
    target.mkdir(parents=True, exist_ok=True)
    page, trace = target / "timing.html", target / "trace.json"
    write_text(trace, json.dumps(trace_of(timing.figures), separators=(",", ":")) + "\n")
    write_text(page, page_of(timing.project.name, timing.figures, timing.texts, timing.remark))
    return page, trace


def request_for(request: BuildRequest, recorded: Recorded) -> BuildRequest:
    """A request for the variants that were built, whatever was asked for then."""
    variants = tuple(dict.fromkeys(span.variant for span in recorded.spans))
    return BuildRequest(
        root=request.root, patterns=variants, list_unreachable=True, recall=True, build_type=request.build_type
    )


def _measured(plan: BuildPlan, recorded: Recorded, run: Run) -> tuple[tuple[SourceText, ...], list[str]]:
    """What the sources of the last build read, and those for which that is not known. Nothing is measured twice."""
    wanted = {span.source for span in recorded.spans} - {MODULE_SOURCE}
    chosen: dict[str, Action] = {}
    for action in plan.actions:
        if action.depfile is not None and action.source in wanted:
            chosen.setdefault(action.source, action)
    folder = plan.places.work / FOLDER
    records, kept = Records(plan.places.work), _read_kept(folder / _KEPT)
    texts: list[SourceText] = []
    failed: list[str] = []
    entries: dict[str, object] = {}
    for source, action in sorted(chosen.items()):
        key = _key(records, action)
        text = kept.get(key) if key is not None else None
        if text is None:
            run.reporter.emit(Notice(message=f"measuring the headers of {source}"))
            text = _measure(plan, action, run, folder)
        if text is None:
            failed.append(source)
            continue
        texts.append(text)
        if key is not None:
            entries[key] = text.to_json()
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _KEPT, json.dumps(entries))
    return tuple(sorted(texts, key=lambda one: (-one.size, one.source))), failed


def _measure(plan: BuildPlan, action: Action, run: Run, folder: Path) -> SourceText | None:
    found = read_headers(action, plan.places, run.environ, folder / "scratch")
    if found is None:
        return None
    text, seconds = found
    source = plan.places.path(action.inputs[0], action)
    return source_text(
        action, plan.places, text, seconds, source.read_text(encoding="utf-8", errors="replace").splitlines()
    )


def _key(records: Records, action: Action) -> str | None:
    """All that decides what the source of ``action`` reads; ``None`` where it did not run well."""
    record = records[action.id]
    if record is None:
        return None
    return blob_digest(json.dumps([action.id, record.digest, sorted(record.reads.items())]).encode())


def _read_kept(file: Path) -> Mapping[str, SourceText]:
    try:
        return {key: SourceText.from_json(value) for key, value in parse_json(file.read_bytes()).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
