"""Write the table of rules in docs/check.md from the rules themselves: python scripts/generate_rules.py"""

from __future__ import annotations

from pathlib import Path

from kernel_builder.check.engine import all_rules
from kernel_builder.check.model import Rule, Severity

PAGE = Path(__file__).parent.parent / "docs" / "check.md"
BEGIN, END = "<!-- rules: written by scripts/generate_rules.py -->", "<!-- end of rules -->"
GROUPS = {
    "KB0": "Everything",
    "KB1": "Libraries",
    "KB2": "Op namespace",
    "KB3": "Python",
    "KB4": "Layout, names and metadata",
    "KB5": "Loading (`--load`)",
}


def table() -> str:
    """The rules as Markdown, one table a group."""
    parts: list[str] = []
    for prefix, title in GROUPS.items():
        rules = [rule for rule in all_rules() if rule.code.startswith(prefix)]
        if not rules:
            continue
        rows = [f"| {rule.code} | `{rule.slug}` | {_severity(rule)} | {_cell(rule.summary)} |" for rule in rules]
        parts.append(
            "\n".join([f"### {title}", "", "| Code | Name | Severity | Required |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def _severity(rule: Rule) -> str:
    acceptable = rule.acceptable and rule.severity is Severity.ERROR
    return f"{rule.severity.value}{', can be accepted' if acceptable else ''}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """The page with its table brought up to date."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
