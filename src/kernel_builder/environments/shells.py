"""The user's own shell, with changes to its variables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from kernel_builder.environments.variables import Changes

_OTHERWISE = "/bin/sh"


def user_shell(environ: Mapping[str, str]) -> str:
    """The user's shell: ``SHELL``, else the system's."""
    return environ.get("SHELL") or _OTHERWISE


def shell_command(changes: Changes, label: str, environ: Mapping[str, str], scratch: Path) -> list[str]:
    """The command of an interactive shell. It inherits the changes; bash makes them again once it has read the user's
    file, which may set PATH, and says ``label`` in its prompt. ``scratch`` is a directory for its file.
    """
    shell = user_shell(environ)
    if Path(shell).name != "bash":
        return [shell, "-i"]
    file = scratch / "bashrc"
    own = "if [ -f ~/.bashrc ]; then . ~/.bashrc; fi"
    prompt = f'PS1={shlex.quote(f"({label}) ")}"$PS1"'
    # The file has done its work once it was read: the shell may outlive the directory.
    file.write_text("\n".join([own, *changes.script(), prompt, ""]), encoding="utf-8")
    return [shell, "--rcfile", str(file), "-i"]
