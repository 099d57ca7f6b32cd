"""What a ``setup.py`` says of its C++ extensions. It is parsed and never run, so only what it writes out is known."""

from __future__ import annotations

import ast
import os.path
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError

SETUP = "setup.py"
_PATH_FUNCTIONS = {"join": os.path.join, "abspath": lambda path: path, "realpath": lambda path: path, "str": str}
_KINDS = {backend.extension: backend for backend in Backend if backend.extension}
_DECIDED = frozenset({"py_limited_api", "language", "extra_link_args", "undef_macros", "runtime_library_dirs"})
"""Arguments that need no counterpart where they are empty, or say what a kernel is anyway."""
_IDLE = ("-s", "-Wl,--strip-all", "-O", "-fPIC", "-shared")
_CONSTANTS = {"os.curdir": ".", "os.path.curdir": ".", "os.sep": "/", "os.path.sep": "/"}
_DECIDED_BY_BUILDER = ("-O", "-std=", "-fPIC", "-shared", "-fvisibility", "-D_GLIBCXX_USE_CXX11_ABI",
                       "-DPy_LIMITED_API", "-DTORCH_EXTENSION_NAME")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExtensionModule:
    """One extension: ``name`` is that of its Python module, ``flags`` are by key of ``extra_compile_args``.

    ``sources`` and ``include`` are relative to the directory of ``setup.py``; ``unknown`` names the arguments that are
    computed in ways that cannot be read off, ``foreign`` those that kernels have no counterpart for, ``conditional`` is
    what is added to them under a condition, ``assumed`` what was taken although more than one value is possible.
    """

    name: str
    backends: tuple[Backend, ...]
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    flags: Mapping[str, tuple[str, ...]]
    libraries: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SetupFile:
    """What the call of ``setup`` says, or ``[project]`` of ``pyproject.toml``, with the extensions."""

    name: str | None
    license: str | None
    version: str | None
    extensions: tuple[ExtensionModule, ...]
    classifiers: tuple[str, ...] = ()


def read_setup(root: Path) -> SetupFile:
    """Read ``root/setup.py``. Raises :class:`UsageError` where there is none, or no extension in it."""
    root = root.absolute()  # what setup.py makes of __file__ must not depend on where this runs
    file = root / SETUP
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{root} has no {SETUP}", hint="pass the directory of an extension that setuptools builds"
        ) from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot parse {file}: {error}") from error
    reader = _Reader(root, tree)
    extensions = tuple(reader.extensions())
    if not extensions:
        raise UsageError(
            f"{file} describes no {' or '.join(_KINDS)}",
            hint="only extensions of torch.utils.cpp_extension can be converted",
        )
    setup = next((call for call in reader.calls if _called(call) == "setup"), None)
    words = {key.arg: reader.value(key.value) for key in setup.keywords} if setup else {}
    table = _project_table(root)
    classifiers = _texts(words.get("classifiers")) or _texts(table.get("classifiers"))
    texts = {key: value for key, value in table.items() if isinstance(value, str)}
    texts.update({key: value for key, value in words.items() if key is not None and isinstance(value, str)})
    return SetupFile(
        name=texts.get("name"),
        license=texts.get("license"),
        version=texts.get("version"),
        extensions=extensions,
        classifiers=classifiers,
    )


def _project_table(root: Path) -> dict[str, object]:
    """``[project]`` of ``pyproject.toml``; nothing where there is none that can be read."""
    try:
        table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(table, dict):
        return {}
    about = table.get("license")
    text = about.get("text") if isinstance(about, dict) else about
    return {**table, "license": text}


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


class _Reader:
    """Evaluates what is written out: literals, names that are bound to such, sums, and functions of paths."""

    def __init__(self, root: Path, tree: ast.Module) -> None:
        self.root = root
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.bound: dict[str, list[ast.expr]] = {}
        self.added: dict[str, list[ast.expr]] = {}
        self.conditional: set[tuple[int, int]] = set()
        self.doubtful: list[ast.expr] = []
        self.assumed: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(node.target, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.added.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.Call) and (added := _appended(node)) is not None:
                self.added.setdefault(added[0], []).append(added[1])
            elif isinstance(node, ast.If):
                for one in ast.walk(node):
                    if isinstance(one, ast.AugAssign):
                        self.conditional.add(_place(one.value))
                    elif isinstance(one, ast.Call) and (added := _appended(one)) is not None:
                        self.conditional.add(_place(added[1]))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, its in zip(target.elts, value.elts, strict=False):
                self._bind(one, its)

    def extensions(self) -> Iterator[ExtensionModule]:
        for call in self.calls:
            backends = tuple(dict.fromkeys(self._kinds(call.func)))
            if backends:
                yield self._extension(call, backends)

    def _kinds(self, function: ast.expr, depth: int = 0) -> Iterator[Backend]:
        """The backends of a function that is called: by name, or of all that a variable may be."""
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
        if name in _KINDS:
            yield _KINDS[name]
        elif isinstance(function, ast.IfExp):
            yield from (*self._kinds(function.body, depth), *self._kinds(function.orelse, depth))
        elif name in self.bound and depth < 4:
            for value in self.bound[name]:
                if not isinstance(value, ast.Call):
                    yield from self._kinds(value, depth + 1)

    def _extension(self, call: ast.Call, backends: tuple[Backend, ...]) -> ExtensionModule:
        words: dict[str, ast.expr] = dict(zip(("name", "sources"), call.args, strict=False))
        words.update({key.arg: key.value for key in call.keywords if key.arg})
        decided = {key: self.value(node) for key, node in words.items() if key in _DECIDED}
        self.doubtful.clear()
        self.assumed.clear()
        values = decided | {key: self.value(node) for key, node in words.items() if key not in _DECIDED}
        known = {"name", "sources", "include_dirs", "define_macros", "extra_compile_args", "libraries"}
        flags, folders = _including(values.get("extra_compile_args"))
        if isinstance(flags, list):
            flags = {"cxx": flags}
        by_key = {
            str(key): tuple(str(flag) for flag in given if not str(flag).startswith(_DECIDED_BY_BUILDER))
            for key, given in (flags.items() if isinstance(flags, dict) else ())
            if isinstance(given, list)
        }
        name = values.get("name")
        return ExtensionModule(
            name=name if isinstance(name, str) else "",
            backends=backends,
            sources=tuple(path for path in self._paths(values.get("sources")) if not (self.root / path).is_dir()),
            include=tuple(path for path in self._paths([*_texts(values.get("include_dirs")), *folders]) if path != "."),
            defines=_defines(values.get("define_macros")),
            flags=by_key,
            libraries=_texts(values.get("libraries")),
            unknown=tuple(sorted(key for key, value in values.items() if value is None and key not in _DECIDED)),
            foreign=tuple(
                sorted(
                    key
                    for key, value in values.items()
                    if value is not None and key not in known and not (key in _DECIDED and _says_nothing(value))
                )
            ),
            conditional=tuple(dict.fromkeys(ast.unparse(node) for node in self.doubtful)),
            assumed=tuple(dict.fromkeys(self.assumed)),
        )

    def _paths(self, value: object) -> tuple[str, ...]:
        found = (os.path.relpath(os.path.join(self.root, path), self.root) for path in _texts(value))  # noqa: PTH118
        return tuple(dict.fromkeys(path for path in found if not path.startswith("..")))

    def value(self, node: ast.expr | None, depth: int = 0) -> object:
        """The value of an expression; ``None`` where it cannot be read off."""
        if node is None or depth > 12:
            return None
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.List | ast.Tuple):
            return self._items(node, depth)
        if isinstance(node, ast.Dict):
            return {
                self.value(key, depth + 1): self.value(value, depth + 1)
                for key, value in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.Name):
            return str(self.root / SETUP) if node.id == "__file__" else self._variable(node.id, depth)
        if isinstance(node, ast.BinOp):
            return self._operation(node, depth)
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, depth)
        if isinstance(node, ast.Attribute):
            return _CONSTANTS.get(ast.unparse(node)) or (
                str(Path(text).parent)
                if node.attr == "parent" and isinstance(text := self.value(node.value), str)
                else None
            )
        return self._call(node, depth) if isinstance(node, ast.Call) else None

    def _items(self, node: ast.List | ast.Tuple, depth: int) -> object:
        """A list: items that cannot be read off are named and left out, unless it has no others."""
        items: list[object] = []
        left: list[ast.expr] = []
        for item in node.elts:
            value = self.value(item.value if isinstance(item, ast.Starred) else item, depth + 1)
            if value is None and isinstance(node, ast.List):
                left.append(item)
            elif isinstance(item, ast.Starred) and isinstance(value, list):
                items += value
            else:
                items.append(value)
        if not items and node.elts:
            return None
        self.doubtful += left
        return items

    def _operation(self, node: ast.BinOp, depth: int) -> object:
        """A sum, or a path: ``HERE / "csrc"``."""
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return os.path.join(left, right)  # noqa: PTH118
        if not isinstance(node.op, ast.Add):
            return None
        if isinstance(left, list) != isinstance(right, list) and None in (left, right):
            # What is added to a list is a list: the one that can be read off is taken.
            self.doubtful.append(node.left if left is None else node.right)
            return left if left is not None else right
        return left + right if isinstance(left, str | list) and type(left) is type(right) else None  # type: ignore[operator]

    def _variable(self, name: str, depth: int) -> object:
        values = self.bound.get(name, [])
        value = self.value(values[-1], depth + 1) if values else None
        if len(values) > 1:
            # Branches end with the usual case far more often than they begin with it.
            if value is None or isinstance(value, str):
                return None
            self.assumed.append(f"{name} is set in {len(values)} places: what the last one says was taken")
        for more in self.added.get(name, ()):
            extra = self.value(more, depth + 1)
            if _place(more) in self.conditional and not self._are_sources(extra):
                self.doubtful.append(more)
            elif _place(more) in self.conditional:
                self.assumed.append(f"{ast.unparse(more)} is added under a condition: it was taken")
                value = value + extra if isinstance(value, list) and isinstance(extra, list) else value
            else:
                value = value + extra if isinstance(value, list) and isinstance(extra, list) else None
        return value

    def _are_sources(self, value: object) -> bool:
        """Whether these are files of the extension in a device's own language: each belongs to that device anyway."""
        endings = tuple(ending for backend in Backend for ending in backend.sources)
        return (
            isinstance(value, list)
            and bool(value)
            and all(isinstance(one, str) and one.endswith(endings) and (self.root / one).is_file() for one in value)
        )

    def _joined(self, node: ast.JoinedStr, depth: int) -> object:
        parts = [
            self.value(part.value if isinstance(part, ast.FormattedValue) else part, depth + 1) for part in node.values
        ]
        return "".join(map(str, parts)) if None not in parts else None

    def _call(self, node: ast.Call, depth: int) -> object:
        name = _called(node)
        if name in {"resolve", "absolute"} and not node.args and isinstance(node.func, ast.Attribute):
            return self.value(node.func.value)
        given = [self.value(argument, depth + 1) for argument in node.args]
        texts = [item for item in given if isinstance(item, str)]
        if not texts or len(texts) != len(given):
            return self._of_list(name, given)
        if name == "dirname":
            return str(Path(texts[0]).parent)
        if name == "Path":
            return texts[0]
        if name in _PATH_FUNCTIONS:
            return str(_PATH_FUNCTIONS[name](*texts))  # type: ignore[operator]
        if name == "glob":
            pattern = os.path.relpath(os.path.join(self.root, texts[0]), self.root)  # noqa: PTH118
            return None if pattern.startswith("..") else sorted(str(path) for path in self.root.glob(pattern))
        return None

    def _of_list(self, name: str, given: list[object]) -> object:
        """A function that is given a list and nothing else returns that, more or less."""
        if len(given) != 1 or not isinstance(given[0], list):
            return None
        if name not in {"list", "sorted", "set", "tuple"}:
            self.assumed.append(f"{name}(...) adds to a list: what is written in the list was taken")
        return given[0]


def _appended(call: ast.Call) -> tuple[str, ast.expr] | None:
    """The name of a list, and what ``name.append(...)`` or ``name.extend(...)`` adds to it, as a list."""
    function = call.func
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and len(call.args) == 1):
        return None
    if function.attr == "extend":
        return function.value.id, call.args[0]
    return (function.value.id, _listed(call.args[0])) if function.attr == "append" else None


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _listed(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.List(elts=[node], ctx=ast.Load()), node)


def _including(flags: object) -> tuple[object, list[str]]:
    """Flags without ``-I``, and the directories that these named."""
    folders: list[str] = []

    def rest(given: object) -> object:
        if not isinstance(given, list):
            return given
        folders.extend(flag[2:] for flag in given if isinstance(flag, str) and len(flag) > 2 and flag.startswith("-I"))
        return [flag for flag in given if not (isinstance(flag, str) and len(flag) > 2 and flag.startswith("-I"))]

    kept = {key: rest(value) for key, value in flags.items()} if isinstance(flags, dict) else rest(flags)
    return kept, folders


def _says_nothing(value: object) -> bool:
    """Whether a kernel is that anyway."""
    if isinstance(value, list):
        return all(isinstance(one, str) and one.startswith(_IDLE) for one in value)
    return value in (None, True, False, "c++")


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _defines(value: object) -> tuple[str, ...]:
    pairs = value if isinstance(value, list) else []
    return tuple(
        f"-D{pair[0]}" if len(pair) < 2 or pair[1] is None else f"-D{pair[0]}={pair[1]}"
        for pair in pairs
        if isinstance(pair, list) and pair
    )
