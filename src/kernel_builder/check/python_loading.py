"""Rules about what Python code looks for on the user's machine: distributions, libraries, compilers.

A kernel is a folder that the client downloads: it is not installed, so it has no metadata; its library is loaded by
``._ops``; and users have neither the builder's paths nor a compiler.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from kernel_builder.check.model import Finding, Rule, Settings, Severity, checks, rule
from kernel_builder.check.python_facts import Guard, Module, Package, Position, dotted_name, package_of
from kernel_builder.check.python_names import FullNames
from kernel_builder.check.python_rules import TORCH_BRINGS, allowed_modules
from kernel_builder.check.python_texts import HOLE
from kernel_builder.check.stdlib import MODULES
from kernel_builder.check.subject import PythonTree
from kernel_builder.check.syntax import walk

METADATA = rule(
    "KB317",
    "distribution-metadata",
    Severity.ERROR,
    summary="Python code asks for metadata and files of installed packages only, never of the kernel by its own name",
    rationale="The client downloads a kernel and installs nothing: there is no distribution and no package of that"
    " name, and PackageNotFoundError or ModuleNotFoundError is raised.",
    remedy="Write the version into the package (__version__ = '1.2'), or read it from the kernel's metadata.json.",
    source="docs/requirements.md, 'Python code'",
)
METADATA_GUARDED = rule(
    "KB318",
    "distribution-metadata-guarded",
    Severity.WARNING,
    summary="Python code does not look for the kernel's own distribution, not even where it handles failure",
    rationale="There never is one, unless another package of that name happens to be installed.",
    remedy="Write the version into the package (__version__ = '1.2').",
    source="docs/requirements.md, 'Python code'",
)
LIBRARY = rule(
    "KB321",
    "loads-library",
    Severity.ERROR,
    summary="Python code loads no library of its own, and none by an absolute path on import",
    rationale=(
        "The kernel's library is loaded by ._ops, under the kernel's own namespace; other files and paths do not "
        "exist on users' machines, or register the same ops twice."
    ),
    remedy="Write: from ._ops import ops, and remove what loads the library.",
    source="docs/requirements.md, 'Python code'",
)
LIBRARY_LATER = rule(
    "KB322",
    "loads-library-later",
    Severity.WARNING,
    summary=(
        "Code that runs later, or whose failure is handled, loads no library of its own or by an absolute path either"
    ),
    rationale="The file does not exist on users' machines, so this part of the kernel does not work there.",
    remedy="Use ops of ._ops, or look the library up by its name.",
    source="docs/requirements.md, 'Python code'",
)
COMPILES = rule(
    "KB323",
    "compiles-on-import",
    Severity.ERROR,
    summary="Importing the kernel compiles no native code and starts no compiler",
    rationale="Users have no compiler, no toolkit and no headers; with them, the import takes minutes.",
    remedy="List the sources in build.toml, and use the ops of ._ops.",
    source="docs/requirements.md, 'Python code'",
)
COMPILES_LATER = rule(
    "KB324",
    "compiles-later",
    Severity.WARNING,
    summary="No code in the kernel compiles native code",
    rationale="Users may have no compiler, no toolkit and no headers, and then this part of the kernel does not work.",
    remedy="List the sources in build.toml, and use the ops of ._ops.",
    source="docs/requirements.md, 'Python code'",
)

_WORDS = (
    *(b"metadata", b"pkg_resources", b"load_library", b"CDLL", b"DLL", b"LoadLibrary", b"dlopen", b"cpp_extension"),
    *(b"load_inline", b"resources", b"pkgutil", b"subprocess", b"system", b"popen", b"exec", b"spawn"),
)
_METADATA = frozenset(
    {f"{home}.{name}" for home in ("importlib.metadata", "importlib_metadata")
     for name in ("version", "metadata", "distribution", "files", "requires", "Distribution.from_name")}
    | {"pkg_resources.get_distribution", "pkg_resources.require"}
)  # fmt: skip
_RESOURCES = frozenset(
    {f"{home}.{name}" for home in ("importlib.resources", "importlib_resources")
     for name in ("files", "path", "contents", "is_resource", "open_text", "open_binary", "read_text", "read_binary")}
    | {f"pkg_resources.resource_{name}" for name in ("filename", "string", "stream", "exists", "isdir", "listdir")}
    | {"pkgutil.get_data"}
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
_STARTERS = frozenset(
    {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen", "getoutput")}
    | {"subprocess.getstatusoutput", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"}
    | {f"os.{name}" for name in ("system", "popen", "posix_spawn", "posix_spawnp")}
    | {f"os.exec{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
)
_SPAWNERS = frozenset(f"os.spawn{end}" for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe"))
"""These are given a mode first."""
_WRAPPERS = frozenset({"env", "ccache", "sccache", "sudo", "nice", "time", "exec", "sh", "bash", "cmd"})
_ASKING = re.compile(r"-{1,2}(?:version|help|print-|dump|show|query)|-V$")
"""Options with which a compiler says something about itself."""
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
        """Whether its failure is handled, or it only runs when the user asks for it by an environment variable."""
        return self.place.caught or self.place.handled or self.place.asked or self.place.guard is Guard.TRY

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

    def at(self, which: Rule, said: str, symbol: str | None = None, hint: str | None = None) -> Finding:
        """A finding here."""
        return which.at(self.module.file, said, line=self.node.lineno, symbol=symbol, hint=hint)

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
    """``importlib.metadata.version("my-kernel")``, ``importlib.resources.files("my_kernel")`` and their like, in every
    spelling.
    """
    package = package_of(tree)
    installed = {_plain(name) for name in (*allowed_modules(tree).modules, *TORCH_BRINGS, *(tree.depends or ()))}
    for call in _calls(tree):
        of_files = bool(call.functions & _RESOURCES)
        if not (of_files or call.functions & _METADATA) or call.argument is None:
            continue
        name = call.names.texts.one(call.argument)
        asked = None if name is None else name.split(".", 1)[0] if of_files else re.split(r"[<>=!~ \[;]", name)[0]
        is_own = asked is not None and package.name is not None and _plain(asked) == _plain(package.name)
        if is_own or (not of_files and _mentions(call.argument, _OWN_NAMES, call.names)):
            said = f"{call.written}: the kernel is downloaded, not installed, so it has no metadata"
            if of_files:
                said = (
                    f"{call.written}: the client loads the kernel under another name, so no package is called {asked}"
                )
            hint = "write __package__ instead of the name, or begin at Path(__file__).parent" if of_files else None
            yield call.at(METADATA_GUARDED if call.is_soft else METADATA, said, name, hint)
            continue
        is_installed = asked is None or _plain(asked) in installed or (of_files and asked in MODULES)
        if not is_installed and package.always_runs(call.module, call.place.guard) and not call.is_soft:
            said = f"{call.written} runs on every import, but {asked} is neither part of torch nor declared"
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
    """``torch.utils.cpp_extension.load`` and ``load_inline``, and compilers that are started as programs."""
    for call in _calls(tree):
        if call.functions & _COMPILERS:
            said = f"{call.written} compiles native code on the user's machine"
            yield call.at(COMPILES if call.runs_on_import else COMPILES_LATER, said)
        elif call.functions & (_STARTERS | _SPAWNERS):
            found = _compiler_of(call)
            # What only asks for a version does no harm but where the import fails without the program.
            if found is not None and (call.runs_on_import or not found.only_asks):
                said = f"{call.written} starts {found.name} on the user's machine"
                yield call.at(COMPILES if call.runs_on_import else COMPILES_LATER, said, found.name)


@dataclass(frozen=True, kw_only=True)
class _Compiler:
    """A compiler that is started; ``only_asks``: for its version or the like."""

    name: str
    only_asks: bool


@cache
def _compilers() -> re.Pattern[str]:
    """The name of a program that compiles."""
    text = resources.files("kernel_builder.data").joinpath("compilers.txt").read_text(encoding="utf-8")
    names = "|".join(re.escape(line) for line in text.splitlines() if line and not line.startswith("#"))
    return re.compile(rf"(?:[\w.+]+-)*({names})(?:-?\d+(?:\.\d+)*)?(?:\.exe)?")


def _compiler_of(call: _Call) -> _Compiler | None:
    """The compiler that a call starts, as far as the command can be read."""
    words = {word.arg: word.value for word in call.node.keywords}
    given = call.node.args[1:] if call.functions & _SPAWNERS else call.node.args
    command = given[0] if given else words.get("args") or words.get("cmd")
    for part in _words_of(command, call.names):
        for text in call.names.texts.of(part, _default_of):
            for name, rest in _programs(text):
                if _compilers().fullmatch(name):
                    options = [*rest, *_constants(command), *_constants(*given[1:])]
                    return _Compiler(name=name, only_asks=any(_ASKING.match(option) for option in options))
    return None


def _words_of(node: ast.expr | None, names: FullNames, depth: int = 0) -> Iterator[ast.expr]:
    """The expressions in a command that can name a program: the first, and what follows ``env`` and its like."""
    if node is None or depth > _DEEPEST:
        return
    behind = names.behind(node)
    if behind is not None:
        yield from _words_of(behind, names, depth + 1)
    elif isinstance(node, ast.List | ast.Tuple) and node.elts:
        for word in node.elts:
            yield from _words_of(word, names, depth + 1)
            last = names.texts.one(word)
            if last is None or not (last in _WRAPPERS or last.startswith("-") or "=" in last):
                return
    elif isinstance(node, ast.BinOp) and isinstance(node.left, ast.List | ast.Tuple | ast.Name | ast.BinOp):
        is_text = bool(names.texts.of(node))
        yield from (node,) if is_text else _words_of(node.left, names, depth + 1)
    elif isinstance(node, ast.Starred):
        yield from _words_of(node.value, names, depth + 1)
    elif isinstance(node, ast.Call) and (dotted_name(node.func) or "").rsplit(".", 1)[-1] in _TAKING and node.args:
        yield from _words_of(node.args[0], names, depth + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        yield node.func.value
    elif isinstance(node, ast.BoolOp):
        for operand in node.values:
            yield from _words_of(operand, names, depth + 1)
    else:
        yield node


_DEEPEST = 6
_TAKING = frozenset({"which", "list", "tuple", "split", "str"})
"""Functions that give a command or a program, of their first argument."""


def _default_of(node: ast.expr) -> tuple[str, ...] | None:
    """``nvcc`` of ``os.environ.get("NVCC", "nvcc")``."""
    if isinstance(node, ast.Call) and (dotted_name(node.func) or "").rsplit(".", 1)[-1] in {"get", "getenv"}:
        default = node.args[1] if len(node.args) > 1 else None
        if isinstance(default, ast.Constant) and isinstance(default.value, str):
            return (default.value,)
    return None


def _programs(command: str) -> Iterator[tuple[str, list[str]]]:
    """``(name, what follows)`` of every program that a line of a shell starts; of a single path too."""
    for part in re.split(r"[;&|\n]+|\$\(", command):
        words = part.split()
        wrapped = False
        while words and (words[0] in _WRAPPERS or "=" in words[0] or (wrapped and words[0].startswith("-"))):
            wrapped, words = True, words[1:]
        if words:
            yield re.split(r"[/\\]", words[0].strip("\"'()"))[-1].replace(HOLE, ""), words[1:]


def _constants(*nodes: ast.expr | None) -> Iterator[str]:
    """Texts that are written in expressions."""
    for node in nodes:
        for inner in walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


# --- arguments ---


def _path_of(node: ast.expr, names: FullNames) -> str | None:
    """The beginning of a path: of texts, ``Path(...) / ...``, ``os.path.join(...)`` and ``str(...)``."""
    found = names.texts.of(node)
    return found[0].split(HOLE, 1)[0] if found else None


def _mentions(node: ast.expr, wanted: frozenset[str], names: FullNames) -> bool:
    """Whether an expression, or the variables in it, say one of the names."""
    waiting: list[ast.AST] = [node]
    seen: set[str] = set()
    while waiting:
        for inner in walk(waiting.pop()):
            if isinstance(inner, ast.Name):
                if inner.id in wanted:
                    return True
                if inner.id in names.values and inner.id not in seen:
                    seen.add(inner.id)
                    waiting.append(names.values[inner.id])
    return False
