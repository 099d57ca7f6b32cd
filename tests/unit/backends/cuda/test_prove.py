"""Two ways to compile are told apart by what counts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_builder.backends.cuda import prove

STUB = '# 1 "/one/k.stub.c"\nvoid stub(float *a) { float *__T26; int __T27; __T26 = a; use(__T26, __T27); }\n'
RENUMBERED = '# 1 "/other/k.stub.c"\nvoid stub(float *a) { float *__T16; int __T17; __T16 = a; use(__T16, __T17); }\n'
SWAPPED = RENUMBERED.replace("use(__T16, __T17)", "use(__T17, __T16)")


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("k.cubin", "\x7fELF 1", "\x7fELF 1", True),
        ("k.cubin", "\x7fELF 1", "\x7fELF 2", False),
        ("k.ptx", "# 1 a", "# 1 b", False),
        ("k.stub.c", STUB, RENUMBERED, True),
        ("k.stub.c", STUB, SWAPPED, False),
        ("k.stub.c", STUB, RENUMBERED.replace("float *a", "float *b"), False),
    ],
)
def test_what_counts_is_compared(tmp_path: Path, name: str, one: str, other: str, equal: bool) -> None:
    paths = [tmp_path / f"slim-{name}", tmp_path / name]
    for path, text in zip(paths, (one, other), strict=True):
        path.write_text(text, encoding="utf-8")
    same = [sys.executable, "-P", prove.__file__, str(paths[0]), str(paths[0]), *map(str, paths)]
    done = subprocess.run(same, capture_output=True, text=True, check=False)
    expected = (0, "") if equal else (1, f"error: slim headers make another {name}\n")
    assert (done.returncode, done.stderr) == expected
