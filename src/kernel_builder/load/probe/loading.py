# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Loading a variant, or several versions of one in one process."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from typing import Any

from .answers import answer, answer_failure, kernel_frames, reason_of, tell_foreign
from .behaviour import judge_op, tell_all
from .device_code import Devices
from .executed import Executed
from .functions import Functions, functions_of
from .gradients import judge_layer, layers_of
from .kernel import frameworks_are_here, import_kernel, missing_dependencies, prepared, unknown_to_client
from .registrations import Registrations
from .registry import ops_of, undefined_in
from .search import words_of
from .standins import stand_in


def load(request: dict[str, Any]) -> None:
    """Load one version, and tell what it registered."""
    load_all(request, [{"path": request["path"], "id": request["id"]}])


def together(request: dict[str, Any]) -> None:
    """Load several versions of a kernel, one after the other."""
    load_all(request, request["versions"])


def load_all(request: dict[str, Any], versions: list[dict[str, str]]) -> None:
    """Load ``versions`` in order, with stand-ins where the request asks for them."""
    wanted: Any = request.get("standins")
    if not (frameworks_are_here(request) if wanted else prepared(request)):
        return
    missing = stand_in(request) if wanted else []
    seen = Registrations(versions[0]["path"])
    seen.watch()
    offered: dict[str, list[str]] = request["functions"]
    others = Functions()
    if offered:
        others.watch()
    ran = Executed(versions[0]["path"])
    ran.watch()
    note = ""
    for version in versions:
        try:
            note = bring_in(version["path"], request) if wanted else imported(version["path"], request)
        except Exception as error:
            answer_failure(error, version["path"], seen.foreign(versions[0]["id"]))
            return
    if note and not wanted["files"]:
        answer(status="unavailable", reason=note)
        return
    ops = [op for version in versions for op in ops_of(version["id"])]
    foreign = seen.foreign(versions[0]["id"])
    if offered:
        foreign += others.foreign(versions[0]["id"])
    undefined = [
        {"name": name, "place": seen.place_of(name)} for version in versions for name in undefined_in(version["id"])
    ]
    functions = [name for version in versions for name in functions_of(version["id"], offered.get(version["id"], []))]
    answer(
        status="loaded",
        ops=ops,
        functions=functions,
        undefined=undefined,
        foreign=foreign,
        note=note,
        missing=missing,
    )
    if request.get("call") and not wanted:
        # After the answer: an op that ends the process does not take the proof of loading with it.
        device, namespace, words = request["device"], request["id"], words_of(request["path"])
        judges: dict[str, Any] = {op["name"]: partial(judge_op, op["name"], device, words) for op in ops}
        layers = layers_of(sys.modules.get(namespace))
        judges.update({name: partial(judge_layer, layer, namespace, device) for name, layer in layers.items()})
        wanted_now = {name: judge for name, judge in judges.items() if name not in request["skip"]}
        tell_all(wanted_now)
        if wanted_now:
            # Once: a look takes as long as many calls. Where one ends the process, the others are called again.
            tell_foreign(seen.foreign(namespace))
    ran.tell()


def imported(path: str, request: dict[str, Any]) -> str:
    import_kernel(path, request)
    return ""


def bring_in(path: str, request: dict[str, Any]) -> str:
    """Import the kernel in ``path``, or, where its Python cannot run here, load its libraries alone and say why."""
    note = str(request["alone"] or missing_dependencies(request) or unknown_to_client(path))
    if not note:
        devices = Devices(path, request)
        devices.watch()
        try:
            import_kernel(path, request)
        except Exception as error:
            if not devices.needs_one(error):
                raise
            where = kernel_frames(error, path)[-1:]
            told = ", ".join([*where, reason_of(error).splitlines()[0]])
            note = f"its Python code needs a device, so it was not run: {told}"
    if note:
        for file in request["standins"]["files"]:
            ctypes.CDLL(os.path.join(path, file))
    return note
