"""What shells and tests in an environment see."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kernel_builder.environments.variables import (
    Changes,
    import_changes,
    kernel_changes,
    python_changes,
    together,
)
from kernel_builder.errors import UsageError


def test_the_script_does_what_the_changes_say(tmp_path: Path) -> None:
    """For direnv: any shell that runs it gets the same variables as a child of ours."""
    (tmp_path / "pyvenv.cfg").touch()
    python = tmp_path / "bin" / "python"
    changes = together(
        python_changes(python),
        kernel_changes("me/k", Path("/a b/it's"), {}),
        Changes(values={"CXX": "/usr/bin/g++"}, path=(Path("/tool kit/bin"),)),
    )
    before = {"PATH": "/usr/bin:/bin", "PYTHONHOME": "/gone", "OTHER": "kept"}
    script = "\n".join([*changes.script(), "env -0"])
    answer = subprocess.run(["sh", "-c", script], env=before, capture_output=True, text=True, check=True).stdout
    found = dict(entry.split("=", 1) for entry in answer.split("\0") if entry)
    expected = changes.applied(before)
    assert {name: found[name] for name in expected} == expected
    assert "PYTHONHOME" not in found
    assert found["PATH"] == f"/tool kit/bin:{tmp_path}/bin:/usr/bin:/bin"
    assert found["VIRTUAL_ENV"] == str(tmp_path)
    assert found["LOCAL_KERNELS"] == "me/k=/a b/it's"


def test_without_a_path_there_is_no_empty_entry() -> None:
    """An empty entry of PATH is the current directory."""
    changes = Changes(path=(Path("/bin"),))
    assert changes.applied({})["PATH"] == "/bin"
    script = f"{changes.script()[0]}; echo $PATH"
    assert subprocess.check_output(["/bin/sh", "-c", f"unset PATH; {script}"], text=True) == "/bin\n"


def test_other_local_kernels_stay() -> None:
    environ = {"LOCAL_KERNELS": "you/other=/there:me/k=/old"}
    values = kernel_changes("me/k", Path("/new"), environ).values
    assert values == {"LOCAL_KERNELS": "you/other=/there:me/k=/new"}
    assert kernel_changes(None, Path("/new"), environ).values == {}
    with pytest.raises(UsageError, match="with ':' in it"):
        kernel_changes("me/k", Path("/a:b"), environ)


def test_tests_import_from_what_is_named_alone() -> None:
    changes = import_changes([Path("/a"), Path("/b")])
    assert changes.applied({"PYTHONPATH": "/shadow"})["PYTHONPATH"] == "/a:/b"
