"""What of a file counts, and that a file that changed is read again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernel_builder.engine.contents import Contents, source_digest, text_digest
from kernel_builder.engine.perform import Moment
from kernel_builder.seen import YOUNG_NS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a; // one\n", "int a; // something longer\n"),
        ("int a; // one\n", "int a;\n"),
        ("/* a\n b */\nint a;\n", "/* other\n words, more */\nint a;\n"),
        ("// a \\\nstill a comment\nint a;\n", "// b \\\nanother comment \nint a;\n"),
        ("int a = 1'000; // '\n", "int a = 1'000; // x\n"),
        ("int a;\n", "int a;\n\n// the end\n/* of\nit */\n"),
        ("int a;", "int a; // one\n"),
    ],
)
def test_only_the_words_of_comments_differ(one: str, other: str) -> None:
    assert source_digest(one.encode()) == source_digest(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a;\n", "int b;\n"),
        ("// x\nint a;\n", "int a;\n"),
        ("#define A \\\n", "#define A \\\n\n"),
        ("/* x */ f();\n", "/* longer */ f();\n"),  # std::source_location has columns
        ('char a[] = "// one";\n', 'char a[] = "// two";\n'),
        ('char a[] = R"(// one)";\n', 'char a[] = R"(// two)";\n'),
        ('char a[] = R"x(")" /* one */)x";\n', 'char a[] = R"x(")" /* two */)x";\n'),
        ('char a = \'"\'; // "\nchar b[] = "// 1";\n', 'char a = \'"\'; // "\nchar b[] = "// 2";\n'),
        ("int a = 1'0, b[] = {'\"', '/', '/', 1};\n", "int a = 1'0, b[] = {'\"', '/', '/', 2};\n"),
        ("// a ??/\nint a;\n", "// a ??/\nint b;\n"),
        ("// a \\ \nint a; /*\n", "// a \\ \nint b; /*\n"),
        ('f("a\\"// 1");\n', 'f("a\\"// 2");\n'),
        ("#if 0\ndon't /*\n#endif\nint a = 1; // */\n", "#if 0\ndon't /*\n#endif\nint a = 2; // */\n"),
        ('#if 0\na " /*\n#endif\nint a = 1; // */\n', '#if 0\na " /*\n#endif\nint a = 2; // */\n'),
        ("#include <a//b.h>\n", "#include <a//c.h>\n"),
        ("#  include_next <a/*b.h>\nint a; /* */\n", "#  include_next <a/*b.h>\nint b; /* */\n"),
        ("#if __has_include(<a//b.h>)\nint a;\n#endif\n", "#if __has_include(<a//c.h>)\nint a;\n#endif\n"),
        ("#include/**/<a//b.h>\n", "#include/**/<a//c.h>\n"),
        ("#/**/include <a//b.h>\n", "#/**/include <a//c.h>\n"),
        ("#include \\\n<a//b.h>\n", "#include \\\n<a//c.h>\n"),
        ('auto a = R"(x  \ny)";\n', 'auto a = R"(x\ny)";\n'),
        ('auto a = u8R"(x\t\n)";\n', 'auto a = u8R"(x\n)";\n'),
        ('f(XR"(", g()"// 1");\n', 'f(XR"(", g()"// 2");\n'),
        ("/\\\n* // */ int a = 1;\n", "/\\\n* // */ int a = 2;\n"),
        ("/* *\\\n/ int a = 1; /* */\n", "/* *\\\n/ int a = 2; /* */\n"),
        ("/* *\\\n\\\n/ int a = 1; /* */\n", "/* *\\\n\\\n/ int a = 2; /* */\n"),
        ('auto a = R\\\n"(\n// 1)";\n', 'auto a = R\\\n"(\n// 2)";\n'),
        ("// a\rint a = 1;\n", "// a\rint a = 2;\n"),  # where clang ends a line
    ],
)
def test_code_differs(one: str, other: str) -> None:
    assert source_digest(one.encode()) != source_digest(other.encode())


def test_preprocessed_text_is_the_same_wherever_it_came_from() -> None:
    one = b'# 1 "a.h" 1 3\nint a;\n\n\n# 9 "a.cu"\nint b;\n'
    assert text_digest(one) == text_digest(b'# 7 "/x/a.h"\nint a;\nint b;\n')
    assert text_digest(one) != text_digest(b"int a;\nint c;\n")
    assert text_digest(b"#pragma once\nint a;\n") != text_digest(b"int a;\n")
    said = b'auto a = R"x(\n# 1 "a"\n\n)x";\n'
    for other in (said.replace(b"# 1", b"# 2"), said.replace(b"\n\n", b"\n")):
        assert text_digest(said) != text_digest(other)


def test_a_file_is_read_again_when_its_times_or_its_inode_tell(tmp_path: Path) -> None:
    kept, file = tmp_path / "contents.json", tmp_path / "f"
    file.write_bytes(b"1")
    os.utime(file, (1000, 1000))
    first = Contents.load(kept)
    digest = first.digest(str(file))
    first.save()
    assert Contents.load(kept).digest(str(file)) == digest
    other = tmp_path / "g"
    other.write_bytes(b"2")
    os.utime(other, (1000, 1000))
    other.replace(file)
    assert Contents.load(kept).digest(str(file)) != digest
    file.unlink()
    assert Contents.load(kept).digest(str(file)) is None


def test_a_file_younger_than_its_digest_is_not_trusted(tmp_path: Path) -> None:
    """The same size, the same inode, and a clock that did not move: the second content is seen."""
    kept, file = tmp_path / "contents.json", tmp_path / "f"
    file.write_bytes(b"1")
    first = Contents.load(kept)
    digest = first.digest(str(file))
    first.save()
    assert str(file) not in kept.read_text()
    status = file.stat()
    file.write_bytes(b"2")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert Contents.load(kept).digest(str(file)) != digest


def test_what_changed_after_a_moment_has_no_digest_before_it(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"1")
    contents = Contents.load(tmp_path / "contents.json")
    assert contents.digest_before(str(file), file.stat().st_mtime_ns) is None
    assert contents.digest_before(str(file), file.stat().st_ctime_ns + 1) == contents.digest(str(file))
    assert contents.digest_before(str(tmp_path / "gone"), None) is None


def test_what_was_written_before_the_clock_was_set_back_has_not_changed_since(tmp_path: Path) -> None:
    """Its time is ahead: until the clock is there again, it would be taken for written while it was compiled, and
    every build would compile it again.
    """
    file, contents = tmp_path / "f", Contents.load(tmp_path / "contents.json")
    file.write_bytes(b"1")
    name, written = str(file), file.stat().st_ctime_ns
    began = written - 10 * YOUNG_NS
    assert contents.digest_before(name, began, lambda _: began + YOUNG_NS) == contents.digest(name)
    assert contents.digest_before(name, began, lambda _: written - YOUNG_NS) is None
    assert contents.digest_before(name, began, lambda _: written + 1) is None
    assert contents.digest_before(name, began, lambda _: None) is None


def test_the_time_of_files_is_told_where_their_clock_is_ours_and_was_not_set(tmp_path: Path) -> None:
    file, own = tmp_path / "f", tmp_path / "own"
    file.touch()
    now = Moment().now(str(file), own)
    assert now is not None
    assert abs(now - file.stat().st_ctime_ns) < YOUNG_NS
    passed = Moment(time.time_ns() - 10**12, time.monotonic_ns() - 10**12)
    assert passed.now(str(file), own) is not None
    set_back = Moment(time.time_ns() + 10**12, time.monotonic_ns())
    assert set_back.now(str(file), own) is None
    assert Moment().now("/proc/self/stat", own) is None


def test_a_file_that_was_not_there_when_it_was_first_looked_at_is_read(tmp_path: Path) -> None:
    file, contents = tmp_path / "f", Contents.load(tmp_path / "contents.json")
    assert contents.digest(str(file)) is None
    file.write_bytes(b"1")
    assert contents.digest_before(str(file), None) == contents.digest(str(file)) is not None
