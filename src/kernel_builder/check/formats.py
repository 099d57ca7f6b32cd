"""Findings as other commands show them, and as other programs want them: JSON, annotations of GitHub Actions, and
SARIF 2.1.0.

Every form is byte-stable: the same findings give the same text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from kernel_builder import __version__
from kernel_builder.check.annotations import annotation
from kernel_builder.check.engine import CheckReport
from kernel_builder.check.model import Finding, Rule, Severity
from kernel_builder.toml.nodes import printable, printable_lines

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def advice(finding: Finding) -> str:
    """How to fix what was found: the finding's own hint, else the rule's remedy."""
    return finding.hint or finding.rule.remedy


def head(finding: Finding) -> str:
    """Where and what: ``build.toml:3: KB470 sources: ...``."""
    place = printable(finding.path) + (f":{finding.line}" if finding.line is not None else "")
    return f"{place}: {finding.rule.code} {finding.rule.slug}: {printable_lines(finding.message)}"


def as_texts(findings: Iterable[Finding]) -> Iterator[str]:
    """Each finding as lines: what was found, and how to fix it, which is said once."""
    told: set[str] = set()
    for finding in findings:
        text = advice(finding)
        first, *others = text.split("\n")
        lines = [f"    -> {first}", *(f"       {line}".rstrip() for line in others)] if text not in told else []
        told.add(text)
        yield "\n".join([head(finding), *lines])


def as_json(report: CheckReport) -> str:
    """One object: ``ok``, ``checked``, ``counts``, ``notes`` and ``findings``.

    ``accepted`` of a finding is the reason why the project accepts it, or ``null``; it is a note then.
    Of names that are no UTF-8, bytes stand as lone surrogates (``\\udcff``), as Python has them.
    """
    document = {
        "format": 1,
        "ok": report.ok,
        "checked": list(report.checked),
        "counts": {
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "notes": report.count(Severity.NOTE),
            "accepted": len(report.accepted),
            "variants": report.variants,
            "libraries": report.libraries,
            "python_files": report.python_files,
        },
        "notes": list(report.notes),
        "findings": [
            {
                "code": finding.rule.code,
                "rule": finding.rule.slug,
                "severity": finding.severity.value,
                "accepted": finding.accepted,
                "path": finding.path,
                "line": finding.line,
                "symbol": finding.symbol,
                "message": finding.message,
                "why": finding.rule.rationale,
                "remedy": advice(finding),
                "source": finding.rule.source,
            }
            for finding in report.findings
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def as_github(report: CheckReport) -> str:
    """Workflow commands, one a finding, which GitHub shows beside the lines."""
    return "".join(f"{_annotation(finding)}\n" for finding in report.findings)


def _annotation(finding: Finding) -> str:
    place = {
        "file": printable(finding.path),
        "line": finding.line,
        "title": f"{finding.rule.code} {finding.rule.slug}",
    }
    text = f"{printable_lines(finding.message)}\n{advice(finding)}"
    if finding.accepted is not None:
        text = f"{printable_lines(finding.message)}\naccepted: {printable(finding.accepted)}"
    return annotation(_COMMANDS[finding.severity], place, text)


def as_sarif(report: CheckReport) -> str:
    """A SARIF 2.1.0 log with one run; the rules are those that found something."""
    rules = sorted(
        {finding.rule.code: finding.rule for finding in report.findings}.values(), key=lambda rule: rule.code
    )
    index = {rule.code: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "kernel-builder",
                "semanticVersion": __version__,
                "rules": [_sarif_rule(rule) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"level": "note", "message": {"text": note}} for note in report.notes],
            }
        ],
        "results": [_sarif_result(finding, index[finding.rule.code]) for finding in report.findings],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sarif_rule(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.slug.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.rationale},
        "help": {"text": f"{rule.remedy}\nSource: {rule.source}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding, index: int) -> dict[str, object]:
    physical: dict[str, object] = {"artifactLocation": {"uri": _uri(finding.path)}}
    if finding.line is not None:
        physical["region"] = {"startLine": finding.line}
    location: dict[str, object] = {"physicalLocation": physical}
    if finding.symbol is not None:
        location["logicalLocations"] = [{"name": printable(finding.symbol)}]
    key = "\0".join([finding.rule.code, finding.path, finding.symbol or "", finding.message])
    suppressed = {"suppressions": [{"kind": "external", "justification": finding.accepted}]}
    return {
        "ruleId": finding.rule.code,
        "ruleIndex": index,
        "level": _LEVELS[finding.judged],
        **(suppressed if finding.accepted is not None else {}),
        "message": {"text": f"{printable_lines(finding.message)}. {advice(finding)}"},
        "locations": [location],
        "partialFingerprints": {
            "finding/v1": hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        },
    }


def _uri(path: str) -> str:
    encoded = quote(path.encode("utf-8", "surrogateescape"), safe="/._-~")
    return f"file://{encoded}" if os.path.isabs(path) else encoded  # noqa: PTH117  (no Path may change the text)
