"""Rules about the Python code of kernels: the version it runs on, what it imports, what it offers.

Source of most: the requirements page ("Python requirements"). Imports of the kernel itself are relative, because the
client loads every version of a kernel under a name of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from kernel_builder.check.model import Finding, Rule, Settings, Severity, checks, rule
from kernel_builder.check.python_facts import (
    GENERATED_OPS,
    Dotted,
    Guard,
    Import,
    Module,
    Package,
    PythonSource,
    dotted_name,
    package_of,
)
from kernel_builder.check.python_version import (
    may_be_newer,
    newer_features,
    spared_by,
    syntax_needs,
    syntax_problem,
)
from kernel_builder.check.stdlib import MODULES, REMOVED
from kernel_builder.check.subject import PythonFile, PythonTree
from kernel_builder.config.backends import Backend
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import FrameworkKind
from kernel_builder.variants.names import ArchVariant, TvmFfiTag

SYNTAX = rule(
    "KB301",
    "python-syntax",
    Severity.ERROR,
    summary="Every Python file parses with the oldest supported Python",
    rationale="Kernels must work with Python 3.9 and later; an older Python than the syntax cannot import the file.",
    remedy="Write it in the older syntax, or accept it in kernel-builder.toml with a reason.",
    source="docs/requirements.md, 'Python code'",
    acceptable=True,
)
NEWER = rule(
    "KB302",
    "python-newer",
    Severity.ERROR,
    summary="Importing the kernel needs nothing newer than the oldest supported Python",
    rationale="That Python cannot import the kernel: the name is missing, or 'int | None' raises a TypeError.",
    remedy="Use the older spelling ('Optional[int]', or 'from __future__ import annotations' at the top of the file),"
    " or branch on sys.version_info.",
    source="docs/requirements.md, 'Python code'",
    acceptable=True,
)
NEWER_LATER = rule(
    "KB303",
    "python-newer-later",
    Severity.WARNING,
    summary="No code needs anything newer than the oldest supported Python",
    rationale="The kernel can be imported with that Python, but fails when this code runs.",
    remedy="Use the older spelling, or branch on sys.version_info.",
    source="docs/requirements.md, 'Python code'",
)
REMOVED_MODULE = rule(
    "KB304",
    "python-removed-module",
    Severity.ERROR,
    summary="Importing the kernel needs no module that a later Python removed",
    rationale="Kernels must work with Python 3.9 and later; later versions do not have this module.",
    remedy="Use its successor, or catch the ImportError.",
    source="docs/requirements.md, 'Python code'",
)
INVALID = rule(
    "KB305",
    "python-invalid",
    Severity.ERROR,
    summary="Every Python file can be read and is valid Python",
    rationale="No Python can import it, whatever its version.",
    remedy="Fix the syntax; 'python -m py_compile FILE' shows the place.",
    source="the Python language reference",
)
SELF_IMPORT = rule(
    "KB310",
    "absolute-self-import",
    Severity.ERROR,
    summary="The kernel imports its own modules with relative imports",
    rationale="The client loads a kernel under a unique name, so that versions can coexist: the absolute"
    " name finds nothing, or an installed package of that name, whose code runs instead of the kernel's.",
    remedy="Write a relative import.",
    source="docs/requirements.md, 'Python code'",
)
GUARDED_SELF_IMPORT = rule(
    "KB311",
    "guarded-self-import",
    Severity.WARNING,
    summary="The kernel never imports its own modules by absolute name, not even where it handles failure",
    rationale="Under the name the client gives it, the kernel never finds them, so that code never runs; or"
    " it finds an installed package of that name.",
    remedy="Write a relative import, or build the name from __package__.",
    source="docs/requirements.md, 'Python code'",
)
UNDECLARED = rule(
    "KB312",
    "undeclared-import",
    Severity.ERROR,
    summary="Importing the kernel needs only the standard library, torch, triton and declared dependencies",
    rationale=(
        "Users have torch and what python-depends declares (the client tells them to install it); if anything else "
        "is missing, the kernel cannot be imported."
    ),
    remedy="Avoid it, vendor it with relative imports, import it in the function that needs it, or declare it in"
    " python-depends, where that is allowed.",
    source="docs/requirements.md, 'Python code'",
)
OPTIONAL = rule(
    "KB313",
    "optional-import",
    Severity.WARNING,
    summary="Code that runs later or conditionally needs no undeclared packages either",
    rationale="Users may not have it; then this part of the kernel does not work.",
    remedy="Avoid it, vendor it with relative imports, or declare it in python-depends, where that is allowed.",
    source="docs/requirements.md, 'Python code'",
)
UNRESOLVED = rule(
    "KB314",
    "unresolved-import",
    Severity.ERROR,
    summary="Relative imports resolve, including those in functions",
    rationale="The import fails, and so does whatever needs it: importing the kernel, or calling the function.",
    remedy="Fix the number of dots or the name, or add the file.",
    source="docs/requirements.md, 'Python code'",
)
UNRESOLVED_GUARDED = rule(
    "KB315",
    "unresolved-import-guarded",
    Severity.WARNING,
    summary="Relative imports resolve even if they are for type checkers or their failure is handled",
    rationale="They never find anything, so the code that relies on them never runs.",
    remedy="Fix the number of dots or the name, add the file, or remove the import.",
    source="docs/requirements.md, 'Python code'",
)
TRITON = rule(
    "KB316",
    "triton-without-gpu",
    Severity.WARNING,
    summary=f"Importing a kernel for {' or '.join(b for b in Backend if b.torch.triton is False)} does not need triton",
    rationale=f"Only torch builds for {', '.join(b.label for b in Backend if b.torch.triton)} include triton; with the"
    " builds that load these variants, the import fails.",
    remedy="Import triton only where a GPU is used, or remove the backend from build.toml.",
    source="torch's package requirements; measured: an environment without a GPU has no triton",
)
SHADOWING = rule(
    "KB320",
    "shadows-stdlib",
    Severity.ERROR,
    summary="No top-level module of the package is named like a standard library module",
    rationale=(
        "Tests put a variant's directory on PYTHONPATH, and its files are at the top level: Python and torch would "
        "import this file instead of the standard module."
    ),
    remedy="Rename the module, and update its imports.",
    source="docs/requirements.md, 'Python code'",
    acceptable=True,
)
NO_ALL = rule(
    "KB330",
    "no-all",
    Severity.WARNING,
    summary="The package's __init__.py has __all__",
    rationale="It defines the kernel's public interface; the kernel's page on the Hub lists these functions.",
    remedy="Add __all__ = [...] with the names of the public functions.",
    source="docs/requirements.md, 'Python code'",
)
ALL_UNDEFINED = rule(
    "KB331",
    "all-undefined",
    Severity.WARNING,
    summary="__all__ lists names that exist",
    rationale="'from kernel import *' raises an error, and the kernel's page lists names that do not exist.",
    remedy="Fix or remove the entry; entries are strings.",
    source="the Python language reference, the import statement",
)
IMPURE_LAYER = rule(
    "KB340",
    "impure-layer",
    Severity.WARNING,
    summary="Layers are pure: they have a forward method, but no other state or methods",
    rationale="kernelize() puts a layer's forward into a module of the user's model, and rejects (TypeError) a layer"
    " with its own __init__ or with members that torch.nn.Module does not have.",
    remedy="Move state into the model and helpers into functions; has_backward and can_torch_compile are allowed.",
    source="docs/requirements.md, 'Python code'",
)
EXIT_ON_IMPORT = rule(
    "KB350",
    "exit-on-import",
    Severity.ERROR,
    summary="Importing the kernel does not exit the process",
    rationale="It terminates the user's program.",
    remedy="Raise an exception that says what is wrong.",
    source="reports on kernels that exit",
)
EXIT = rule(
    "KB351",
    "exit",
    Severity.WARNING,
    summary="No code in the kernel exits the process",
    rationale="It terminates the user's program, which cannot catch it like an error.",
    remedy="Raise an exception that says what is wrong.",
    source="reports on kernels that exit",
)

# --- versions ---


@checks(PythonTree, SYNTAX, INVALID)
def python_syntax(tree: PythonTree, settings: Settings) -> Iterator[Finding]:
    """Files that the oldest Python does not parse, apart from those that none does."""
    floor = f"{settings.python_floor[0]}.{settings.python_floor[1]}"
    for file in tree.files:
        if file.tree is None:
            yield _unparsed(file)
            continue
        problem = syntax_problem(file.source, settings.python_floor)
        if problem is None:
            continue
        needed = syntax_needs(file.source, settings.python_floor)
        spared = spared_by(needed, settings)
        since = f"{needed[0]}.{needed[1]}"
        yield SYNTAX.at(
            file,
            f"not valid Python {floor}, but {since}: {problem[0]}{spared or ''}",
            line=problem[1],
            severity=Severity.WARNING if spared else None,
        )


def _unparsed(file: PythonFile) -> Finding:
    """About a file that this Python does not parse."""
    said = file.error or "it cannot be read"
    if not may_be_newer(file.source, file.error_line, said):
        return INVALID.at(file, said, line=file.error_line)
    running = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return SYNTAX.at(
        file,
        f"{said}; {running}, which runs this check, cannot parse it, but a newer one may",
        line=file.error_line,
        hint="write it in the older syntax, or run the check with a newer Python",
    )


@checks(PythonTree, NEWER, NEWER_LATER)
def python_version(tree: PythonTree, settings: Settings) -> Iterator[Finding]:
    """Annotations and library names against the floor."""
    package = package_of(tree)
    floor = f"{settings.python_floor[0]}.{settings.python_floor[1]}"
    modules = {module.file.relative: module for module in package.modules.values()}
    for file in tree.files:
        module = modules.get(file.relative)
        if file.tree is None or module is None:
            continue
        told: set[str] = set()
        for entry in newer_features(file.source, module.source, settings.python_floor):
            if entry.place.guard is Guard.TYPING or entry.place.caught or entry.what in told:
                continue
            always = package.always_runs(module, entry.place.guard)
            if not always and entry.place.guard in {Guard.TRY, Guard.CONDITION}:
                continue
            told.add(entry.what)
            times = "" if entry.count == 1 else f" ({entry.count} times in this file)"
            since = f"{entry.version[0]}.{entry.version[1]}"
            spared = spared_by(entry.version, settings)
            yield (NEWER if always else NEWER_LATER).at(
                file,
                f"{entry.what} needs Python {since}{times}; kernels must work with {floor}{spared or ''}",
                line=entry.line,
                severity=None if spared is None else Severity.WARNING if always else Severity.NOTE,
            )


# --- imports ---

_TORCH = frozenset({"torch", "functorch", "torchgen"})
_TVM_FFI_USERS = frozenset({"jax", "jax_tvm_ffi", "numpy"})
"""What a tvm-ffi kernel may import where it can do without: frameworks that it serves besides torch."""
TORCH_BRINGS = frozenset({"typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "filelock", "mpmath"}).union(
    *(backend.torch.modules for backend in Backend)
)
"""Modules that torch's own requirements bring, in some builds at least."""

_WITHOUT_TRITON = frozenset(backend.value for backend in Backend if backend.torch.triton is False)


@dataclass(frozen=True, kw_only=True)
class AllowedModules:
    """What one kernel may import; ``guarded``: only where importing the kernel does not always run it. ``backends`` are
    those that it is for.
    """

    modules: frozenset[str]
    guarded: frozenset[str]
    backends: frozenset[str]


def allowed_modules(tree: PythonTree) -> AllowedModules:
    """What the kernel of ``tree`` may import."""
    known = dependencies()
    tables = [known.python_table(None), *(known.python_table(backend) for backend in Backend)]
    packages = {name: package for table in tables for name, package in table.items()}
    modules = set(_TORCH | {"triton"})
    for name in tree.depends or ():
        package = packages.get(name)
        modules.add(package.module if package is not None and package.module else name.replace("-", "_"))
        modules.update(package.brings if package is not None else ())
    backends: set[str] = set()
    guarded = frozenset[str]()
    if tree.variant is not None:
        if tree.variant.backend is not None:
            backends.add(tree.variant.backend)
        variant = tree.variant.variant
        if isinstance(variant, ArchVariant) and isinstance(variant.tag, TvmFfiTag):
            modules.add("tvm_ffi")
            guarded = _TVM_FFI_USERS
    elif tree.source is not None and tree.source.project is not None:
        project = tree.source.project
        backends.update(backend.value for backend in project.backends)
        if project.framework.kind is FrameworkKind.TVM_FFI:
            modules.add("tvm_ffi")
            guarded = _TVM_FFI_USERS
    modules.update(backend.torch.plugin for backend in Backend if backend.torch.plugin and backend in backends)
    return AllowedModules(modules=frozenset(modules), guarded=guarded, backends=frozenset(backends))


@checks(PythonTree, REMOVED_MODULE, SELF_IMPORT, GUARDED_SELF_IMPORT, UNDECLARED, OPTIONAL)
def absolute_imports(tree: PythonTree, settings: Settings) -> Iterator[Finding]:
    """Absolute imports, whatever their spelling. One finding per file and imported package."""
    package, allowed = package_of(tree), allowed_modules(tree)
    for module in package.modules.values():
        told: set[tuple[Rule, str]] = set()
        for entry in sorted(module.source.imports, key=lambda entry: (entry.guard, entry.line)):
            if entry.level or not entry.module:
                continue
            found = _judge(package, module, entry, allowed, settings)
            if found is None or (found.rule, entry.top) in told:
                continue
            if found.rule is not SELF_IMPORT:
                told.add((found.rule, entry.top))
                told.add((OPTIONAL, entry.top))
            yield found


def _judge(
    package: Package, module: Module, entry: Import, allowed: AllowedModules, settings: Settings
) -> Finding | None:
    top, always = entry.top, package.always_runs(module, entry.guard)
    if package.name is not None and top == package.name and top not in allowed.modules:
        return _self_import(package, module, entry)
    if entry.indirect:
        return None
    if entry.open_ended and "." not in entry.module and not entry.statement.count("."):
        return None  # only the beginning of a name is known
    if top in MODULES:
        removed = REMOVED.get(top)
        if always and removed is not None and removed > settings.python_floor and not entry.versioned:
            gone = f"{removed[0]}.{removed[1]}"
            return REMOVED_MODULE.at(
                module.file, f"{entry.statement}: Python {gone} has no module {top}", line=entry.line, symbol=top
            )
        return None
    if top in allowed.modules or (top in allowed.guarded and not always):
        return None
    return _undeclared(package, module, entry, always=always)


@checks(PythonTree, TRITON)
def triton_without_gpu(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """triton, needed by every import of a kernel that is for backends without it. One finding per kernel."""
    package = package_of(tree)
    lacking = sorted(allowed_modules(tree).backends & _WITHOUT_TRITON)
    if not lacking:
        return
    needing = [
        (module, entry)
        for module in package.modules.values()
        for entry in module.source.imports
        if not entry.level and entry.top == "triton" and package.always_runs(module, entry.guard)
    ]
    for module, entry in needing[:1]:
        files = {other.name for other, _ in needing}
        more = f", in {len(files)} files" if len(files) > 1 else ""
        said = f"{entry.statement} runs on every import{more}, but the kernel also supports {' and '.join(lacking)}"
        yield TRITON.at(module.file, said, line=entry.line, symbol="triton")


def _undeclared(package: Package, module: Module, entry: Import, *, always: bool) -> Finding | None:
    top = entry.top
    hint = None
    if (top,) in package.modules or (*module.package, top) in package.modules:
        here = (*module.package, top) in package.modules
        dots = "." * (1 if here else len(module.package) + 1)
        hint = (
            f"the kernel has a module of this name: write 'from {dots}{top} import ...' or 'from {dots} import {top}'"
        )
    if top in TORCH_BRINGS:
        how = f"{entry.statement}: torch installs {top} today, but does not guarantee it"
        return OPTIONAL.at(module.file, how, line=entry.line, symbol=top, hint=hint)
    if always:
        said = f"{entry.statement} runs on every import, but {top} is neither part of torch nor declared"
        return UNDECLARED.at(module.file, said, line=entry.line, symbol=top, hint=hint)
    if entry.versioned:
        return None
    when = {
        Guard.TYPING: "for type checkers",
        Guard.FUNCTION: "when a function is called",
        Guard.TRY: "where failure is handled",
        Guard.CONDITION: "under a condition",
    }.get(entry.guard, "in a module that importing the kernel does not always run")
    said = f"{entry.statement} ({when}): {top} is neither part of torch nor declared"
    return OPTIONAL.at(module.file, said, line=entry.line, symbol=top, hint=hint)


def _self_import(package: Package, module: Module, entry: Import) -> Finding:
    dots = "." * (len(module.package) + 1)
    rest = entry.module.partition(".")[2]
    target = tuple(rest.split(".")) if rest else ()
    if not entry.dynamic and _lacking(package, target, entry.names):
        hint = _instead_of_a_module(dots)
    elif entry.dynamic:
        hint = f"build the name from __package__, or use a relative import of {dots}{rest}"
    elif entry.names:
        hint = f"write: from {dots}{rest} import {', '.join(entry.names)}"
    elif rest:
        parent, _, last = rest.rpartition(".")
        name = entry.statement.partition(" as ")[2]
        hint = f"write: from {dots}{parent} import {last}{f' as {name}' if name not in {'', last} else ''}"
    else:
        hint = f"write: from {dots} import ..., with the names you use"
    soft = entry.caught or entry.indirect or entry.guard is Guard.TYPING
    which = GUARDED_SELF_IMPORT if soft else SELF_IMPORT
    said = f"{entry.statement}: the kernel imports itself by absolute name"
    return which.at(module.file, said, line=entry.line, symbol=entry.module, hint=hint)


@checks(PythonTree, UNRESOLVED, UNRESOLVED_GUARDED)
def relative_imports(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Relative imports that leave the package, or find no file, or no such name in it."""
    package = package_of(tree)
    for module in package.modules.values():
        for entry in module.source.imports:
            if not entry.level or entry.indirect:
                continue
            found = _unresolved(package, module, entry)
            if found is None:
                continue
            problem, lacking = found
            soft = entry.caught or entry.guard is Guard.TYPING
            dots = "." * (len(module.package) + 1)
            extension = any(_is_extension(name[-1]) for name in lacking)
            op = next((name[1] for name in lacking if name[0] == GENERATED_OPS and len(name) == 2), None)
            hint = _instead_of_a_module(dots) if extension else None
            yield (UNRESOLVED_GUARDED if soft else UNRESOLVED).at(
                module.file,
                f"{entry.statement}: {problem}",
                line=entry.line,
                symbol=entry.module or None,
                hint=hint if op is None else f"write: from {dots}{GENERATED_OPS} import ops, and call ops.{op}(...)",
            )


def _unresolved(package: Package, module: Module, entry: Import) -> tuple[str, tuple[Dotted, ...]] | None:
    """What is wrong with a relative import, and what it does not find; ``None`` when it resolves."""
    target = module.resolve(entry)
    if target is None:
        return "it has more dots than parent packages", ()
    if entry.dynamic and entry.open_ended:
        return None
    lacking = _lacking(package, target, entry.names)
    if not lacking:
        return None
    if len(lacking[0]) <= len(target):
        return f"the kernel has no module {'.'.join(lacking[0])}", lacking
    names = " and no ".join(name[-1] for name in lacking)
    module_there = package.modules.get(target)
    if module_there is not None and module_there.is_package:
        modules = " and no ".join(".".join(name) for name in lacking)
        return f"the kernel has no module {modules}, and {_init_of(target)} defines no {names}", lacking
    return f"{'.'.join(target)} defines no {names}", lacking


def _lacking(package: Package, target: Dotted, names: Sequence[str]) -> tuple[Dotted, ...]:
    """What an import of ``names`` from ``target`` does not find: the module or a package above it, or some names."""
    for length in range(1, len(target) + 1):
        if not package.exists(target[:length]):
            return (target[:length],)
    known = package.names_of(target)
    if known is None or "*" in names:
        return ()
    return tuple((*target, name) for name in names if name not in known and not package.exists((*target, name)))


def _is_extension(name: str) -> bool:
    """Whether a module is called as compiled ones are by those that build them with setuptools: ``_C``."""
    return name.startswith("_") and not name.startswith("__")


def _instead_of_a_module(dots: str) -> str:
    return f"write: from {dots}_ops import ops; the build makes no module of C++ functions: call its ops, ops.NAME(...)"


def _init_of(package: Dotted) -> str:
    return "/".join((*package, "__init__.py"))


# --- names ---


@checks(PythonTree, SHADOWING)
def shadowed_modules(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Modules at the top of the package that hide the standard library's."""
    for name, module in package_of(tree).modules.items():
        if len(name) == 1 and name[0] in MODULES:
            # With an underscore before them, some are modules of the standard library, too: _typing, _json.
            free = next(other for other in (f"_{name[0]}", f"{name[0]}_", f"my_{name[0]}") if other not in MODULES)
            yield SHADOWING.at(
                module.file,
                f"{name[0]} is also a standard library module",
                symbol=name[0],
                hint=f"rename it to {free}, for example, and what imports it",
            )


@checks(PythonTree, NO_ALL, ALL_UNDEFINED)
def public_names(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``__all__`` of the package."""
    package = package_of(tree)
    top = package.modules.get(())
    if top is None or top.source.tree is None:
        return
    entries, line, complete = _public(top.source)
    if line is None:
        yield NO_ALL.at(top.file, "__init__.py has no __all__")
        return
    known = package.names_of(())
    for entry in entries:
        if not (isinstance(entry, ast.Constant) and isinstance(entry.value, str)):
            if complete and isinstance(entry, ast.Name | ast.Attribute):
                said = f"__all__ contains {ast.unparse(entry)} itself, not its name"
                yield ALL_UNDEFINED.at(top.file, said, line=entry.lineno, symbol=ast.unparse(entry))
        elif known is not None and entry.value not in known and not package.exists((entry.value,)):
            said = f"__all__ lists {entry.value}, which the package does not define"
            yield ALL_UNDEFINED.at(top.file, said, line=entry.lineno, symbol=entry.value)


def _public(source: PythonSource) -> tuple[list[ast.expr], int | None, bool]:
    """``(entries, line of __all__, whether every part of it is a plain list)``."""
    entries: list[ast.expr] = []
    line: int | None = None
    complete = True
    for node, _place in source.nodes:
        value: ast.expr | None = None
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = node.value if any(dotted_name(target) == "__all__" for target in targets) else None
        elif (
            isinstance(node, ast.Call)
            and dotted_name(node.func) in {"__all__.extend", "__all__.append"}
            and len(node.args) == 1
        ):
            value = node.args[0]
            if dotted_name(node.func) == "__all__.append":
                value = ast.List(elts=[value], ctx=ast.Load(), lineno=node.lineno, col_offset=0)
        if value is None:
            continue
        line = line or getattr(node, "lineno", None)
        if isinstance(value, ast.List | ast.Tuple):
            entries += [entry for entry in value.elts if not isinstance(entry, ast.Starred)]
        else:
            complete = False
    if line is None:
        imported = any(
            isinstance(node, ast.ImportFrom) and any(alias.name == "__all__" for alias in node.names)
            for node, _place in source.nodes
        )
        return [], (1 if imported else None), False
    return entries, line, complete


# --- layers ---

_MODULE_BASES = frozenset({"Module", "nn.Module", "torch.nn.Module", "torch.nn.modules.module.Module"})
_ALLOWED_MEMBERS = frozenset({"has_backward", "can_torch_compile", "forward"})


@checks(PythonTree, IMPURE_LAYER)
def layers(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """Classes of ``layers`` that are torch modules; other classes there are no layers."""
    module = package_of(tree).modules.get(("layers",))
    if module is None or module.source.tree is None or not _offers_layers(package_of(tree)):
        return
    classes = {node.name: node for node in module.source.tree.body if isinstance(node, ast.ClassDef)}
    for layer in classes.values():
        if layer.name.startswith("_") or not _is_module(layer, classes, set()):
            continue
        for name, line in _extra_members(layer, classes, set()):
            what = "its own __init__" if name == "__init__" else f"a member {name}, which nn.Module does not have"
            yield IMPURE_LAYER.at(module.file, f"{layer.name} has {what}", line=line, symbol=f"{layer.name}.{name}")


def _offers_layers(package: Package) -> bool:
    """Whether ``layers`` is the kernel's offer of layers: it is public, or nothing says what is."""
    top = package.modules.get(())
    if top is None or top.source.tree is None:
        return False
    entries, line, complete = _public(top.source)
    names = {entry.value for entry in entries if isinstance(entry, ast.Constant)}
    return line is None or "layers" in names or not complete


def _is_module(node: ast.ClassDef, classes: dict[str, ast.ClassDef], seen: set[str]) -> bool:
    seen.add(node.name)
    for base in node.bases:
        name = dotted_name(base) or ""
        if name in _MODULE_BASES:
            return True
        if name in classes and name not in seen and _is_module(classes[name], classes, seen):
            return True
    return False


def _extra_members(node: ast.ClassDef, classes: dict[str, ast.ClassDef], seen: set[str]) -> Iterator[tuple[str, int]]:
    """Members of a layer, or of its bases in the same file, that a pure one has not."""
    seen.add(node.name)
    for statement in node.body:
        for name in _members(statement):
            if name == "__init__" or not (name in _ALLOWED_MEMBERS or name in _MODULE_MEMBERS or _is_dunder(name)):
                yield name, statement.lineno
    for base in node.bases:
        parent = classes.get(dotted_name(base) or "")
        if parent is not None and parent.name not in seen:
            yield from _extra_members(parent, classes, seen)


def _members(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return (statement.name,)
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None and isinstance(statement.target, ast.Name):
        return (statement.target.id,)
    return ()


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


_MODULE_MEMBERS = frozenset(
    resources.files("kernel_builder.data").joinpath("module_members.txt").read_text(encoding="utf-8").split()
)
"""Public members of ``torch.nn.Module``, which a layer may override."""

# --- ending the process ---

_EXITS = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})


@checks(PythonTree, EXIT_ON_IMPORT, EXIT)
def exits(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``sys.exit()`` and its like; not below ``if __name__ == "__main__"``, which never runs in a kernel."""
    package = package_of(tree)
    for module in package.modules.values():
        if module.name[-1:] == ("__main__",):
            continue
        for node, place in module.source.nodes:
            how = _exit_of(node, module.source.definitions)
            if how is None or place.guard is Guard.TYPING:
                continue
            always = package.always_runs(module, place.guard)
            line = getattr(node, "lineno", None)
            yield (EXIT_ON_IMPORT if always else EXIT).at(module.file, f"{how} ends the user's process", line=line)


def _exit_of(node: ast.AST, definitions: frozenset[str]) -> str | None:
    if isinstance(node, ast.Call):
        name = dotted_name(node.func)
        if name in _EXITS and name.split(".", 1)[0] not in definitions - {"sys", "os"}:
            return f"{name}()"
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if dotted_name(raised) == "SystemExit":
            return "raise SystemExit"
    return None
