"""Findings and rules as people read them."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from kernel_builder.check.formats import advice
from kernel_builder.check.model import Finding, Rule, Severity
from kernel_builder.toml.nodes import printable, printable_lines
from kernel_builder.variants.names import parse_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel_builder.check.engine import CheckReport

_ACCEPTING = "A project can accept findings of it, with a reason, in kernel-builder.toml: [check] accept"
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def _console() -> Console:
    return Console(highlight=False, emoji=False, markup=False)


def _paragraph(console: Console, text: str, indent: int, style: str = "") -> None:
    """Print wrapped text; long words, such as paths, are left whole so that they can be copied. Of text in several
    lines only the first is wrapped: the others are to be copied.
    """
    width = min(console.width, 110) if console.is_terminal else 110
    first, *others = text.split("\n")
    wrapped = textwrap.fill(
        first,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    lines = [wrapped, *(f"{' ' * (indent + 4)}{line}".rstrip() for line in others)]
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


def show_report(report: CheckReport, *, verbose: bool = False) -> None:
    """Print findings to stdout, file by file, the same finding in several variants once, and a summary."""
    console = _console()
    shown = [
        finding
        for finding in report.findings
        if verbose or finding.severity is not Severity.NOTE or finding.accepted is not None
    ]
    told: set[str] = set()
    for path, findings in groupby(_merged(shown), key=lambda merged: merged[0].path):
        console.print(Text(printable(path), style="bold"), soft_wrap=True)
        for finding, others in findings:
            _show_finding(console, finding, others, told)
        console.print()
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(_summary(report, verbose=verbose), soft_wrap=True)


def _show_finding(console: Console, finding: Finding, others: int, told: set[str]) -> None:
    head = Text("  ")
    head.append(
        finding.severity.value if finding.accepted is None else f"accepted {finding.judged.value}",
        style=_STYLES[finding.severity],
    )
    head.append(f" {finding.rule.code} ", style="bold")
    head.append(finding.rule.slug, style="dim")
    if finding.line is not None:
        head.append(f", line {finding.line}")
    if others:
        head.append(f", and the same in {_count(others, 'other variant')}", style="dim")
    console.print(head, soft_wrap=True)
    _paragraph(console, printable_lines(finding.message), 6)
    if finding.accepted is not None:
        _paragraph(console, f"accepted: {printable(finding.accepted)}", 6, "green")
        return
    text = advice(finding)
    if text not in told:  # said once: many findings of a rule have the same remedy
        told.add(text)
        _paragraph(console, f"-> {text}", 6, "green")


def _merged(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Each finding, and in how many other variants there is the same."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule.code, _within_variant(finding.path), finding.line, finding.symbol, finding.message)
        groups.setdefault(key, []).append(finding)
    return [(group[0], len({f.path for f in group}) - 1) for group in _in_order(groups.values())]


def _in_order(groups: Iterable[list[Finding]]) -> list[list[Finding]]:
    return sorted(groups, key=lambda group: group[0].order)


def _within_variant(path: str) -> str:
    """The path with the name of its variant taken out."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        try:
            parse_variant(part)
        except ValueError:
            continue
        return "/".join([*parts[:index], "*", *parts[index + 1 :]])
    return path


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _summary(report: CheckReport, *, verbose: bool) -> Text:
    errors, warnings, notes = (report.count(severity) for severity in Severity)
    accepted = len(report.accepted)
    notes -= accepted
    looked = [
        _count(number, noun)
        for number, noun in (
            (report.variants, "variant"),
            (report.libraries, "library") if report.libraries == 1 else (report.libraries, "librarie"),
            (report.python_files, "Python file"),
        )
        if number
    ]
    where = f" in {', '.join(looked[:-1]) + ' and ' if len(looked) > 1 else ''}{looked[-1]}" if looked else ""
    text = Text()
    if errors or warnings:
        text.append(f"{_count(errors, 'error')}, {_count(warnings, 'warning')}", style="red" if errors else "yellow")
        text.append(f"{where}. To explain a rule, run 'kernel-builder explain CODE'.")
    else:
        text.append("No errors, no warnings", style="bold green")
        text.append(f"{where}.")
    if accepted:
        text.append(f" The project accepts {_count(accepted, 'finding')}.")
    if notes and not verbose:
        text.append(
            f" {_count(notes, 'note')} about what was not checked: run"
            f" 'kernel-builder check --verbose' to show {'it' if notes == 1 else 'them'}."
        )
    return text


def show_rule(rule: Rule) -> None:
    """Print all there is to say about a rule."""
    console = _console()
    head = Text(f"{rule.code} {rule.slug}", style="bold")
    head.append(f" ({rule.severity.value})", style=_STYLES[rule.severity])
    console.print(head, soft_wrap=True)
    for title, text in (
        ("Required", rule.summary),
        ("Why", rule.rationale),
        ("How to fix it", rule.remedy),
        ("Accepting it", _ACCEPTING if rule.acceptable else "Not possible: the kernel would be broken for its users"),
        ("Source", rule.source),
    ):
        console.print(Text(f"  {title}", style="bold"))
        _paragraph(console, text if text.endswith(".") else f"{text}.", 4)


def show_rules(rules: Iterable[Rule]) -> None:
    """Print one line a rule."""
    console = _console()
    for rule in rules:
        line = Text(rule.code, style="bold")
        line.append(f"  {rule.severity.value:<7}  ", style=_STYLES[rule.severity])
        line.append(f"{rule.slug:<24}  {rule.summary}", style="not bold")
        console.print(line, soft_wrap=True)
