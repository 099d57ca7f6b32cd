"""What must hold before anything is published, and what people must be told about what they publish."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_builder.artifact.built import stale_text, stale_variants
from kernel_builder.artifact.digest import hash_variant
from kernel_builder.check.engine import check_found, check_paths, select_rules
from kernel_builder.check.formats import as_texts, head
from kernel_builder.check.load import loadable
from kernel_builder.check.model import Finding, Settings, Severity
from kernel_builder.check.secrets import SECRET
from kernel_builder.check.subject import Discovery, SourceTree, VariantDir
from kernel_builder.config.model import Project
from kernel_builder.errors import BuildError
from kernel_builder.events import Notice, Reporter
from kernel_builder.hub.local import UploadSource, variant_files
from kernel_builder.hub.plan import LocalFile
from kernel_builder.load.client import find_environment
from kernel_builder.load.evidence import LoadResult, LoadStatus
from kernel_builder.load.proofs import Proofs
from kernel_builder.load.proving import prove
from kernel_builder.variants.matrix import all_variants, choose
from kernel_builder.variants.names import Variant
from kernel_builder.variants.support import VariantSet, load_support

_SHOWN = 30
_LOADING = "KB5"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Variants that may be published: their files, as they were checked. ``dirty`` are those that no commit gives."""

    files: tuple[LocalFile, ...]
    dirty: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Proving:
    """How variants are loaded before they are published: by the Python that the variables ``environ`` lead to.

    ``proofs`` is the directory where proofs are kept. ``exports`` gives the names that the torch of a variant exports;
    ``None`` where they are not at hand.
    """

    environ: Mapping[str, str] = field(repr=False)
    proofs: Path
    exports: Callable[[Variant], frozenset[str] | None] | None = None


def check_source(
    source: UploadSource,
    reporter: Reporter,
    *,
    ignore: Sequence[str] = (),
    allow_stale: bool = False,
    proving: Proving | None = None,
) -> Checked:
    """Judge ``source`` as it would be published: digests first, then every conformance rule but those of ``ignore``.

    What loading the variants shows is judged as well, where ``proving`` says how; what a build has shown counts.

    Warnings, and builds from what is in no commit, are told. Raises :class:`BuildError` with the findings that are
    errors, for variants that lack architectures, were built to be tried alone or are no release, and, unless
    ``allow_stale``, for those that were built from other sources than those beside them.
    """
    for note in source.notes:
        reporter.emit(Notice(message=note, warning=True))
    _refuse_partial(source)
    _refuse_trials(source)
    _refuse_no_release(source)
    _judge_age(source, reporter, allow_stale=allow_stale)
    files = tuple(file for variant in source.variants for file in variant_files(variant, source.folder))
    report = check_paths(
        [source.folder] if source.is_whole else [variant.path for variant in source.variants],
        Settings(
            required=False,
            evidence=_evidence(source, proving, reporter, ignore),
            torch_exports=proving.exports if proving is not None else None,
        ),
        ignore=ignore,
    )
    report = replace(report, findings=(*report.findings, *_beside(source, ignore)))
    for finding in report.accepted:
        reporter.emit(Notice(message=f"{head(finding)}; accepted: {finding.accepted}", warning=True))
    for text in as_texts(finding for finding in report.findings if finding.severity is Severity.WARNING):
        reporter.emit(Notice(message=text, warning=True))
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if errors:
        listed = "".join(f"\n  {line}" for text in as_texts(errors[:_SHOWN]) for line in text.split("\n"))
        more = f"\n  and {len(errors) - _SHOWN} more: kernel-builder check {source.folder}" * (len(errors) > _SHOWN)
        codes = ", ".join(sorted({finding.rule.code for finding in errors}))
        raise BuildError(
            f"the kernel in {source.folder} breaks the rules for Hub kernels, so nothing was uploaded:{listed}{more}",
            hint=f"fix it and build again, or skip a rule: kernel-builder upload --ignore CODE ({codes})",
        )
    dirty = tuple(variant.name for variant in source.variants if variant.is_dirty)
    uncommitted = tuple(variant.name for variant in source.variants if variant.is_uncommitted)
    for names, what in ((dirty, "with uncommitted changes"), (uncommitted, "that were in no git commit")):
        if names:
            said = f"built from sources {what}, so nobody can reproduce this build: {', '.join(names)}"
            reporter.emit(Notice(message=said, warning=True))
    return Checked(files=files, dirty=(*dirty, *uncommitted))


def _beside(source: UploadSource, ignore: Sequence[str]) -> tuple[Finding, ...]:
    """Secrets in what is published of the project itself."""
    found = Discovery(shown="", sources=(SourceTree(source.directory, os.fspath(source.directory)),))
    return check_found([found], Settings(), chosen=select_rules((SECRET.code,), ignore)).findings


def _evidence(
    source: UploadSource, proving: Proving | None, reporter: Reporter, ignore: Sequence[str]
) -> dict[str, LoadResult]:
    """What loading each variant shows, by its name. What could not be loaded here is told."""
    if proving is None or not any(code.startswith(_LOADING) for code in select_rules((), ignore)):
        return {}
    listed = [(variant, loadable(VariantDir(variant.path, variant.name))) for variant in source.variants]
    torch = any(kernel is not None and kernel.variant.needs_torch for _, kernel in listed)
    environment, proofs = find_environment(None, proving.environ, torch=torch), Proofs(proving.proofs)
    found: dict[str, LoadResult] = {}
    for variant, kernel in listed:
        if kernel is not None:
            log = proving.proofs / f"{variant.name}-{kernel.ops_id}.log"
            found[variant.name] = prove(kernel, environment, proofs, hash_variant(variant.path), log=log)
    unproven: dict[str, list[str]] = {}
    for name, load in found.items():
        if load.status is LoadStatus.NOT_LOADED:
            unproven.setdefault(load.told, []).append(name)
    for told, names in unproven.items():
        reporter.emit(Notice(message=f"{', '.join(names)}: {told}"))
    return found


def _refuse_partial(source: UploadSource) -> None:
    partial = {variant.name: variant.left_out for variant in source.variants if variant.left_out}
    if partial:
        told = "; ".join(f"{name} lacks {', '.join(archs)}" for name, archs in partial.items())
        wanted = " ".join(f"--variant {name}" for name in partial)
        raise BuildError(
            f"built for some of their architectures only (--arch or --fast): {told}; nothing was uploaded",
            hint=f"build them for all architectures: kernel-builder build {source.directory} {wanted}",
        )


def _refuse_trials(source: UploadSource) -> None:
    trials = {variant.name: variant.trial for variant in source.variants if variant.trial}
    if trials:
        reasons: dict[str, list[str]] = {}
        for name, reason in trials.items():
            reasons.setdefault(reason, []).append(name)
        told = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        raise BuildError(
            f"built for trying out, not for publishing: {told}; nothing was uploaded",
            hint="build them with a toolkit of that release; 'kernel-builder toolchain explain' shows where it can come"
            " from",
        )


def _refuse_no_release(source: UploadSource) -> None:
    found = {variant.name: variant.build_type for variant in source.variants if not variant.build_type.is_release}
    if found:
        told = ", ".join(f"{name} ({build_type.options})" for name, build_type in found.items())
        wanted = " ".join(f"--variant {name}" for name in found)
        raise BuildError(
            f"built for debuggers or sanitizers, not for users: {told}; nothing was uploaded",
            hint=f"build them for users with: kernel-builder build {source.directory} {wanted}",
        )


def _judge_age(source: UploadSource, reporter: Reporter, *, allow_stale: bool) -> None:
    stale = stale_variants(source.project, source.variants) if source.project is not None else ()
    if stale and not allow_stale:
        raise BuildError(
            f"{stale_text(stale)}; nothing was uploaded",
            hint=f"build again with: kernel-builder build {source.directory}; or upload them as they are with:"
            f" kernel-builder upload --allow-stale {source.directory}",
        )
    if stale:
        reporter.emit(Notice(message=stale_text(stale), warning=True))


def missing_variants(project: Project, present: Collection[str]) -> dict[str, list[str]]:
    """Variants that a conforming kernel of ``project`` must have and that are not ``present``, by platform.

    Platforms of which nothing is there count, too: a kernel is built for each of them on a machine of its own.
    """
    table = load_support()
    required = choose(all_variants(project, table, None), within=VariantSet.REQUIRED)
    missing: dict[str, list[str]] = {}
    for entry in required.kept:
        if entry.name not in present:
            missing.setdefault(str(entry.row.platform) if entry.row else "any platform", []).append(entry.name)
    return missing
