"""Names that Windows or macOS cannot store are known, each with its reason."""

from __future__ import annotations

import pytest

from kernel_builder.portable import LONGEST_PATH, is_reserved, unportable


@pytest.mark.parametrize("name", ["con", "CON", "Aux.py", "nul.tar.gz", "prn .h", "com1", "LPT9.cu", "com\u00b2"])
def test_devices_of_windows_are_reserved_whatever_follows(name: str) -> None:
    assert is_reserved(name)
    assert [one.why for one in unportable([f"src/{name}"])] == ["Windows reserves that name for a device"]


@pytest.mark.parametrize(
    "name", ["console.py", "auxiliary.h", "com.py", "com0", "lpt10", "null", "_con", "a.nul", "", "x"]
)
def test_names_that_only_look_so_are_not(name: str) -> None:
    assert not is_reserved(name)
    assert unportable([f"src/{name or 'y'}"]) == ()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("src/a.", "src/a."),
        ("src/a ", "src/a "),
        ("sub /a.h", "sub "),
        ("a:b/c.h", "a:b"),
        ("src/what?.cu", "src/what?.cu"),
        (f"src/{'d' * 100}/{'e' * 100}.h", f"src/{'d' * 100}/{'e' * 100}.h"),
    ],
)
def test_an_entry_is_told_once_where_it_begins(path: str, told: str) -> None:
    assert [one.path for one in unportable([path, path.replace(".h", ".hpp")])][:1] == [told]
    assert len(unportable([path])) == 1


def test_paths_are_measured_from_the_root() -> None:
    assert unportable(["a/" + "b" * (LONGEST_PATH - 2)]) == ()
    (found,) = unportable(["a/" + "b" * (LONGEST_PATH - 1)])
    assert found.why.startswith(f"it is {LONGEST_PATH + 1} characters long")


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["Relu.cu", "relu.cu"], ["relu.cu"]),
        (["src/A.h", "src/b.h", "src/a.h", "SRC2/a.h"], ["src/a.h"]),
        (["Src/a.h", "src/b.h"], ["src"]),
        (["Src/a.h", "src/a.h"], ["src"]),
        (["stra\u00dfe.h", "STRASSE.h"], ["STRASSE.h"]),
        (["e\u0301.h", "\u00e9.h"], ["\u00e9.h"]),
        (["a/x.h", "b/X.h"], []),
    ],
)
def test_names_that_differ_only_in_case_are_one_file(paths: list[str], told: list[str]) -> None:
    assert [one.path for one in unportable(paths)] == told
