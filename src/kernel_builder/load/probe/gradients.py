# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Whether layers that claim a backward have one: each is called with made-up tensors that record gradients."""

from __future__ import annotations

import inspect
import itertools
import warnings
from typing import Any, cast

from .answers import reason_of
from .behaviour import UnusableError, flat
from .registry import dispatch_keys, keys_of, torch_is_here

SHAPES = ((4, 8), (2, 4, 8), (8,), (2, 4, 8, 8))
DTYPES = ("float32", "float16", "bfloat16")
_NO_FORMULA = "no autograd formula was registered"
NO_GRADIENT, GIVES_NONE = "no gradient", "backward gives none"
PLAIN = {"float": 1e-6, "int": 8, "bool": False}


def layers_of(module: Any) -> dict[str, Any]:
    """``layers.NAME`` -> the class, for the layers of a kernel that claim a backward: all that do not deny it."""
    if not torch_is_here():
        return {}
    import torch

    offered = vars(getattr(module, "layers", None) or object) if hasattr(module, "layers") else {}
    return {
        f"layers.{name}": one
        for name, one in sorted(offered.items())
        if inspect.isclass(one)
        and issubclass(one, torch.nn.Module)
        and one.__module__.split(".")[0] == module.__name__
        and not name.startswith("_")
        and getattr(one, "has_backward", True)
    }


def judge_layer(layer: Any, namespace: str, device: str) -> list[dict[str, str]]:
    """What is wrong with the gradients of a layer. Raises :class:`UnusableError` where it cannot be called."""
    first = ""
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        try:
            return once(layer, namespace, shape, dtype, device)
        except UnusableError:
            raise
        except Exception as error:
            first = first or reason_of(error).splitlines()[0]
    raise UnusableError(first)


def once(layer: Any, namespace: str, shape: tuple[int, ...], dtype: str, device: str) -> list[dict[str, str]]:
    import torch

    instance = instance_of(layer, shape[-1], dtype, device)
    given = [value(parameter, shape, dtype, device) for parameter in parameters(layer)]
    tensors = [*filter(lambda one: isinstance(one, torch.Tensor), given), *instance.parameters()]
    watched = Watched(namespace)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with watched.mode():
            results = flat(instance(*given))
        results = [one for one in results if isinstance(one, torch.Tensor) and one.is_floating_point()]
        recorded = [one for one in results if one.requires_grad]
        has_formula = not recorded or can_go_back(recorded)
    if not watched.called or not results:
        return []  # nothing of the kernel was called, or there is nothing to differentiate
    if recorded and has_formula and not watched.lost and any(tensor.grad is not None for tensor in tensors):
        return []
    kind = GIVES_NONE if recorded and has_formula and not watched.lost else NO_GRADIENT
    words = "explicit" if any("has_backward" in vars(base) for base in layer.__mro__) else ""
    return [{"kind": kind, "name": ", ".join(dict.fromkeys(watched.lost or watched.called)), "words": words}]


def can_go_back(results: list[Any]) -> bool:
    """Compute gradients of ``results``; false where an op of the decorator ``custom_op`` was given no formula."""
    try:
        sum(one.float().sum() for one in results).backward()
    except RuntimeError as error:
        if _NO_FORMULA not in str(error):
            raise
        return False
    return True


def instance_of(layer: Any, size: int, dtype: str, device: str) -> Any:
    """A layer as the client makes one, with the attributes that its annotations name."""
    import torch

    made = layer.__new__(layer)
    torch.nn.Module.__init__(made)
    for base in reversed(layer.__mro__):
        if base is object or base.__module__.startswith("torch."):
            continue
        for name, annotation in vars(base).get("__annotations__", {}).items():
            text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
            if hasattr(made, name):
                continue
            if "Tensor" in text or "Parameter" in text:
                values = torch.rand(size, dtype=getattr(torch, dtype), device=device) + 0.5
                setattr(made, name, torch.nn.Parameter(values))
            elif text in PLAIN:
                setattr(made, name, PLAIN[text])
    return made


def parameters(layer: Any) -> list[Any]:
    """The parameters of ``forward`` that must be given."""
    listed = list(inspect.signature(layer.forward).parameters.values())[1:]
    return [one for one in listed if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]


def value(parameter: Any, shape: tuple[int, ...], dtype: str, device: str) -> Any:
    """An argument for a parameter. Raises :class:`UnusableError`."""
    import torch

    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if text in PLAIN:
        return PLAIN[text]
    if annotation is parameter.empty or "Tensor" in text:
        return (torch.rand(shape, dtype=getattr(torch, dtype), device=device) + 0.5).requires_grad_()
    raise UnusableError(f"no argument can be made up for {parameter.name}: {text}")


class Watched:
    """The kernel's ops that were called: ``called``, and those of them where autograd lost track: ``lost``."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.called: list[str] = []
        self.lost: list[str] = []

    def note(self, func: Any, given: list[Any], results: list[Any]) -> None:
        """``func`` was called, below autograd."""
        import torch

        namespace, _, name = func._schema.name.partition("::")
        if namespace != self.namespace:
            return
        self.called.append(name)
        # A Function of torch.autograd calls with gradients off, and results that are no numbers have no gradient.
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        outputs = [*results, *(tensors if func._schema.is_mutable else ())]
        numbers = any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in outputs)
        records = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
        if records and numbers and not has_autograd(func.name()):
            self.lost.append(name)

    def mode(self) -> Any:
        """The context in which calls are noted."""
        from torch.utils._python_dispatch import TorchDispatchMode

        watched = self

        class Watching(TorchDispatchMode):  # type: ignore[misc]
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                """Nothing is compiled here. torch would import its compiler to see to that, which takes as long as all
                the rest of it, and with which nobody can tell what ran.
                """
                return False

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                results = func(*args, **(kwargs or {}))
                watched.note(func, flat([*args, *(kwargs or {}).values()]), flat(results))
                return results

        return cast("Any", Watching)()


def has_autograd(name: str) -> bool:
    """Whether autograd knows what the gradient of an op is."""
    keys = [key for key in dispatch_keys() if key.startswith("Autograd")]
    return bool(keys_of(name, [*keys, "CompositeImplicitAutograd"]))
