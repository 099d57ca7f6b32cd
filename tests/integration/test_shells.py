"""``devshell`` and ``testshell``, in the active environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import CPU, Tool
from kernel_builder.environments.shells import shell_command
from kernel_builder.environments.variables import Changes

SAY = """\
import json, os, kernels, my_scale
print(json.dumps([my_scale.__file__, kernels.get_kernel("me/my-scale", version=1).__file__]))
"""


@pytest.mark.torch
def test_the_test_shell_has_the_built_kernel(tool: Tool, init_project: Path) -> None:
    done = tool.apart("testshell", init_project, "-c", f"python -W ignore -c '{SAY}'; exit 7")
    assert done.code == 7, done.stderr
    entry = str(init_project / "build" / CPU / "__init__.py")
    assert json.loads(done.stdout) == [entry, entry]


@pytest.mark.torch
def test_the_development_shell_has_compilers_and_the_projects_builds(tool: Tool, init_project: Path) -> None:
    done = tool.apart("devshell", init_project, "-c", 'echo "$LOCAL_KERNELS"; "$CXX" --version; command -v python')
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"me/my-scale={init_project}/build"
    assert "g++" in lines[1] or "clang" in lines[1]
    assert Path(lines[-1]).parent == Path(sys.executable).parent
    # What direnv runs gives the same.
    script = tool("devshell", init_project, "--print-env").stdout
    answer = subprocess.check_output(
        ["sh", "-c", f'{script}echo "$LOCAL_KERNELS"; "$CXX" --version; command -v python']
    )
    assert answer.decode() == done.stdout


def test_contradictions_are_told(tool: Tool, init_project: Path) -> None:
    for arguments, told in (
        (["devshell", "-c", "x", "--print-env"], "--print-env runs nothing"),
        (["testshell", "--isolated", "--python", sys.executable], "--isolated creates one"),
        (["environment", "remove"], "no environments to remove were named"),
        (["environment", "remove", "a", "--all"], "names, limits and --all cannot be combined"),
    ):
        done = tool(*arguments, cwd=init_project)
        assert (done.code, told in done.stderr) == (2, True), done.stderr


def test_bash_keeps_the_variables_whatever_the_users_file_does(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("PATH=/usr/bin:/bin\nPS1='$ '\nalias mine='echo mine'\n", encoding="utf-8")
    changes = Changes(values={"HERE": "it's"}, path=(Path("/opt/environment/bin"),))
    environ = {"SHELL": "/bin/bash", "HOME": str(tmp_path), "PATH": os.defpath}
    command = shell_command(changes, "torch213", environ, tmp_path)
    done = subprocess.run(
        command, input='mine; echo "$PATH|$HERE|$PS1"\n', env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["mine", "/opt/environment/bin:/usr/bin:/bin|it's|(torch213) $ "]
