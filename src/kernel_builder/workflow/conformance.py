"""What a build checks of itself: the project before anything is chosen, fetched or compiled, each variant before it is
put in place.

A check that found nothing wrong is remembered beside the build's other files, so that it costs nothing when nothing
changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder import __version__
from kernel_builder.config.backends import Role
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME as BUILD_TOML
from kernel_builder.config.reader import load_project, read_file
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.errors import BuildError, ConfigError, Diagnostic, KernelBuilderError, Level, UsageError
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import parse_json, write_text
from kernel_builder.load.evidence import LoadResult
from kernel_builder.plan.sections import unreachable_section
from kernel_builder.project.inputs import follow_links
from kernel_builder.toml.document import open_document
from kernel_builder.toolchain.lock import read_lock
from kernel_builder.toolchain.settings import load_settings
from kernel_builder.variants.matrix import Matrix, all_variants, choose
from kernel_builder.variants.names import parse_variant
from kernel_builder.variants.support import VariantSet, load_support

if TYPE_CHECKING:
    from kernel_builder.check.model import Finding
    from kernel_builder.check.subject import SourceTree

_SOURCE_RULES = ("KB2", "KB3", "KB470", "KB48")
_WARNED_OF = ("KB470",)
"""Those of them that read every source, and stop no build."""
_PACKAGE_RULES = ("KB411", "KB412", "KB416", "KB430", "KB450", "KB455", "KB456", "KB457", "KB458")
"""What can be known of a variant from the files that it is packed from."""
# The variant's Python files are the package's, which were checked as sources. What its library leaves undefined was
# compared with the tables of the very release that it is for, right after it was linked.
_CHECKED_BEFORE = ("KB131", "KB132", "KB133", "KB134", "KB201", "KB202", "KB203", "KB3")
_LOADED = "KB5"
_NEVER = frozenset({"secret"})
"""Rules that nobody is told to ignore."""
_SHOWN = 20
_FEW = 3


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A project that was read to be built: ``project``, ``None`` where ``build.toml`` has errors, and all that is wrong
    with it.

    ``diagnostics`` are those of ``build.toml``; ``findings`` what rules have to say about the sources and the files
    that are packed.
    """

    root: Path
    project: Project | None
    diagnostics: tuple[Diagnostic, ...]
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> tuple[Finding, ...]:
        """The findings that a build does not get past."""
        return tuple(finding for finding in self.findings if finding.severity.value == Level.ERROR.value)

    @property
    def all_diagnostics(self) -> tuple[Diagnostic, ...]:
        """Those of ``build.toml``, then what else stops a build. What a rule says of settings that were read before is
        not said again.
        """
        told = {
            (one.file, one.line, f"{one.key}: {one.message}" if one.key else one.message) for one in self.diagnostics
        }
        return (
            *self.diagnostics,
            *(
                Diagnostic(
                    severity=Level.ERROR,
                    message=f"{finding.rule.code}: {finding.message}",
                    file=self.root / finding.path,
                    line=finding.line,
                    hint=finding.hint or finding.rule.remedy,
                )
                for finding in self.stops
                if (self.root / finding.path, finding.line, finding.message) not in told
            ),
        )


def examine(root: Path, environ: Mapping[str, str], ignore: Sequence[str] = ()) -> Examined:
    """Read the project in ``root`` to build it, and look for whatever would stop that, but for the rules ``ignore``.

    ``environ`` names the user's own settings, which count with those of the project and with its lock. Nothing is
    written, fetched or started. Raises :class:`ConfigError` where there is no file to read, :class:`UsageError` for an
    unknown rule.
    """
    try:
        project, diagnostics = load_project(root, to_build=True)
    except ConfigError as error:
        if not error.diagnostics:
            raise
        from kernel_builder.check.subject import SourceTree  # noqa: PLC0415  (start-up time)

        return Examined(
            root=root,
            project=None,
            diagnostics=(*error.diagnostics, *_in_other_files(root, environ)),
            findings=_in_sources(SourceTree(root, ""), (*ignore, *_WARNED_OF), ()),
        )
    everything = all_variants(project, load_support(), None)
    required = choose(everything, within=VariantSet.REQUIRED)
    names = tuple(entry.name for entry in required.kept)
    told = [*diagnostics, *_not_planned(project, everything, required), *_in_other_files(root, environ)]
    findings: list[Finding] = []
    source = _as_source(project)
    looks: tuple[Callable[[], None], ...] = (
        lambda: findings.extend(_in_sources(source, (*ignore, *_WARNED_OF), names)),
        lambda: findings.extend(_in_package(source, ignore)),
        lambda: follow_links(project),
    )
    for look in looks:
        try:
            look()
        except ConfigError as error:  # a file that cannot be packed or named at all
            told += _told_by(error)
    return Examined(root=root, project=project, diagnostics=tuple(told), findings=_in_order(findings))


def _told_by(error: KernelBuilderError) -> tuple[Diagnostic, ...]:
    """The diagnostics of an error, or itself as one of no line."""
    whole = Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint)
    return (error.diagnostics if isinstance(error, ConfigError) else ()) or (whole,)


def _in_other_files(root: Path, environ: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Mistakes in settings and in the lock."""
    found: list[Diagnostic] = []
    for read in (lambda: load_settings(root, environ), lambda: read_lock(root)):
        try:
            read()
        except (ConfigError, UsageError) as error:
            found += _told_by(error)
    return tuple(found)


def _not_planned(project: Project, everything: Matrix, required: Matrix) -> tuple[Diagnostic, ...]:
    """What ``build.toml`` asks for and no toolkit does, as far as the tables tell."""
    file = project.root / BUILD_TOML
    _, report = open_document(read_file(file), file)  # the project was read from it: no mistake is in there
    if not everything.kept:
        reasons = dict.fromkeys(entry.reason for entry in everything.dropped)
        report.error(
            ("general", "backends"), f"no variant is left to build: {'; '.join(list(reasons)[:_FEW])}", at_key=True
        )
    for section in project.sections:
        found = unreachable_section(section, required)
        key = section.backend.key(Role.ARCHITECTURES)
        if found is not None and key is not None:
            minver = section.backend.key(Role.MINVER)
            skip = f", or set {minver.name} to skip the section with older toolkits" if minver is not None else ""
            report.error(("kernel", section.id, key.name), found, hint=f"add one that it builds for{skip}")
    return report.diagnostics()


def read_to_build(
    root: Path, environ: Mapping[str, str], ignore: Sequence[str] = ()
) -> tuple[Project, tuple[Diagnostic, ...]]:
    """The project in ``root`` and the warnings about its ``build.toml``.

    Raises :class:`ConfigError`: then with all else that would stop the build.
    """
    try:
        return load_project(root, to_build=True)
    except ConfigError as error:
        if not error.diagnostics:
            raise
        found = examine(root, environ, ignore).all_diagnostics
        more = sum(one.severity is Level.ERROR for one in found[len(error.diagnostics) :])
        if not more:
            raise
        raise ConfigError(f"{error.message}; other files have {more} more", diagnostics=found) from error


def _find(project: Project, ignore: Sequence[str], variants: Sequence[str]) -> tuple[Finding, ...]:
    source = _as_source(project)
    return _in_order((*_in_sources(source, ignore, variants), *_in_package(source, ignore)))


def _as_source(project: Project) -> SourceTree:
    from kernel_builder.check.subject import SourceTree  # noqa: PLC0415  (start-up time)

    return SourceTree(project.root, "", loaded=(project, ()))


def _in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.order))


def _in_sources(source: SourceTree, ignore: Sequence[str], variants: Sequence[str]) -> tuple[Finding, ...]:
    """What rules have to say about the op namespace and the Python code of the project ``source``."""
    from kernel_builder.check.engine import check_found, select_rules  # noqa: PLC0415  (start-up time)
    from kernel_builder.check.model import Settings  # noqa: PLC0415
    from kernel_builder.check.subject import Discovery  # noqa: PLC0415

    return check_found(
        [Discovery(shown="", sources=(source,))],
        Settings(built_for=_oldest_pythons(variants)),
        chosen=select_rules(_SOURCE_RULES, ignore),
    ).findings


def _in_package(source: SourceTree, ignore: Sequence[str]) -> tuple[Finding, ...]:
    """What rules have to say about the variants that the project is packed into, as far as its files decide it."""
    from kernel_builder.check.engine import check_found, select_rules  # noqa: PLC0415  (start-up time)
    from kernel_builder.check.model import Settings  # noqa: PLC0415
    from kernel_builder.check.subject import Discovery  # noqa: PLC0415
    from kernel_builder.workflow.preview import previews  # noqa: PLC0415

    return check_found(
        [Discovery(shown="", variants=previews(source))],
        Settings(required=False, hash_files=False),
        chosen=select_rules(_PACKAGE_RULES, ignore),
    ).findings


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
        """Look for whatever rules would stop the build; ``identity`` stands for the content of the project.

        Raises :class:`BuildError` with the findings that are errors, :class:`UsageError` for an unknown rule.
        """
        if _remembered(self._sources_stamp, self._sources_key(identity)):
            return
        from kernel_builder.check.model import Severity  # noqa: PLC0415  (start-up time)

        findings = _find(self.project, self.ignore, self.variants)
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        if errors:
            slugs = {finding.rule.slug for finding in errors}
            codes = " ".join(f"--ignore {code}" for code in sorted({finding.rule.code for finding in errors}))
            anyway = "" if _NEVER & slugs else f"; 'kernel-builder build {codes}' builds it anyway"
            raise BuildError(
                "the kernel breaks the rules for Hub kernels, so it was not built:\n" + _listed(errors),
                hint=f"run 'kernel-builder explain {errors[0].rule.code}' for details{anyway}",
            )
        for finding in findings:
            if finding.accepted is not None:
                reporter.emit(Notice(message=f"{_head(finding)}; accepted: {finding.accepted}", once=True))
        warnings = [finding for finding in findings if finding.severity is Severity.WARNING]
        for text in _texts(warnings[:_SHOWN]):
            reporter.emit(Notice(message=text, warning=True, once=True))
        if len(warnings) > _SHOWN:
            reporter.emit(
                Notice(message=f"{len(warnings) - _SHOWN} more warnings: kernel-builder check", warning=True, once=True)
            )

    def remember_sources(self, identity: str) -> None:
        """Keep that :meth:`check_sources` has nothing against the content that ``identity`` stands for."""
        _remember(self._sources_stamp, self._sources_key(identity))

    @property
    def _sources_stamp(self) -> Path:
        return self.work / "checked.json"

    def _sources_key(self, identity: str) -> str:
        return self._key(identity, *map(str, _oldest_pythons(self.variants)))

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
            return "it breaks the rules for Hub kernels:\n" + _listed(errors)
        seen_by_loading = [finding for finding in report.findings if finding.rule.code.startswith(_LOADED)]
        for text in _texts([finding for finding in seen_by_loading if finding.severity is Severity.WARNING]):
            reporter.emit(Notice(message=text, warning=True, once=True))
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


def _head(finding: Finding) -> str:
    from kernel_builder.check.formats import head  # noqa: PLC0415  (start-up time)

    return head(finding)


def _texts(findings: Sequence[Finding]) -> tuple[str, ...]:
    from kernel_builder.check.formats import as_texts  # noqa: PLC0415  (start-up time)

    return tuple(as_texts(findings))


def _listed(findings: Sequence[Finding]) -> str:
    lines = [f"    {line}" for text in _texts(findings[:_SHOWN]) for line in text.split("\n")]
    if len(findings) > _SHOWN:
        lines.append(f"    and {len(findings) - _SHOWN} more: kernel-builder check")
    return "\n".join(lines)


def _remembered(stamp: Path, key: str) -> bool:
    try:
        return bool(parse_json(stamp.read_text(encoding="utf-8")) == key)
    except (OSError, ValueError):
        return False


def _remember(stamp: Path, key: str) -> None:
    stamp.parent.mkdir(parents=True, exist_ok=True)
    write_text(stamp, json.dumps(key))
