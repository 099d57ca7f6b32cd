"""Finding places in TOML, and every mistake in what is not TOML."""

from __future__ import annotations

import time
import tomllib

import pytest

from kernel_builder.toml.scan import MAX_DEPTH, Source, Where

DOCUMENT = '''\
# a comment = [not a key]
title = "a # b"   # c
"quoted key".'x.y' = 1
list = [ 1, # one
  [2, "]"], { a = 1, b.c = [3] },
]
text = """
[not.a.table]
x = 1
"""

[table]
key = 1
  inner.deep = true
inline = { x = 1, "y z" = ["a", "b"] }
[[many]]
n = 1
[[many]]
n = 2
[many.sub]
k = 'v'
[ table . "with space" ]
z = 2024-01-01 10:00:00
'''


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("title",), "2:1", "2:9"),
        (("quoted key", "x.y"), "3:1", "3:22"),
        (("list",), "4:1", "4:8"),
        (("list", 0), "4:10", "4:10"),
        (("list", 1), "5:3", "5:3"),
        (("list", 1, 1), "5:7", "5:7"),
        (("list", 2, "b", "c"), "5:22", "5:22"),
        (("text",), "7:1", "7:8"),
        (("table",), "12:1", "12:1"),
        (("table", "key"), "13:1", "13:7"),
        (("table", "inner", "deep"), "14:3", "14:16"),
        (("table", "inline", "y z", 1), "15:33", "15:33"),
        (("many", 0, "n"), "17:1", "17:5"),
        (("many", 1, "n"), "19:1", "19:5"),
        (("many", 1, "sub", "k"), "21:1", "21:5"),
        (("table", "with space", "z"), "23:1", "23:5"),
        # What is missing is shown where it should be.
        (("table", "missing"), "12:1", "12:1"),
        (("nowhere",), "1:1", "1:1"),
    ],
)
def test_finds_keys_and_values(path: Where, key: str, value: str) -> None:
    source = Source(DOCUMENT)
    assert source.parse() == (tomllib.loads(DOCUMENT), ())
    assert "{}:{}".format(*source.position(source.key(path))) == key
    assert "{}:{}".format(*source.position(source.value(path))) == value


def test_long_plain_lists_have_the_values_that_tomllib_gives() -> None:
    files = "".join(f'  "src/a_{number}.cu",\n' for number in range(500))
    text = f'[[t]]\n[[t]]\nx.src = [\n{files}]\ny = 1\n[u]\n"a b" = [{files[2:-2]}] # end\n'
    assert Source(text).parse() == (tomllib.loads(text), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\na = 2\nb = x\n", {(2, "given twice; first on line 1"), (3, "not a valid value")}),
        ("[a]\n[a]\nb = 1\n[a]\n", {(2, "the table [a] appears twice; first on line 1"),
                                    (4, "the table [a] appears twice; first on line 1")}),
        ("a = 1\n[a]\nb = 1\n", {(2, "cannot be a table: it already has a value; first on line 1")}),
        ("a.b = 1\na = 2\n", {(2, "given twice")}),
        ("a = 1\na.b = 2\n", {(2, "cannot be a table: it already has a value; first on line 1")}),
        ('a = "x\nb = "y"\n', {(1, "the string that starts here has no closing quote")}),
        ('a = ["x",\nb = "y"\n', {(1, "the value that starts here is not closed: missing ']', '}' or ','")}),
        ("a = [1,\n  2\n[t]\nb = 1\n", {(1, "the value that starts here is not closed: missing ']', '}' or ','")}),
        ("a\nb = 1\n= 2\n", {(1, "missing '=' after the key"), (3, "expected 'key = value' or a [table]")}),
        ("a = \n[t]\nb = 1 2\n", {(1, "not a valid value"), (3, "unexpected text after the statement")}),
        ('a = "\\q"\n', {(1, "unknown escape after the backslash")}),
    ],
)  # fmt: skip
def test_tells_every_mistake_and_goes_on_behind_it(text: str, said: set[tuple[int, str]]) -> None:
    source = Source(text)
    _, problems = source.parse()
    assert {(source.position(one.offset)[0], one.message) for one in problems} == said


def test_goes_on_behind_what_is_not_closed() -> None:
    data, problems = Source('[a]\nx = ["1",\ny = "2"\n\n[b]\nz = 3\n').parse()
    assert len(problems) == 1
    assert data == {"a": {"y": "2"}, "b": {"z": 3}}


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{a=" * 50_000,
        "a" + ".a" * 100_000 + " = 1",
        "[" + "a." * 100_000 + "a]",
        "".join(f"[{'a.' * depth}a]\n" for depth in range(MAX_DEPTH - 1)),
        "a = " + "[[],[]," * 50_000,
        "a = '''" + "x" * 1_000_000,
        'a = """\\' * 50_000,
        "a = 0x" + "f" * 100_000,
        "a = " + "9" * 100_000,
        "\n".join(f"k{number} = [" for number in range(20_000)),
        "=\n" * 100_000,
        "a = '\n" * 20_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_is_answered_in_a_second(text: str) -> None:
    begin = time.process_time()
    Source(text).parse()
    assert time.process_time() - begin < 5
