# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Calling the ops of a variant with arguments that are made up from their schemas."""

from __future__ import annotations

from typing import Any

from .answers import announce_call, answer, answer_failure, reason_of
from .kernel import import_kernel, prepared
from .registry import ops_of


class ImpossibleError(Exception):
    """No argument can be made up."""


def made_up(argument: Any, device: str) -> Any:
    """A value for an argument of an op's schema. Raises :class:`ImpossibleError`."""
    import torch

    kind = str(argument.type)
    if argument.has_default_value():
        return argument.default_value
    if kind == "Tensor":
        return torch.ones(4, 8, device=device)
    if kind.startswith("Optional["):
        return None
    simple = {"int": 1, "SymInt": 1, "float": 0.5, "bool": False, "number": 1.0, "Scalar": 1.0}
    if kind in simple:
        return simple[kind]
    raise ImpossibleError(f"{argument.name}: {kind}")


def has_fake(op: Any, name: str) -> bool:
    import torch
    from torch._library.simple_registry import singleton

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if has(name, "Meta") or has(name, "CompositeImplicitAutograd") or has(name, "CompositeExplicitAutograd"):
        return True
    entry = singleton.find(op._qualified_op_name)
    return entry.fake_impl.kernel is not None


def call(request: dict[str, Any]) -> None:
    """Call every op that has a fake, eagerly and under ``torch.compile(fullgraph=True)``.

    Each op is announced before it is called, so that one that ends the process is known by name.
    """
    if not prepared(request):
        return
    import torch

    try:
        import_kernel(request["path"], request)
    except Exception as error:
        answer_failure(error, request["path"])
        return
    results: list[list[str]] = []
    for name in [op["name"] for op in ops_of(request["id"])]:
        if name in request["skip"] or "." in name.split("::", 1)[1]:
            continue
        op = getattr(getattr(torch.ops, request["id"]), name.split("::", 1)[1])
        overload = op.default
        if not has_fake(overload, name):
            results.append([name, "no fake", ""])
            continue
        announce_call(name)
        results.append([name, *called(op, overload, request["device"])])
    answer(status="loaded", results=results)


def called(op: Any, overload: Any, device: str) -> tuple[str, str]:
    import torch

    try:
        arguments = [made_up(argument, device) for argument in overload._schema.arguments]
        names = [argument.name for argument in overload._schema.arguments if argument.kwarg_only]
        positional = arguments[: len(arguments) - len(names)]
        words = dict(zip(names, arguments[len(positional) :]))
        op(*positional, **words)
    except Exception as error:
        return "not called", reason_of(error).splitlines()[0]
    try:
        torch.compile(lambda *given: op(*given, **words), fullgraph=True, backend="aot_eager")(*positional)
    except Exception as error:
        return "not compiled", reason_of(error).splitlines()[0]
    return "compiled", ""
