"""What in a syntax tree needs a newer Python than the floor: syntax, annotations that are evaluated, library names.

Syntax that the floor's grammar refuses is the parser's to say. Here is what parses and then fails when it runs: union
types in annotations (PEP 604), and names of the standard library, which the ``vermin`` package knows.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from kernel_builder.check.model import Settings
from kernel_builder.check.python_facts import Guard, Position, PythonSource, dotted_name
from kernel_builder.check.python_names import FullNames
from kernel_builder.check.syntax import walk

PythonVersion = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Newer:
    """Something that needs Python ``version``; ``what`` names it. ``count`` says how often the file has it."""

    what: str
    version: PythonVersion
    line: int
    place: Position
    count: int = 1


_NEW_SYNTAX = re.compile(
    rb"""^[ \t]*(?:match|type)[ \t(\[{'"-]|except[ \t]*\*|except[^:(\n]*,|(?:def|class)\s+\w+\s*\[|\bwith[ \t]*\("""
    rb"""|\bt[rR]?['"]""",
    re.MULTILINE,
)
"""What syntax of 3.10 and later looks like; other files need not be parsed a second time."""


_NEWEST = (3, 14)
"""The newest Python that is released: what it cannot parse, none can."""
_SINCE = (
    ((3, 12), re.compile(rb"""^[ \t]*type[ \t]+\w+.*=|\b(?:def|class)\s+\w+\s*\[|\b[rR]?[fF][rR]?['"]""")),
    ((3, 14), re.compile(rb"""except[^:(\n]*,|\b[rR]?[tT][rR]?['"]""")),
)
"""What new syntax looks like in a line, where a Python of before stops."""


def may_be_newer(content: bytes, line: int | None, message: str) -> bool:
    """Whether a file that this Python does not parse, because of ``message`` at ``line``, may be one of a newer one."""
    running = sys.version_info[:2]
    lines = content.splitlines()
    if running > _NEWEST:
        return False
    text = lines[line - 1] if line is not None and 0 < line <= len(lines) else b""
    if running < (3, 12) and "f-string" in message:
        return True  # the line may be any of its lines
    return any(running < version <= _NEWEST and pattern.search(text) for version, pattern in _SINCE)


def syntax_problem(content: bytes, floor: PythonVersion) -> tuple[str, int | None] | None:
    """Why a file that this Python parses is no Python of ``floor``, and the line; ``None`` when it is."""
    if floor >= (3, 9) and _NEW_SYNTAX.search(content) is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the kernel's own backslashes, for one
            ast.parse(content, feature_version=floor)
    except SyntaxError as error:
        return error.msg, error.lineno
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "it is nested too deeply", None
    return None


def syntax_needs(content: bytes, floor: PythonVersion) -> PythonVersion:
    """The first Python after ``floor`` whose grammar has what a file says; this one's when no older one has it."""
    newest = sys.version_info[:2]
    later = [(3, minor) for minor in range(floor[1] + 1, newest[1])]
    return next((version for version in later if syntax_problem(content, version) is None), newest)


def spared_by(needed: PythonVersion, settings: Settings) -> str | None:
    """Why code for Python ``needed`` fails nobody who can load a variant of those that are judged; ``None`` where it
    does. The words go behind those of a finding.
    """
    if not settings.built_for:
        return None
    who, oldest = min(settings.built_for, key=lambda entry: entry[1])
    if needed > oldest:
        return None
    others = " and all others here" if len({name for name, _ in settings.built_for}) > 1 else ""
    return f", but {who}{others} need{'' if others else 's'} Python {oldest[0]}.{oldest[1]} anyway"


def newer_features(content: bytes, source: PythonSource, floor: PythonVersion) -> tuple[Newer, ...]:
    """Everything of a file that fails on ``floor``, in file order, each kind of place once per kind of thing.

    What a test of ``sys.version_info`` decides on is not there.
    """
    found: dict[tuple[str, Position], Newer] = {}
    for entry in _cached(content, source, floor):
        key = entry.what, entry.place
        known = found.get(key)
        found[key] = entry if known is None else _again(known)
    return tuple(sorted(found.values(), key=lambda entry: (entry.line, entry.what)))


def _again(entry: Newer) -> Newer:
    return Newer(what=entry.what, version=entry.version, line=entry.line, place=entry.place, count=entry.count + 1)


@lru_cache(maxsize=4096)
def _cached(content: bytes, source: PythonSource, floor: PythonVersion) -> tuple[Newer, ...]:
    found = list(_syntax(source, floor))
    if floor < (3, 10) and any(word in content for word in _READING):
        found += _read_annotations(source)
    if _may_use_newer_names(content, floor):
        found += _library_names(content, source, floor)
    if floor < (3, 12):
        found += _newer_fstrings(content)
    return tuple(entry for entry in found if not entry.place.versioned)


# --- syntax that parses and fails later ---

_BUILTIN_TYPES = frozenset(
    {"int", "float", "str", "bool", "bytes", "bytearray", "complex", "object", "type"}
    | {"list", "dict", "tuple", "set", "frozenset", "memoryview", "slice", "range"}
)


def _syntax(source: PythonSource, floor: PythonVersion) -> Iterator[Newer]:
    postponed = _postpones(source)
    annotations: set[ast.AST] = set()
    for node, place in source.nodes:
        for annotation in _annotations(node):
            if not isinstance(annotation, ast.Name):
                annotations.update(walk(annotation))
        if floor < (3, 10) and not postponed and _evaluates_annotations(node, place):
            union = next((union for annotation in _annotations(node) for union in _unions(annotation)), None)
            if union is not None:
                yield _newer("a union type such as 'int | None' in an annotation", (3, 10), union, place)
        if node in annotations:
            continue
        if floor < (3, 10) and isinstance(node, ast.BinOp) and _is_type_union(node):
            yield _newer("a union type such as 'int | None'", (3, 10), node, place)
        if floor < (3, 11) and isinstance(node, ast.Subscript) and _unpacks(node.slice):
            yield _newer("unpacking inside an index, 'x[*a]'", (3, 11), node, place)


_READING = (b"custom_op", b"triton_op", b"infer_schema", b"get_type_hints")
"""Functions that evaluate annotations which Python itself leaves alone."""
_READERS = frozenset(
    f"{home}.{name}"
    for home in ("torch.library", "torch._library.custom_ops", "torch._library.triton", "torch._library.infer_schema")
    for name in ("custom_op", "triton_op", "infer_schema")
) | {"typing.get_type_hints"}


def _read_annotations(source: PythonSource) -> Iterator[Newer]:
    """Union types in annotations that are only texts to Python, of functions whose annotations torch evaluates to make
    a schema of them.
    """
    names = FullNames(source)
    functions: dict[str, list[ast.AST]] = {}
    read: dict[ast.AST, Position] = {}
    for node, _place in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).append(node)
    for node, place in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(_makes_schema(decorator, names) for decorator in node.decorator_list):
                read[node] = place
        elif isinstance(node, ast.Call) and (_makes_schema(node, names) or _makes_schema(node.func, names)):
            for given in (*node.args, *(word.value for word in node.keywords)):
                for function in functions.get(given.id, ()) if isinstance(given, ast.Name) else ():
                    read[function] = place
    postponed = _postpones(source)
    for function, place in read.items():
        for annotation in _annotations(function):
            text = annotation.value if isinstance(annotation, ast.Constant) else None
            union = next(_unions(_parsed(text) if isinstance(text, str) else annotation), None)
            if union is not None and (postponed or isinstance(text, str)):
                what = "a union type such as 'int | None' in an annotation that torch evaluates for the op's schema"
                yield Newer(what=what, version=(3, 10), line=annotation.lineno, place=place)
                break


def _makes_schema(node: ast.expr, names: FullNames) -> bool:
    """Whether a decorator or a function makes a schema of annotations: none is given as a text."""
    call = node if isinstance(node, ast.Call) else None
    given = [word.value for word in call.keywords if word.arg == "schema"] if call is not None else []
    if given and not (isinstance(given[0], ast.Constant) and given[0].value is None):
        return False
    return bool(_READERS.intersection(names.candidates(call.func if call is not None else node)))


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return ast.Constant(None)


def _postpones(source: PythonSource) -> bool:
    """Whether the file leaves its annotations as texts: PEP 563."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in (source.tree.body if source.tree is not None else ())
    )


def _unpacks(index: ast.expr) -> bool:
    return (
        isinstance(index, ast.Tuple)
        and any(isinstance(part, ast.Starred) for part in index.elts)
        and not _is_parenthesized(index)
    )


def _is_parenthesized(node: ast.Tuple) -> bool:
    """Whether the tuple has parentheses of its own, which every Python takes: it begins before its first item."""
    return bool(node.elts) and (node.lineno, node.col_offset) < (node.elts[0].lineno, node.elts[0].col_offset)


def _newer(what: str, version: PythonVersion, node: ast.expr, place: Position) -> Newer:
    return Newer(what=what, version=version, line=node.lineno, place=place)


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
        yield from (entry.annotation for entry in every if entry is not None and entry.annotation is not None)
        if node.returns is not None:
            yield node.returns
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation


def _evaluates_annotations(node: ast.AST, place: Position) -> bool:
    """Whether Python evaluates the annotations of ``node``; those of a function's own variables it does not."""
    if place.guard is Guard.TYPING:
        return False
    return not (isinstance(node, ast.AnnAssign) and place.local and node.simple)


def _unions(annotation: ast.expr) -> Iterator[ast.BinOp]:
    """``X | Y`` in an annotation, but not inside of ``Literal[...]`` or behind ``Annotated``'s first argument."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield annotation
        return
    if isinstance(annotation, ast.Subscript):
        name = (dotted_name(annotation.value) or "").rsplit(".", 1)[-1]
        if name == "Literal":
            return
        inner = annotation.slice
        if name == "Annotated" and isinstance(inner, ast.Tuple) and inner.elts:
            inner = inner.elts[0]
        yield from _unions(inner)
    elif isinstance(annotation, (ast.Tuple, ast.List)):
        for part in annotation.elts:
            yield from _unions(part)


def _is_type_union(node: ast.BinOp) -> bool:
    """``X | None`` or ``int | str`` outside of annotations; with other operands it may be any kind of 'or'."""
    if not isinstance(node.op, ast.BitOr):
        return False
    operands = (node.left, node.right)
    if any(isinstance(operand, ast.Constant) and operand.value is None for operand in operands):
        return True
    return all(_is_builtin_type(operand) for operand in operands)


def _is_builtin_type(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_type_union(node)
    inner = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(inner, ast.Name) and inner.id in _BUILTIN_TYPES


def _newer_fstrings(source: bytes) -> Iterator[Newer]:
    """f-strings of PEP 701 (3.12). A Python before 3.12 refuses them itself, as syntax errors."""
    import io  # noqa: PLC0415
    import tokenize  # noqa: PLC0415

    start = getattr(tokenize, "FSTRING_START", None)
    if start is None or b"f" not in source:
        return
    end, middle = tokenize.FSTRING_END, tokenize.FSTRING_MIDDLE  # type: ignore[attr-defined,unused-ignore]
    open_quotes: list[str] = []
    try:
        for token in tokenize.tokenize(io.BytesIO(source).readline):
            quote = token.string.lstrip("fFrRbBuU")[:3]
            quote = quote if quote in {"'''", '"""'} else quote[:1]
            inside = bool(open_quotes)
            problem = inside and (
                (token.type in {start, tokenize.STRING} and quote in open_quotes)
                or token.type == tokenize.COMMENT
                or (token.type == tokenize.STRING and "\\" in token.string)
            )
            if problem:
                yield Newer(
                    what="an f-string with its own quotes, a backslash or a comment inside the braces",
                    version=(3, 12),
                    line=token.start[0],
                    place=Position(),
                )
            if token.type == start:
                open_quotes.append(quote)
            elif token.type == end and open_quotes:
                open_quotes.pop()
            elif token.type == middle:
                continue
    except (tokenize.TokenError, SyntaxError, ValueError):
        return


# --- names of the standard library ---


@cache
def _words_of_newer_names(floor: PythonVersion) -> frozenset[tuple[bytes, ...]]:
    """For each name newer than ``floor``, words that a file must hold to use it."""
    from vermin import Config, rules  # noqa: PLC0415  (start-up time)

    found: set[tuple[bytes, ...]] = set()
    config = Config()
    for table in (rules.MOD_REQS(config), rules.MOD_MEM_REQS(config)):
        for name, versions in table.items():
            if _is_newer(versions, floor):
                parts = name.split(".")
                # A method of a built-in type is used without naming the type.
                of_builtin = hasattr(builtins, parts[0])
                found.add((parts[-1].encode(),) if of_builtin else (parts[0].encode(), parts[-1].encode()))
    for (function, keyword), versions in rules.KWARGS_REQS(config).items():
        if _is_newer(versions, floor):
            found.add((function.rsplit(".", 1)[-1].encode(), keyword.encode()))
    return frozenset(found)


def _is_newer(versions: object, floor: PythonVersion) -> bool:
    return isinstance(versions, tuple) and len(versions) == 2 and versions[1] is not None and versions[1] > floor


_WORD = re.compile(rb"[A-Za-z_]\w*")


def _may_use_newer_names(source: bytes, floor: PythonVersion) -> bool:
    """Whether asking ``vermin``, which takes its time, can give anything."""
    words = set(_WORD.findall(source))
    return any(all(word in words for word in needed) for needed in _words_of_newer_names(floor))


_LINE = re.compile(r"^.*?:(\d+):(?:\d*):[^:]*:([^:]*):(.*)$")


def _library_names(content: bytes, source: PythonSource, floor: PythonVersion) -> Iterator[Newer]:
    from vermin import Config, SourceVisitor  # noqa: PLC0415  (start-up time)
    from vermin.formats import ParsableFormat  # noqa: PLC0415

    config = Config()
    config.set_format(ParsableFormat())
    config.set_verbose(3)
    text = content.decode("utf-8-sig", "replace")
    visitor = SourceVisitor(config=config, path="file", source=text)
    visitor.set_no_lines(set())
    try:
        visitor.tour(source.tree)
        visitor.minimum_versions()
        words = visitor.output_text()
    except Exception:  # noqa: BLE001  (another program's judgement; the rules of our own still hold)
        return
    for line in words.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        version = re.search(r"(\d+)\.(\d+)", match[2])
        if version is None or (int(version[1]), int(version[2])) <= floor:
            continue
        number = int(match[1])
        what = re.match(r"'([^']+)'", match[3])
        if what is None:
            continue  # syntax is looked at above
        yield Newer(
            what=what[1],
            version=(int(version[1]), int(version[2])),
            line=number,
            place=_place_of(what[1], number, source),
        )
    yield from _star_names(source, floor)


def _place_of(what: str, line: int, source: PythonSource) -> Position:
    """Where a name or a keyword (``zip(strict)``) of a line stands: the tightest place, where there are several."""
    name, _, keyword = what.removesuffix(")").partition("(")
    last = name.rsplit(".", 1)[-1]
    places = [
        place
        for node, place in source.by_line.get(line, ())
        if (_calls_with(node, last, keyword) if keyword else last in _names_in(node))
    ]
    return min(places, default=source.lines.get(line, Position()), key=lambda place: (place.guard, place.caught))


def _calls_with(node: ast.AST, function: str, keyword: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and any(word.arg == keyword for word in node.keywords)
        and (dotted_name(node.func) or "").rsplit(".", 1)[-1] in {function, ""}
    )


def _names_in(node: ast.AST) -> tuple[str, ...]:
    """Last components of the names that a node itself uses or imports."""
    if isinstance(node, ast.Attribute):
        return (node.attr,)
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Import | ast.ImportFrom):
        return tuple(alias.name.rsplit(".", 1)[-1] for alias in node.names)
    return ()


def _star_names(source: PythonSource, floor: PythonVersion) -> Iterator[Newer]:
    """Names that ``from itertools import *`` brings on newer Pythons only."""
    from vermin import Config, rules  # noqa: PLC0415  (start-up time)

    modules = {
        entry.module for entry in source.imports if entry.names == ("*",) and not entry.level and entry.module
    } & set(sys.stdlib_module_names)
    if not modules:
        return
    known = rules.MOD_MEM_REQS(Config())
    for here in source.by_line.values():
        for node, place in here:
            if not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store) or node.id in source.definitions:
                continue
            for module in sorted(modules):
                versions = known.get(f"{module}.{node.id}")
                if _is_newer(versions, floor):
                    yield _newer(f"{module}.{node.id}", versions[1], node, place)
