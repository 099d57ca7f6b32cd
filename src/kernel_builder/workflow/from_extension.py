"""An extension that setuptools builds becomes a kernel project: what can be read off is converted, the rest is listed.

Nothing of the extension runs: ``setup.py`` and Python files are parsed, native sources are read as text.
"""

from __future__ import annotations

import ast
import contextlib
import json
import posixpath
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.known import dependencies, spdx_of
from kernel_builder.errors import ConfigError, Diagnostic, Level
from kernel_builder.interface.extension import ExtensionModule, SetupFile, read_setup
from kernel_builder.interface.native import SUFFIXES, NativeText, closing, literal_at, read_native
from kernel_builder.interface.pybind import BoundFunction, ModuleBlock, bound_functions, module_blocks
from kernel_builder.project.tree import native_files
from kernel_builder.workflow.conformance import examine

_EXTENSION_HEADER = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)[<"]torch/extension\.h[>"]', re.MULTILINE)
_PYTHON_HEADER = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](pybind11/[^>"]+|torch/python\.h|Python\.h)[>"].*\n?', re.MULTILINE
)
_PYTHON_NAMESPACE = re.compile(
    r"^[ \t]*(?:namespace\s+py\s*=\s*pybind11|using\s+namespace\s+pybind11[\w:]*)\s*;.*\n?", re.MULTILINE
)
_SPACE = re.compile(r"torch\.ops\.(?!load_library|aten|prim)(\w+)")
_LIBRARY = re.compile(
    r"^([ \t]*)((?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?)([ \t]*\([ \t]*)(\w+)([ \t]*,)", re.MULTILINE
)
_OF_TORCH = frozenset({"_", "aten", "prim", "prims", "c10d"})
"""Namespaces that are torch's own."""
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_TEXTS = {
    "Apache-2.0": ("Apache License", "Version 2.0, January 2004"),
    "MIT": (
        "Permission is hereby granted, free of charge, to any person obtaining a copy",
        "The above copyright notice",
    ),
    "BSD-3-Clause": ("Redistributions of source code must retain", "Neither the name of"),
    "BSD-2-Clause": ("Redistributions of source code must retain", "in binary form must reproduce"),
    "ISC": ("Permission to use, copy, modify, and/or distribute this software for any purpose",),
    "MPL-2.0": ("Mozilla Public License Version 2.0",),
}
"""What texts of licenses say, the more particular first."""
_DEFINES = re.compile(r"(?:torch\.)?(?:library\.)?(?:custom_op|triton_op|define)")
"""What defines an op in Python."""
Change = tuple[ast.expr | ast.stmt, str]
"""What stands in a module, and what is written instead."""
_TESTS = ("tests", "test")
_IS_TEST = re.compile(r"test(?:_.*)?\.py|.*_test\.py")
"""What pytest takes for tests, and ``test.py``; ``testing.py`` is what a package has for them."""
LIST = "CONVERSION.md"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The new project's files (POSIX path -> text), its ops, and what a person must decide."""

    files: Mapping[str, str]
    schemas: tuple[str, ...]
    decisions: tuple[str, ...]


def name_of_extension(source: Path) -> str:
    """What the extension in ``source`` is called. Raises what :func:`read_setup` does."""
    setup = read_setup(source)
    return setup.name or setup.extensions[0].name.split(".")[0] or source.resolve().name


def convert(
    source: Path, name: str, environ: Mapping[str, str], *, repo_id: str | None, license_id: str | None
) -> Conversion:
    """Convert the extension in ``source`` to a kernel called ``name``, for ``repo_id``. Of ``environ``, what
    :func:`examine` reads counts, which looks for what would stop a build.

    Raises :class:`UsageError` where ``source`` has no ``setup.py`` that describes an extension, and ``OSError``.
    """
    setup = read_setup(source)
    decisions: list[str] = []
    texts = dict(_native(source, setup.extensions, decisions))
    read = {path: read_native(text) for path, text in texts.items()}
    blocks = module_blocks(read)
    spaces = _spaces(read)
    if not any(not block.is_empty for block in blocks) and not spaces:
        decisions.append(
            "no PYBIND11_MODULE and no TORCH_LIBRARY was found: register the ops in torch-ext/torch_binding.cpp by hand"
        )
    functions, undecided = bound_functions(read, blocks)
    decisions += undecided
    native = {
        path: _own_space(path, _without_python(path, text, read[path], blocks, decisions), decisions)
        for path, text in texts.items()
    }
    # Statements that register operators name the namespace in each: those of Python are found by what is in use.
    registered = spaces | {match for text in texts.values() for match in re.findall(r'\.op\(\s*"(\w+)::', text)}
    package, tests = _package(source, setup, name, functions, registered, decisions)
    license_id = license_id or _license(source, setup)
    if license_id is None:
        decisions.append(
            "setup.py has no SPDX identifier of a license, and no license text was recognized: set general.license"
        )
    files = {
        **native,
        **package,
        **tests,
        "torch-ext/torch_binding.cpp": _binding(setup, functions, is_fragment=bool(spaces)),
        "build.toml": _configuration(
            setup, name, repo_id, native, license_id or "other", _python_depends(package), decisions
        ),
        ".gitignore": "__pycache__/\n/build/\n/.kernel-builder/\n/compile_commands.json\n",
        **_texts_of(source, ("LICENSE", "LICENSE.txt", "LICENSE.md", "README.md")),
    }
    told = tuple(dict.fromkeys([*decisions, *_found_by_checks(files, environ)]))
    schemas = (*(function.schema for function in functions), *_own_schemas(read))
    files[LIST] = _render("CONVERSION.md.j2", schemas=schemas, decisions=told, source=source.resolve().name)
    return Conversion(files=dict(sorted(files.items())), schemas=schemas, decisions=told)


def _found_by_checks(files: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[str]:
    """What ``check-config`` is going to say of a project of these files (POSIX path -> text), with file and line."""
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
        root = Path(scratch).resolve()
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        try:
            found = examine(root, environ).all_diagnostics
        except ConfigError as error:
            found = (Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint),)
    for one in found:
        head, _, hint = one.render().replace(f"{root}/", "").partition("\n")
        hint = " ".join(hint.split())
        yield f"{head}. {hint[0].upper()}{hint[1:]}" if hint else head


def _license(source: Path, setup: SetupFile) -> str | None:
    """The license that setup.py names, else the one whose text is in the directory."""
    for word in (setup.license or "", *setup.classifiers):
        found = spdx_of(word.strip()) or _CLASSIFIERS.get(word.rpartition("::")[2].strip())
        if found is not None:
            return found
    for file in sorted(source.glob("LICEN[SC]E*")):
        text = " ".join(_read(file).split()) if file.is_file() else ""
        for license_id, words in _TEXTS.items():
            if all(word in text for word in words):
                return license_id
    return None


def _spaces(read: Mapping[str, NativeText]) -> set[str]:
    """The namespaces that sources register ops in by themselves."""
    found = {match[4] for native in read.values() for match in _LIBRARY.finditer(native.code)}
    return found - _OF_TORCH


def _own_schemas(read: Mapping[str, NativeText]) -> Iterator[str]:
    """The schemas that sources write out themselves, in the order of files."""
    for native in read.values():
        for match in _LIBRARY.finditer(native.code):
            if match[4] in _OF_TORCH or match[2].endswith("_IMPL"):
                continue
            brace = native.bare.find("{", match.end())
            block = native.code[brace : closing(native.bare, brace)]
            for call in re.finditer(r"\.\s*def\s*\(", block):
                schema = literal_at(block, call.end())[0]
                if "(" in schema:
                    yield schema


def _own_space(path: str, text: str, decisions: list[str]) -> str:
    """A source whose ops go to the kernel's own namespace, which is another one in every build."""

    def expanded(match: re.Match[str]) -> str:
        if match[4] in _OF_TORCH:
            decisions.append(f"{path} changes ops of torch ({match[4]}) for the whole process: remove that")
            return match[0]
        return f"{match[1]}{match[2]}_EXPAND{match[3]}TORCH_EXTENSION_NAME{match[5]}"

    changed = _LIBRARY.sub(expanded, text)
    if "_EXPAND" not in changed or changed == text:
        return text
    return f'#include "registration.h"\n{changed}'


def _python_name(name: str) -> str:
    return name.replace("-", "_")


def _read(file: Path) -> str:
    data = file.read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _texts_of(source: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: _read(source / name) for name in names if (source / name).is_file()}


def _native(source: Path, extensions: tuple[ExtensionModule, ...], decisions: list[str]) -> Iterator[tuple[str, str]]:
    """Sources and the headers of the extension that they include, each once."""
    wanted: list[str] = []
    for extension in extensions:
        owner = extension.name or "an extension"
        decisions += [f"setup.py: {word} of {owner} is computed" for word in extension.unknown]
        decisions += [f"setup.py: {word} of {owner} has no counterpart" for word in extension.foreign]
        decisions += [
            f"setup.py adds {text} under a condition: write it where it holds"
            for text in extension.conditional
            if not _chooses_architectures(text) and not _macros_of_device(text, extension.backends)
        ]
        decisions += [f"setup.py: {text}" for text in extension.assumed]
        absent = [path for path in extension.include if not any((source / path).glob("*"))]
        if absent:
            decisions.append(
                "setup.py: these header directories are missing or empty (git submodules that were not fetched?): "
                f"{', '.join(absent)}"
            )
        if extension.libraries:
            decisions.append(f"setup.py: kernels cannot link system libraries: {', '.join(extension.libraries)}")
        missing = [path for path in extension.sources if not (source / path).is_file()]
        if missing:
            decisions.append(f"setup.py: these sources do not exist: {', '.join(missing)}")
        found = [path for path in extension.sources if path not in missing]
        if not found:
            found = [path for path in native_files(source) if path.endswith(SUFFIXES)]
            decisions.append(
                "setup.py: its list of sources could not be determined, so all sources in the directory are listed"
            )
        wanted += found
    folders = ["", *(path for extension in extensions for path in extension.include)]
    seen: set[str] = set()
    while wanted:
        path = wanted.pop(0)
        if path in seen:
            continue
        seen.add(path)
        text = _read(source / path)
        yield path, text
        for include in read_native(text).includes:
            for folder in (posixpath.dirname(path), *folders):
                relative = posixpath.normpath(posixpath.join(folder, include.path))
                if not relative.startswith((".", "/")) and (source / relative).is_file():
                    wanted.append(relative)
                    break


def _chooses_architectures(text: str) -> bool:
    """Whether what ``setup.py`` adds only says which devices are compiled for."""
    words = re.findall(r"""['"]([^'"]+)['"]""", text)
    patterns = [backend.architectures.flags for backend in Backend if backend.architectures]
    return bool(words) and all(
        any(re.match(pattern, word) or re.match(pattern, f"-{word}") for pattern in patterns if pattern)
        for word in words
    )


def _macros_of_device(text: str, backends: tuple[Backend, ...]) -> Mapping[Backend, tuple[str, ...]]:
    """What is defined for one device alone, where the names say which: ``[("WITH_CUDA", None)]``."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {}
    names = [pair[0] for pair in value if isinstance(pair, tuple) and len(pair) == 2 and pair[1] is None]
    if not names or len(names) != len(value):
        return {}
    owners = [backend for backend in backends if all(f"WITH_{backend.value.upper()}" == str(name) for name in names)]
    return {owners[0]: tuple(f"-D{name}" for name in names)} if len(owners) == 1 else {}


def _without_python(
    path: str, text: str, native: NativeText, blocks: tuple[ModuleBlock, ...], decisions: list[str]
) -> str:
    """A source without its module and what only that needs."""
    lines = text.splitlines(keepends=True)
    for block in (block for block in blocks if block.path == path):
        for number in range(native.line(block.start), native.line(block.end - 1) + 1):
            lines[number - 1] = ""
    text = _EXTENSION_HEADER.sub(r"\1<torch/all.h>", "".join(lines))
    text = _PYTHON_NAMESPACE.sub("", _PYTHON_HEADER.sub("", text))
    if re.search(r"\bpy(?:bind11)?::", read_native(text).bare):
        decisions.append(f"{path} uses pybind11, which kernels cannot use: replace it")
    return text.rstrip("\n") + "\n"


def _backends(setup: SetupFile) -> tuple[Backend, ...]:
    named = {backend for extension in setup.extensions for backend in extension.backends}
    return tuple(backend for backend in Backend if backend in named)


def _of_devices(path: str) -> tuple[Backend, ...]:
    """The backends in whose own language a source is; none for C++."""
    return tuple(backend for backend in Backend if path.endswith(backend.sources or ("\0",)))


def _binding(setup: SetupFile, functions: tuple[BoundFunction, ...], *, is_fragment: bool) -> str:
    backends = _backends(setup)
    registered = {
        backend: [
            function
            for function in functions
            if _has_implementations(function)
            and (not (own := _of_devices(function.defined_in or "")) or backend in own)
        ]
        for backend in backends
    }
    return _render(
        "torch_binding.cpp.j2",
        is_fragment=is_fragment,
        functions=[
            {
                "declaration": _declaration(function),
                "name": function.name,
                "schema": json.dumps(function.schema),
                "adapter": _adapter(function),
                "has_implementations": _has_implementations(function),
            }
            for function in functions
        ],
        backends=[
            {
                "macro": f"{backend.value.upper()}_KERNEL",
                "key": backend.torch.dispatch_key,
                "names": [function.name for function in registered[backend]],
            }
            for backend in backends
        ],
    )


def _has_implementations(function: BoundFunction) -> bool:
    """Whether torch chooses one by the arguments; else the function is what it is for every device."""
    return function.has_tensors and not function.has_gradient


def _declaration(function: BoundFunction) -> str:
    """The function as its sources define it."""

    def qualified(cxx: str) -> str:
        cxx = re.sub(r"(?<![\w:])(Tensor|TensorList|IntArrayRef|Scalar|ScalarType|ArrayRef)\b", r"at::\1", cxx)
        return re.sub(r"(?<![\w:])(optional|vector|tuple|pair|string)\b", r"std::\1", cxx)

    given = ", ".join(f"{qualified(parameter.cxx)} {parameter.name}" for parameter in function.parameters)
    text = f"{qualified(function.result)} {function.function}({given});"
    return f"namespace {function.namespace} {{ {text} }}" if function.namespace else text


def _adapter(function: BoundFunction) -> str:
    """A function with the types that torch passes, which calls it."""
    given = ", ".join(f"{parameter.type.native} {parameter.name}" for parameter in function.parameters)
    passed = ", ".join(parameter.type.expression.format(parameter.name) for parameter in function.parameters)
    called = f"{function.namespace}::{function.function}" if function.namespace else f"::{function.function}"
    returned = "" if function.returns.native == "void" else "return "
    checks = "".join(
        f'TORCH_CHECK({one.name}.size() == {one.type.length}, "{one.name}: expected {one.type.length} numbers"); '
        for one in function.parameters
        if one.type.length is not None
    )
    return f"{function.returns.native} {function.name}({given}) {{ {checks}{returned}{called}({passed}); }}"


def _python_depends(package: Mapping[str, str]) -> tuple[str, ...]:
    """The packages that its Python modules import, of those that a kernel may declare for every backend."""
    known = {entry.module: name for name, entry in dependencies().python_table(None).items() if entry.module}
    found: set[str] = set()
    for text in package.values():
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(text)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                found |= {known[name.split(".")[0]] for name in names if name.split(".")[0] in known}
    return tuple(sorted(found))


def _configuration(
    setup: SetupFile,
    name: str,
    repo_id: str | None,
    native: Mapping[str, str],
    license_id: str,
    python_depends: tuple[str, ...],
    decisions: list[str],
) -> str:
    include = sorted({path for extension in setup.extensions for path in extension.include if _has(native, path)})
    sections = []
    for backend in _backends(setup):
        own = [extension for extension in setup.extensions if backend in extension.backends]
        flags = [flag for extension in own for flag in extension.flags.get("cxx", ())]
        defines = [flag for extension in own for flag in extension.defines]
        for extension in own:
            for text in extension.conditional:
                defines += _macros_of_device(text, extension.backends).get(backend, ())
        device = [flag for extension in own for key, given in extension.flags.items() if key != "cxx" for flag in given]
        pattern = backend.architectures.flags if backend.architectures else None
        chosen = [flag for flag in device if pattern and (re.match(pattern, flag) or re.match(pattern, f"-{flag}"))]
        if chosen:
            decisions.append(
                f"setup.py chooses architectures ({' '.join(chosen)}); kernels are built for all of them anyway"
            )
        key = backend.key(Role.FLAGS)
        sections.append(
            {
                "id": f"{_python_name(name)}_{backend.value}",
                "backend": backend.value,
                "src": [path for path in sorted(native) if _belongs(path, backend)],
                "include": include,
                "cxx_flags": list(dict.fromkeys((*flags, *defines))),
                "flags_key": key.name if key and backend.sources else None,
                "flags": list(dict.fromkeys(flag for flag in (*device, *defines) if flag not in chosen)),
            }
        )
    return _render(
        "build.toml.j2",
        name=name,
        repo_id=repo_id,
        version=int(re.match(r"\d+", setup.version or "")[0]) or 1 if re.match(r"\d+", setup.version or "") else 1,  # type: ignore[index]
        license=license_id,
        python_depends=python_depends,
        include=include,
        sections=sections,
    )


def _has(native: Mapping[str, str], folder: str) -> bool:
    """Whether a source or header of the kernel is below ``folder``; of the top: whether one is included from there."""
    if folder != ".":
        return any(path.startswith(f"{folder}/") for path in native)
    return any(
        include.path in native
        and posixpath.normpath(posixpath.join(posixpath.dirname(path), include.path)) not in native
        for path, text in native.items()
        for include in read_native(text).includes
    )


def _belongs(path: str, backend: Backend) -> bool:
    own = _of_devices(path)
    return not own or backend in own


# --- Python ---


def _package(
    source: Path,
    setup: SetupFile,
    name: str,
    functions: tuple[BoundFunction, ...],
    spaces: set[str],
    decisions: list[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """The Python package in its new place, and its tests."""
    modules = {extension.name for extension in setup.extensions if extension.name}
    package = _package_directory(source, setup, modules)
    target = f"torch-ext/{_python_name(name)}"
    tests: dict[str, str] = {}
    for directory in _TESTS:
        for file in sorted((source / directory).rglob("*.py")):
            tests[f"tests/{file.relative_to(source / directory).as_posix()}"] = _read(file)
    files: dict[str, str] = {}
    if package is None:
        files[f"{target}/__init__.py"] = _render("init.py.j2", name=name, functions=functions)
        old = min(modules) if modules else _python_name(name)
    else:
        old = package.name
        spaces = spaces | _python_spaces(package)
        for file in sorted(package.rglob("*")):
            path = file.relative_to(package).as_posix()
            if file.suffix not in {".py", ".pyi"} and file.name != "py.typed":
                continue
            if _IS_TEST.fullmatch(file.name) or path.split("/")[0] in _TESTS:
                tests[f"tests/{file.name if file.name.startswith('test_') else f'test_{file.name}'}"] = _read(file)
            else:
                where = f"{target}/{path}"
                files[where] = _rewritten(_read(file), where, path, package.name, modules, spaces, decisions)
    if tests:
        tests["tests/conftest.py"] = _render("conftest.py.j2", name=old)
    else:
        decisions.append("no tests were found: write some in tests/")
    return files, tests


def _python_spaces(package: Path) -> set[str]:
    """The namespaces that the modules of ``package`` define ops in."""
    found: set[str] = set()
    for file in package.rglob("*.py"):
        with contextlib.suppress(SyntaxError, ValueError):
            tree = ast.parse(_read(file))
            texts = _constants(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and node.args and _DEFINES.fullmatch(ast.unparse(node.func)):
                    space, mark, _ = _text(node.args[0], texts).partition("::")
                    found |= {space} if mark else set()
    return found


def _constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module gives names to."""
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _text(node: ast.expr, texts: Mapping[str, str]) -> str:
    """A literal, or an f-string of literals and ``texts``; empty where that cannot be told."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return texts.get(ast.unparse(node.value), "") if node.conversion == -1 and node.format_spec is None else ""
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [_text(one, texts) for one in node.values]
    return "".join(parts) if all(parts) else ""


def _package_directory(source: Path, setup: SetupFile, modules: set[str]) -> Path | None:
    candidates = [name.split(".")[0] for name in sorted(modules) if "." in name]
    candidates += [(setup.name or "").replace("-", "_")]
    for place in (source, source / "src"):
        for name in candidates:
            if name and (place / name / "__init__.py").is_file():
                return place / name
    return None


def _rewritten(
    text: str, where: str, path: str, package: str, modules: set[str], spaces: set[str], decisions: list[str]
) -> str:
    """A module with imports that hold wherever the kernel is loaded from, and ops of its own namespace."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        decisions.append(f"{where} cannot be parsed: fix its imports")
        return text
    dots = "." * (path.count("/") + 1)
    ops = _own_ops(tree, where, spaces, decisions)
    places, own = _own_modules(tree, dots, package, modules)
    changes: list[Change] = [*ops, *places]
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import | ast.ImportFrom) and statement not in own:
            new = _import(statement, dots, package, modules)
            if new is None:
                decisions.append(f"{where}:{statement.lineno}: make this import relative, or take ops from ._ops")
            elif new:
                changes.append((statement, new))
    lines = text.splitlines(keepends=True)
    for node, new in sorted(changes, key=lambda change: (change[0].lineno, change[0].col_offset), reverse=True):
        _replace(lines, node, new)
    needed = {new.partition("(")[0] for _, new in ops}
    if needed:
        lines.insert(_first_statement(tree), f"from {dots}_ops import {', '.join(sorted(needed))}\n")
    return "".join(lines)


def _own_ops(tree: ast.Module, where: str, spaces: set[str], decisions: list[str]) -> list[Change]:
    """What names ops of ``spaces``, as ops of the kernel's own namespace, which are in ``._ops``."""
    changes: list[Change] = []
    foreign: dict[str, set[int]] = {}
    texts = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (match := _SPACE.fullmatch(ast.unparse(node))) is not None:
            if match[1] in spaces:
                changes.append((node, "ops"))
            else:
                foreign.setdefault(match[1], set()).add(node.lineno)
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            space, mark, op = _text(node, texts).partition("::")
            if mark and space in spaces and re.fullmatch(r"[\w.]+", op):
                changes.append((node, f'add_op_namespace_prefix("{op}")'))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.ops.load_library":
            decisions.append(f"{where}:{node.lineno} loads a library itself: remove that, importing ops does it")
    decisions += [
        f"{where}: write ops, of ._ops, instead of torch.ops.{space}, which has another name in every build"
        f" (lines {', '.join(map(str, sorted(found)))})"
        for space, found in foreign.items()
    ]
    return changes


def _own_modules(tree: ast.Module, dots: str, package: str, modules: set[str]) -> tuple[list[Change], list[ast.Import]]:
    """``import package.module`` as ``from . import module as _module``, with what uses it, where the package's name is
    used for nothing else; and these imports.
    """
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    named = {node.names[0].name: node for node in imports if len(node.names) == 1 and node.names[0].asname is None}
    ours = {name: node for name, node in named.items() if name.startswith(f"{package}.") and name not in modules}
    places = {name: f"_{name.removeprefix(f'{package}.').replace('.', '_')}" for name in ours}
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node) in places]
    taken = {name for node in ast.walk(tree) for name in (getattr(node, "id", None), getattr(node, "name", None))}
    heads = sum(isinstance(node, ast.Name) and node.id == package for node in ast.walk(tree))
    if not ours or heads != len(uses) or taken & {*places.values()}:
        return [], []
    changes: list[Change] = [(use, places[ast.unparse(use)]) for use in uses]
    for name, node in ours.items():
        inside, _, module = name.removeprefix(f"{package}.").rpartition(".")
        changes.append((node, f"from {dots}{inside} import {module} as {places[name]}"))
    return changes, [*ours.values()]


def _replace(lines: list[str], node: ast.expr | ast.stmt, new: str) -> None:
    """Write ``new`` where ``node`` is; its lines stay as many as they are. Columns of a syntax tree count bytes."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    lines[first : last + 1] = [*[""] * (last - first), f"{head}{new}{tail}"]


def _first_statement(tree: ast.Module) -> int:
    """The index of the line where an import can be added: behind the text of the module and ``__future__``."""
    at = 0
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        at = node.end_lineno or at
    return at


def _import(node: ast.Import | ast.ImportFrom, dots: str, package: str, modules: set[str]) -> str | None:
    """What to write instead: nothing where the statement can stay, ``None`` where a person must decide."""
    if isinstance(node, ast.Import):
        ours = [alias for alias in node.names if alias.name in modules or alias.name.split(".")[0] == package]
        if not ours:
            return ""
        alias = ours[0]
        if len(node.names) > 1 or ("." in alias.name and alias.asname is None):
            return None
        if alias.name in modules:
            return f"from {dots}_ops import ops as {alias.asname or alias.name}"
        parent, mark, last = alias.name.rpartition(".")
        return f"from {_relative(parent, 0, dots, package)} import {last} as {alias.asname}" if mark else None
    full = node.module or ""
    if node.level == 0 and full.split(".")[0] != package and full not in modules:
        return ""
    inside = full if node.level == 0 else f"{package}.{full}".rstrip(".")
    names = ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in node.names)
    if inside in modules:  # functions of the extension are attributes of its ops
        taken = "; ".join(f"{alias.asname or alias.name} = ops.{alias.name}" for alias in node.names)
        return f"from {dots}_ops import ops; {taken}"
    extensions = [alias for alias in node.names if f"{inside}.{alias.name}" in modules]
    if extensions:
        statements = [f"from {dots}_ops import ops as {alias.asname or alias.name}" for alias in extensions]
        rest = [alias for alias in node.names if alias not in extensions]
        if rest:
            names = ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in rest)
            statements.append(f"from {_relative(full, node.level, dots, package)} import {names}")
        return "; ".join(statements)
    return "" if node.level else f"from {_relative(full, 0, dots, package)} import {names}"


def _relative(module: str, level: int, dots: str, package: str) -> str:
    """Where ``from <level dots>module`` imports from, seen from the module that it is in."""
    return f"{'.' * level}{module}" if level else f"{dots}{module.removeprefix(package).removeprefix('.')}"


def _render(template: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/extension"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (source code, not HTML)
    )
    return environment.get_template(template).render(**values)
