"""Rules about the ops that Python code names: does the kernel register them?

What is registered is read off the native sources, or off a variant's libraries, and off the Python code itself. Where
any of it cannot be read, nothing is called missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from importlib import resources
from typing import NamedTuple

from kernel_builder.check.library_ops import may_name, op_names
from kernel_builder.check.model import Finding, Settings, Severity, checks, few, rule
from kernel_builder.check.python_facts import (
    GENERATED_OPS,
    Dotted,
    Guard,
    Import,
    Module,
    Package,
    Position,
    dotted_name,
    package_of,
    pairs,
)
from kernel_builder.check.python_names import FullNames
from kernel_builder.check.python_rules import allowed_modules
from kernel_builder.check.subject import PythonTree
from kernel_builder.check.syntax import everything, walk
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import FrameworkKind
from kernel_builder.interface.native import ops_of, other_files
from kernel_builder.variants.names import ArchVariant, TvmFfiTag

MISSING = rule(
    "KB207",
    "missing-op",
    Severity.ERROR,
    summary="Python code uses only ops that the kernel registers",
    rationale=(
        "The op does not exist: using it raises an AttributeError, and code that is registered for it never runs."
    ),
    remedy="Fix the name, or define the op.",
    source="docs/requirements.md, 'Op namespace'",
)
FIXED = rule(
    "KB208",
    "fixed-namespace-use",
    Severity.ERROR,
    summary="Python code uses ops of the kernel and of torch only, and the kernel's through ._ops",
    rationale=(
        "The kernel's op namespace differs in every version, so the namespace written here does not exist: using it "
        "raises an AttributeError, or runs the ops of a package that happens to be installed."
    ),
    remedy="Write: from ._ops import ops, and use ops.<name>.",
    source="docs/requirements.md, 'Op namespace'",
)
FIXED_GUARDED = rule(
    "KB209",
    "fixed-namespace-use-guarded",
    Severity.WARNING,
    summary="Python code does not use ops of others, not even where it handles failure",
    rationale="Whether the op exists depends on what else is installed; for most users this code never runs.",
    remedy="Write: from ._ops import ops, and use ops.<name>; or remove it.",
    source="docs/requirements.md, 'Op namespace'",
)

_DEVICES = re.compile(
    rb"\bis_(?:%s)\b|\bdevice_?type\b|\bdevice\.type\b|\bis_available\s*\(|\btorch\.version\.|\bget_device_capability\b"
    % "|".join(sorted({backend.torch.device for backend in Backend})).encode()
)
"""How Python code asks for a device: then it may name ops that only other variants of the kernel have."""
_OPS, _PREFIX = "ops", "add_op_namespace_prefix"
_NO_OPS = frozenset({"name"})
"""Attributes of a namespace that are no ops."""
_SPLITS = frozenset({"split", "rsplit", "partition", "rpartition"})
_DEEPEST = 8
_FOR_OPS = frozenset(
    {"register_fake", "register_kernel", "register_autograd", "register_autocast", "register_vmap", "impl_abstract"}
    | {"register_torch_dispatch", "impl", "opcheck"}
)
"""Functions of ``torch.library``, and methods of its objects, that want an op that is defined elsewhere."""
_DEFINING = frozenset(
    f"{home}.{name}"
    for home in ("torch.library", "torch._library.custom_ops", "torch._library.triton", "torch._custom_op.impl")
    for name in ("custom_op", "triton_op", "define")
)


@cache
def torch_namespaces() -> frozenset[str]:
    """Namespaces of torch's own ops, and attributes of ``torch.ops`` that are none."""
    text = resources.files("kernel_builder.data").joinpath("torch_namespaces.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


@dataclass(frozen=True, kw_only=True)
class Use:
    """An op of the kernel that Python code names; ``how`` it is written."""

    module: Module
    op: str
    how: str
    line: int
    place: Position


_OWN = "\1"
"""Stands for the kernel's namespace in texts: ``ops.name``."""


class _Reader:
    """What one module says about the kernel's ops."""

    def __init__(self, generated: _Generated, module: Module, own_id: str | None) -> None:
        self.module = module
        self.names = generated.names[module.name]
        self._generated = generated
        self._own_id = own_id
        self._tree = module.source.tree
        self._modules = _module_names(module)
        self._siblings = generated.siblings(module)
        self._spaces, self._prefixes = self._bound()

    def _bound(self) -> tuple[frozenset[str], frozenset[str]]:
        """Local names of the generated ``ops`` and of ``add_op_namespace_prefix``; not those that mean more."""
        none: frozenset[str] = frozenset()
        spaces = set(self._generated.spaces.get(self.module.name, none))
        prefixes = set(self._generated.prefixes.get(self.module.name, none))
        for _ in range(3 if self._mentions_any(spaces, prefixes) else 0):  # a = ops; b = a
            for name, value in self.names.values.items():
                if self._is_space(value, spaces):
                    spaces.add(name)
                elif isinstance(value, ast.Name) and value.id in prefixes:
                    prefixes.add(name)
        other = _bound_otherwise(self._tree) if spaces or prefixes else frozenset()
        return frozenset(spaces - other), frozenset(prefixes - other)

    def _is_space(self, node: ast.AST | None, spaces: set[str] | frozenset[str] | None = None, depth: int = 0) -> bool:
        """Whether an expression means the kernel's namespace."""
        known = self._spaces if spaces is None else spaces
        for further in range(depth, _DEEPEST):
            if node is None or self._is_named_space(node, known, further):
                return node is not None
            node = self.names.behind(node)
        return False

    def _is_named_space(self, node: ast.AST, known: set[str] | frozenset[str], depth: int) -> bool:
        if isinstance(node, ast.Name):
            return node.id in known
        if self._own_id is not None and self.names.of(node) == f"torch.ops.{self._own_id}":
            return True
        if isinstance(node, ast.IfExp):
            branches = [one for one in (node.body, node.orelse) if not isinstance(one, ast.Constant)]
            return bool(branches) and all(self._is_space(branch, known, depth + 1) for branch in branches)
        base, attribute = self._attribute(node)
        if attribute == _OPS and self._is_generated(base):
            return True
        sibling = self._siblings.get(dotted_name(base) or "")
        return sibling is not None and attribute in self._generated.spaces.get(sibling, ())

    def _attribute(self, node: ast.AST) -> tuple[ast.expr | None, str | None]:
        """``(x, name)`` of ``x.name`` and ``getattr(x, "name")``, where the name is one."""
        if isinstance(node, ast.Attribute):
            return node.value, node.attr
        if isinstance(node, ast.Call) and dotted_name(node.func) == "getattr" and len(node.args) == 2:
            return node.args[0], self.names.texts.one(node.args[1])
        return None, None

    def _is_generated(self, node: ast.AST | None, depth: int = 0) -> bool:
        """Whether an expression means the generated module ``_ops``."""
        name = dotted_name(node)
        if name is not None and name in self._modules:
            return True
        if isinstance(node, ast.Call) and "importlib.import_module" in self.names.candidates(node.func):
            return any(text == f".{GENERATED_OPS}" for text in self.names.texts.of(node.args[0] if node.args else None))
        behind = self.names.behind(node)
        return isinstance(behind, ast.Call) and depth < _DEEPEST and self._is_generated(behind, depth + 1)

    def _names_own(self, call: ast.Call) -> ast.expr | None:
        """The argument of a call of ``add_op_namespace_prefix``."""
        name = dotted_name(call.func) or ""
        home, _, last = name.rpartition(".")
        if name in self._prefixes or (last == _PREFIX and home in self._modules):
            return call.args[0] if call.args else next((word.value for word in call.keywords), None)
        return None

    def _known(self, node: ast.expr) -> tuple[str, ...] | None:
        """The texts that only this module's own names tell: the kernel's namespace, and what is in it."""
        if isinstance(node, ast.Attribute) and node.attr in _NO_OPS and self._is_space(node.value):
            return (_OWN,)
        split = node.value.func if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) else None
        named = split.value if isinstance(split, ast.Attribute) and split.attr in _SPLITS else None
        if isinstance(named, ast.Attribute) and named.attr == "__name__" and self._is_space(named.value):
            return (_OWN,)
        given = self._names_own(node) if isinstance(node, ast.Call) else None
        if given is None:
            return None
        return tuple(f"{_OWN}::{text}" for text in self.names.texts.of(given, self._known))

    def _own_ops(self, node: ast.AST | None) -> Iterator[str]:
        """The kernel's ops that a qualified name means: ``f"{ops.name}::f"``."""
        for text in self.names.texts.exact(node, self._known):
            namespace, separator, rest = text.partition("::")
            if separator and namespace in {_OWN, self._own_id}:
                yield from _op_in(rest)

    @cached_property
    def _registered_for(self) -> frozenset[int]:
        """The calls of ``add_op_namespace_prefix`` for ops that must exist, such as those of ``register_fake``.

        What is given to a function that is not known may register the op.
        """
        found: set[int] = set()
        for here in self.module.source.by_line.values():
            for node, _place in here:
                if not isinstance(node, ast.Call) or not self._needs_op(node):
                    continue
                waiting: list[ast.AST] = [*node.args[:1], *(word.value for word in node.keywords)]
                for _ in range(_DEEPEST):
                    inside = [inner for given in waiting for inner in walk(given)]
                    found.update(map(id, inside))
                    waiting = [one for inner in inside if (one := self.names.behind(inner)) and id(one) not in found]
        return frozenset(found)

    def _needs_op(self, call: ast.Call) -> bool:
        """Whether a call registers something for an op that is there already."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else None
        names = {name.rsplit(".", 1)[-1] for name in self.names.candidates(call.func) if name.startswith("torch.")}
        return bool(({last} | names) & _FOR_OPS)

    @property
    def _mentions_ops(self) -> bool:
        return self._mentions_any(self._spaces, self._prefixes)

    def _mentions_any(self, spaces: Collection[str], prefixes: Collection[str]) -> bool:
        """Whether there is a way to the kernel's ops in this module."""
        source = self.module.file.source
        by_id = self._own_id is not None and self._own_id.encode() in source
        by_string = b"import_module" in source and GENERATED_OPS.encode() in source
        return bool(spaces or prefixes or self._modules or self._siblings or by_id or by_string)

    def uses(self) -> Iterator[Use]:
        """Every op that the module names, where the name can be read."""
        if not self._mentions_ops:
            return
        for here in self.module.source.by_line.values():
            for node, place in here:
                for op in self._used(node):
                    how = ast.unparse(node)
                    yield Use(module=self.module, op=op, how=how, line=getattr(node, "lineno", 1), place=place)

    def _used(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Attribute):
            is_op = isinstance(node.ctx, ast.Load) and node.attr not in _NO_OPS and not node.attr.startswith("__")
            if is_op and self._is_space(node.value):
                yield node.attr
        if not isinstance(node, ast.Call):
            return
        function = dotted_name(node.func)
        if function == "getattr" and len(node.args) == 2 and self._is_space(node.args[0]):
            yield from self._listed(node.args[1])
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "__getattr__" and len(node.args) == 1:
            yield from self._listed(node.args[0]) if self._is_space(node.func.value) else ()
        elif self._getter(node) is not None and self._is_space(node.args[0]):
            yield from self._listed(self._getter(node))
        elif self._needs_op(node):
            for given in (*node.args[:1], *(word.value for word in node.keywords)):
                yield from self._own_ops(given)
            if self._is_own_library(node.func):
                yield from self._listed(node.args[0] if node.args else None)

    def _listed(self, node: ast.AST | None) -> Iterator[str]:
        """The ops of a text that names them without a namespace."""
        for text in self.names.texts.exact(node, self._known):
            yield from _op_in(text)

    def _getter(self, call: ast.Call) -> ast.expr | None:
        """The name that ``operator.attrgetter(name)(x)`` asks ``x`` for."""
        getter = self.names.behind(call.func) or call.func
        if isinstance(getter, ast.Call) and len(getter.args) == len(call.args) == 1:
            return getter.args[0] if "operator.attrgetter" in self.names.candidates(getter.func) else None
        return None

    def _is_own_library(self, function: ast.expr) -> bool:
        """Whether ``function`` is a method of a ``torch.library.Library`` of the kernel's namespace."""
        library = function.value if isinstance(function, ast.Attribute) else None
        for _ in range(_DEEPEST):
            if isinstance(library, ast.Call) and "torch.library.Library" in self.names.candidates(library.func):
                given = library.args[0] if library.args else None
                return self.names.texts.exact(given, self._known) in {(_OWN,), (self._own_id,)}
            library = self.names.behind(library)
        return False

    def probed(self) -> Iterator[str]:
        """Ops that the module asks for with ``hasattr``, or ``getattr`` with a default, those that it sets, and those
        that it may register by way of functions that are not known.
        """
        if not self._mentions_ops:
            return
        for here in self.module.source.by_line.values():
            for node, _place in here:
                if (
                    isinstance(node, ast.Attribute)
                    and not isinstance(node.ctx, ast.Load)
                    and self._is_space(node.value)
                ):
                    yield node.attr
                elif isinstance(node, ast.Call) and id(node) not in self._registered_for and self._names_own(node):
                    yield from self._own_ops(node)
                elif isinstance(node, ast.Call) and len(node.args) > 1 and self._is_space(node.args[0]):
                    function = dotted_name(node.func)
                    probes = function in {"hasattr", "setattr"} or (function == "getattr" and len(node.args) > 2)
                    yield from self.names.texts.exact(node.args[1]) if probes else ()

    def defined(self) -> Iterator[str | None]:
        """Ops that the module registers; ``None`` for one whose name cannot be read."""
        if not any(word in self.module.file.source for word in (b"define", b"custom_op", b"triton_op")):
            return
        for node in everything(self._tree):
            if not isinstance(node, ast.Call):
                continue
            function = self.names.candidates(node.func)
            by_torch = bool(_DEFINING.intersection(function))
            by_library = isinstance(node.func, ast.Attribute) and node.func.attr == "define" and not function
            if by_torch or by_library:
                given = node.args[0] if node.args else None
                words = {word.arg: word.value for word in node.keywords}
                yield from self._defined(given or words.get("name") or words.get("schema") or words.get("qualname"))
            elif "functools.partial" not in function and any(
                _DEFINING.intersection(self.names.candidates(argument)) for argument in node.args
            ):
                yield None  # registers by way of something else

    def _defined(self, node: ast.expr | None) -> Iterator[str | None]:
        """``f`` of ``prefix("f")``, ``"f(Tensor x) -> Tensor"`` and ``"namespace::f"``."""
        texts = self.names.texts.of(node, self._known)
        if not texts:
            yield None
        for text in texts:
            yield next(_op_in(text.split("(", 1)[0].rsplit("::", 1)[-1]), None)


def _op_in(text: str) -> Iterator[str]:
    """The op of ``f``, ``f.overload`` and ``f(Tensor x) -> Tensor``."""
    name = text.split("(", 1)[0].split(".", 1)[0].strip()
    if name.isidentifier():
        yield name


@dataclass(frozen=True, kw_only=True)
class _Generated:
    """What the modules of a package call the generated names: by module, the local names of ``ops`` and of
    ``add_op_namespace_prefix``, taken from ``_ops`` or by way of other modules.
    """

    package: Package
    names: Mapping[Dotted, FullNames]
    spaces: Mapping[Dotted, frozenset[str]]
    prefixes: Mapping[Dotted, frozenset[str]]

    def siblings(self, module: Module) -> dict[str, Dotted]:
        """Local names of other modules of the package that have a name for ``ops`` -> which modules these are."""
        found: dict[str, Dotted] = {}
        for node, _place in module.source.nodes:
            target = module.resolve(_import_of(node)) if isinstance(node, ast.ImportFrom) and node.level else None
            for alias in node.names if isinstance(node, ast.ImportFrom) and target is not None else ():
                name = (*(target or ()), alias.name)
                if name in self.spaces and name in self.package.modules:
                    found[alias.asname or alias.name] = name
        other = _bound_otherwise(module.source.tree) if found else frozenset()
        return {local: name for local, name in found.items() if local not in other}

    @classmethod
    def of(cls, package: Package) -> _Generated:
        """Follow the relative imports of all modules, and what they assign."""
        taken = [
            _Taken(name, module.resolve(_import_of(node)), alias.name, alias.asname or alias.name)
            for name, module in package.modules.items()
            for node, _place in module.source.nodes
            if isinstance(node, ast.ImportFrom) and node.level
            for alias in node.names
        ]
        full = {name: FullNames(module.source) for name, module in package.modules.items()}
        assigned = [
            (name, local, value)
            for name in dict.fromkeys(entry.module for entry in taken)
            for local, value in full[name].values.items()
            if isinstance(value, ast.Name | ast.Attribute)
        ]
        found = [_spread(package, taken, assigned, wanted) for wanted in (_OPS, _PREFIX)]
        return cls(package=package, names=full, spaces=found[0], prefixes=found[1])


class _Taken(NamedTuple):
    """One name in a relative import: ``module`` takes ``name`` from ``target`` and calls it ``local``."""

    module: Dotted
    target: Dotted | None
    name: str
    local: str


def _spread(
    package: Package, taken: Sequence[_Taken], assigned: Sequence[tuple[Dotted, str, ast.expr]], wanted: str
) -> Mapping[Dotted, frozenset[str]]:
    """Module -> its names for ``wanted`` of the generated module."""
    names: dict[Dotted, set[str]] = {(GENERATED_OPS,): {wanted}}
    otherwise: dict[Dotted, frozenset[str]] = {}

    def add(module: Dotted, new: set[str]) -> bool:
        new = new - names.get(module, set())
        if new and module not in otherwise:
            otherwise[module] = _bound_otherwise(package.modules[module].source.tree)
        new -= otherwise.get(module, frozenset())
        names.setdefault(module, set()).update(new)
        return bool(new)

    changed = True
    while changed:
        changed = False
        for entry in taken:
            offered: set[str] = set()
            if entry.target is not None and entry.target != entry.module:
                offered = names.get(entry.target, offered)
            if entry.name == "*" or entry.name in offered:
                changed |= add(entry.module, set(offered) if entry.name == "*" else {entry.local})
        for module, local, value in assigned:
            said = dotted_name(value) or ""
            whole = {f"{name}.{wanted}" for name in _module_names(package.modules[module])} if "." in said else ()
            if said in names.get(module, ()) or said in whole:
                changed |= add(module, {local})
    return {name: frozenset(local) for name, local in names.items() if local}


def _import_of(node: ast.ImportFrom) -> Import:
    return Import(
        line=node.lineno,
        column=node.col_offset + 1,
        level=node.level,
        module=node.module or "",
        guard=Guard.IMPORT,
        node=node,
    )


def _module_names(module: Module) -> frozenset[str]:
    """Names of the generated module itself: ``from . import _ops``."""
    return frozenset(
        alias.asname or alias.name
        for node, _place in module.source.nodes
        if isinstance(node, ast.ImportFrom) and node.level and not node.module
        for alias in node.names
        if alias.name == GENERATED_OPS
    )


def _bound_otherwise(tree: ast.Module | None) -> frozenset[str]:
    """Names that a module gives other meanings: parameters, loop variables, definitions, other imports.

    ``ops = None`` beside an import is none.
    """
    found: set[str] = set()
    for node in everything(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            found.update(inner.id for inner in walk(node.target) if isinstance(inner, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import):
            found.update(alias.asname or alias.name.split(".", 1)[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            found.add(node.optional_vars.id)
        elif isinstance(node, ast.Assign):
            for name, value in (pair for target in node.targets for pair in pairs(target, node.value)):
                is_none = isinstance(value, ast.Constant) and value.value is None
                if not is_none and not isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.IfExp):
                    found.add(name)
    return frozenset(found)


# --- the kernel's own ops ---


@checks(PythonTree, MISSING)
def missing_ops(tree: PythonTree, settings: Settings) -> Iterator[Finding]:
    """Ops that are named and registered nowhere. One finding for each op of a file."""
    if _has_other_ops(tree):
        return
    package, own_id = package_of(tree), tree.variant.id if tree.variant is not None else None
    generated = _Generated.of(package)
    readers = [
        _Reader(generated, module, own_id)
        for module in package.modules.values()
        if module.source.tree is not None
        if module.name != (GENERATED_OPS,)
    ]
    in_python = [name for reader in readers for name in reader.defined()]
    registered = _Registered(tree, settings)
    if None in in_python or not any(True for reader in readers for _ in reader.uses()) or not registered.is_known:
        return
    known = {*(name for name in in_python if name), *(name for reader in readers for name in reader.probed())}
    for reader in readers:
        told: set[str] = set()
        for use in reader.uses():
            if use.op in told or use.op in known or use.place.handled or use.place.guard is Guard.TYPING:
                continue
            if registered.has(use.op):
                continue
            told.add(use.op)
            unlisted = registered.unlisted.get(use.op)
            near = get_close_matches(use.op, sorted(known | registered.names), n=1, cutoff=0.6)
            said = f"{use.how}: the kernel registers no op {use.op}" + (f"; did you mean {near[0]}?" if near else "")
            yield MISSING.at(
                reader.module.file,
                said if registered.is_sure else f"{said} (in this variant)",
                line=use.line,
                symbol=use.op,
                severity=None if registered.is_sure else Severity.WARNING,
                hint=f"{unlisted} defines it: add that file to 'src' in build.toml" if unlisted else None,
            )


@checks(PythonTree, MISSING)
def missing_in_generated(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``_ops.core``: attributes that the generated module does not have."""
    package = package_of(tree)
    known = package.names_of((GENERATED_OPS,))
    if known is None:
        return
    for module in package.modules.values():
        names = _module_names(module)
        names -= _bound_otherwise(module.source.tree) if names else frozenset()
        uses = [
            (node, place)
            for here in (module.source.by_line.values() if names else ())
            for node, place in here
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
        ]
        set_here = {node.attr for node, _ in uses if not isinstance(node.ctx, ast.Load)}
        for node, place in uses:
            if node.attr in known | set_here or node.attr.startswith("__") or place.handled:
                continue
            if place.guard is not Guard.TYPING:
                said = f"{ast.unparse(node)}: {GENERATED_OPS} defines no {node.attr}"
                hint = f"write: {ast.unparse(node.value)}.{_OPS}.{node.attr}"
                yield MISSING.at(module.file, said, line=node.lineno, symbol=node.attr, hint=hint)


def _has_other_ops(tree: PythonTree) -> bool:
    """Whether the kernel's ops are not torch's."""
    if tree.variant is not None:
        named = tree.variant.variant
        return isinstance(named, ArchVariant) and isinstance(named.tag, TvmFfiTag)
    project = tree.source.draft if tree.source is not None else None
    return project is None or project.framework.kind is FrameworkKind.TVM_FFI


class _Registered:
    """What native code registers, as far as it is asked for: reading sources and libraries takes its time."""

    def __init__(self, tree: PythonTree, settings: Settings) -> None:
        self._tree = tree
        variant = tree.variant
        folder = variant.folder if variant is not None else None
        self._variants = folder.variants if folder is not None else (variant,) if variant is not None else ()
        loaded = [settings.evidence.get(one.name) for one in self._variants]
        # What loading showed is exact; bytes are searched where a variant was not loaded.
        self._loaded = {op.short.split(".", 1)[0] for result in loaded if result is not None for op in result.ops}
        self._libraries = tuple(
            library
            for one, result in zip(self._variants, loaded, strict=True)
            if result is None or not result.loaded
            for library in one.libraries
        )

    @cached_property
    def _in_sources(self) -> frozenset[str] | None:
        source = self._tree.source
        return ops_of(source.compiled) if source is not None and source.knows_all_sources else None

    @cached_property
    def unlisted(self) -> Mapping[str, str]:
        """Ops that sources define which ``build.toml`` does not list -> the source."""
        project = self._tree.source.draft if self._tree.source is not None else None
        files = () if project is None or self._tree.variant is not None else other_files(project)
        return {op: file.path for file in files for op in ops_of([file]) or ()}

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare with."""
        if self._tree.variant is None:
            return self._in_sources is not None
        return all(library.error is None for library in self._libraries)

    @cached_property
    def is_sure(self) -> bool:
        """Whether this is all that any variant registers: the sources are there, variants for several backends are, or
        the Python code never asks what device it is on.
        """
        backends = {variant.backend for variant in self._variants}
        return (
            self._in_sources is not None
            or len(backends) > 1
            or not any(_DEVICES.search(file.source) for file in self._tree.files)
        )

    @property
    def names(self) -> frozenset[str]:
        """The names that can be listed."""
        listed = {name for library in self._libraries for name in op_names(library)}
        return frozenset(listed | self._loaded | (self._in_sources or frozenset()))

    def has(self, op: str) -> bool:
        """Whether the op is registered, or may be."""
        if op in self._loaded or any(may_name(library, op) for library in self._libraries):
            return True
        return self._in_sources is not None and op in self._in_sources


# --- ops of others ---


@dataclass(frozen=True, kw_only=True)
class _Named:
    """An op of a namespace, or the namespace alone (``of_op``: which it is), that a module names."""

    namespace: str
    how: str
    line: int
    of_op: bool
    is_soft: bool


@checks(PythonTree, FIXED, FIXED_GUARDED)
def fixed_namespaces(tree: PythonTree, _settings: Settings) -> Iterator[Finding]:
    """``torch.ops.<namespace>`` that is neither torch's nor the kernel's. One finding for each of a file."""
    allowed = torch_namespaces() | allowed_modules(tree).modules
    if tree.variant is not None:
        # Where the metadata do not say the kernel's own, they have a finding; the generated module says it, too.
        generated = package_of(tree).modules.get((GENERATED_OPS,)) if tree.variant.id is None else None
        own = {named.namespace for named in _named_namespaces(generated)} if generated is not None else set()
        allowed |= own | ({tree.variant.id} if tree.variant.id is not None else set())
    for module in package_of(tree).modules.values():
        if b"torch" not in module.file.source or not _may_name_namespaces(module):
            continue
        found: dict[str, list[_Named]] = {}
        for named in _named_namespaces(module):
            if named.namespace not in allowed and not named.namespace.startswith("__"):
                found.setdefault(named.namespace, []).append(named)
        for namespace, every in found.items():
            # A namespace alone raises nothing; its ops do.
            uses = [named for named in every if named.of_op] or every
            hard = [named for named in uses if not named.is_soft]
            first = (hard or uses)[0]
            others = [str(line) for line in sorted({named.line for named in uses} - {first.line})]
            more = f"; also in line{'s' * (len(others) > 1)} {few(others)}" if others else ""
            said = f"{first.how}: {namespace!r} is neither torch's nor the kernel's op namespace{more}"
            yield (FIXED if hard else FIXED_GUARDED).at(module.file, said, line=first.line, symbol=namespace)


_OPS_WORD = re.compile(rb"(?<![.\w])ops\b|[\w)\]]\s*\.\s*_?ops\b")


def _may_name_namespaces(module: Module) -> bool:
    """Whether it is worth looking: the module imports torch, and says ``ops``, not only in relative imports."""
    return _OPS_WORD.search(module.file.source) is not None and any(
        entry.top == "torch" and not entry.level for entry in module.source.imports
    )


def _named_namespaces(module: Module) -> Iterator[_Named]:
    names = FullNames(module.source)
    nodes = [(node, place) for here in module.source.by_line.values() for node, place in here]
    registering: set[int] = set()  # what a registration names is judged with it
    probed: set[str] = set()
    for node, _place in nodes:
        if not isinstance(node, ast.Call):
            continue
        if any(name.startswith("torch.library.") for name in names.candidates(node.func)):
            registering.update(id(inner) for argument in node.args for inner in walk(argument))
        probed.update(_probed(node, names))
    for node, place in nodes:
        if not isinstance(node, ast.Attribute | ast.Name | ast.Call | ast.Subscript) or id(node) in registering:
            continue
        if place.guard is Guard.TYPING or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            continue
        for parts in map(_parts_of, names.candidates(node)):
            if parts[:2] == ["torch", "ops"] and len(parts) in {3, 4}:
                soft = place.handled or parts[2] in probed
                how, of_op = ast.unparse(node), len(parts) == 4
                yield _Named(namespace=parts[2], how=how, line=node.lineno, of_op=of_op, is_soft=soft)


def _probed(call: ast.Call, names: FullNames) -> Iterator[str]:
    """The namespace that ``hasattr``, or ``getattr`` with a default, asks for."""
    function = dotted_name(call.func)
    if not (function == "hasattr" and len(call.args) == 2) and not (function == "getattr" and len(call.args) == 3):
        return
    parts = _parts_of(names.of(call.args[0]) or "")
    if parts[:2] == ["torch", "ops"]:
        yield from names.texts.exact(call.args[1]) if len(parts) == 2 else parts[2:3]


def _parts_of(name: str) -> list[str]:
    """The parts of a full name; ``torch._ops.ops`` is ``torch.ops``."""
    return re.sub(r"^torch\._ops\.ops\b", "torch.ops", name).split(".")
