# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Calling the ops of a variant with arguments that are made up from their schemas."""

from __future__ import annotations

from typing import Any

from .answers import announce_call, answer, answer_failure, reason_of
from .behaviour import has_own_fake, overload_named, working
from .kernel import import_kernel, prepared
from .made_up import Arguments
from .registry import ops_of
from .search import Search, words_of


def has_fake(overload: Any, name: str) -> bool:
    """Whether torch knows what the op gives without calling it. An op that gives no tensor is never compiled."""
    import torch

    given = [str(result.type) for result in overload._schema.returns]
    if given and not any("Tensor" in kind for kind in given):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_own_fake(overload) or has(name, "CompositeImplicitAutograd") or has(name, "CompositeExplicitAutograd")


def call(request: dict[str, Any]) -> None:
    """Call every op that has a fake, eagerly and under ``torch.compile(fullgraph=True)``.

    Each op is announced before it is called, so that one that ends the process is known by name.
    """
    if not prepared(request):
        return

    try:
        import_kernel(request["path"], request)
    except Exception as error:
        answer_failure(error, request["path"], [])
        return
    results: list[list[str]] = []
    words = words_of(request["path"])
    for name in [op["name"] for op in ops_of(request["id"])]:
        if name in request["skip"]:
            continue
        overload = overload_named(name)
        if not has_fake(overload, name):
            results.append([name, "no fake", ""])
            continue
        announce_call(name)
        results.append([name, *called(overload, request["device"], words)])
    answer(status="loaded", results=results)


def called(overload: Any, device: str, words: list[str]) -> tuple[str, str]:
    import torch

    try:
        recipe = working(overload, device, Search(overload._schema, words))
    except Exception as error:
        return "not called", reason_of(error).splitlines()[0]
    given = Arguments(overload._schema, recipe, device, 1)
    try:
        torch.compile(lambda *values: overload(*values, **given.named), fullgraph=True, backend="aot_eager")(
            *given.positional
        )
    except Exception as error:
        return "not compiled", reason_of(error).splitlines()[0]
    return "compiled", ""
