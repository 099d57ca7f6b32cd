"""Values of a ``setup.py`` that is followed and not run, and what the usual functions of Python make of them.

Everything is pure but for questions about files, and those are answered for files of the extension's own directory.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import os.path
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final


@final
class Unknown:
    """What cannot be told."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
_LONGEST = 100_000
_MOST = 2_000
"""Choices that a product may have."""


class NotedList(list[object]):
    """A list, with the texts of what was ``left`` out of it, of what was ``assumed``, and the ``conditions`` under
    which it was made.
    """

    def __init__(self, items: Iterable[object] = (), *, conditions: tuple[int, ...] = ()) -> None:
        super().__init__(items)
        self.conditions = conditions
        self.left: list[str] = []
        self.assumed: list[str] = []
        self.misses_items = False

    @property
    def is_lost(self) -> bool:
        """Whether there are items, but none that can be told."""
        return self.misses_items and not self

    def miss(self, written: str) -> None:
        """Note an item, or several, that are in it in any case and cannot be told."""
        self.left.append(written)
        self.misses_items = True

    def take_notes(self, other: object) -> None:
        """Take over what another list has noted."""
        if isinstance(other, NotedList) and other is not self:
            self.left += other.left
            self.assumed += other.assumed
            self.misses_items = self.misses_items or other.misses_items


class NotedDict(dict[str | int, object]):
    """A dictionary, with what was assumed of it."""

    def __init__(self, items: Mapping[str, object] | None = None, *, conditions: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.update({**(items or {})})
        self.conditions = conditions
        self.assumed: list[str] = []


CONSTANTS: Mapping[str, object] = {
    "os.curdir": ".",
    "os.path.curdir": ".",
    "os.sep": "/",
    "os.path.sep": "/",
    "os.name": "posix",
    "sys.platform": "linux",
    **{f"{module}{name}": value
       for module in ("", "cpp_extension.", "torch.utils.cpp_extension.")
       for name, value in (("IS_WINDOWS", False), ("IS_HIP_EXTENSION", False), ("ROCM_HOME", None))},
    "torch.version.hip": None,
    "True": True,
    "False": False,
    "None": None,
}  # fmt: skip
"""What names of modules say on a Linux machine, where torch is not the build for ROCm."""
_SETS: Mapping[type[ast.operator] | str, Callable[[Sequence[object], Sequence[object]], list[object]]] = {
    kind: how
    for kinds, how in (
        ((ast.Sub, "difference"), lambda left, right: [one for one in left if one not in right]),
        ((ast.BitAnd, "intersection"), lambda left, right: [one for one in left if one in right]),
        ((ast.BitOr, "union"), lambda left, right: [*left, *(one for one in right if one not in left)]),
    )
    for kind in kinds
}
"""What operators and methods make of two sets, which are lists here."""
_TEXT_METHODS = frozenset({
    "endswith", "startswith", "replace", "split", "rsplit", "strip", "lstrip", "rstrip", "lower", "upper",
    "removeprefix", "removesuffix", "splitlines", "partition", "rpartition", "format", "join",
})  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: lambda left, right: left is right if left is None or right is None else left == right,
    ast.IsNot: lambda left, right: left is not right if left is None or right is None else left != right,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def truth(value: object) -> bool | None:
    """Whether a value counts as true; ``None`` where that cannot be told."""
    if isinstance(value, NotedList) and not value and value.left:
        return None
    return bool(value) if value is None or isinstance(value, str | int | float | list | tuple | dict) else None


def compared(values: Sequence[object], operators: Sequence[ast.cmpop], written: str) -> object:
    """What a comparison says. Variables of the environment are not set: ``written`` may ask for one."""
    if len(operators) == 1 and written.endswith("os.environ") and isinstance(operators[0], ast.In | ast.NotIn):
        return isinstance(operators[0], ast.NotIn)
    if any(not isinstance(value, str | int | float | list | tuple | dict) and value is not None for value in values):
        return UNKNOWN
    try:
        pairs = zip(values, operators, values[1:], strict=False)
        return all(_COMPARED[type(how)](left, right) for left, how, right in pairs)
    except TypeError:
        return UNKNOWN


def combined(left: NotedList, how: type[ast.operator] | str, right: object) -> object:
    """What ``-``, ``&``, ``|`` or a method of sets makes of two; :data:`UNKNOWN` for anything else."""
    if how not in _SETS or not isinstance(right, list | tuple):
        return UNKNOWN
    found = NotedList(_SETS[how](left, right), conditions=left.conditions)
    found.take_notes(left)
    found.take_notes(right)
    return found


def joined(*parts: str) -> str:
    """A path."""
    return os.path.join(*parts)  # noqa: PTH118  (texts, of any system)


def noted(value: object, conditions: tuple[int, ...], given: Sequence[object] = ()) -> object:
    """A list or dictionary that a function made, with the notes of the lists that it was given."""
    if isinstance(value, list) and not isinstance(value, NotedList):
        value = NotedList(value)
    if isinstance(value, NotedList | NotedDict):
        value.conditions = conditions
    if isinstance(value, NotedList):
        for one in given:
            value.take_notes(one)
    return value


def called_method(owner: object, name: str, given: list[object], words: Mapping[str, object], root: Path) -> object:
    """What a method of a text, a list or a dictionary returns; paths are texts."""
    if UNKNOWN in given or UNKNOWN in words.values():
        return UNKNOWN
    if isinstance(owner, str):
        return _of_text(owner, name, given, words, root)
    if isinstance(owner, NotedDict):
        return _of_dict(owner, name, given, words)
    if isinstance(owner, NotedList) and name == "copy":
        copy = NotedList(owner)
        copy.take_notes(owner)
        return copy
    if isinstance(owner, NotedList) and name in _SETS and len(given) == 1:
        return combined(owner, name, given[0])
    if isinstance(owner, NotedList) and name in {"remove", "sort", "reverse", "clear"}:
        if name != "remove" or (given and given[0] in owner):
            getattr(owner, name)(*given)
        return None
    return UNKNOWN


def _of_text(text: str, name: str, given: list[object], words: Mapping[str, object], root: Path) -> object:
    texts = [one for one in given if isinstance(one, str)]
    if name in {"glob", "rglob"} and len(texts) == 1:
        return found_files(joined(text, "**" if name == "rglob" else "", texts[0]), root)
    if name in {"exists", "is_file", "is_dir"}:
        return called_builtin({"is_file": "isfile", "is_dir": "isdir"}.get(name, name), [text], {}, root)
    if name in {"resolve", "absolute", "as_posix", "expanduser", "__str__", "encode", "decode"}:
        return text
    if name == "iterdir":
        return found_files(joined(text, "*"), root)
    if name == "joinpath":
        return joined(text, *texts)
    if name == "relative_to" and len(texts) == 1:
        return os.path.relpath(joined(str(root), text), joined(str(root), texts[0]))
    if name in {"with_suffix", "with_name", "with_stem"} and len(texts) == 1 and text:
        return str(getattr(Path(text), name)(texts[0]))
    if name == "format" and not re.fullmatch(r"(?:[^{}]|\{\w*\})*", text):
        return UNKNOWN  # a width can make a text of any length
    if name not in _TEXT_METHODS:
        return UNKNOWN
    try:
        value: object = getattr(text, name)(*given, **words)
    except (TypeError, ValueError, LookupError):
        return UNKNOWN
    return value if not isinstance(value, str) or len(value) < _LONGEST else UNKNOWN


def _of_dict(owner: NotedDict, name: str, given: list[object], words: Mapping[str, object]) -> object:
    if name in {"items", "keys", "values"}:
        return [*getattr(owner, name)()]
    if name == "update":
        owner.update({str(key): value for one in given if isinstance(one, dict) for key, value in one.items()})
        owner.update(words)
        return None
    if name in {"get", "setdefault", "pop"} and given and isinstance(given[0], str | int):
        default = given[1] if len(given) > 1 else None
        if name == "setdefault":
            return owner.setdefault(given[0], default)
        return owner.get(given[0], default) if name == "get" else owner.pop(given[0], default)
    if name == "copy":
        return NotedDict({str(key): value for key, value in owner.items()})
    return UNKNOWN


def called_builtin(name: str, given: list[object], words: Mapping[str, object], root: Path) -> object:
    """What a function of Python's library returns, by the last part of its name."""
    if name == "getenv":  # nothing is set
        return given[1] if len(given) > 1 else words.get("default")
    if name == "dict" and not given:
        return NotedDict(words)
    if name in {"Path", "PurePath", "PosixPath"} and not given:
        return str(root)
    if name in {"cwd", "getcwd"} and not given:
        return str(root)
    if name == "system" and not given:
        return "Linux"
    if UNKNOWN in given:
        return UNKNOWN
    if name == "product":
        return _product(given, words.get("repeat", 1))
    if given and all(isinstance(one, str) for one in given):
        return _of_paths(name, [str(one) for one in given], root)
    return _of_values(name, given)


def _of_paths(name: str, texts: list[str], root: Path) -> object:
    full = joined(str(root), texts[0])
    if name in {"exists", "isfile", "isdir"}:
        inside = Path(os.path.normpath(full)).is_relative_to(root)
        return getattr(os.path, name)(full) if inside else UNKNOWN
    if name in {"glob", "iglob"}:
        return found_files(texts[0], root)
    if name == "listdir":
        return [Path(path).name for path in found_files(joined(texts[0], "*"), root) or ()]
    if name in {"join", "Path", "PurePath", "PosixPath"}:
        return joined(*texts)
    if name in {"abspath", "realpath", "str", "fspath", "expanduser", "normcase"}:
        return texts[0]
    if name in {"dirname", "basename", "normpath"}:
        return str(getattr(os.path, name)(texts[0]))
    if name == "splitext":
        return os.path.splitext(texts[0])  # noqa: PTH122  (a text)
    if name == "relpath":
        return os.path.relpath(full, joined(str(root), *texts[1:2]))
    if name == "len":
        return len(texts[0])
    return int(texts[0]) if name == "int" and texts[0].isdecimal() and len(texts[0]) < 10 else UNKNOWN


def _of_values(name: str, given: list[object]) -> object:
    first = given[0] if given else ()
    if name in {"str", "int", "bool"} and len(given) == 1 and isinstance(first, int | float):
        return {"str": str, "int": int, "bool": bool}[name](first)
    if name == "bool" and len(given) == 1:
        known = truth(first)
        return UNKNOWN if known is None else known
    if name == "range" and all(isinstance(one, int) for one in given) and 1 <= len(given) <= 3:
        numbers = range(*(one for one in given if isinstance(one, int)))
        return NotedList(numbers[:1000])
    if not all(isinstance(one, list | tuple | dict) for one in given):
        return UNKNOWN
    items = [list(one) for one in given if isinstance(one, list | tuple | dict)]
    if name in {"list", "tuple", "set", "frozenset", "sorted", "reversed", "deepcopy", "copy"}:
        if isinstance(first, dict) and name in {"deepcopy", "copy"}:
            return NotedDict({str(key): value for key, value in first.items()})
        found = items[0] if items else []
        if name == "sorted" and all(isinstance(one, str) for one in found):
            return sorted(found, key=str)
        return found[::-1] if name == "reversed" else found
    if name == "len" and items:
        return len(items[0]) if not (isinstance(first, NotedList) and first.left) else UNKNOWN
    if name == "zip":
        return list(zip(*items, strict=False))
    if name == "enumerate" and items:
        return list(enumerate(items[0]))
    return [one for part in items for one in part] if name == "chain" else UNKNOWN


def _product(given: list[object], repeat: object) -> object:
    """``itertools.product``: every choice of one item of each list."""
    if not isinstance(repeat, int) or not 0 <= repeat < 10 or not all(isinstance(one, list | tuple) for one in given):
        return UNKNOWN
    if any(isinstance(one, NotedList) and one.misses_items for one in given):
        return UNKNOWN
    lists = [list(one) for one in given if isinstance(one, list | tuple)] * repeat
    if math.prod(map(len, lists)) > _MOST:
        return UNKNOWN
    found = NotedList(itertools.product(*lists))
    for one in given:
        found.take_notes(one)
    return found


def found_files(pattern: str, root: Path) -> list[str] | None:
    """The files that match a pattern, in order, written as it is; nothing where that is outside of ``root``."""
    relative = os.path.relpath(joined(str(root), pattern), root)
    if relative.startswith(".."):
        return None
    try:
        found = sorted(root.glob(relative))
    except (ValueError, NotImplementedError, OSError):
        return None
    return [str(path if Path(pattern).is_absolute() else path.relative_to(root)) for path in found]
