"""Which of pytest's arguments name tests: ``tests/`` is added where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.workflow.testing import named_places
from kernel_trees import write


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], False),
        ([""], False),
        (["-x", "tests/test_a.py"], True),
        (["tests/test_a.py::test_one", "-q"], True),
        (["tests", "-k", "one"], True),
        (["-k", "tests"], False),
        (["-k", "scale", "tests/test_a.py"], True),
        (["--junitxml", "report.xml"], False),
        (["--junitxml=report.xml"], False),
        (["--ignore", "tests/slow", "-x"], False),
        (["--deselect", "tests/test_a.py::test_one"], False),
        (["-m", "scale", "-p", "tests"], False),
        (["tests/nothing.py"], False),
    ],
)
def test_values_of_options_name_no_tests(tmp_path: Path, arguments: list[str], named: bool) -> None:
    write(tmp_path, {"tests/test_a.py": "", "tests/slow/test_b.py": "", "report.xml": "", "scale/scale.cpp": ""})
    assert named_places(tmp_path, arguments) is named
