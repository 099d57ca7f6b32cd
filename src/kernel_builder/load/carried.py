"""What loading showed of a variant holds for another one that would do the very same when it is loaded.

A variant that was loaded leaves, beside its proof, which code of its Python files ran meanwhile, when it was imported
and when its ops and layers were called. Another one with the same native code, whose files differ only in functions
that did not run, have one more or less, or a constant, of which nothing else says the name, or in comments, runs the
same code.
Loading it takes seconds, most of which torch takes to be imported; so while somebody edits such functions, the former
proof is carried over, and it is said that it was. Whatever is published is loaded in any case.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType
from typing import Any

from kernel_builder.files import parse_json, write_text
from kernel_builder.load.client import Environment, Loadable, NoEnvironment
from kernel_builder.load.evidence import NOT_AGAIN, LoadResult
from kernel_builder.load.proofs import ran_in
from kernel_builder.walking import BYTECODE

_FILE = "proven.json"
_METADATA = "metadata.json"
_OWN_NAME = "{ops-id}"
_CHANGING = ("id", "digest", "provenance")
"""What metadata say that follows from the sources alone."""

_ASKS = re.compile(r"\b(?:dir|globals|locals|vars|eval|exec|inspect|__dict__|getattr|hasattr)\b|\bimport[ \t(]+\*")
"""What tells code which names there are."""
_ASKED_FOR = frozenset({"layers"})
"""What the client, and what loads a kernel here, look for in it."""

Ran = frozenset[tuple[str, int, str]]
Files = Mapping[str, str]


def keep(
    kernel: Loadable, native: str, environment: Environment | NoEnvironment, result: LoadResult, folder: Path
) -> None:
    """Keep in ``folder`` what :func:`carried` needs, if ``kernel`` was loaded and all that ran is known. ``native`` is
    a digest of its library, but for its name.
    """
    if not isinstance(environment, Environment) or not result.loaded or result.ran is None or result.reason:
        return
    known = {
        "key": environment.proof_key(native),
        "files": _files(kernel),
        "metadata": _metadata(kernel),
        "result": result.to_json(),
        "ran": sorted(result.ran),
    }
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / _FILE, json.dumps(known), durable=False)


def carried(kernel: Loadable, native: str, environment: Environment | NoEnvironment, folder: Path) -> LoadResult | None:
    """What loading ``kernel`` would show, if a kernel whose proof is kept in ``folder`` ran just the code that this one
    would; the reason says so. Otherwise ``None``.
    """
    if not isinstance(environment, Environment):
        return None
    try:
        known = parse_json((folder / _FILE).read_text(encoding="utf-8"))
        if known["key"] != environment.proof_key(native) or known["metadata"] != _metadata(kernel):
            return None
        before, now = known["files"], _files(kernel)
        ran = ran_in(known) or frozenset()
        if before.keys() != now.keys():
            return None
        changed = sorted(path for path, text in now.items() if text != before[path])
        shim = f"{kernel.python_name}/__init__.py"  # generated: it runs what is beside it
        if shim not in changed:
            before, now = ({name: text for name, text in files.items() if name != shim} for files in (before, now))
        functions = [name for path in changed for name in _changed_functions(path, before, now, ran)]
        result = LoadResult.from_json(known["result"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, _DiffersError):
        return None
    if not changed:
        return result
    if not functions:
        return replace(result, reason=f"{NOT_AGAIN}only comments and formatting of its Python code changed")
    shown = ", ".join(functions[:3]) + (", ..." if len(functions) > 3 else "")
    return replace(result, reason=f"{NOT_AGAIN}only files that loading it does not run changed ({shown})")


def _files(kernel: Loadable) -> dict[str, str]:
    """The text of each Python file with the kernel's name taken out, a digest of each other file but the library."""
    found: dict[str, str] = {}
    for path in sorted(kernel.directory.rglob("*")):
        name = path.relative_to(kernel.directory).as_posix()
        library = name.startswith(f"{kernel.ops_id}.") and name.endswith(".so")
        if not path.is_file() or BYTECODE in path.parts or library or name == _METADATA:
            continue
        data = path.read_bytes()
        if path.suffix == ".py":
            found[name] = data.decode("utf-8").replace(kernel.ops_id, _OWN_NAME)
        else:
            found[name] = hashlib.sha256(data).hexdigest()
    return found


def _metadata(kernel: Loadable) -> dict[str, Any]:
    document = parse_json((kernel.directory / _METADATA).read_text(encoding="utf-8"))
    return {key: value for key, value in document.items() if key not in _CHANGING}


class _DiffersError(Exception):
    """Something that ran is not what it was."""


def _changed_functions(path: str, before: Files, now: Files, ran: Ran) -> Iterator[str]:
    """The functions of a Python file whose code changed, none of which ran, and constants that nothing reads.

    Raises :class:`_DiffersError` where more changed, or where it does not parse.
    """
    if not path.endswith(".py"):
        raise _DiffersError
    try:
        # As identifiers, so that both parse; no code is run.
        one, other = (_parsed(files[path], path) for files in (before, now))
        if ast.dump(one) == ast.dump(other):
            return  # how it is laid out can change the bytecode (Python 3.13), and nothing else
        gone, new = _only_in(one, other), _only_in(other, one)
        if not all(_is_apart(before, now, name) for name in gone) or not all(
            _is_apart(now, before, name) for name in new
        ):
            raise _DiffersError
        if any((path, node.lineno, name) in ran for name, node in gone.items()):
            raise _DiffersError
        if gone or new:
            lists = _lists_names(before) and _lists_names(now)
            _leave_out(one, gone.values(), lists=lists)
            _leave_out(other, new.values(), lists=lists)
        yield from (f"{path}: {name}" for name in sorted({*gone, *new}))
        yield from _compare(path, compile(one, path, "exec"), compile(other, path, "exec"), ran)
    except (SyntaxError, RecursionError) as error:
        raise _DiffersError from error


def _parsed(text: str, path: str) -> ast.Module:
    """The syntax tree of a file. Its classes all begin in line 1: since Python 3.13, the code of a class holds the
    number of its first line.
    """
    tree = ast.parse(text.replace(_OWN_NAME, "_ops_id"), path)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.lineno = 1
            for decorator in node.decorator_list[:1]:
                decorator.lineno = 1
    return tree


def _only_in(tree: ast.Module, other: ast.Module) -> dict[str, ast.FunctionDef | ast.Assign]:
    """The functions and constants at the top of ``tree`` that ``other`` has not and that do nothing but exist when it
    is imported.
    """
    theirs = [node for node in other.body if isinstance(node, ast.FunctionDef)]
    known = {ast.dump(annotation) for node in theirs for annotation in _annotations(node)}
    names = {name for node in other.body if (name := _name(node)) is not None}
    return {
        name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.Assign)
        and (name := _name(node)) is not None
        and name not in names
        and (isinstance(node, ast.Assign) or _only_exists(node, known))
    }


def _name(node: ast.stmt) -> str | None:
    """The name of a function, or of what a plain constant is assigned to."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and len(node.targets) == 1:
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def _only_exists(node: ast.FunctionDef, known: Collection[str]) -> bool:
    """Whether what a function says of its arguments is constant, or one of the annotations ``known``."""
    return (
        not node.decorator_list
        and all(isinstance(one, ast.Constant | None) for one in (*node.args.defaults, *node.args.kw_defaults))
        and all(isinstance(one, ast.Constant) or ast.dump(one) in known for one in _annotations(node))
        and not getattr(node, "type_params", ())
    )


def _annotations(node: ast.FunctionDef) -> Iterator[ast.expr]:
    given = node.args
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if one is not None and one.annotation is not None:
            yield one.annotation
    if node.returns is not None:
        yield node.returns


def _is_apart(having: Files, lacking: Files, name: str) -> bool:
    """Whether nobody can tell at import if ``name`` is there: where it is not, no file says it, and none asks which
    names there are, be it the client's.
    """
    if name.startswith("__") or name in _ASKED_FOR or hasattr(builtins, name):
        return False
    word = re.compile(rf"\b{re.escape(name)}\b")
    python = [text for files in (having, lacking) for path, text in files.items() if path.endswith(".py")]
    return not any(map(word.search, lacking.values())) and not any(map(_ASKS.search, python))


def _lists_names(files: Files) -> bool:
    """Whether ``__all__`` is there for people alone: each is a plain list, which nothing in the package reads."""
    for path, text in files.items():
        if not path.endswith(".py") or "__all__" not in text:
            continue
        lists = [node for node in _parsed(text, path).body if _is_list(node)]
        if len(re.findall(r"\b__all__\b", text)) != len(lists):
            return False
    return True


def _is_list(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List | ast.Tuple):
        return False
    named = [target.id for target in node.targets if isinstance(target, ast.Name)]
    return named == ["__all__"] and all(isinstance(one, ast.Constant) for one in node.value.elts)


def _leave_out(tree: ast.Module, functions: Collection[ast.stmt], *, lists: bool) -> None:
    """Take ``functions`` out of ``tree``, and with ``lists`` those of names."""
    tree.body = [node for node in tree.body if node not in functions and not (lists and _is_list(node))]


def _compare(path: str, one: CodeType, other: CodeType, ran: Ran) -> Iterator[str]:
    """The functions within ``one``, which ran, that are others in ``other``."""
    if _facts(one) != _facts(other) or len(one.co_consts) != len(other.co_consts):
        raise _DiffersError
    for mine, theirs in zip(one.co_consts, other.co_consts, strict=True):
        if not isinstance(mine, CodeType) or not isinstance(theirs, CodeType):
            if type(mine) is not type(theirs) or repr(mine) != repr(theirs):
                raise _DiffersError
        elif _ran(path, mine, ran):
            yield from _compare(path, mine, theirs, ran)
        elif _signature(mine) != _signature(theirs):
            raise _DiffersError
        elif not _is_same(mine, theirs):
            yield f"{path}: {mine.co_name}"


def _ran(path: str, code: CodeType, ran: Ran) -> bool:
    """Whether ``code`` ran, as far as that can be known: bodies of classes, and what has no name of its own, are taken
    to have.
    """
    is_function = bool(code.co_flags & CO_OPTIMIZED) and not code.co_name.startswith(("<", "__annotate"))
    return not is_function or (path, code.co_firstlineno, code.co_name) in ran


def _facts(code: CodeType) -> tuple[object, ...]:
    """All that decides what ``code`` does, but for its constants, and for where it is."""
    return (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_flags,
        getattr(code, "co_exceptiontable", b""),
        _signature(code),
    )


def _signature(code: CodeType) -> tuple[object, ...]:
    """What others see of a function that does not run."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (code.co_name, counts, code.co_varnames[:arguments], code.co_freevars)


def _is_same(one: CodeType, other: CodeType) -> bool:
    everything = frozenset[tuple[str, int, str]]()
    try:
        return _facts(one) == _facts(other) and not list(_compare("", one, other, everything))
    except _DiffersError:
        return False
