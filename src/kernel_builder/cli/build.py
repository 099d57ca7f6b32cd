"""``kernel-builder build``: thin; the work is in :mod:`kernel_builder.workflow.build`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TypedDict, Unpack

import click

from kernel_builder.actions.headers import Headers
from kernel_builder.cli.build_types import BuildTypeOptions, build_type_of, build_type_options
from kernel_builder.cli.completing import RULE, VARIANT
from kernel_builder.cli.console import errors_as_json, mebibytes, show_error, width_of_stdout
from kernel_builder.cli.fitting import wrapped
from kernel_builder.cli.options import (
    PathName,
    how_many_at_once,
    offline_option,
    platform_option,
    project_directory,
    sandbox_options,
    source_option,
    together,
)
from kernel_builder.cli.session import environment, open_run
from kernel_builder.cluster.open import address_of, needs_dask
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ExitCode, UsageError
from kernel_builder.load.evidence import LoadResult
from kernel_builder.signals import ENDING
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.build import BuildRequest, build, prepare_build, sandbox_use
from kernel_builder.workflow.outcome import BuildOutcome, Unavailable, VariantOutcome, VariantStatus, grouped


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def handle_signals() -> None:
    """A command that is stopped from outside ends like an interrupted one: in order. What ``nohup`` has it ignore, it
    ignores.
    """
    for wanted in set(ENDING) - {signal.SIGINT}:
        if signal.getsignal(wanted) is not signal.SIG_IGN:
            signal.signal(wanted, _stop)


def project_root(directory: Path | None, *, quiet: bool) -> Path:
    """The project's directory by :func:`project_directory`, resolved. Raises :class:`UsageError` if it is none."""
    root = project_directory(directory, quiet=quiet)
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory", hint="pass the directory that contains build.toml")
    return root.resolve()


class BuildOptions(TypedDict):
    """What :data:`build_options` gives a command's function."""

    directory: Path | None
    variants: tuple[str, ...]
    backends: tuple[str, ...]
    architectures: tuple[str, ...]
    fast: bool
    within: str | None
    platform: Platform | None
    complete: bool
    available: bool
    local: bool
    jobs: int | None
    max_jobs: str | None
    cores: str | None
    no_load: bool
    scheduler: str | None
    no_cache: bool
    keep_going: bool
    verbose: bool
    locked: bool
    full_headers: bool
    verify_slim: bool
    sandbox: bool
    try_sandbox: bool
    python: Path | None


build_options = together(
    click.argument("directory", metavar="[DIR]", type=PathName(), required=False),
    click.option(
        "--variant",
        "variants",
        type=VARIANT,
        metavar="NAME",
        multiple=True,
        help="Build this variant, or all that match a glob such as 'torch213-*'. Can be repeated."
        " Default: all variants currently required of Hub kernels.",
    ),
    click.option(
        "--backend",
        "backends",
        metavar="NAME",
        multiple=True,
        type=click.Choice([backend.value for backend in Backend], case_sensitive=False),
        help="Build only variants of this backend. Can be repeated.",
    ),
    click.option(
        "--arch",
        "architectures",
        metavar="NAME",
        multiple=True,
        help=(
            "Build only for this architecture, written as in build.toml (9.0). Can be repeated. For trying things "
            "out: metadata.json lists what was left out, and upload refuses such a build."
        ),
    ),
    click.option(
        "--fast",
        is_flag=True,
        help="Build only for the GPUs of this machine, or for the newest architecture if it has none; like --arch.",
    ),
    click.option(
        "--set",
        "within",
        type=click.Choice([which.value for which in VariantSet]),
        help="Build the variants of this set; see 'list-variants'. Default: required, or all with --variant.",
    ),
    platform_option,
    click.option(
        "--complete",
        is_flag=True,
        help=(
            "Fail before anything is fetched unless every variant can be built here. For publishing and CI. Without "
            "it, variants that cannot be built here are skipped and listed at the end."
        ),
    ),
    # Scripts that were written when a build asked for everything still pass it.
    click.option(
        "--available",
        is_flag=True,
        hidden=True,
        help="Has no effect: variants that cannot be built here are always skipped.",
    ),
    click.option(
        "--local",
        is_flag=True,
        help=(
            "Build only the variant that the kernels client loads with the active environment's torch. If this "
            "machine lacks the device for it, also build a variant that it can run."
        ),
    ),
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run N compilers in parallel. Default: as many as cores and free memory allow.",
    ),
    click.option(
        "--max-jobs",
        metavar="N",
        help="Compile N variants at a time. Same as MAX_JOBS. Default: auto, which compiles them in order.",
    ),
    click.option(
        "--cores",
        metavar="N",
        help="Run at most N compilers for each variant. Same as CORES. Default: 0, as many as the machine allows.",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help=(
            "Compile on the workers of the dask scheduler at ADDRESS (HOST:PORT or tls://HOST:PORT); see "
            "'kernel-builder worker'. Needs the extra 'cluster'."
        ),
    ),
    click.option(
        "-k", "--keep-going", is_flag=True, help="After a failure, continue with the other sources and variants."
    ),
    click.option(
        "-v",
        "-L",
        "--verbose",
        "--print-build-logs",
        "verbose",
        is_flag=True,
        help="Show every command and all compiler output.",
    ),
    click.option(
        "--no-load", is_flag=True, help="Install variants without checking that the kernels client can load them."
    ),
    click.option(
        "--no-cache",
        is_flag=True,
        help=(
            "Compile everything that is out of date instead of taking it from the compilation cache, which holds "
            "what your earlier builds compiled from the same sources with the same compilers."
        ),
    ),
    click.option(
        "--locked",
        is_flag=True,
        help="Compile with exactly what kernel-builder.lock lists, and fail if anything differs. Without it,"
        " the lock is used for the variants it contains.",
    ),
    click.option(
        "--full-headers",
        is_flag=True,
        help=(
            "Compile all sources with torch's full headers. Without it, slim headers are used for torch releases "
            "for which they were verified to produce the same code (docs/slim-passes.md)."
        ),
    ),
    click.option(
        "--verify-slim",
        is_flag=True,
        help=(
            "Compile sources with slim headers and with torch's full headers, and compare the code; where it "
            "differs, use the full headers. --complete does this for every source that uses slim headers."
        ),
    ),
    sandbox_options,
    source_option,
    offline_option,
    click.option(
        "--python",
        type=PathName(),
        metavar="FILE",
        help=(
            "Python interpreter that loads the variants; it needs torch and kernels. Default: the first that has "
            "both: this one, the active environment's, or python3 on PATH."
        ),
    ),
)
"""The options of everything that builds."""


def build_request(
    options: BuildOptions,
    *,
    ignore: tuple[str, ...],
    quiet: bool,
    output: Path | None = None,
    build_type: BuildType = RELEASE,
) -> BuildRequest:
    """What the options ask for; with ``quiet`` without a word. Raises :class:`UsageError` for options that contradict
    each other.
    """
    local, within, platform, python = options["local"], options["within"], options["platform"], options["python"]
    if local and (within or platform):
        raise UsageError(
            "--local chooses the variant by the installed torch",
            hint="run kernel-builder build --local without --set and --platform",
        )
    if options["fast"] and options["architectures"]:
        raise UsageError(
            "--fast builds for the devices of this machine, but --arch names architectures",
            hint=f"run kernel-builder build --fast, or kernel-builder build --arch {options['architectures'][0]}",
        )
    if options["available"] and not quiet:
        click.echo(
            (
                "note: --available has no effect, because every build skips variants that cannot be built here; remove "
                "it"
            ),
            err=True,
        )
    if options["no_load"] and python is not None:
        raise UsageError(
            "--python names the interpreter that loads variants, but --no-load loads none",
            hint="run kernel-builder build --no-load, or kernel-builder build --python FILE",
        )
    if not build_type.is_release and (options["complete"] or options["verify_slim"]):
        given = "--complete" if options["complete"] else "--verify-slim"
        raise UsageError(
            f"{given} is for builds to publish, but builds with {build_type.options} cannot be published",
            hint=f"run kernel-builder build {build_type.options} without {given}",
        )
    if options["full_headers"] and options["verify_slim"]:
        raise UsageError(
            "--verify-slim compares slim headers with the full ones, but --full-headers uses no slim ones",
            hint="run kernel-builder build --verify-slim, or kernel-builder build --full-headers",
        )
    if options["scheduler"] is not None:
        needs_dask()
        address_of(options["scheduler"])
    if options["scheduler"] is not None and (options["sandbox"] or options["try_sandbox"]):
        raise UsageError(
            "--sandbox confines compilers on this machine, but --scheduler runs them on other machines",
            hint="run kernel-builder build --scheduler, or kernel-builder build --sandbox",
        )
    max_jobs, cores = how_many_at_once(options["jobs"], options["max_jobs"], options["cores"], environment())
    return BuildRequest(
        root=project_root(options["directory"], quiet=quiet),
        patterns=options["variants"],
        backends=tuple(Backend(name) for name in options["backends"]),
        architectures=options["architectures"],
        fast=options["fast"],
        local=local,
        platform=platform,
        within=VariantSet(within) if within else None,
        complete=options["complete"],
        list_unreachable=True,
        recall=not options["complete"],  # who demands everything waits for all answers
        lock=LockUse.REQUIRE if options["locked"] else LockUse.PREFER,
        jobs=options["jobs"],
        variants_at_once=max_jobs,
        cores=cores,
        load=not options["no_load"],
        cache=not options["no_cache"],
        keep_going=options["keep_going"],
        verbose=options["verbose"],
        output=output,
        # Not resolved: a virtual environment's python is a link, and what it is depends on where it lies.
        python=Path(os.path.abspath(python)) if python else None,  # noqa: PTH100
        ignore=ignore,
        build_type=build_type,
        sandbox=sandbox_use(always=options["sandbox"], where_possible=options["try_sandbox"]),
        scheduler=options["scheduler"],
        headers=Headers.FULL if options["full_headers"] else Headers.VERIFY if options["verify_slim"] else Headers.SLIM,
    )


class _AllOptions(BuildOptions, BuildTypeOptions):
    """What all sets of options give the command's function."""


@click.command(short_help="Build the project's variants into build/<variant>/.")
@build_options
@build_type_options
@click.option(
    "-o",
    "--output",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Where to install variants. Default: build/ in the project.",
)
@click.option(
    "--ignore",
    multiple=True,
    type=RULE,
    metavar="RULE",
    help="Build even if this conformance rule is broken (KB302, KB3 or python-newer). Can be repeated.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show warnings and errors only.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be compiled and fetched, without doing it; with -v, print every command.",
)
@click.option(
    "--timing",
    is_flag=True,
    help="Write a page and a trace that show where the time went; see 'kernel-builder timing'.",
)
@click.option(
    "--timing-to",
    type=PathName(file_okay=False),
    metavar="DIR",
    help="Where to write them; implies --timing. Default: .kernel-builder/timing/ in the project.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result (the plan with --dry-run) as JSON.")
def command(
    *,
    timing: bool,
    timing_to: Path | None,
    output: Path | None,
    ignore: tuple[str, ...],
    quiet: bool,
    dry_run: bool,
    as_json: bool,
    **options: Unpack[_AllOptions],
) -> int:
    """Build the kernel in DIR (default: here, or the only project directly below) into DIR/build/<variant>/.

    Replaces a variant only after the new one is complete and has been loaded. If the build fails, the old one stays.
    """
    request = build_request(options, output=output, ignore=ignore, quiet=quiet, build_type=build_type_of(options))
    if dry_run and (timing or timing_to is not None):
        raise UsageError("--timing shows where time went, but --dry-run builds nothing", hint="remove one of them")
    if dry_run:
        _show_plan(request, quiet=quiet, as_json=as_json)
        return ExitCode.OK
    started = time.monotonic()
    with errors_as_json(as_json):
        outcome = run_build(request, quiet=quiet)
    show_failures(outcome)
    if as_json:
        click.echo(json.dumps(_outcome_json(outcome), indent=2))
    elif not quiet:
        _echo(_summary(outcome, time.monotonic() - started))
    if timing or timing_to is not None:
        from kernel_builder.cli.timing import show_timing  # noqa: PLC0415  (start-up time)

        show_timing(request, timing_to, quiet=quiet or as_json)
    return ExitCode.OK if outcome.ok else ExitCode.FAILED


def _show_plan(request: BuildRequest, *, quiet: bool, as_json: bool) -> None:
    from kernel_builder.cli.dry_run import dry_run_json, dry_run_text  # noqa: PLC0415  (start-up time)
    from kernel_builder.workflow.forecast import forecast  # noqa: PLC0415

    with errors_as_json(as_json), open_run(quiet=quiet) as run:
        prepared = prepare_build(request, run)
        forecasts = forecast(prepared, run.environ)
    if as_json:
        click.echo(json.dumps(dry_run_json(prepared, forecasts), indent=2))
        return
    width = width_of_stdout(environment())
    for line in dry_run_text(prepared, forecasts, width=width, commands=request.verbose, quiet=quiet):
        click.echo(line)
    _echo(missing_text(prepared.unavailable))


def run_build(request: BuildRequest, *, quiet: bool) -> BuildOutcome:
    """Carry out ``request`` with progress on stderr. Raises what :func:`kernel_builder.workflow.build.build` does."""
    handle_signals()
    with open_run(quiet=quiet) as run:
        return build(request, run)


def show_failures(outcome: BuildOutcome) -> None:
    """Say on stderr why variants failed."""
    for failed in outcome.variants:
        if failed.status is VariantStatus.FAILED:
            for problem in failed.problems:
                show_error(f"error: {failed.name}: {problem}")


def _load_text(outcome: VariantOutcome) -> str:
    load = outcome.load
    if load is None:
        return ""
    text = load.told
    unimplemented = load.unimplemented(outcome.backend)
    if unimplemented:
        names = ", ".join(op.short for op in unimplemented)
        text += f" (no implementation for {outcome.backend.value}: {names})"
    return f"{text}; {load.reason}" if load.loaded and load.reason else text


def _echo(lines: Iterable[str]) -> None:
    width = width_of_stdout(environment())
    for line in lines:
        click.echo(wrapped(line, width))


def _summary(outcome: BuildOutcome, seconds: float) -> list[str]:
    """A line per variant, a line of figures."""
    names = [variant.name for variant in outcome.variants]
    width = max(len(name) for name in names)
    lines = []
    for variant in outcome.variants:
        recalled = f"{len(variant.recalled)} from the cache" if variant.recalled else ""
        details = [f"{len(variant.compiled)} compiled", recalled, _load_text(variant)]
        if variant.status is VariantStatus.NOT_BUILT:
            details = [variant.problem or ""]
        elif variant.status is VariantStatus.FAILED:
            is_old = (outcome.output / variant.name).is_dir()
            details = ["see above", "its previous build is kept" if is_old else ""]
        elif not variant.is_compiled:
            details = ["Python only", _load_text(variant)]
        status = "unchanged" if variant.status is VariantStatus.UNCHANGED else variant.status.value
        lines.append(f"{variant.name:<{width}}  {status}: {'; '.join(filter(None, details))}")
    good, total = sum(variant.path is not None for variant in outcome.variants), len(names) + len(outcome.unavailable)
    lines.append(
        f"{good} of {total} variants ready in {outcome.output};"
        f" {mebibytes(outcome.fetched) if outcome.fetched else 'nothing'} fetched; {seconds:.0f} s"
    )
    lines += [f"note: {text}" for text in outcome.remarks]
    if outcome.variables:
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in outcome.variables.items())
        lines.append(
            "note: 'kernel-builder test' and 'testshell' can load it with the same --sanitize; any other Python "
            f"needs: {settings}"
        )
    return lines + missing_text(outcome.unavailable)


def missing_text(unavailable: Iterable[Unavailable]) -> list[str]:
    """What is missing, and what brings it: the end of what a build says."""
    lines: list[str] = []
    for (reason, remedy), names in grouped(unavailable).items():
        lines += [f"missing: {name}" for name in names]
        lines += [f"    {line}" for line in reason.splitlines()]
        if remedy is not None:
            lines.append(f"  to get {'it' if len(names) == 1 else 'them'}: {remedy}")
    return lines


def _outcome_json(outcome: BuildOutcome) -> dict[str, object]:
    return {
        "ok": outcome.ok,
        "unavailable": [entry.to_json() for entry in outcome.unavailable],
        "output": str(outcome.output),
        "fetched-bytes": outcome.fetched,
        "confinement": outcome.confinement,
        "warnings": list(outcome.warnings),
        "notes": [*outcome.notes, *outcome.remarks],
        "variables": dict(outcome.variables),
        "variants": [
            {
                "name": variant.name,
                "status": variant.status.value,
                "path": str(variant.path) if variant.path else None,
                "ops-id": variant.ops_id,
                "compiled": list(variant.compiled),
                "load": _load_json(variant.load, variant.backend) if variant.load else None,
                "problem": variant.problem,
            }
            for variant in outcome.variants
        ],
    }


def _load_json(load: LoadResult, backend: Backend) -> dict[str, object]:
    return {
        "status": load.status.value,
        "reason": load.reason,
        "ops": [op.name for op in load.ops],
        "functions": list(load.functions),
        "implemented": {op.name: list(op.keys) for op in load.ops},
        "not-called": list(load.refused),
        "unimplemented": [op.name for op in load.unimplemented(backend)],
        "stood-in": list(load.stood_in),
        "frames": list(load.frames),
        "log": str(load.log) if load.log else None,
        "foreign": [asdict(one) for one in load.foreign],
    }
