"""docs/check.md lists the rules as they are."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "generate_rules.py"


def test_the_page_lists_every_rule_as_it_is() -> None:
    made = runpy.run_path(str(SCRIPT))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), "run: python scripts/generate_rules.py"
