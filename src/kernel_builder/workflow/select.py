"""What was asked for -> variants to build, and what is said when some of them cannot be built here.

Nothing here prints, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError, ExitCode, ToolchainError, UsageError
from kernel_builder.load.client import Environment, NoEnvironment, find_environment, why_not_loadable
from kernel_builder.variants.matrix import Kept, Matrix, all_variants, choose, unmatched
from kernel_builder.variants.names import ArchVariant, Platform
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.workflow.outcome import Unavailable, grouped
from kernel_builder.workflow.run import Run

_SHOWN = 3
_FEW = 12


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which variants are wanted.

    ``patterns`` are globs over variant names; without any, the set ``within`` is meant. ``local`` means what the client
    loads in the environment of ``python`` (default: the active one), and what can run there. ``platform`` is what the
    variants run on (default: this machine).
    """

    patterns: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    local: bool = False
    python: Path | None = None
    platform: Platform | None = None
    within: VariantSet | None = None


class UnavailableError(ToolchainError):
    """Some of what was asked for cannot be built here: all of it, in plan order.

    Where nothing but the network is the reason, the exit code says so.
    """

    def __init__(self, message: str, *, unavailable: Sequence[Unavailable], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.unavailable = tuple(unavailable)
        if all(entry.exit_code is ExitCode.NETWORK for entry in unavailable):
            self.exit_code = ExitCode.NETWORK

    def to_json(self) -> dict[str, object]:
        """As of every error, with what is not available."""
        return {**super().to_json(), "unavailable": [entry.to_json() for entry in self.unavailable]}


def this_platform() -> Platform:
    """This machine's platform. Raises :class:`UsageError` where no variant name exists for it."""
    try:
        return Platform.current()
    except ValueError as error:
        raise UsageError(f"cannot build kernels on this platform: {error}") from error


def refuse_unknown_backends(project: Project, backends: Iterable[Backend]) -> None:
    """Raise :class:`UsageError` for backends that the project does not have."""
    absent = [backend.value for backend in backends if backend not in project.backends]
    if absent:
        known = ", ".join(backend.value for backend in project.backends)
        raise UsageError(f"this kernel has no backend {', '.join(absent)}", hint=f"its backends are: {known}")


def select_variants(project: Project, selection: Selection, run: Run) -> Matrix:
    """The variants that ``selection`` means, in the surroundings of ``run``.

    Raises :class:`UsageError` for a name or a backend that the project does not have, :class:`ConfigError` when
    nothing is left to build.
    """
    platform = selection.platform or _named_platform(project, selection.patterns) or this_platform()
    everything = all_variants(project, load_support(), platform)
    refuse_unknown_backends(project, selection.backends)
    wrong = unmatched(everything, selection.patterns)
    if wrong:
        raise UsageError(
            f"no variant of this kernel matches {', '.join(wrong)}{_why_dropped(everything, wrong)}",
            hint=_other_platform(everything, wrong) or _what_there_is(everything, wrong),
        )
    if selection.local:
        return _local(project, everything, selection, run)
    within = selection.within or (VariantSet.ALL if selection.patterns else VariantSet.REQUIRED)
    matrix = choose(everything, patterns=selection.patterns, backends=selection.backends, within=within)
    if not matrix.kept:
        raise ConfigError(
            f"nothing to build: no variant is left{_grouped_reasons(matrix, project, selection.backends)}",
            hint="run 'kernel-builder list-variants --set all --why' to see why",
        )
    return matrix


def _what_there_is(matrix: Matrix, patterns: tuple[str, ...]) -> str:
    """All names, as long as they are few; otherwise those that look like the ones that were given."""
    names = [entry.name for entry in matrix.kept]
    meant = _what_was_meant(matrix, patterns)
    if meant:
        return f"{meant}; run 'kernel-builder list-variants --set all' to list all"
    if len(names) <= _FEW:
        return f"its variants here: {', '.join(names) or 'none'}"
    near = list(dict.fromkeys(name for pattern in patterns for name in get_close_matches(pattern, names)))
    question = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{question}run 'kernel-builder list-variants --set all' to list its {len(names)} variants here"


def _what_was_meant(matrix: Matrix, patterns: tuple[str, ...]) -> str | None:
    """The option to pass for a part of a name (``torch213``, ``2.13``, ``cu130``), a backend, or another option."""
    told = []
    for pattern in patterns:
        part = pattern.strip("*- ").lower().replace(".", "")
        if part in {"local", "all", "available"}:
            told.append(
                "run the same command with --local"
                if part == "local"
                else "run kernel-builder build without --variant to build every required variant"
            )
            continue
        if part in {entry.backend.value for entry in matrix.kept}:
            told.append(f"run the same command with --backend {part}")
            continue
        alike = names_like(pattern, [entry.name for entry in matrix.kept])
        if alike is not None:
            form, shown = alike
            told.append(f"did you mean --variant '{form}'? It matches {shown}")
    return "; ".join(told) or None


def names_like(given: str, names: Sequence[str]) -> tuple[str, str] | None:
    """The glob that ``given``, a part of a name such as ``torch213``, ``2.13`` or ``cu130``, was meant to be, and those
    of ``names`` that it matches, for people. ``None`` where it is none, or a whole name.
    """
    part = given.strip("*- ").lower().replace(".", "")
    if not part or part in names:
        return None
    for form in (f"{start}{part}{end}" for start in ("", "torch", "*") for end in ("-*", "*")):
        found = [name for name in names if fnmatchcase(name, form)]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            return form, f"{', '.join(found[:_SHOWN])}{more}"
    return None


def _grouped_reasons(matrix: Matrix, project: Project, backends: tuple[Backend, ...]) -> str:
    """A line per reason, with the first few names that it is given for: of ``backends``, if some were asked for."""
    names: dict[str, list[str]] = {}
    for entry in matrix.dropped:
        if not entry.other_platform and (not backends or entry.backend in backends):
            names.setdefault(entry.reason, []).append(entry.name)
    if not names:
        silent = matrix.silent_backends(project)
        names = {reason: [backend.value] for backend, reason in silent if not backends or backend in backends}
    lines = []
    for reason, dropped in names.items():
        more = f" and {len(dropped) - _SHOWN} more" if len(dropped) > _SHOWN else ""
        lines.append(f"\n  {', '.join(dropped[:_SHOWN])}{more}: {reason}")
    return "".join(lines)


def _why_dropped(matrix: Matrix, patterns: tuple[str, ...]) -> str:
    reasons = [
        next((entry.reason for entry in reversed(matrix.dropped) if fnmatchcase(entry.name, pattern)), None)
        for pattern in patterns
    ]
    return "".join(f" ({reason})" for reason in dict.fromkeys(filter(None, reasons)))


def _named_platform(project: Project, patterns: tuple[str, ...]) -> Platform | None:
    """The one platform that all variants of ``patterns`` are for: naming one of another platform is asking for it."""
    if not patterns:
        return None
    named: set[Platform] = set()
    for entry in all_variants(project, load_support(), None).kept:
        if isinstance(entry.variant, ArchVariant) and any(fnmatchcase(entry.name, pattern) for pattern in patterns):
            named.add(Platform(machine=entry.variant.machine, system=entry.variant.system))
    return named.pop() if len(named) == 1 else None


def _other_platform(matrix: Matrix, patterns: tuple[str, ...]) -> str | None:
    """What to do when the names that were given are those of another platform."""
    found = [entry for entry in matrix.dropped if any(fnmatchcase(entry.name, pattern) for pattern in patterns)]
    if not found or not all(entry.other_platform for entry in found):
        return None
    platforms = sorted({"-".join(entry.name.rsplit("-", 2)[1:]) for entry in found})
    return f"run the same command with --platform {platforms[0]} to build for it" if len(platforms) == 1 else None


def _local(project: Project, everything: Matrix, selection: Selection, run: Run) -> Matrix:
    """What the client loads by default in the active environment, and, where that needs a device that is not there,
    what this machine can run.
    """
    kind = project.framework.kind
    environment = find_environment(selection.python, run.environ, run.memory, torch=kind.needs_torch)
    if isinstance(environment, NoEnvironment):
        name = "torch" if kind.needs_torch else kind.value
        raise UsageError(
            f"--local builds for the {name} of the active environment: {environment.reason}",
            hint=f"run 'pip install {kind.package} kernels' there, or kernel-builder build --local --python FILE",
        )
    candidates = choose(everything, patterns=selection.patterns, backends=selection.backends)
    fitting = [
        entry
        for entry in candidates.kept
        if entry.obstacle is None and why_not_loadable(entry.variant, environment) is None
    ]
    if not fitting:
        raise UsageError(
            f"no variant of this kernel fits {environment.label} ({environment.python})",
            hint="run kernel-builder build --local without --variant and --backend: it chooses the variant"
            if selection.patterns or selection.backends
            else "its variants here: " + ", ".join(entry.name for entry in candidates.kept),
        )

    def rank(entry: Kept) -> tuple[bool, tuple[int, int]]:
        version = entry.row.variant.compute.version if entry.row else None
        return entry.row is not None, version or (0, 0)

    best = {entry.backend: entry for entry in sorted(fitting, key=rank)}
    loaded = best.get(environment.default_backend)
    runs = [entry for entry in best.values() if environment.has_device(entry.backend)]
    run_here = min(runs, key=lambda entry: entry.backend.is_host, default=None)
    kept: tuple[Kept, ...]
    remarks: tuple[str, ...]
    if loaded is not None and environment.has_device(loaded.backend):
        kept, remarks = (loaded,), ()
    elif loaded is not None and run_here is not None:
        kept, remarks = (loaded, run_here), _roles(loaded, run_here, environment)
    else:
        kept = (run_here or loaded or next(iter(best.values())),)
        remarks = _told_backend(kept[0], everything, candidates, environment)
    return Matrix(kept=kept, dropped=everything.dropped, remarks=remarks)


def _roles(loaded: Kept, run_here: Kept, environment: Environment) -> tuple[str, ...]:
    label = loaded.backend.label
    by_default = f"{loaded.name} is what the kernels client loads by default with {environment.label}"
    return (
        f"{by_default}; no {label} device was found here to run it",
        f"{run_here.name} is what this machine can run; the client loads it only when told to: {_call(run_here)}",
    )


def _told_backend(entry: Kept, everything: Matrix, candidates: Matrix, environment: Environment) -> tuple[str, ...]:
    """What to say of ``entry`` when the client looks for variants of another backend by default."""
    default = environment.default_backend
    if entry.backend is default:
        return ()
    own = [other for other in candidates.kept if other.backend is default]
    if own:
        reason = own[-1].obstacle or why_not_loadable(own[-1].variant, environment) or "they do not fit"
        what = f"cannot be built for it here ({reason})"
    elif any(other.backend is default for other in everything.kept):
        what = "were not requested"
    else:
        what = "this kernel does not have"
    looked = f"with {environment.label}, the kernels client looks for {default.label} variants by default, which {what}"
    return (f"{looked}; load {entry.name} with {_call(entry)}",)


def _call(entry: Kept) -> str:
    return f'get_local_kernel(path, backend="{entry.backend.value}")'


def silent_backends(project: Project, selection: Selection, run: Run) -> tuple[tuple[Backend, str], ...]:
    """Backends that no selected variant is for, with the reason; none where variants were asked for by name."""
    if selection.patterns or selection.local:
        return ()
    present = {entry.backend for entry in select_variants(project, selection, run).kept}
    platform = selection.platform or this_platform()
    reasons = dict(all_variants(project, load_support(), platform).silent_backends(project))
    within = selection.within or VariantSet.REQUIRED
    shown = "'kernel-builder list-variants --set all' shows them"
    other = f"none of its variants belongs to the set '{within.value}' ({shown})"
    return tuple(
        (backend, reasons.get(backend, other))
        for backend in dict.fromkeys(selection.backends or project.backends)
        if backend not in present
    )


def obstacles(matrix: Matrix) -> list[Unavailable]:
    """The selected variants that this version of kernel-builder has no compiler for."""
    return [
        Unavailable(
            name=entry.name,
            reason=entry.obstacle,
            remedy=(
                "build these with the reference implementation and upload them from there; uploads keep each "
                "other's variants"
            ),
        )
        for entry in matrix.kept
        if entry.obstacle is not None
    ]


def refuse(
    unavailable: Sequence[Unavailable], matrix: Matrix, selection: Selection, *, others: str = ""
) -> UnavailableError:
    """The error that lists everything that cannot be built here, each with what would help. ``others`` is the hint for
    the rest, whose number takes the place of ``{count}``.
    """
    total, rest = len(matrix.kept), len(matrix.kept) - len(unavailable)
    required = not selection.patterns and selection.within in {None, VariantSet.REQUIRED}
    what = "that Hub kernels must have" if required else "that were requested"
    lines = [f"{len(unavailable)} of the {total} variants {what} cannot be built here:"]
    for (reason, remedy), names in grouped(unavailable).items():
        lines += [f"  {name}" for name in names]
        lines += [f"      {line}" for line in reason.splitlines()]
        if remedy is not None:
            lines.append(f"      remedy: {remedy}")
    hint = others.format(count=rest) if rest else "run 'kernel-builder list-variants --why' to see what it can have"
    return UnavailableError("\n".join(lines), unavailable=unavailable, hint=hint)
