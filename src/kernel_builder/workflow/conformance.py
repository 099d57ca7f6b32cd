"""What a build checks of itself: the sources before anything is compiled, each variant before it is put in place.

A check that found nothing wrong is remembered beside the build's other files, so that it costs nothing when nothing
changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder import __version__
from kernel_builder.config.model import Project
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.errors import BuildError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import write_text
from kernel_builder.load.evidence import LoadResult
from kernel_builder.variants.names import parse_variant
from kernel_builder.variants.support import load_support

if TYPE_CHECKING:
    from kernel_builder.check.model import Finding

_SOURCE_RULES = ("KB2", "KB3", "KB470", "KB48")
# The variant's Python files are the package's, which were checked as sources.
_CHECKED_BEFORE = ("KB201", "KB202", "KB203", "KB3")
_LOADED = "KB5"
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """The checks of one build. ``work`` keeps what was checked; ``ignore`` are rules that are passed over; ``variants``
    are the names of all variants that the sources are for, whose torch says which Pythons matter.
    """

    project: Project
    work: Path
    variants: tuple[str, ...]
    ignore: tuple[str, ...] = ()

    def check_sources(self, identity: str, reporter: Reporter) -> None:
        """Judge the op namespace and the Python code of the project; ``identity`` stands for its content.

        Raises :class:`BuildError` with the findings that are errors, :class:`UsageError` for an unknown rule.
        """
        built_for = _oldest_pythons(self.variants)
        stamp, key = self.work / "checked.json", self._key(identity, *map(str, built_for))
        if _remembered(stamp, key):
            return
        from kernel_builder.check.engine import check_found, select_rules  # noqa: PLC0415  (start-up time)
        from kernel_builder.check.model import Settings, Severity  # noqa: PLC0415
        from kernel_builder.check.subject import Discovery, SourceTree  # noqa: PLC0415

        source = SourceTree(self.project.root, "")
        report = check_found(
            [Discovery(shown="", sources=(source,))],
            Settings(built_for=built_for),
            chosen=select_rules(_SOURCE_RULES, self.ignore),
        )
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        if errors:
            codes = ", ".join(sorted({finding.rule.code for finding in errors}))
            raise BuildError(
                "the kernel breaks rules of Hub kernels, so it was not built:\n" + _listed(errors),
                hint=f"run 'check --explain {errors[0].rule.code}' for details; --ignore {codes} builds it anyway",
            )
        for finding in report.accepted:
            reporter.emit(Notice(message=f"{_line(finding)}; accepted: {finding.accepted}"))
        warnings = [finding for finding in report.findings if finding.severity is Severity.WARNING]
        for finding in warnings[:_SHOWN]:
            reporter.emit(Notice(message=_line(finding), warning=True))
        if len(warnings) > _SHOWN:
            reporter.emit(Notice(message=f"{len(warnings) - _SHOWN} more warnings: kernel-builder check", warning=True))
        _remember(stamp, key)

    def check_variant(
        self, stage: Path, name: str, fingerprint: str, load: LoadResult, reporter: Reporter
    ) -> str | None:
        """What is wrong with a finished variant in ``stage`` that is to be called ``name``; ``None`` for nothing.

        ``fingerprint`` stands for every byte of it; ``load`` is what loading it showed. Warnings about that are told.
        """
        stamp, key = self.work / name / "checked.json", self._key(fingerprint, repr(load))
        if _remembered(stamp, key):
            return None
        from kernel_builder.check.engine import check_found, select_rules  # noqa: PLC0415  (start-up time)
        from kernel_builder.check.model import Settings, Severity  # noqa: PLC0415
        from kernel_builder.check.subject import Discovery, SourceTree, VariantDir  # noqa: PLC0415

        class Staged(VariantDir):
            @property
            def name(self) -> str:
                return name

        variant = Staged(stage, name, source=SourceTree(self.project.root, ""))
        report = check_found(
            [Discovery(shown=name, variants=(variant,))],
            Settings(required=False, hash_files=False, built_for=_oldest_pythons((name,)), evidence={name: load}),
            chosen=select_rules((), (*_CHECKED_BEFORE, *self.ignore)),
        )
        errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
        if errors:
            return "it breaks conformance rules:\n" + _listed(errors)
        seen_by_loading = [finding for finding in report.findings if finding.rule.code.startswith(_LOADED)]
        for finding in seen_by_loading:
            if finding.severity is Severity.WARNING:
                reporter.emit(Notice(message=_line(finding), warning=True))
        _remember(stamp, key)
        return None

    def _key(self, *content: str) -> str:
        words = [__version__, *content, self._settings(), *sorted(self.ignore)]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()

    def _settings(self) -> str:
        """A digest of the file that says what is accepted."""
        try:
            return hashlib.sha256((self.project.root / FILE_NAME).read_bytes()).hexdigest()
        except OSError:
            return ""


def _oldest_pythons(variants: Sequence[str]) -> tuple[tuple[str, tuple[int, int]], ...]:
    """The oldest Python of each variant, with the torch that needs it; nothing where one of them goes with any."""
    found = [load_support().oldest_python(parse_variant(name)) for name in variants]
    return () if None in found else tuple(sorted({entry for entry in found if entry is not None}))


def _line(finding: Finding) -> str:
    from kernel_builder.toml.nodes import printable  # noqa: PLC0415  (start-up time)

    place = printable(finding.path) + (f":{finding.line}" if finding.line is not None else "")
    return f"{place}: {finding.rule.code}: {finding.message}"


def _listed(findings: Sequence[Finding]) -> str:
    lines = [f"    {_line(finding)}" for finding in findings[:_SHOWN]]
    if len(findings) > _SHOWN:
        lines.append(f"    and {len(findings) - _SHOWN} more: kernel-builder check")
    return "\n".join(lines)


def _remembered(stamp: Path, key: str) -> bool:
    try:
        return bool(json.loads(stamp.read_text(encoding="utf-8")) == key)
    except (OSError, ValueError):
        return False


def _remember(stamp: Path, key: str) -> None:
    stamp.parent.mkdir(parents=True, exist_ok=True)
    write_text(stamp, json.dumps(key))
