"""C++ names as the linker sees them (Itanium C++ ABI, chapter 5.1), without a demangler."""

from __future__ import annotations

import re

_MANGLED = re.compile(r"_Z(?:T[VISCWH]|GV)?(?:N[rVK]*[RO]?)?")

_INTERNAL = re.compile(r"L?[0-9]")
"""How a name begins; GCC and clang write an L before those that are static."""
_UNNAMED = "_GLOBAL__N_1"

# Of the Itanium C++ ABI, 5.1.3.3: https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-operator
_OPERATORS = {
    "nw": "new", "na": "new[]", "dl": "delete", "da": "delete[]", "aw": "co_await", "ps": "+", "ng": "-", "ad": "&",
    "de": "*", "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^",
    "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=",
    "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=",
    "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "pm": "->*", "pt": "->",
    "cl": "()", "ix": "[]",
}  # fmt: skip


def readable(symbol: str) -> str:
    """The name in a mangled C++ name: ``_ZN3c106detail14torchCheckFailEPKc`` -> ``c10::detail::torchCheckFail``.

    Arguments are left out; names of other languages stay as they are.
    """
    start = _MANGLED.match(symbol)
    if start is None:
        return symbol
    parts: list[str] = []
    at = start.end()
    if symbol.startswith("St", at):
        parts, at = ["std"], at + 2
    while (digit := _INTERNAL.match(symbol, at)) is not None:
        at = digits = digit.end() - 1
        while digits < len(symbol) and symbol[digits].isdigit() and digits - at < 6:
            digits += 1
        length = int(symbol[at:digits])
        if digits + length > len(symbol):
            return symbol
        part = symbol[digits : digits + length]
        parts.append("(anonymous namespace)" if part == _UNNAMED else part)
        at = digits + length
        while symbol.startswith("B5cxx11", at):
            at += len("B5cxx11")
    if parts and "N" in start[0] and symbol[at : at + 2] in _OPERATORS:
        parts.append(f"operator{_OPERATORS[symbol[at : at + 2]]}")
    return "::".join(parts) or symbol


def namespace(symbol: str) -> str | None:
    """The outermost namespace of a mangled C++ name; ``None`` for other names, and for names in none."""
    outer, colons, _ = readable(symbol).partition("::")
    return outer if colons else None
