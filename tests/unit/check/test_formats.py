"""Findings as JSON, annotations and SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kernel_builder.check.engine import CheckReport, all_rules, find_rule
from kernel_builder.check.formats import as_github, as_json, as_sarif, as_texts
from kernel_builder.check.model import Finding, Severity, registered_checkers, rule
from kernel_builder.cli.check_view import show_report
from kernel_builder.errors import UsageError


@pytest.fixture
def report() -> CheckReport:
    run_path, macos = find_rule("KB107"), find_rule("KB161")
    findings = (
        run_path.at("build/a\nb,c:d%e/x y\udcff.so", "it looks in /opt\nhere", symbol="/opt"),
        macos.at("/abs/é.so", "100% wrong", line=3, hint="Do, this: now."),
    )
    return CheckReport(
        checked=("build",), findings=findings, notes=("a note",), variants=1, libraries=2, python_files=3
    )


def test_json_has_every_field(report: CheckReport) -> None:
    document = json.loads(as_json(report))
    assert document["ok"] is False
    assert document["counts"] == {
        "errors": 2, "warnings": 0, "notes": 0, "accepted": 0, "variants": 1, "libraries": 2, "python_files": 3,
    }  # fmt: skip
    first, second = document["findings"]
    assert first["path"] == "build/a\nb,c:d%e/x y\udcff.so"
    assert (first["code"], first["rule"], first["severity"], first["line"]) == ("KB107", "run-path", "error", None)
    assert first["remedy"] == find_rule("KB107").remedy
    assert (second["line"], second["remedy"]) == (3, "Do, this: now.")


def test_annotations_are_escaped(report: CheckReport) -> None:
    first, second = as_github(report).splitlines()
    assert first.startswith(
        "::error file=build/a\\nb%2Cc%3Ad%25e/x y\\udcff.so,title=KB107 run-path::it looks in /opt%0Ahere%0A"
    )
    assert second == "::error file=/abs/é.so,line=3,title=KB161 macos-version::100%25 wrong%0ADo, this: now."


def _walk(value: object) -> Iterator[object]:
    yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _walk(child)


def test_texts_say_how_to_fix_it_once(report: CheckReport) -> None:
    first, second = report.findings
    texts = [*as_texts([first, second, first])]
    assert texts[0].split("\n")[1:] == ["here", f"    -> {find_rule('KB107').remedy}"]
    assert texts[1].endswith(": KB161 macos-version: 100% wrong\n    -> Do, this: now.")
    assert texts[2].endswith("\nhere")


def test_messages_of_several_lines_are_lines(report: CheckReport, capsys: pytest.CaptureFixture[str]) -> None:
    show_report(report)
    lines = capsys.readouterr().out.split("\n")
    at = next(index for index, line in enumerate(lines) if line.strip() == "it looks in /opt")
    assert lines[at + 1] == f"{' ' * 10}here"


def test_sarif_is_as_its_standard_wants_it(report: CheckReport) -> None:
    log = json.loads(as_sarif(report))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [entry["id"] for entry in rules] == ["KB107", "KB161"]
    assert {entry["defaultConfiguration"]["level"] for entry in rules} <= {"none", "note", "warning", "error"}
    assert all(entry["shortDescription"]["text"] and entry["fullDescription"]["text"] for entry in rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii()
        assert not set(uri) & set(' \n"<>\\^`{|}')
    uris = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]]
    assert uris == ["build/a%0Ab%2Cc%3Ad%25e/x%20y%FF.so", "file:///abs/%C3%A9.so"]
    assert run["results"][1]["locations"][0]["physicalLocation"]["region"] == {"startLine": 3}
    assert None not in list(_walk(log))
    assert as_sarif(report) == as_sarif(report)


def test_sarif_of_nothing_has_no_results() -> None:
    empty = CheckReport(checked=(), findings=(), notes=(), variants=0, libraries=0, python_files=0)
    (run,) = json.loads(as_sarif(empty))["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []


def test_every_rule_has_a_checker_and_says_everything() -> None:
    checked = {known.code for checker in registered_checkers() for known in checker.rules} | {"KB001", "KB481"}
    for known in all_rules():
        assert known.code in checked, known.code
        assert all(text.strip() for text in (known.summary, known.rationale, known.remedy, known.source)), known.code
        assert not known.summary.endswith("."), known.code


def test_rules_are_found_by_code_and_slug_and_near_ones_are_named() -> None:
    assert find_rule("kb107") is find_rule("RUN-PATH") is find_rule("run-path")
    with pytest.raises(UsageError) as error:
        find_rule("run-pth")
    assert "run-path" in str(error.value.hint)


@pytest.mark.parametrize(
    ("code", "slug"), [("KB107", "something-new"), ("KB999", "run-path"), ("X1", "a"), ("KB998", "A_b")]
)
def test_codes_and_slugs_are_unique_and_well_formed(code: str, slug: str) -> None:
    all_rules()
    with pytest.raises(ValueError, match=code):
        rule(code, slug, Severity.ERROR, summary="s", rationale="r", remedy="m", source="x")


def test_findings_are_in_order_of_file_line_and_rule() -> None:
    one = find_rule("KB107")
    made = [one.at("b", "m"), one.at("a", "m", line=10), one.at("a", "m", line=9), one.at("\udcff", "m")]
    keys: list[Finding] = sorted(made, key=lambda finding: finding.order)
    assert [(f.path, f.line) for f in keys] == [("a", 9), ("a", 10), ("b", None), ("\udcff", None)]
