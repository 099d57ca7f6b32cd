"""What a compiler says of a line that was made of the project's own, told of the project's."""

from __future__ import annotations

import pytest

from kernel_builder.engine.own_columns import Mirrored, line_of, told_of_own

OWN = "  cudaMalloc(&p, wrong); cub::Sum s; curandInit(wrong2);"
MADE = "  hipMalloc(&p, wrong); hipcub::Sum s; hiprandInit(wrong2);"


@pytest.mark.parametrize("word", ["wrong", "wrong2", "Sum", "s;", "&p"])
def test_a_column_is_that_of_the_same_word(word: str) -> None:
    line = Mirrored(MADE, OWN)
    assert line.column(MADE.index(word) + 1) == OWN.index(word) + 1


def test_the_columns_of_a_word_that_was_replaced_are_in_the_word_that_it_replaced() -> None:
    line = Mirrored(MADE, OWN)
    first, last = MADE.index("hipMalloc"), MADE.index("(&p")
    assert [line.position(at) for at in (first, last - 1, last)] == [2, 10, OWN.index("(&p")]
    longer = MADE.index("hiprandInit")
    assert line.position(longer + len("hiprandInit") - 1) == OWN.index("curandInit") + len("curandInit") - 1


def test_columns_count_bytes_and_what_is_shown_has_no_tabs() -> None:
    own, made = "\t/* é */ cudaFree(x);", "\t/* é */ hipFree(x);"
    line = Mirrored(made, own)
    assert line.column(len(made[: made.index("x")].encode()) + 1) == len(own[: own.index("x")].encode()) + 1
    assert line.shown.own.startswith("        /* é */ cuda")


def test_lines_begin_after_the_marker() -> None:
    made = '#include <hip.h>\n#line 1 "a.cu"\nhipA\nhipB\n'
    assert line_of(made, "cudaA\ncudaB\n", 2) == Mirrored("hipB", "cudaB")
    assert line_of(made, "cudaA\ncudaB\n", 3) is None
    assert line_of(made, "cudaA\ncudaB\n", 0) is None
    assert line_of("hipA\n", "cudaA\n", 1) is None


def test_errors_notes_and_warnings_show_the_projects_text_with_marks_below_it() -> None:
    told = told_of_own(
        [
            "In file included from src/a.cu:1:",
            f"src/a.h:7:{MADE.index('wrong') + 1}: error: use of undeclared identifier 'wrong'",
            f"    7 | {MADE}",
            f"      | {' ' * MADE.index('wrong')}^~~~~",
            f"src/a.h:7:{MADE.index('Sum') + 1}: warning: unused [-Wunused]",
            MADE,
            f"{' ' * MADE.index('hipcub')}~~~~~~~~^~~",
            f"{' ' * MADE.index('Sum')}Add",
            "/usr/include/other.h:7:3: note: not the project's",
            f"    7 | {MADE}",
            "      |   ^",
            "1 error generated.",
        ],
        lambda name, number: Mirrored(MADE, OWN) if (name, number) == ("src/a.h", 7) else None,
    )
    assert told == [
        "In file included from src/a.cu:1:",
        f"src/a.h:7:{OWN.index('wrong') + 1}: error: use of undeclared identifier 'wrong'",
        f"    7 | {OWN}",
        f"      | {' ' * OWN.index('wrong')}^~~~~",
        f"src/a.h:7:{OWN.index('Sum') + 1}: warning: unused [-Wunused]",
        OWN,
        f"{' ' * OWN.index('cub')}~~~~~^~~",
        f"{' ' * OWN.index('Sum')}Add",
        "/usr/include/other.h:7:3: note: not the project's",
        f"    7 | {MADE}",
        "      |   ^",
        "1 error generated.",
    ]
