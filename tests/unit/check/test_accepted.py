"""What a project accepts in kernel-builder.toml, and what becomes of rules about old Pythons."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernel_builder.check.engine import CheckReport, check_paths
from kernel_builder.check.formats import as_github, as_json, as_sarif
from kernel_builder.check.model import Settings, Severity
from kernel_builder.cli.check_view import show_report
from kernel_builder.config.reader import load_project
from kernel_builder.errors import BuildError
from kernel_builder.events import Notice, Silent
from kernel_builder.hub.gate import check_source
from kernel_builder.hub.local import find_source
from kernel_builder.workflow.conformance import Conformance, examine
from kernel_trees import findings, source, variant, write

NEWER = "from . import part\n\n__all__ = []\n"
UNION = "def f(x: int | None): ...\n"
LATER = {"3.9": ("torch 2.8", (3, 9)), "3.10": ("torch 2.13", (3, 10)), "3.11": ("torch 2.15", (3, 11))}


def kernel(tmp_path: Path, accept: str | None = None, code: str = UNION) -> Path:
    root = source(tmp_path, {"__init__.py": NEWER, "part.py": code})
    if accept is not None:
        write(root, {"kernel-builder.toml": f"[check]\naccept = {accept}\n"})
    return root


def report(root: Path) -> CheckReport:
    return check_paths([root], Settings(required=False), select=["KB3", "KB48"])


@pytest.mark.parametrize("rule", ["KB302", "kb302", "python-newer"])
def test_an_accepted_finding_fails_nothing_and_is_shown_with_its_reason(
    tmp_path: Path, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not report(kernel(tmp_path)).ok
    found = report(kernel(tmp_path, f'{{ {rule} = "users have 3.10" }}'))
    assert found.ok
    assert [entry.accepted for entry in found.findings] == ["users have 3.10"]
    show_report(found)
    shown = capsys.readouterr().out
    assert "accepted error KB302" in shown
    assert "accepted: users have 3.10" in shown
    assert "The project accepts 1 finding." in shown
    document = json.loads(as_json(found))
    assert (document["ok"], document["counts"]["accepted"]) == (True, 1)
    assert document["findings"][0]["accepted"] == "users have 3.10"
    result = json.loads(as_sarif(found))["runs"][0]["results"][0]
    assert result["suppressions"] == [{"kind": "external", "justification": "users have 3.10"}]
    assert result["level"] == "error"
    assert "users have 3.10" in as_github(found)


def test_an_acceptance_counts_for_what_was_built_from_the_project(tmp_path: Path) -> None:
    root = kernel(tmp_path, '{ KB302 = "why" }')
    built = variant(root / "build", files={"part.py": UNION, "__init__.py": NEWER})
    assert check_paths([built], Settings(required=False), select=["KB3"]).ok
    assert check_paths([root / "build"], Settings(required=False), select=["KB3", "KB48"]).ok
    (root / "kernel-builder.toml").unlink()
    assert not check_paths([built], Settings(required=False), select=["KB3"]).ok


@pytest.mark.parametrize(
    ("accept", "said"),
    [
        ('{ KB399 = "why" }', "unknown rule 'KB399'"),
        ('{ python-never = "why" }', "unknown rule 'python-never'"),
        ('{ KB302 = "" }', "must not be empty"),
        ('{ KB302 = "  " }', "must not be empty"),
        ("{ KB302 = true }", "must be a string"),
        ('["KB302"]', "must be a table of rules and reasons"),
        ('"KB302"', "must be a table of rules and reasons"),
        ('{ KB312 = "why" }', "KB312 undeclared-import cannot be accepted"),
        ('{ KB314 = "why" }', "KB314 unresolved-import cannot be accepted"),
        ('{ KB302 = "why", python-newer = "why" }', "KB302 python-newer is accepted twice"),
        ('{ KB302 = "why" }\nacept = 1', "unknown key in [check]"),
    ],
)
def test_a_wrong_acceptance_is_told_with_its_line(tmp_path: Path, accept: str, said: str) -> None:
    found = report(kernel(tmp_path, accept))
    (mistake,) = (entry for entry in found.findings if entry.rule.code == "KB480")
    assert said in mistake.message
    assert mistake.path.endswith("kernel-builder.toml")
    assert mistake.line is not None
    assert mistake.severity is Severity.ERROR


def test_every_mistake_is_told_in_one_pass(tmp_path: Path) -> None:
    found = report(kernel(tmp_path, '{ KB399 = "why", KB302 = "", KB314 = "why" }'))
    assert [entry.rule.code for entry in found.findings if entry.path.endswith(".toml")] == ["KB480"] * 3


def test_a_file_that_cannot_be_read_accepts_nothing(tmp_path: Path) -> None:
    root = kernel(tmp_path)
    write(root, {"kernel-builder.toml": "[check\n"})
    assert [entry.rule.code for entry in report(root).findings] == ["KB480", "KB302"]


BROKEN = {
    "unfinished": "def f(:\n",
    "a text": "x = 'one\n",
    "Python 2": "print 'one'\n",
    "indentation": "def f():\nreturn 1\n",
    "outside a function": "return 1\n",
    "outside a loop": "if x:\n    break\n",
    "a variable of nobody": "def f():\n    nonlocal x\n",
    "a parameter twice": "def f(x, x): ...\n",
    "global too late": "def f():\n    x = 1\n    global x\n",
    "an encoding": "# coding: no-such\n",
}


@pytest.mark.parametrize("code", BROKEN.values(), ids=BROKEN)
def test_what_no_python_can_parse_cannot_be_accepted(tmp_path: Path, code: str) -> None:
    root = kernel(tmp_path, '{ KB301 = "newer users", KB305 = "newer users" }', code=code)
    found = [entry for entry in report(root).findings if entry.path.endswith(".py")]
    assert [(entry.rule.code, entry.severity) for entry in found] == [("KB305", Severity.ERROR)]
    assert "3.9" not in found[0].message
    refused = [entry.message for entry in report(root).findings if entry.rule.code == "KB480"]
    assert refused == [
        "KB305 python-invalid cannot be accepted: it breaks the kernel even for users who have everything that it needs"
    ]


@pytest.mark.parametrize(
    ("code", "since"),
    [
        ("match 1:\n    case _: pass\n", (3, 10)),
        ("try: pass\nexcept* ValueError: pass\n", (3, 11)),
        ("type Size = int\n", (3, 12)),
        ("x = 1\ndef f[T](y: T): ...\n", (3, 12)),
        ("x = f'{'a'}'\n", (3, 12)),
        ("x = f'''\n{'''a'''}'''\n", (3, 12)),
        ("try: pass\nexcept OSError, ValueError: pass\n", (3, 14)),
        ("x = t'{y}'\n", (3, 14)),
    ],
)
def test_what_a_newer_python_parses_can_be_accepted_whichever_runs_the_check(
    tmp_path: Path, code: str, since: tuple[int, int]
) -> None:
    (found,) = report(kernel(tmp_path, '{ KB301 = "newer users", KB302 = "newer users" }', code=code)).accepted
    assert found.rule.code in {"KB301", "KB302"}
    if sys.version_info[:2] < since:
        assert "a newer one may" in found.message


def test_a_mistake_in_the_settings_is_told_once(tmp_path: Path) -> None:
    root = kernel(tmp_path, '{ KB302 = "" }', code="")
    (told,) = examine(root, {}).all_diagnostics
    assert (told.key, told.line) == ("check.accept.KB302", 2)


def test_an_acceptance_that_finds_nothing_is_told(tmp_path: Path) -> None:
    root = kernel(tmp_path, '{ KB302 = "why" }', code="")
    assert [(entry.rule.code, entry.line) for entry in report(root).findings] == [("KB481", 2)]
    assert check_paths([root], Settings(required=False), select=["KB2", "KB48"]).findings == ()


def test_what_was_not_looked_at_may_be_accepted(tmp_path: Path) -> None:
    root = kernel(tmp_path, '{ KB103 = "why" }', code="")
    assert check_paths([root], Settings(required=False), select=["KB1", "KB48"]).findings == ()


@pytest.mark.parametrize(
    ("code", "oldest", "expected"),
    [
        (UNION, [], [("KB302", "error")]),
        (UNION, ["3.9", "3.10"], [("KB302", "error")]),
        (UNION, ["3.10"], [("KB302", "warning")]),
        (UNION, ["3.10", "3.11"], [("KB302", "warning")]),
        ("import tomllib\n", ["3.10"], [("KB302", "error")]),
        ("import tomllib\n", ["3.11"], [("KB302", "warning")]),
        ("match 1:\n    case _: pass\n", ["3.9"], [("KB301", "error")]),
        ("match 1:\n    case _: pass\n", ["3.10"], [("KB301", "warning")]),
        ("try: pass\nexcept* ValueError: pass\n", ["3.10"], [("KB301", "error")]),
        ("try: pass\nexcept* ValueError: pass\n", ["3.11"], [("KB301", "warning")]),
        ("def f(:\n", ["3.11"], [("KB305", "error")]),
        ("def g(x): return zip(x, strict=True)\n", ["3.9"], [("KB303", "warning")]),
        ("def g(x): return zip(x, strict=True)\n", ["3.10"], [("KB303", "note")]),
    ],
)
def test_an_old_python_counts_where_a_variants_torch_runs_on_it(
    tmp_path: Path, code: str, oldest: list[str], expected: list[tuple[str, str]]
) -> None:
    built_for = tuple(LATER[name] for name in oldest)
    found = findings(kernel(tmp_path, code=code), "KB30", built_for=built_for)
    assert [(entry.rule.code, entry.severity.value) for entry in found] == expected
    for entry in found:
        if entry.severity is not Severity.ERROR and built_for:
            assert built_for[0][0] in entry.message or oldest == ["3.9"]


class Told(Silent):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def emit(self, event: object) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.message)


def build_check(root: Path, *names: str, told: Told | None = None) -> None:
    project, _ = load_project(root)
    conformance = Conformance(project=project, work=root / ".work", variants=names)
    conformance.check_sources("identity", told or Told())


def test_a_build_goes_by_the_torches_it_builds_for(tmp_path: Path) -> None:
    root, told = kernel(tmp_path), Told()
    build_check(root, "torch213-cxx11-cpu-x86_64-linux", "torch214-cxx11-cpu-x86_64-linux", told=told)
    (notice,) = told.notices
    assert "KB302" in notice
    assert "torch 2.13 and all others here need Python 3.10 anyway" in notice
    for older in ("torch28-cxx11-cpu-x86_64-linux", "torch-cpu"):
        with pytest.raises(BuildError, match="KB302"):
            build_check(root, "torch213-cxx11-cpu-x86_64-linux", older)


def test_a_build_and_an_upload_accept_what_the_project_does(tmp_path: Path) -> None:
    root, told = kernel(tmp_path, '{ KB302 = "users have 3.10" }'), Told()
    build_check(root, "torch-cuda", told=told)
    assert told.notices[0].endswith("accepted: users have 3.10")
    (root / "kernel-builder.toml").unlink()
    with pytest.raises(BuildError, match="KB302"):
        build_check(root, "torch-cuda")


def test_an_upload_keeps_the_published_floor_unless_the_project_accepts(tmp_path: Path) -> None:
    root, told = kernel(tmp_path), Told()
    variant(root / "build", files={"part.py": UNION, "__init__.py": f"{NEWER}from . import _ops\n"})
    with pytest.raises(BuildError, match="KB302"):
        check_source(find_source(root), told)
    write(root, {"kernel-builder.toml": '[check]\naccept = { KB302 = "users have 3.10" }\n'})
    check_source(find_source(root), told)
    assert any(line.endswith("accepted: users have 3.10") for line in told.notices)
