"""The page: one file, readable without scripts, that refers to nothing elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from kernel_builder.timing.figures import figures_of
from kernel_builder.timing.page import facts_of, marks, page_of, seconds
from kernel_builder.timing.texts import Share, SourceText
from timelines import TWO_SLOTS, span

TEXT = SourceText(
    source="b.cpp",
    variant="torch-x",
    size=2_500_000,
    seconds=1.0,
    families=(Share(name="torch: ATen", size=2_000_000), Share(name="the project", size=500_000)),
    files=(Share(name="{store}/x.h", size=5),),
    includes=(Share(name="#include <torch/all.h>", size=2_400_000),),
)


class Reader(HTMLParser):
    """What people see without scripts, all attributes, and the elements that were left open."""

    _ALONE = ("meta", "link", "br", "input")

    def __init__(self) -> None:
        super().__init__()
        self.text, self.data = "", ""
        self.attributes: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self._ALONE:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self._open:
            self.data = self.data or data
        elif "style" not in self._open:
            self.text += data
            if {"td", "th"} & set(self._open):
                self.tables[-1][-1][-1] += data

    def close(self) -> None:
        super().close()
        assert self._open == []


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def test_the_tables_have_all_that_the_picture_has() -> None:
    figures = figures_of(TWO_SLOTS)
    found = read(page_of("relu", figures, [TEXT]))
    (actions,) = [table for table in found.tables if "Began" in table[0]]
    assert len(actions) == 1 + len(TWO_SLOTS.spans)
    for bar in figures.bars:
        (row,) = [row for row in actions if row[0].startswith(f"{bar.span.kind} {bar.span.source}")]
        assert row[2:5] == [str(bar.slot + 1), seconds(bar.begin), seconds(bar.seconds)]
    assert "from the cache: saved 19.5 s" in found.text
    for words in ("torch: ATen", "2.0 MB", "#include <torch/all.h>", "Critical path", "10.0 s", "architecture"):
        assert words in found.text


def test_the_data_in_the_page_are_all_figures() -> None:
    figures = figures_of(TWO_SLOTS)
    data: Any = json.loads(read(page_of("relu", figures, [TEXT])).data)
    assert data == json.loads(json.dumps(facts_of(figures, [TEXT])))
    assert [link["id"] for link in data["critical-path"]] == ["device:a.x:9.0", "assemble:a.x:9.0", "link:lib.so"]


def test_the_page_refers_to_nothing_elsewhere() -> None:
    page = page_of("relu", figures_of(TWO_SLOTS), [TEXT])
    assert "default-src 'none'" in page
    assert "//" not in re.sub(r"#include <[^>]*>", "", page).replace("</", "")
    links = [value for name, value in read(page).attributes if name in ("src", "href", "action", "srcset")]
    assert [link for link in links if not link.startswith("#")] == ["data:,"]


def test_names_are_text_and_never_markup() -> None:
    spans = (span("compile:</script><b>x", 0, 1),)
    page = page_of("<i>k", figures_of(replace(TWO_SLOTS, spans=spans)), [], "so & so")
    found = read(page)
    assert "<i>k" in found.text
    assert "compile </script><b>x" in found.text
    assert "so & so" in found.text
    assert json.loads(found.data)["actions"][0]["source"] == "</script><b>x"


@pytest.mark.parametrize("total", [0.001, 0.7, 1.0, 3.2, 9.99, 10, 17.3, 59, 60.1, 163, 999, 1000, 36_000])
def test_the_axis_has_round_times(total: float) -> None:
    found = marks(total)
    assert found[0] == 0
    assert 3 <= len(found) <= 6
    assert found[-1] < total
    step = found[1]
    assert f"{step:e}"[0] in "125"
    assert found == tuple(round(step * count, 6) for count in range(len(found)))
