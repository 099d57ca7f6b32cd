"""Rules about what Python code looks for on the user's machine: distributions, libraries, compilers.

A kernel is a folder that the client downloads: it is not installed, so it has no metadata; its library is loaded by
``._ops``; and users have neither the builder's paths nor a compiler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.check.model import Finding, Rule, Settings, Severity, checks, rule
from kernel_builder.check.python_facts import Guard, Module, Package, Position, leading_text, package_of
from kernel_builder.check.python_names import FullNames
from kernel_builder.check.python_rules import TORCH_BRINGS, allowed_modules
from kernel_builder.check.subject import PythonTree

METADATA = rule(
    "KB317",
    "distribution-metadata",
    Severity.ERROR,
    summary="Python code asks for metadata of installed distributions only, never of the kernel's own",
    rationale="The client downloads a kernel and installs nothing: there is no distribution of that name, and"
    " PackageNotFoundError is raised.",
    remedy="Write the version into the package (__version__ = '1.2'), or read it from the kernel's metadata.json.",
    source="docs/requirements.md, 'Python code'",
)
METADATA_GUARDED = rule(
    "KB318",
    "distribution-metadata-guarded",
    Severity.WARNING,
    summary="Python code does not look for the kernel's own distribution even where failure is allowed",
    rationale="There never is one, unless another package of that name happens to be installed.",
    remedy="Write the version into the package (__version__ = '1.2').",
    source="docs/requirements.md, 'Python code'",
)
LIBRARY = rule(
    "KB321",
    "loads-library",
    Severity.ERROR,
    summary="Python code loads no library of its own, and none by an absolute path on import",
    rationale="The kernel's library is loaded by ._ops, under the kernel's own namespace; other files and paths are not"
    " there on users' machines, or register the same ops twice.",
    remedy="Write: from ._ops import ops, and remove what loads the library.",
    source="docs/requirements.md, 'Python code'",
)
LIBRARY_LATER = rule(
    "KB322",
    "loads-library-later",
    Severity.WARNING,
    summary="Code that runs later or may fail loads no library of its own or by an absolute path either",
    rationale="The file is not there on users' machines; then this part of the kernel does not work.",
    remedy="Use ops of ._ops, or look the library up by its name.",
    source="docs/requirements.md, 'Python code'",
)
COMPILES = rule(
    "KB323",
    "compiles-on-import",
    Severity.ERROR,
    summary="Importing the kernel compiles no native code",
    rationale="Users have no compiler, no toolkit and no headers; with them, the import takes minutes.",
    remedy="List the sources in build.toml, and use the ops of ._ops.",
    source="docs/requirements.md, 'Python code'",
)
COMPILES_LATER = rule(
    "KB324",
    "compiles-later",
    Severity.WARNING,
    summary="No code in the kernel compiles native code",
    rationale="Users may have no compiler, no toolkit and no headers; then this part of the kernel does not work.",
    remedy="List the sources in build.toml, and use the ops of ._ops.",
    source="docs/requirements.md, 'Python code'",
)

_WORDS = (
    *(b"metadata", b"pkg_resources", b"load_library", b"CDLL", b"DLL", b"LoadLibrary", b"dlopen", b"cpp_extension"),
    b"load_inline",
)
_METADATA = frozenset(
    {f"{home}.{name}" for home in ("importlib.metadata", "importlib_metadata")
     for name in ("version", "metadata", "distribution", "files", "requires", "Distribution.from_name")}
    | {"pkg_resources.get_distribution", "pkg_resources.require"}
)  # fmt: skip
_LOADERS = frozenset(
    f"{home}.load_library" for home in ("torch.ops", "torch._ops.ops", "torch.classes", "torch._classes.classes")
)
_BY_PATH = frozenset(
    {f"ctypes.{name}" for name in ("CDLL", "PyDLL", "WinDLL", "OleDLL")}
    | {f"ctypes.{name}.LoadLibrary" for name in ("cdll", "pydll", "windll", "oledll")}
)
_COMPILERS = frozenset(
    f"torch.utils.cpp_extension.{name}"
    for name in ("load", "load_inline", "_jit_compile", "_write_ninja_file_and_build_library")
)
_ABSOLUTE = re.compile(r"/|\\\\|[A-Za-z]:[\\/]")
_OWN_NAMES = frozenset({"__name__", "__package__", "__spec__"})
_OWN_PLACES = frozenset({"__file__", "__path__", "__spec__"})


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call whose function is known by its full names, in a module of the package."""

    package: Package
    module: Module
    names: FullNames
    node: ast.Call
    place: Position
    functions: frozenset[str]

    @property
    def is_soft(self) -> bool:
        """Whether its failure is handled."""
        return self.place.caught or self.place.handled or self.place.guard is Guard.TRY

    @property
    def runs_on_import(self) -> bool:
        """Whether an import of the kernel may run it, and nothing catches its failure."""
        reached = self.package.reached.get(self.module.name)
        calm = {Guard.IMPORT, Guard.CONDITION}
        return not self.is_soft and self.place.guard in calm and reached in calm

    @property
    def argument(self) -> ast.expr | None:
        """What is asked for: the first argument, whatever it is called."""
        return self.node.args[0] if self.node.args else next((word.value for word in self.node.keywords), None)

    def at(self, which: Rule, said: str, symbol: str | None = None) -> Finding:
        """A finding here."""
        return which.at(self.module.file, said, line=self.node.lineno, symbol=symbol)

    @property
    def written(self) -> str:
        """The call as it is written, shortened."""
        text = " ".join(ast.unparse(self.node).split())
        return text if len(text) <= 80 else f"{text[:77]}..."


def _calls(tree: PythonTree) -> Iterator[_Call]:
    package = package_of(tree)
    for module in package.modules.values():
        if not any(word in module.file.source for word in _WORDS):
            continue
        names = FullNames(module.source)
        for node, place in module.source.nodes:
            if isinstance(node, ast.Call) and place.guard is not Guard.TYPING:
                functions = frozenset(names.candidates(node.func))
                if functions:
                    yield _Call(
                        package=package, module=module, names=names, node=node, place=place, functions=functions
                    )


@checks(PythonTree, METADATA, METADATA_GUARDED)
def distribution_metadata(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``importlib.metadata.version("my-kernel")`` and its like, in every spelling."""
    package = package_of(tree)
    installed = {_plain(name) for name in (*allowed_modules(tree).modules, *TORCH_BRINGS, *(tree.depends or ()))}
    for call in _calls(tree):
        if not call.functions & _METADATA or call.argument is None:
            continue
        name = _text_of(call.argument, call.names)
        if _mentions(call.argument, _OWN_NAMES, call.names) or (
            name is not None and package.name is not None and _plain(name) == _plain(package.name)
        ):
            said = f"{call.written}: the kernel is downloaded, not installed, so it has no metadata"
            yield call.at(METADATA_GUARDED if call.is_soft else METADATA, said, name)
            continue
        is_installed = name is None or _plain(re.split(r"[<>=!~ \[;]", name)[0]) in installed
        if not is_installed and package.always_runs(call.module, call.place.guard) and not call.is_soft:
            said = f"{call.written} runs on every import, but {name} is neither part of torch nor declared"
            yield call.at(METADATA, said, name)


def _plain(name: str) -> str:
    """The normal form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@checks(PythonTree, LIBRARY, LIBRARY_LATER)
def loaded_libraries(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``torch.ops.load_library``, and ``ctypes`` with a path."""
    for call in _calls(tree):
        reached = call.module.name in call.package.reached
        if call.functions & _LOADERS:
            said = f"{call.written} loads a library; the kernel's own is loaded by ._ops"
            yield call.at(LIBRARY_LATER if call.is_soft or not reached else LIBRARY, said)
        elif call.functions & _BY_PATH and call.argument is not None:
            path = _path_of(call.argument, call.names)
            if _mentions(call.argument, _OWN_PLACES, call.names):
                said = f"{call.written} loads a library beside the package's files; the kernel's own is loaded by ._ops"
                yield call.at(LIBRARY_LATER if call.is_soft or not reached else LIBRARY, said)
            elif path is not None and _ABSOLUTE.match(path):
                said = f"{call.written} loads a library by an absolute path, which users do not have"
                yield call.at(LIBRARY if call.runs_on_import else LIBRARY_LATER, said, path)


@checks(PythonTree, COMPILES, COMPILES_LATER)
def compiled_extensions(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``torch.utils.cpp_extension.load`` and ``load_inline``."""
    for call in _calls(tree):
        if call.functions & _COMPILERS:
            said = f"{call.written} compiles native code on the user's machine"
            yield call.at(COMPILES if call.runs_on_import else COMPILES_LATER, said)


# --- arguments ---


def _text_of(node: ast.expr, names: FullNames, depth: int = 0) -> str | None:
    """The constant text of an expression, simple variables followed."""
    if isinstance(node, ast.Name) and node.id in names.values and depth < 4:
        return _text_of(names.values[node.id], names, depth + 1)
    found = leading_text(node)
    return found[0] if found is not None and found[1] else None


def _path_of(node: ast.expr, names: FullNames, depth: int = 0) -> str | None:
    """The beginning of a path: of texts, ``Path(...) / ...``, ``os.path.join(...)`` and ``str(...)``."""
    if depth > 6:
        return None
    if isinstance(node, ast.Name) and node.id in names.values:
        return _path_of(names.values[node.id], names, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _path_of(node.left, names, depth + 1)
    if isinstance(node, ast.Call) and node.args:
        function = {*names.candidates(node.func), node.func.id if isinstance(node.func, ast.Name) else ""}
        if function & {"os.path.join", "pathlib.Path", "os.fspath", "str", "os.path.realpath", "os.path.abspath"}:
            return _path_of(node.args[0], names, depth + 1)
    found = leading_text(node)
    return None if found is None else found[0]


def _mentions(node: ast.expr, wanted: frozenset[str], names: FullNames) -> bool:
    """Whether an expression, or the variables in it, say one of the names."""
    waiting: list[ast.AST] = [node]
    seen: set[str] = set()
    while waiting:
        for inner in ast.walk(waiting.pop()):
            if isinstance(inner, ast.Name):
                if inner.id in wanted:
                    return True
                if inner.id in names.values and inner.id not in seen:
                    seen.add(inner.id)
                    waiting.append(names.values[inner.id])
    return False
