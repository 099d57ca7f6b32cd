"""``kernel-builder check``: is this kernel fit for the Hub?"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.completing import RULE
from kernel_builder.cli.options import PathName, project_directory
from kernel_builder.cli.session import environment
from kernel_builder.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kernel_builder.check.engine import CheckReport
    from kernel_builder.check.model import Settings
    from kernel_builder.variants.names import Variant


@click.command(name="check")
@click.argument("paths", nargs=-1, type=PathName())
@click.option("--format", "form", type=click.Choice(["text", "json", "github", "sarif"]), default="text",
              show_default=True, help="Output format.")  # fmt: skip
@click.option(
    "--select", multiple=True, type=RULE, metavar="RULE", help="Apply only these rules: KB103, KB1 or run-path."
)
@click.option("--ignore", multiple=True, type=RULE, metavar="RULE", help="Skip these rules.")
@click.option("--policy", default="glibc-2.27-static", show_default=True, metavar="NAME",
              help=(
                  "Policy for the C and C++ runtimes that libraries may need; another one is manylinux_2_28."
              ))  # fmt: skip
@click.option("--python-floor", default="3.9", show_default=True, metavar="VERSION", help="Oldest supported Python.")
@click.option("--torch-stable-abi", metavar="VERSION",
              help="Libraries must stay within the stable ABI of this torch (those of torch-stable-abi variants"
              " always must stay within theirs).")  # fmt: skip
@click.option("--load", is_flag=True,
              help=(
                  "Load the variants that fit this machine, each in its own process together with a second version "
                  "of it, and call its ops. This runs the kernel's code."
              ))  # fmt: skip
@click.option("--python", type=PathName(), metavar="FILE",
              help=(
                  "Python interpreter for --load; it needs torch and kernels. Default: the first that has both: the "
                  "active environment's, this one, or python3 on PATH."
              ))  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.option("--verbose", "-v", is_flag=True, help="Also show notes: what was not or could not be checked.")
@click.option(
    "--explain", type=RULE, metavar="RULE", help="Explain a rule: what it requires, why, and its source; check nothing."
)
@click.option("--list", "lists", is_flag=True, help="List all rules; check nothing.")
def command(
    paths: tuple[Path, ...],
    *,
    form: str,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    policy: str,
    python_floor: str,
    torch_stable_abi: str | None,
    load: bool,
    python: Path | None,
    strict: bool,
    verbose: bool,
    explain: str | None,
    lists: bool,
) -> int:
    """Check kernels: source trees, build folders, single variants, downloaded repositories or libraries (default: .).

    Exits with 0 when there are no errors, with 1 when there are (with --strict, also for warnings), and with another
    code when the check could not run. Does not run any of the kernel's code unless --load is given.
    """
    if explain is not None or lists:
        return _about_rules(explain)
    settings = make_settings(policy=policy, python_floor=python_floor, torch_stable_abi=torch_stable_abi)
    if python is not None and not load:
        raise UsageError("--python needs --load", hint="run kernel-builder check --load --python FILE")
    if load:
        from kernel_builder.load.proofs import FOLDER as PROOFS  # noqa: PLC0415  (start-up time)
        from kernel_builder.store.cache import default_root  # noqa: PLC0415

        # Not resolved: a virtual environment's python is a link, and what it is depends on where it lies.
        chosen = Path(os.path.abspath(python)) if python is not None else None  # noqa: PTH100
        root = default_root(environment())
        settings = replace(
            settings, load=True, python=chosen, environ=environment(), logs=root / "logs", proofs=root / PROOFS
        )
    return run_check(
        paths or (project_directory(None),),
        settings,
        form=form,
        select=select,
        ignore=ignore,
        strict=strict,
        verbose=verbose,
    )


def _about_rules(name: str | None) -> int:
    from kernel_builder.check.engine import all_rules, find_rule  # noqa: PLC0415  (start-up time)
    from kernel_builder.cli.check_view import show_rule, show_rules  # noqa: PLC0415

    if name is None:
        show_rules(all_rules())
    else:
        show_rule(find_rule(name))
    return ExitCode.OK


def two_numbers(text: str, option: str, example: str) -> tuple[int, int]:
    """``3.9`` -> ``(3, 9)``. Raises :class:`UsageError` naming the option."""
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})", text.strip())
    if match is None:
        raise UsageError(f"{option} {text}: not a version", hint=f"use two numbers, such as {example}")
    return int(match[1]), int(match[2])


def make_settings(
    *, policy: str, python_floor: str, torch_stable_abi: str | None, macos: str | None = None
) -> Settings:
    """What to judge by, from options. Raises :class:`UsageError` for a value that means nothing."""
    from kernel_builder.check.model import Settings  # noqa: PLC0415  (start-up time)
    from kernel_builder.check.policies import find_policy  # noqa: PLC0415
    from kernel_builder.project.inputs import follow_links, sources_of  # noqa: PLC0415

    floor = two_numbers(python_floor, "the Python version", "3.9")
    if floor[0] != 3 or floor[1] < 2:
        raise UsageError(f"Python {python_floor} has no limited API", hint="use a version such as 3.9")
    return Settings(
        policy=find_policy(policy).name,
        python_floor=floor,
        torch_stable_abi=(
            None if torch_stable_abi is None else two_numbers(torch_stable_abi, "--torch-stable-abi", "2.11")
        ),
        macos=None if macos is None else two_numbers(macos, "--macos", "15.0"),
        torch_exports=exports_here(),
        sources_of=sources_of,
        follow_links=follow_links,
    )


def exports_here() -> Callable[[Variant], frozenset[str] | None]:
    """What the torch of a variant exports, if kernel-builder has built for it here."""
    from kernel_builder.store.cache import default_root  # noqa: PLC0415  (start-up time)
    from kernel_builder.toolchain.exports import stored_exports  # noqa: PLC0415

    root = default_root(environment())
    return lambda variant: stored_exports(root, variant)


def run_check(
    paths: tuple[Path, ...],
    settings: Settings,
    *,
    form: str = "text",
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    strict: bool = False,
    verbose: bool = False,
) -> int:
    """Check, print what was found to stdout, and return the exit code."""
    from kernel_builder.check.engine import check_paths  # noqa: PLC0415  (start-up time)
    from kernel_builder.check.model import Severity  # noqa: PLC0415

    report = check_paths(paths, settings, select=select, ignore=ignore)
    _show(report, form, verbose=verbose)
    failed = not report.ok or (strict and report.count(Severity.WARNING))
    return ExitCode.FAILED if failed else ExitCode.OK


def _show(report: CheckReport, form: str, *, verbose: bool) -> None:
    if form == "text":
        from kernel_builder.cli.check_view import show_report  # noqa: PLC0415  (start-up time)

        show_report(report, verbose=verbose)
        return
    from kernel_builder.check.formats import as_github, as_json, as_sarif  # noqa: PLC0415  (start-up time)

    text = {"json": as_json, "github": as_github, "sarif": as_sarif}[form](report)
    sys.stdout.write(text)
