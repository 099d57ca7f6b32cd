"""Layers that claim a backward where nothing in the sources has one. What loading shows of others is KB514."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.namespace import native_sources
from kernel_builder.check.python_facts import dotted_name, package_of
from kernel_builder.check.subject import PythonTree
from kernel_builder.check.syntax import walk

NO_GRADIENT = rule(
    "KB341",
    "layer-without-gradient",
    Severity.ERROR,
    summary="A layer with has_backward = True calls ops that have a gradient",
    rationale="The client uses the layer for training, where the model trains on missing or wrong gradients.",
    remedy="Write has_backward = False, or register a backward with torch.library.register_autograd.",
    source="docs/requirements.md, 'Python code'",
)

_AUTOGRAD = re.compile("autograd", re.IGNORECASE)
# An op that is defined with its function is made of torch's own ops, as far as the sources tell.
_COMPOSITE = re.compile(r"\bdef\(\s*\"[^\"]*\"\s*,")
# A forward that asks for these chooses what it calls by them.
_CHOOSES = frozenset({"requires_grad", "training", "is_grad_enabled"})
_OPS = ("ops.", "_ops.", "torch.ops.")


@checks(PythonTree, NO_GRADIENT)
def layer_gradients(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Layers whose ``forward`` calls ops, in sources that say nothing of autograd anywhere."""
    module = package_of(tree).modules.get(("layers",))
    if tree.source is None or module is None or module.source.tree is None:
        return
    claims = [node for node in walk(module.source.tree) if isinstance(node, ast.ClassDef) and _claims(node)]
    if not claims or any(_mentions_autograd(file.tree) for file in tree.files):
        return
    if any(_AUTOGRAD.search(text) or _COMPOSITE.search(text) for _path, text in native_sources(tree.source)):
        return
    for layer in claims:
        ops = _ops_of(layer)
        if ops:
            said = f"{layer.name} has has_backward = True, but nothing defines a gradient of {', '.join(ops)}"
            yield NO_GRADIENT.at(module.file, said, line=layer.lineno, symbol=layer.name)


def _mentions_autograd(tree: ast.Module | None) -> bool:
    return tree is None or _AUTOGRAD.search(ast.dump(tree)) is not None


def _claims(layer: ast.ClassDef) -> bool:
    """Whether a class says ``has_backward = True`` itself."""
    for node in layer.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        names = [dotted_name(target) for target in getattr(node, "targets", None) or [getattr(node, "target", None)]]
        if "has_backward" in names and isinstance(node.value, ast.Constant) and node.value.value is True:
            return True
    return False


def _ops_of(layer: ast.ClassDef) -> list[str]:
    """The ops that ``forward`` calls, unless it chooses by what autograd does."""
    forward = next((node for node in layer.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    if forward is None:
        return []
    nodes = walk(forward)
    if any(isinstance(node, ast.Attribute) and node.attr in _CHOOSES for node in nodes):
        return []
    names = [dotted_name(node.func) or "" for node in nodes if isinstance(node, ast.Call)]
    return list(dict.fromkeys(name for name in names if name.startswith(_OPS)))
