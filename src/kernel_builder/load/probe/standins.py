# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Stand-ins for the libraries that a kernel needs and that this machine lacks: another build of torch, a runtime.

They define exactly the names that the kernel leaves to them. Registering with torch calls none of those, so the kernel
loads and registers; whatever does call one ends the process with its name.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
from typing import Any

from .registry import torch_is_here
from .stub_library import FUNCTION, OBJECT, PROCESSORS, QUIET, THREAD_LOCAL, Name, library

_OTHERS = "libkernel-builder-stand-ins.so"
# C++: tables of virtual functions, of virtual bases, type information and its name, guards of static variables.
_DATA = re.compile(r"_Z(TV|TT|TI|TS|GV)")
_KINDS = {"func": FUNCTION, "ifunc": FUNCTION, "object": OBJECT, "tls": THREAD_LOCAL}


def stand_in(request: dict[str, Any]) -> list[str]:
    """Load stand-ins for what is missing here, and make torch say that it has the toolkit; answers what was missing.

    ``request["standins"]`` has the libraries that the kernel's ``files`` need, those of them that are ``replaceable``,
    the names that may be stood in for as ``undefined``: ``[name, version, library, kind]``; a pattern of ``quiet``
    functions; the ``machine``; and ``version``, an attribute of torch.version with its value.
    """
    wanted = request["standins"]
    handles, missing = open_libraries(wanted["needed"])
    missing = [soname for soname in missing if soname in wanted["replaceable"]]
    if torch_is_here():
        import torch

        if wanted["version"]:
            attribute, value = wanted["version"]
            if getattr(torch.version, attribute, None) is None:
                setattr(torch.version, attribute, value)
        handles.append(ctypes.CDLL(torch._C.__file__))  # with all of torch's own libraries
    names: dict[str, set[Name]] = {soname: set() for soname in missing}
    quiet = re.compile(wanted["quiet"] or r"(?!)")
    for name, version, soname, kind in wanted["undefined"]:
        # A name in the version of a library that is missing is no other library's, whatever that is called.
        if soname in missing or not any(has(handle, name) for handle in handles):
            made = Name(name, QUIET if quiet.fullmatch(name) else kind_of(name, kind), version)
            names.setdefault(soname if soname in missing else missing[0] if missing else _OTHERS, set()).add(made)
    load_stand_ins(names, wanted["machine"])
    return missing


def open_libraries(sonames: list[str]) -> tuple[list[ctypes.CDLL], list[str]]:
    """The libraries of these names, and the names of those that are not here."""
    handles, missing = [ctypes.CDLL(None)], []
    for soname in sonames:
        try:
            handles.append(ctypes.CDLL(soname))
        except OSError:
            missing.append(soname)
    return handles, missing


def has(handle: Any, name: str) -> bool:
    try:
        handle[name]
    except AttributeError:
        return False
    return True


def kind_of(name: str, kind: str) -> str:
    """What an undefined name is, where the file does not tell: a function, unless its name is of C++'s data."""
    return _KINDS.get(kind) or (OBJECT if _DATA.match(name) else FUNCTION)


def load_stand_ins(names: dict[str, set[Name]], machine: str) -> None:
    """Write and load them; the dynamic linker knows them by their names from then on."""
    folder = tempfile.mkdtemp(prefix="kernel-builder-")
    try:
        for soname, defined in names.items():
            path = os.path.join(folder, soname.replace(os.sep, "_"))
            with open(path, "wb") as file:
                file.write(library(soname, list(defined), PROCESSORS[machine]))
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
