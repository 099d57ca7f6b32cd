"""The figures of the documentation are those that the script draws from its tables."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from types import ModuleType

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_figures", ROOT / "scripts" / "generate_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_figures_are_up_to_date(script: ModuleType) -> None:
    """``python scripts/generate_figures.py`` draws them again."""
    for file, text in script.figures().items():
        assert file.read_text(encoding="utf-8") == text, file.name
        ET.fromstring(text)  # noqa: S314  (ours)


def test_every_stage_and_every_way_to_link_is_drawn(script: ModuleType) -> None:
    contributing = (
        "    build.toml -> Project   every edition   config/\n    -> Findings   is it <fit>?   check/, load/\n"
    )
    assert script.stages(contributing) == [
        ("Project", "every edition", "config/"),
        ("Findings", "is it <fit>?", "check/, load/"),
    ]
    drawn = script.flow(contributing)
    assert "is it &lt;fit&gt;?" in drawn
    page = "| dynamic | shared | right | 2.32, and more |\n| static | static | **aborts** | **2.25** |\n"
    assert script.linkings(page) == [
        ("libstdc++ dynamic", "2.32", True),
        ("libstdc++ static; libgcc static", "2.25", False),
    ]
    assert "glibc 2.25, wrong" in script.portability(page)
    for reader in (script.stages, script.linkings, script.ratios):
        with pytest.raises(ValueError, match="any more"):
            reader("nothing")


def test_a_ratio_below_one_is_drawn_as_faster_and_one_above_as_slower(script: ModuleType) -> None:
    page = (
        "| what | ours, s | the other, s | ours over it |\n"
        "| a `.cu` file, cold | 5.0 (4-6) | nvcc 20.0 (19-21) | 0.25 |\n"
        "| an edit | 9 | scikit-build-core 3 | 3.00 |\n"
        "| after itself | 44.8 | cu130 39.0 | 1.15 |\n"
    )
    assert script.ratios(page) == [("a .cu file, cold", "nvcc", 0.25), ("an edit", "scikit-build-core", 3.0)]
    drawn = ET.fromstring(script.speed(page))  # noqa: S314  (ours)
    faster, slower = (float(bar.get("x", "")) for bar in drawn.iter() if bar.get("height") == "9")
    assert faster < slower
