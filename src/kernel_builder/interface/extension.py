"""What a ``setup.py`` says of its C++ extensions. It is parsed and never run, so only what it writes out is known."""

from __future__ import annotations

import ast
import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.errors import UsageError

SETUP = "setup.py"
_PATH_FUNCTIONS = {"join": os.path.join, "abspath": lambda path: path, "realpath": lambda path: path, "str": str}
_KINDS = {backend.extension: backend for backend in Backend if backend.extension}
_DECIDED_BY_BUILDER = ("-O", "-std=", "-fPIC", "-shared", "-fvisibility", "-D_GLIBCXX_USE_CXX11_ABI")


@dataclass(frozen=True, kw_only=True)
class ExtensionModule:
    """One extension: ``name`` is that of its Python module, ``flags`` are by key of ``extra_compile_args``.

    ``sources`` and ``include`` are relative to the directory of ``setup.py``; ``unknown`` names the arguments that are
    computed in ways that cannot be read off, ``conditional`` is what is added to them under a condition.
    """

    name: str
    backends: tuple[Backend, ...]
    sources: tuple[str, ...]
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    flags: Mapping[str, tuple[str, ...]]
    libraries: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    conditional: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SetupFile:
    """What the call of ``setup`` says, with the extensions."""

    name: str | None
    license: str | None
    version: str | None
    extensions: tuple[ExtensionModule, ...]


def read_setup(root: Path) -> SetupFile:
    """Read ``root/setup.py``. Raises :class:`UsageError` where there is none, or no extension in it."""
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
    texts = {key: value for key, value in words.items() if isinstance(value, str)}
    return SetupFile(
        name=texts.get("name"),
        license=texts.get("license"),
        version=texts.get("version"),
        extensions=extensions,
    )


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


class _Reader:
    """Evaluates what is written out: literals, names that are bound to such, sums, and functions of paths."""

    def __init__(self, root: Path, tree: ast.Module) -> None:
        self.root = root
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.bound: dict[str, list[ast.expr]] = {}
        self.added: dict[str, list[ast.expr]] = {}
        self.conditional: set[int] = set()
        self.doubtful: list[ast.expr] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.added.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.If):
                self.conditional.update(id(one.value) for one in ast.walk(node) if isinstance(one, ast.AugAssign))

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)

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
        self.doubtful.clear()
        values = {key: self.value(node) for key, node in words.items()}
        known = {"name", "sources", "include_dirs", "define_macros", "extra_compile_args", "libraries"}
        flags = values.get("extra_compile_args")
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
            sources=self._paths(values.get("sources")),
            include=tuple(path for path in self._paths(values.get("include_dirs")) if path != "."),
            defines=_defines(values.get("define_macros")),
            flags=by_key,
            libraries=_texts(values.get("libraries")),
            unknown=tuple(sorted(key for key, value in values.items() if value is None or key not in known)),
            conditional=tuple(dict.fromkeys(ast.unparse(node) for node in self.doubtful)),
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
            items = [self.value(item, depth + 1) for item in node.elts]
            return None if None in items and not isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.Dict):
            return {
                self.value(key, depth + 1): self.value(value, depth + 1)
                for key, value in zip(node.keys, node.values, strict=True)
            }
        if isinstance(node, ast.Name):
            return str(self.root / SETUP) if node.id == "__file__" else self._variable(node.id, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            return left + right if isinstance(left, str | list) and type(left) is type(right) else None  # type: ignore[operator]
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, depth)
        return self._call(node, depth) if isinstance(node, ast.Call) else None

    def _variable(self, name: str, depth: int) -> object:
        values = self.bound.get(name, [])
        value = self.value(values[0], depth + 1) if len(values) == 1 else None
        for more in self.added.get(name, ()):
            if id(more) in self.conditional:
                self.doubtful.append(more)
                continue
            extra = self.value(more, depth + 1)
            value = value + extra if isinstance(value, list) and isinstance(extra, list) else None
        return value

    def _joined(self, node: ast.JoinedStr, depth: int) -> object:
        parts = [
            self.value(part.value if isinstance(part, ast.FormattedValue) else part, depth + 1) for part in node.values
        ]
        return "".join(map(str, parts)) if None not in parts else None

    def _call(self, node: ast.Call, depth: int) -> object:
        name = _called(node)
        given = [self.value(argument, depth + 1) for argument in node.args]
        texts = [item for item in given if isinstance(item, str)]
        if not texts or len(texts) != len(given):
            return given[0] if name in {"list", "sorted"} and given and isinstance(given[0], list) else None
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


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _defines(value: object) -> tuple[str, ...]:
    pairs = value if isinstance(value, list) else []
    return tuple(
        f"-D{pair[0]}" if len(pair) < 2 or pair[1] is None else f"-D{pair[0]}={pair[1]}"
        for pair in pairs
        if isinstance(pair, list) and pair
    )
