"""An extension that setuptools builds becomes a kernel project: what can be read off is converted, the rest is listed.

Nothing of the extension runs: ``setup.py`` and Python files are parsed, native sources are read as text.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.known import spdx_of
from kernel_builder.interface.extension import ExtensionModule, SetupFile, read_setup
from kernel_builder.interface.native import SUFFIXES, NativeText, read_native
from kernel_builder.interface.pybind import BoundFunction, ModuleBlock, bound_functions, module_blocks
from kernel_builder.project.tree import native_files

_EXTENSION_HEADER = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)[<"]torch/extension\.h[>"]', re.MULTILINE)
_PYTHON_HEADER = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"](pybind11/[^>"]+|torch/python\.h|Python\.h)[>"].*\n?', re.MULTILINE
)
_PYTHON_NAMESPACE = re.compile(
    r"^[ \t]*(?:namespace\s+py\s*=\s*pybind11|using\s+namespace\s+pybind11[\w:]*)\s*;.*\n?", re.MULTILINE
)
_SPACE = re.compile(r"torch\.ops\.(?!load_library|aten|prim)(\w+)")
_REGISTERED = re.compile(r"\b(?:TORCH_LIBRARY\w*\s*\(|RegisterOperators\b)")
_TESTS = ("tests", "test")
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


def convert(source: Path, name: str, *, repo_id: str | None, license_id: str | None) -> Conversion:
    """Convert the extension in ``source`` to a kernel called ``name``, for ``repo_id``.

    Raises :class:`UsageError` where ``source`` has no ``setup.py`` that describes an extension, and ``OSError``.
    """
    setup = read_setup(source)
    decisions: list[str] = []
    texts = dict(_native(source, setup.extensions, decisions))
    read = {path: read_native(text) for path, text in texts.items()}
    blocks = module_blocks(read)
    if not blocks:
        decisions.append("no PYBIND11_MODULE was found: register the ops in torch-ext/torch_binding.cpp by hand")
    decisions += [
        f"{path} registers ops with torch by itself: move that to torch-ext/torch_binding.cpp"
        for path, native in read.items()
        if _REGISTERED.search(native.bare)
    ]
    functions, undecided = bound_functions(read, blocks)
    decisions += undecided
    native = {path: _without_python(path, text, read[path], blocks, decisions) for path, text in texts.items()}
    package, tests = _package(source, setup, name, functions, decisions)
    license_id = license_id or spdx_of(setup.license or "")
    if license_id is None:
        decisions.append("the license is not written as an SPDX identifier in setup.py: set general.license")
    files = {
        **native,
        **package,
        **tests,
        "torch-ext/torch_binding.cpp": _binding(setup, functions),
        "build.toml": _configuration(setup, name, repo_id, native, license_id or "other", decisions),
        ".gitignore": "__pycache__/\n/build/\n/.kernel-builder/\n/compile_commands.json\n",
        **_texts_of(source, ("LICENSE", "LICENSE.txt", "LICENSE.md", "README.md")),
    }
    told = tuple(dict.fromkeys(decisions))
    schemas = tuple(function.schema for function in functions)
    files[LIST] = _render("CONVERSION.md.j2", schemas=schemas, decisions=told, source=source.resolve().name)
    return Conversion(files=dict(sorted(files.items())), schemas=schemas, decisions=told)


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
        for word in extension.unknown:
            decisions.append(
                f"setup.py: {word} of {extension.name or 'an extension'} is computed or has no counterpart"
            )
        decisions += [
            f"setup.py adds {text} under a condition: write it where it holds" for text in extension.conditional
        ]
        if extension.libraries:
            decisions.append(f"setup.py: kernels link no libraries of the system: {', '.join(extension.libraries)}")
        missing = [path for path in extension.sources if not (source / path).is_file()]
        if missing:
            decisions.append(f"setup.py: these sources do not exist: {', '.join(missing)}")
        found = [path for path in extension.sources if path not in missing]
        if not found:
            found = [path for path in native_files(source) if path.endswith(SUFFIXES)]
            decisions.append("setup.py: its sources cannot be read off, so all that are in the directory are listed")
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
        decisions.append(f"{path} uses pybind11, which kernels cannot: replace what it does")
    return text.rstrip("\n") + "\n"


def _backends(setup: SetupFile) -> tuple[Backend, ...]:
    named = {backend for extension in setup.extensions for backend in extension.backends}
    return tuple(backend for backend in Backend if backend in named)


def _of_devices(path: str) -> tuple[Backend, ...]:
    """The backends in whose own language a source is; none for C++."""
    return tuple(backend for backend in Backend if path.endswith(backend.sources or ("\0",)))


def _binding(setup: SetupFile, functions: tuple[BoundFunction, ...]) -> str:
    backends = _backends(setup)
    registered = {
        backend: [
            function
            for function in functions
            if function.has_tensors and (not (own := _of_devices(function.defined_in or "")) or backend in own)
        ]
        for backend in backends
    }
    return _render(
        "torch_binding.cpp.j2",
        functions=[
            {
                "declaration": _declaration(function),
                "name": function.name,
                "schema": json.dumps(function.schema),
                "adapter": _adapter(function),
                "has_tensors": function.has_tensors,
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


def _declaration(function: BoundFunction) -> str:
    """The function as its sources define it."""

    def qualified(cxx: str) -> str:
        return re.sub(r"(?<![\w:])(Tensor|TensorList|IntArrayRef|Scalar)\b", r"at::\1", cxx)

    given = ", ".join(f"{qualified(parameter.cxx)} {parameter.name}" for parameter in function.parameters)
    text = f"{qualified(function.result)} {function.function}({given});"
    return f"namespace {function.namespace} {{ {text} }}" if function.namespace else text


def _adapter(function: BoundFunction) -> str:
    """A function with the types that torch passes, which calls it."""
    given = ", ".join(f"{parameter.type.native} {parameter.name}" for parameter in function.parameters)
    passed = ", ".join(parameter.type.expression.format(parameter.name) for parameter in function.parameters)
    called = f"{function.namespace}::{function.function}" if function.namespace else f"::{function.function}"
    returned = "" if function.returns.native == "void" else "return "
    return f"{function.returns.native} {function.name}({given}) {{ {returned}{called}({passed}); }}"


def _configuration(
    setup: SetupFile, name: str, repo_id: str | None, native: Mapping[str, str], license_id: str, decisions: list[str]
) -> str:
    include = sorted({path for extension in setup.extensions for path in extension.include})
    sections = []
    for backend in _backends(setup):
        own = [extension for extension in setup.extensions if backend in extension.backends]
        flags = [flag for extension in own for flag in extension.flags.get("cxx", ())]
        defines = [flag for extension in own for flag in extension.defines]
        device = [flag for extension in own for key, given in extension.flags.items() if key != "cxx" for flag in given]
        pattern = backend.architectures.flags if backend.architectures else None
        chosen = [flag for flag in device if pattern and re.match(pattern, flag)]
        if chosen:
            decisions.append(f"setup.py chooses architectures ({' '.join(chosen)}), which kernels are built for anyway")
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
        include=include,
        sections=sections,
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
        for file in sorted(package.rglob("*")):
            path = file.relative_to(package).as_posix()
            if file.suffix not in {".py", ".pyi"} and file.name != "py.typed":
                continue
            if file.name.startswith("test") or path.split("/")[0] in _TESTS:
                tests[f"tests/{file.name if file.name.startswith('test_') else f'test_{file.name}'}"] = _read(file)
            else:
                where = f"{target}/{path}"
                files[where] = _rewritten(_read(file), where, path, package.name, modules, decisions)
    if tests:
        tests["tests/conftest.py"] = _render("conftest.py.j2", name=old)
    else:
        decisions.append("no tests were found: write some in tests/")
    return files, tests


def _package_directory(source: Path, setup: SetupFile, modules: set[str]) -> Path | None:
    candidates = [name.split(".")[0] for name in sorted(modules) if "." in name]
    candidates += [(setup.name or "").replace("-", "_")]
    for place in (source, source / "src"):
        for name in candidates:
            if name and (place / name / "__init__.py").is_file():
                return place / name
    return None


def _rewritten(text: str, where: str, path: str, package: str, modules: set[str], decisions: list[str]) -> str:
    """A module with imports that hold wherever the kernel is loaded from."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        decisions.append(f"{where} cannot be parsed: fix its imports")
        return text
    dots = "." * (path.count("/") + 1)
    lines = text.splitlines(keepends=True)
    named: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            new = _import(node, dots, package, modules)
            if new is None:
                decisions.append(f"{where}:{node.lineno}: make this import relative, or take ops from ._ops")
            elif new:
                start, end = node.lineno - 1, (node.end_lineno or node.lineno) - 1
                indent = lines[start][: node.col_offset]
                lines[start : end + 1] = [f"{indent}{new}\n", *[""] * (end - start)]
        elif isinstance(node, ast.Attribute) and (match := _SPACE.fullmatch(ast.unparse(node))) is not None:
            named.setdefault(match[1], []).append(str(node.lineno))
    for space, found in named.items():
        decisions.append(
            f"{where}: write ops, of ._ops, instead of torch.ops.{space}, which has another name in every build"
            f" (lines {', '.join(sorted(set(found), key=int))})"
        )
    return "".join(lines)


def _import(node: ast.Import | ast.ImportFrom, dots: str, package: str, modules: set[str]) -> str | None:
    """What to write instead: nothing where the statement can stay, ``None`` where a person must decide."""
    if isinstance(node, ast.Import):
        ours = [alias for alias in node.names if alias.name in modules or alias.name.split(".")[0] == package]
        if not ours:
            return ""
        alias = ours[0]
        if len(node.names) > 1 or alias.name not in modules or ("." in alias.name and alias.asname is None):
            return None
        return f"from {dots}_ops import ops as {alias.asname or alias.name}"
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
        return (
            None
            if len(node.names) > 1
            else f"from {dots}_ops import ops as {node.names[0].asname or node.names[0].name}"
        )
    if node.level:
        return ""
    rest = full.removeprefix(package).removeprefix(".")
    return f"from {dots}{rest} import {names}"


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
