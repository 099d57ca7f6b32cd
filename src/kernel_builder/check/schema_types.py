"""A rule about the schemas that C++ registers ops with: their types must be those that torch knows.

Only texts that stand in the call itself are read, ``ops.def("f(Tensor x) -> Tensor")``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.native_schemas import schema_type
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.model import FrameworkKind
from kernel_builder.interface.native import DEFINES, literal_at

UNKNOWN = rule(
    "KB213",
    "unknown-schema-type",
    Severity.ERROR,
    summary="Schemas of ops have types that torch knows",
    rationale=(
        "torch parses the schema when it loads the library. It fails with 'unknown type specifier', or because the "
        "function has other arguments."
    ),
    remedy="Write a type of schemas: Tensor, int, float, bool, str, Scalar, ScalarType, Device; T? may be None, T[] is"
    " a list.",
    source="docs/requirements.md, 'Op namespace'",
)

KNOWN = frozenset(
    {"Tensor", "int", "float", "bool", "str", "Scalar", "ScalarType", "Device", "Layout", "MemoryFormat", "Generator"}
    | {"SymInt", "SymBool", "SymFloat", "Dimname", "Storage", "Stream", "QScheme", "DeviceIndex", "number", "complex"}
    | {"Any", "AnyEnumType", "AnyClassType", "Capsule", "NoneType", "ConstQuantizerPtr"}
    | {"Dict", "Union", "Future", "Await", "RRef"}
)
"""Types that some torch from 2.5 on reads. What else begins with a small letter is a variable for types there."""
_LISTS = {"List": "T[]", "Tuple": "(T, ...)", "Optional": "T?", "Vector": "T[]"}
_TEXT = re.compile(r"""'[^']*'|"[^"]*\"""")
_VALUE = re.compile(r"=\s*(?:\[[^\]]*\]|[^,()]*)")
_INSIDE = re.compile(r"(?<=\w)\([^()]*\)")
_ITEM = re.compile(r"[,(]\s*(?P<type>[A-Za-z_][\w.]*)")


@checks(SourceTree, UNKNOWN)
def schema_types(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Types in schemas that torch does not know."""
    project = source.draft
    if project is None or project.framework.kind is not FrameworkKind.TORCH:
        return
    for file in source.compiled:
        native = file.native
        for match in DEFINES.finditer(native.bare):
            if not file.certain or not native.is_certain(match.end()):
                continue
            text, _ = literal_at(native.code, match.end(), native.macros)
            for name in _unknown(text):
                yield UNKNOWN.at(
                    join(source.shown, file.path),
                    f"the schema of {text.partition('(')[0].strip()} has the type {name}, which torch does not know",
                    line=native.line(match.end()),
                    symbol=name,
                    hint=_instead(name),
                )


def _unknown(schema: str) -> Iterator[str]:
    """The types of ``name(types and names) -> types`` that nobody knows."""
    plain = _VALUE.sub("", _TEXT.sub("", schema))
    arguments, arrow, results = plain.partition("->")
    _, opens, arguments = arguments.partition("(")
    if not (arrow and opens):
        return
    # What stands in brackets behind a type is an alias, (a!), or what is inside of it.
    listed = f"({arguments},{results.strip().removeprefix('(')}"
    for match in _ITEM.finditer(_INSIDE.sub(" ", listed)):
        name = match["type"]
        if name not in KNOWN and "." not in name and (name[0].isupper() or schema_type(name) is not None):
            yield name


def _instead(name: str) -> str | None:
    """What to write."""
    near = get_close_matches(name, sorted(KNOWN), n=1)
    meant = _LISTS.get(name) or schema_type(name) or (near[0] if near else None)
    return f"write {meant}" if meant is not None else None
