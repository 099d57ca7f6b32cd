# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Loading a variant, or several versions of one in one process."""

from __future__ import annotations

from typing import Any

from .answers import answer, answer_failure
from .kernel import import_kernel, prepared
from .registry import Registrations, ops_of


def load(request: dict[str, Any]) -> None:
    if not prepared(request):
        return
    seen = Registrations(request["path"])
    seen.watch()
    try:
        import_kernel(request["path"], request)
    except Exception as error:
        answer_failure(error, request["path"])
        return
    answer(status="loaded", ops=ops_of(request["id"]), foreign=seen.foreign(request["id"]))


def together(request: dict[str, Any]) -> None:
    """Load several versions of a kernel, one after the other, and see that each has its ops."""
    if not prepared(request):
        return
    for version in request["versions"]:
        try:
            import_kernel(version["path"], request)
        except Exception as error:
            answer_failure(error, version["path"])
            return
    answer(status="loaded", ops=[op for version in request["versions"] for op in ops_of(version["id"])])
