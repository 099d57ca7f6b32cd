"""Where this Python keeps its headers."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.model import PythonHeaders


def python_headers() -> PythonHeaders | None:
    """This Python's headers, if they are installed. Those of a free-threaded Python cannot be compiled for the limited
    API.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    include, machine = sysconfig.get_paths()["include"], sysconfig.get_config_var("MULTIARCH")
    return headers_in(Path(include), machine or "", sysconfig.get_python_version())


def headers_in(include: Path, machine: str, version: str) -> PythonHeaders | None:
    """The headers in ``include``, if they are there, of a Python ``version`` that was built for ``machine``, a triplet
    of Debian's (``x86_64-linux-gnu``; empty where it has none).

    Debian and Ubuntu share ``include`` among machines: its ``pyconfig.h`` includes the machine's own, which is in a
    directory of the same name beside it (``/usr/include/x86_64-linux-gnu/python3.12``).
    """
    if not (include / "Python.h").is_file():
        return None
    beside = include.parent / machine / include.name
    of_machine = beside if machine and (beside / "pyconfig.h").is_file() else None
    folders = [include, *([of_machine] if of_machine is not None else [])]
    return PythonHeaders(include=include, version=version, identity=tree_identity((), folders), of_machine=of_machine)
