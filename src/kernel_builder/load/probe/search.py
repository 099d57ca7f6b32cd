# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""What is tried until an op takes it: several shapes, types and numbers, and what its errors ask for."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from .made_up import Attempt, flags_of, strings_of

# Not square at first, so that a swapped shape shows.
SHAPES = ((4, 8), (8,), (2, 4, 8), (8, 8), (2, 4, 8, 8), (2, 4, 4, 8, 8))
# Of kernels that want whole tiles.
LARGE = ((4, 64), (64, 64), (2, 4, 64), (2, 8, 4, 64), (4, 128), (128, 128), (2, 4, 128), (2, 8, 4, 128), (64,), (128,))
DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
# How tensors differ from each other: not at all; those that weigh are vectors; the first one is half of the others, as
# the result of a gated activation; all but the first are vectors; all but the first and the second are.
PATTERNS = ("same", "weights", "half", "first", "two")
NUMBERS = (1, 8)
MOST_ATTEMPTS = 1000
# What an op's errors are asked for: so many of them, for so many words and numbers.
MOST_ERRORS = 20
MOST_WORDS = 48
MOST_NUMBERS = 4
MOST_DIMENSIONS = 5
LARGEST_SIZE = 1024

# As torch, C++ and Python call them.
_DTYPES = {
    "half": "float16", "float16": "float16", "fp16": "float16", "bfloat16": "bfloat16", "bf16": "bfloat16",
    "float": "float32", "float32": "float32", "fp32": "float32", "double": "float64", "float64": "float64",
    "int": "int32", "int32": "int32", "long": "int64", "int64": "int64", "byte": "uint8", "uint8": "uint8",
    "char": "int8", "int8": "int8", "short": "int16", "int16": "int16", "bool": "bool", "uint32": "uint32",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "complex64": "complex64",
}  # fmt: skip
_NATIVE = re.compile(r"\n(?:Exception raised from|C\+\+ CapturedTraceback).*", re.DOTALL)
_QUOTED = re.compile(r"""(?<!\w)["'`\u2018\u201c]([^"'`\s\u2019\u201d]{1,40})["'`\u2019\u201d](?!\w)""")
_WORD = re.compile(r"[A-Za-z][\w.+-]*\w|[A-Za-z]")
_NUMBER = re.compile(r"(?<![\w.])\d{1,4}(?![\w.])")
_DIMENSIONS = re.compile(r"\b([1-5])(?:-| )?(?:[dD]\b|dim)|\bdim(?:s|ensions?|\(\))?\W{1,9}([1-5])\b")
_LITERAL = re.compile(r"[A-Za-z][\w.+-]{0,23}")
# Words that ops choose by, where nothing tells them.
_COMMON = (
    "none", "sum", "mean", "max", "min", "silu", "gelu", "relu", "swiglu", "tanh", "auto", "default", "fp8", "int8",
    "bfloat16", "float16", "float32", "nearest", "bilinear", "linear", "constant", "row", "col", "NHD", "HND",
)  # fmt: skip


class Search:
    """What to try for an op, most likely first: ``schema`` says of it what there is to choose, ``words`` are strings
    that the kernel's Python code uses.
    """

    def __init__(self, schema: Any, words: Iterable[str] = ()) -> None:
        self.strings = strings_of(schema)
        self.flags = flags_of(schema)
        self.words = [*words]
        self.tried_words: list[str] = []
        self._errors: list[tuple[str, Attempt]] = []
        kinds = [str(argument.type) for argument in schema.arguments]
        self._numbers = NUMBERS if any("int" in kind for kind in kinds) else NUMBERS[:1]
        self._patterns = PATTERNS if sum("Tensor" in kind for kind in kinds) > 1 else PATTERNS[:1]
        self._optional = any(kind.startswith("Optional[") and "Tensor" in kind for kind in kinds)
        self._next: list[Iterator[Attempt]] = [self._usual(LARGE), self._usual(SHAPES)]

    def __iter__(self) -> Iterator[Attempt]:
        done: set[Attempt] = set()
        while self._next:
            attempt = next(self._next[-1], None)
            if attempt is None:
                self._next.pop()
            elif attempt not in done:
                done.add(attempt)
                yield attempt
                if len(done) >= MOST_ATTEMPTS:
                    return

    def _usual(self, shapes: Iterable[tuple[int, ...]]) -> Iterator[Attempt]:
        for dtype, number, shape, pattern in itertools.product(DTYPES, self._numbers, shapes, self._patterns):
            yield Attempt(shape, dtype, pattern, number)

    def learn(self, attempt: Attempt, error: BaseException) -> None:
        """The op answered ``attempt`` with ``error``: what that asks for is tried next, the first time it says so."""
        text = _NATIVE.sub("", str(error))
        if len(self._errors) >= MOST_ERRORS or any(
            without(text, attempt, other) == without(known, attempt, other) for known, other in self._errors
        ):
            return
        self._errors.append((text, attempt))
        self._next.append(self._asked_for(attempt, text))

    def _asked_for(self, attempt: Attempt, text: str) -> Iterator[Attempt]:
        """``attempt``, changed in one way that an error suggests."""
        words = [*dict.fromkeys([*_QUOTED.findall(text), *self.words, *_WORD.findall(text), *_COMMON])][:MOST_WORDS]
        if self.strings:
            self.tried_words += [word for word in words if word not in self.tried_words]
        for name in self.strings:
            for word in words:
                yield attempt.with_word(name, word)
        for dtype in dict.fromkeys(_DTYPES[word] for word in map(str.lower, _WORD.findall(text)) if word in _DTYPES):
            yield replace(attempt, dtype=dtype)
        last = attempt.shape[-1]
        for found in dict.fromkeys(int(one or other) for one, other in _DIMENSIONS.findall(text)):
            yield replace(attempt, shape=(2, 4, 4, 8, last)[-found:])
        for number in [*dict.fromkeys(map(int, _NUMBER.findall(text)))][:MOST_NUMBERS]:
            yield from self._sized(attempt, number)
        for flag in self.flags:
            yield attempt.with_switched(flag)
        if self._optional and not attempt.optional:
            yield attempt.with_optional()

    def _sized(self, attempt: Attempt, number: int) -> Iterator[Attempt]:
        """``attempt`` with sizes and numbers that are ``number``."""
        if not 1 < number <= LARGEST_SIZE:
            return
        if len(self._numbers) > 1:
            yield replace(attempt, number=number)
        shapes = dict.fromkeys(
            ((*attempt.shape[:-1], number), (4, number), (number, number), (number,), (2, 4, number), (2, 8, 4, number))
        )
        for shape, pattern in itertools.product(shapes, self._patterns):
            yield replace(attempt, shape=shape, pattern=pattern)


def without(text: str, *attempts: Attempt) -> str:
    """``text`` without the strings that were given, which it may repeat."""
    for word in [word for attempt in attempts for _, word in attempt.words]:
        text = text.replace(word, "")
    return text


def words_of(root: str) -> list[str]:
    """The strings of a kernel's Python code that may be values of arguments."""
    found: dict[str, None] = {}
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("_ops"):
                found.update(dict.fromkeys(literals_of(os.path.join(folder, name))))
    return [*found][:MOST_WORDS]


def literals_of(path: str) -> list[str]:
    """Strings in a file that are given, compared or listed, but for the names that it exports."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    found: list[str] = []
    for node in ast.walk(tree):
        parts: list[Any] = []
        if isinstance(node, ast.Call):
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.arguments):
            parts = [*node.defaults, *node.kw_defaults]
        elif isinstance(node, ast.Dict):
            parts = [*node.keys, *node.values]
        parts += [one for part in parts if isinstance(part, (ast.Tuple, ast.List, ast.Set)) for one in part.elts]
        values = [part.value for part in parts if isinstance(part, ast.Constant)]
        found += [value for value in values if isinstance(value, str) and _LITERAL.fullmatch(value)]
    return found
