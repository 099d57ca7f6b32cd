# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Arguments for an op, made up from its schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

# Elements behind a tensor that it does not own: what an op writes there it writes out of bounds.
GUARD = 8192

_WEIGHTS = re.compile(r"weight|bias|gamma|beta|scale", re.IGNORECASE)
_INDICES = re.compile(r"ind(ex|ices)|idx|ids?$|offset|position|mapping|lens?$|length|slot|table", re.IGNORECASE)
_SWITCH = re.compile(r"in_?place|overwrite|mutat|updat|writ|accum|reset|clear|reuse|donat|store", re.IGNORECASE)
_ADDRESS = re.compile(r"ptr|pointer|address|handle", re.IGNORECASE)


class ImpossibleError(Exception):
    """No argument can be made up."""


@dataclass(frozen=True)
class Attempt:
    """How the arguments of a call are made up. ``optional``: optional tensors are given too; ``switched`` are the names
    of flags that are given their other value; ``words`` are the values of strings, by the names of their arguments.
    """

    shape: tuple[int, ...]
    dtype: str
    pattern: str
    number: int
    optional: bool = False
    switched: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    def with_optional(self) -> Attempt:
        """The same, where optional tensors are given too."""
        return replace(self, optional=True)

    def with_switched(self, *names: str) -> Attempt:
        """The same, with the other value of these flags."""
        return replace(self, switched=names)

    def with_word(self, name: str, word: str) -> Attempt:
        """The same, with ``word`` for the argument ``name``."""
        return replace(self, words=(*(pair for pair in self.words if pair[0] != name), (name, word)))


def flags_of(schema: Any) -> list[str]:
    """The arguments that switch something on or off."""
    return [argument.name for argument in schema.arguments if is_flag(argument)]


def is_flag(argument: Any) -> bool:
    kind = str(argument.type)
    # A number that is zero or one may be a flag; that it is one only its name tells.
    number = kind == "int" and argument.has_default_value() and argument.default_value in (0, 1)
    return kind in {"bool", "Optional[bool]"} or bool(number and _SWITCH.search(argument.name))


def strings_of(schema: Any) -> list[str]:
    """The arguments that are strings."""
    return [argument.name for argument in schema.arguments if str(argument.type) in {"str", "Optional[str]"}]


class Tensor:
    """A tensor that was made up for the argument ``name``, and what it held before the call."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any, device: str, source: Any) -> None:
        import torch

        self.name = name
        count = 1
        for size in shape:
            count *= size
        self.owned = count
        values = torch.rand(count + GUARD, generator=source) * 4 - 2
        if not dtype.is_floating_point:
            values = values > 0  # small numbers are valid indices
        self.all = values.to(dtype).to(device)
        self.before = self.all.clone()
        # Not a view, which torch would treat in ways of their own.
        tensor: Any = torch.empty(0, dtype=dtype, device=device)
        self.tensor = tensor.set_(self.all.untyped_storage(), 0, shape)
        self.shape, self.strides, self.version = self.tensor.shape, self.tensor.stride(), self.tensor._version

    def overflows(self) -> bool:
        """Whether something was written behind it."""
        return not same_bits(self.all[self.owned :], self.before[self.owned :])

    def is_written(self) -> bool:
        """Whether it is not what it was: its values, its shape, or torch's count of its changes."""
        tensor = self.tensor
        if (tensor.shape, tensor.stride(), tensor._version) != (self.shape, self.strides, self.version):
            return True
        return not same_bits(self.all[: self.owned], self.before[: self.owned])

    def owns(self, result: Any) -> bool:
        """Whether ``result`` shares its memory."""
        import torch

        if not isinstance(result, torch.Tensor) or result.layout != torch.strided or result.numel() == 0:
            return False
        return bool(result.untyped_storage().data_ptr() == self.all.untyped_storage().data_ptr())


def same_bits(first: Any, second: Any) -> bool:
    """Whether two tensors hold the same bytes; a NaN is itself."""
    import torch

    return bool(torch.equal(first.view(torch.uint8), second.view(torch.uint8)))


class Arguments:
    """The arguments of one call: ``positional`` and ``named``, with the tensors among them."""

    def __init__(self, schema: Any, recipe: Attempt, device: str, seed: int) -> None:
        import torch

        self.tensors: list[Tensor] = []
        self.positional: list[Any] = []
        self.named: dict[str, Any] = {}
        self._recipe = recipe
        self._device = device
        self._source = torch.Generator().manual_seed(seed)
        self._values: dict[str, Any] = {}
        for argument in schema.arguments:
            value = self._values[argument.name] = self._value(argument)
            if argument.kwarg_only:
                self.named[argument.name] = value
            else:
                self.positional.append(value)

    def value_of(self, name: str) -> Any:
        """The value of the argument ``name``."""
        return self._values[name]

    def _value(self, argument: Any) -> Any:
        """A value for an argument. Raises :class:`ImpossibleError`."""
        kind, name = str(argument.type), argument.name
        word = dict(self._recipe.words).get(name)
        if word is not None:
            return word
        if name in self._recipe.switched and is_flag(argument):
            usual = argument.default_value if argument.has_default_value() else False
            return 1 - usual if kind == "int" else not usual
        if kind in {"Optional[Tensor]", "Optional[List[Tensor]]"} and self._recipe.optional:
            kind = kind[len("Optional[") : -1]
        elif argument.has_default_value():
            return argument.default_value
        elif kind.startswith("Optional["):
            return None
        if kind == "Tensor":
            return self._tensor(name)
        if kind in {"List[Tensor]", "List[Optional[Tensor]]"}:
            return [self._tensor(name), self._tensor(name)]
        return self._plain(kind, name, str(getattr(argument, "real_type", kind)))

    def _plain(self, kind: str, name: str, real: str) -> Any:
        import torch

        if kind == "int" and _ADDRESS.search(name):
            raise ImpossibleError(f"{name} is an address")
        if real in {"ScalarType", "Layout", "MemoryFormat"}:
            known = {
                "ScalarType": getattr(torch, self._recipe.dtype),
                "Layout": torch.strided,
                "MemoryFormat": torch.contiguous_format,
            }
            return known[real]
        number = self._recipe.number
        simple = {
            "int": number,
            "SymInt": number,
            "float": 0.5,
            "bool": False,
            "number": 1.0,
            "Scalar": 1.0,
            "str": "",
            "Device": torch.device(self._device),
            "List[int]": [number, number],
            "List[float]": [0.5, 0.5],
            "List[bool]": [False, False],
        }
        if kind not in simple:
            raise ImpossibleError(f"{name}: {kind}")
        return simple[kind]

    def _tensor(self, name: str) -> Any:
        import torch

        recipe, place = self._recipe, len({tensor.name for tensor in self.tensors} | {name}) - 1
        shape, dtype = recipe.shape, getattr(torch, recipe.dtype)
        vector = shape[-1:]
        if recipe.pattern == "half" and place == 0:
            shape = (*shape[:-1], shape[-1] // 2)
        elif (
            (recipe.pattern == "weights" and _WEIGHTS.search(name))
            or (recipe.pattern == "first" and place > 0)
            or (recipe.pattern == "two" and place > 1)
        ):
            shape = vector
        if _INDICES.search(name) and dtype.is_floating_point and recipe.pattern != "same":
            dtype = torch.int64
        made = Tensor(name, shape, dtype, self._device, self._source)
        self.tensors.append(made)
        return made.tensor
