"""What exit codes mean: the strings below the members of :class:`ExitCode`."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise

from kernel_builder.errors import ExitCode


def exit_codes() -> dict[int, str]:
    """Each exit code with one sentence."""
    body = ast.parse(inspect.getsource(ExitCode)).body[0]
    found = {int(ExitCode.OK): "Success."}
    for member, below in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
        match member, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[int(ExitCode[name])] = " ".join(text.replace("``", "`").split())
    return found
