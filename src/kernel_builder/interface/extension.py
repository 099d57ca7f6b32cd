"""What a ``setup.py`` says of its C++ extensions. It is parsed and never run, so only what it writes out is known."""

from __future__ import annotations

import ast
import contextlib
import os.path
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.config.backends import HOST, Backend
from kernel_builder.errors import UsageError
from kernel_builder.interface.native import SUFFIXES
from kernel_builder.interface.setup_script import Script
from kernel_builder.interface.setup_values import UNKNOWN, NotedDict, NotedList, noted
from kernel_builder.walking import relative_to

SETUP = "setup.py"
PROJECT = "pyproject.toml"
_KINDS = {backend.extension: backend for backend in Backend if backend.extension}
_LOADERS = frozenset({"load", "load_inline"})
_SPECIAL = frozenset({*_KINDS, "Extension", "setup"})
_SHOWN = 5
_KNOWN = frozenset({"name", "sources", "include_dirs", "define_macros", "extra_compile_args", "libraries"})
_DECIDED = frozenset({"py_limited_api", "language", "extra_link_args", "undef_macros", "runtime_library_dirs"})
"""Arguments that need no counterpart where they are empty, or say what a kernel is anyway."""
_IDLE = ("-s", "-Wl,--strip-all", "-O", "-fPIC", "-shared")
_DECIDED_BY_BUILDER = ("-O", "-std=", "--std=", "-fPIC", "-shared", "-fvisibility", "-D_GLIBCXX_USE_CXX11_ABI",
                       "-DPy_LIMITED_API", "-DTORCH_EXTENSION_NAME", "--threads=")  # fmt: skip
_DECIDED_WITH_VALUE = frozenset({"--threads", "-t", "-std", "--std"})
_PASSING_ON = frozenset({"-Xcompiler", "--compiler-options", "-Xptxas", "--ptxas-options", "-Xlinker"})
"""Options whose value is an option of another program."""
_DEVICE_FLAGS = re.compile(r"extra_(\w+)_cflags")
"""An argument of ``load``."""
_LARGEST = 1 << 20
"""Bytes of a Python file that is searched for calls of ``load``."""


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
    """Read ``root/setup.py``; without extensions there, ``[tool.setuptools]`` of ``pyproject.toml``, and calls of
    ``torch.utils.cpp_extension.load`` in Python files.

    Raises :class:`UsageError` where none of these describes an extension, and for a ``setup.py`` that cannot be parsed.
    """
    root = root.absolute()  # what setup.py makes of __file__ must not depend on where this runs
    reader = _Reader(root)
    file = root / SETUP
    has_setup = file.is_file()
    if has_setup:
        reader.follow(file, _parsed(file), _SPECIAL)
    table = _project_table(root)
    if not reader.found:
        reader.found += _of_project(root, reader)
    if not reader.found:
        for other in _loading(root):
            reader.follow(other, _parsed(other), _LOADERS)
    if not reader.found:
        raise _without_extensions(root, reader.inline, has_setup=has_setup)
    classifiers = _texts(reader.setup.get("classifiers")) or _texts(table.get("classifiers"))
    texts = {key: value for key, value in table.items() if isinstance(value, str)}
    texts.update({key: value for key, value in reader.setup.items() if isinstance(value, str)})
    return SetupFile(
        name=texts.get("name"),
        license=texts.get("license"),
        version=texts.get("version"),
        extensions=tuple(reader.found),
        classifiers=classifiers,
    )


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot parse {file}: {error}") from error


def _loading(root: Path) -> Iterator[Path]:
    """The Python files that may compile an extension when they are imported, in order."""
    for file in sorted(root.rglob("*.py")):
        if file.is_file() and file.name != SETUP and file.stat().st_size < _LARGEST:
            text = file.read_text(encoding="utf-8", errors="replace")
            if "cpp_extension" in text and "load" in text:
                with contextlib.suppress(UsageError):  # it is one of many files
                    _parsed(file)
                    yield file


def _without_extensions(root: Path, inline: list[str], *, has_setup: bool) -> UsageError:
    kinds = " or ".join(_KINDS)
    if inline:
        return UsageError(
            f"{root}: load_inline compiles sources from Python strings, at {', '.join(inline)}",
            hint="write them to files, pass these files to torch.utils.cpp_extension.load, and convert again",
        )
    by_hand = f"describe the extension by {kinds} in {SETUP}, or run 'kernel-builder init' and copy the sources"
    below = [str(file.parent.relative_to(root)) for file in sorted(root.rglob(SETUP)) if _describes(file)]
    if below:
        by_hand = f"pass a directory below it, whose {SETUP} does: {', '.join(below[:_SHOWN])}"
    if (root / "CMakeLists.txt").is_file():
        return UsageError(f"{root} is built by CMakeLists.txt, which kernel-builder does not read", hint=by_hand)
    if has_setup:
        return UsageError(f"{root / SETUP} describes no {kinds}", hint=by_hand)
    return UsageError(
        f"{root} has no {SETUP}, no extension in {PROJECT}, and no module that calls torch.utils.cpp_extension.load",
        hint=by_hand,
    )


def _describes(file: Path) -> bool:
    """Whether a ``setup.py`` names a kind of extension that is converted."""
    try:
        return file.stat().st_size < _LARGEST and any(kind in file.read_text(errors="replace") for kind in _KINDS)
    except OSError:
        return False


def _of_project(root: Path, reader: _Reader) -> Iterator[ExtensionModule]:
    """``ext-modules`` of ``[tool.setuptools]``, which are the arguments of ``Extension`` with dashes."""
    tool = _toml(root).get("tool", {})
    table = tool.get("setuptools", {}) if isinstance(tool, dict) else {}
    listed = table.get("ext-modules", []) if isinstance(table, dict) else []
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and "sources" in entry:
            words = {str(key).replace("-", "_"): value for key, value in entry.items()}
            yield reader.extension(words, _kinds_of(words["sources"]))


def _kinds_of(sources: object) -> tuple[Backend, ...]:
    """The backend in whose own language one of these files is, else the host's."""
    device = [
        backend
        for backend in _KINDS.values()
        if backend.sources and any(path.endswith(backend.sources) for path in _texts(sources))
    ]
    return tuple(device[:1]) or (HOST,)


def _toml(root: Path) -> dict[str, object]:
    try:
        return tomllib.loads((root / PROJECT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _project_table(root: Path) -> dict[str, object]:
    """``[project]`` of ``pyproject.toml``; nothing where there is none that can be read."""
    table = _toml(root).get("project", {})
    if not isinstance(table, dict):
        return {}
    about = table.get("license")
    text = about.get("text") if isinstance(about, dict) else about
    return {**table, "license": text}


class _Reader:
    """What the calls say that describe extensions, in the order in which they would run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.found: list[ExtensionModule] = []
        self.setup: Mapping[str, object] = {}
        self.inline: list[str] = []
        self.file = root / SETUP

    def follow(self, file: Path, tree: ast.Module, special: frozenset[str]) -> None:
        """Follow one file, for the calls of these functions."""
        self.file = file
        Script(self.root, special, self._construct, self._counts_anyway).run(tree, file)

    def _construct(self, name: str, node: ast.Call, given: tuple[object, ...], words: Mapping[str, object]) -> object:
        if name == "setup":
            self.setup = self.setup or words
        elif name == "load_inline":
            self.inline.append(f"{self._shown()}:{node.lineno}")
        elif name == "load" and (len(given) > 1 or "sources" in words):
            self._loaded(dict(zip(("name", "sources"), given, strict=False)) | dict(words))
        elif name in _KINDS or "include_paths" in ast.unparse(node):
            kinds = (_KINDS.get(name, HOST),)
            self._add(self.extension(dict(zip(("name", "sources"), given, strict=False)) | dict(words), kinds))
        return Opaque()

    def _shown(self) -> str:
        return self.file.relative_to(self.root).as_posix()

    def _add(self, module: ExtensionModule) -> None:
        """One that differs from an earlier one only by its backend is the same extension, for both."""
        for at, other in enumerate(self.found):
            if replace(module, backends=other.backends) == other:
                backends = tuple(dict.fromkeys((*other.backends, *module.backends)))
                self.found[at] = replace(other, backends=backends)
                return
        self.found.append(module)

    def _loaded(self, words: dict[str, object]) -> None:
        """A call of ``load``, which compiles when a module is imported; its sources may be relative to that module."""
        sources = words["sources"] if isinstance(words["sources"], list) else NotedList([words["sources"]])
        if not any(isinstance(one, str) and one.endswith(SUFFIXES) for one in sources) and UNKNOWN not in sources:
            return  # another library's load
        beside = self.file.parent
        moved = [
            str(beside / one) if isinstance(one, str) and not (self.root / one).is_file() else one for one in sources
        ]
        words["sources"] = noted(moved, (), [sources])
        flags = NotedDict({"cxx": words["extra_cflags"]} if words.get("extra_cflags") else {})
        for key, value in words.items():
            if (of_device := _DEVICE_FLAGS.fullmatch(key)) is not None and value is not None:
                flags[of_device[1]] = value
        words["extra_compile_args"] = flags
        words["include_dirs"] = words.pop("extra_include_paths", NotedList())
        if words.get("extra_ldflags"):
            words["extra_link_args"] = words.pop("extra_ldflags")
        own = (*_KNOWN, "extra_link_args")
        self._add(self.extension({key: value for key, value in words.items() if key in own}, _kinds_of(sources)))

    def _counts_anyway(self, value: object) -> bool:
        """Whether this is a file of the extension in a device's own language, which belongs to that device anyway, or a
        directory of its headers, which does no harm.
        """
        endings = tuple(ending for backend in Backend for ending in backend.sources)
        if not isinstance(value, str) or not value:
            return False
        place = self.root / value
        is_inside = Path(os.path.normpath(place)).is_relative_to(self.root)
        return is_inside and (place.is_dir() or (value.endswith(endings) and place.is_file()))

    def extension(self, words: Mapping[str, object], backends: tuple[Backend, ...]) -> ExtensionModule:
        """What the arguments of an extension say."""
        values = {key: UNKNOWN if _is_lost(value) else value for key, value in words.items()}
        flags, folders = _including(values.get("extra_compile_args"))
        if isinstance(flags, list):
            flags = {"cxx": flags}
        by_key = {
            str(key): _without_decided([str(flag) for flag in given])
            for key, given in (flags.items() if isinstance(flags, dict) else ())
            if isinstance(given, list)
        }
        read = {key: value for key, value in values.items() if key not in _DECIDED}
        foreign = {key for key, value in values.items() if value is not UNKNOWN and key not in _KNOWN}
        left, assumed = _notes(read)
        name = values.get("name")
        return ExtensionModule(
            name=name if isinstance(name, str) else "",
            backends=backends,
            sources=tuple(path for path in self._paths(values.get("sources")) if not (self.root / path).is_dir()),
            include=self._paths([*_texts(values.get("include_dirs")), *folders]),
            defines=_defines(values.get("define_macros")),
            flags=by_key,
            libraries=_texts(values.get("libraries")),
            unknown=tuple(sorted([*(key for key, value in read.items() if value is UNKNOWN), *_lost_flags(flags)])),
            foreign=tuple(sorted(key for key in foreign if not (key in _DECIDED and _says_nothing(values[key])))),
            conditional=left,
            assumed=assumed,
        )

    def _paths(self, value: object) -> tuple[str, ...]:
        root = str(self.root)
        found = (relative_to(os.path.join(root, path), root) or "." for path in _texts(value))  # noqa: PTH118
        return tuple(dict.fromkeys(path for path in found if not (path.startswith("..") or os.path.isabs(path))))  # noqa: PTH117


class Opaque:
    """What describes an extension: nothing is known of it but that it is there."""


def _is_lost(value: object) -> bool:
    """Whether nothing of a value can be told: of a list, none of its items."""
    return value is UNKNOWN or isinstance(value, Opaque) or (isinstance(value, NotedList) and value.is_lost)


def _lost_flags(flags: object) -> Iterator[str]:
    """The flags of which nothing can be told."""
    for key, value in flags.items() if isinstance(flags, dict) else ():
        if _is_lost(value):
            yield f"extra_compile_args[{key!r}]"


def _without_decided(flags: list[str]) -> tuple[str, ...]:
    """Flags without those that every kernel is built with anyway, and without what else the build decides."""
    found: list[str] = []
    at = 0
    while at < len(flags):
        flag, value = flags[at], flags[at + 1] if at + 1 < len(flags) else ""
        at += 1
        if flag in _PASSING_ON or flag in _DECIDED_WITH_VALUE:
            at += 1
            if value and flag in _PASSING_ON and not value.startswith(_DECIDED_BY_BUILDER):
                found += [flag, value]
            continue
        _, mark, passed = flag.partition("=")
        is_passed = flag.startswith(tuple(f"{option}=" for option in _PASSING_ON))
        if not (passed if mark and is_passed else flag).startswith(_DECIDED_BY_BUILDER):
            found.append(flag)
    return tuple(found)


def _notes(values: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was left out of lists, and what was assumed of them, each text once."""
    left: list[str] = []
    assumed: list[str] = []

    def visit(value: object) -> None:
        if isinstance(value, NotedList):
            left.extend(value.left if not value.is_lost else ())
        if isinstance(value, NotedList | NotedDict):
            assumed.extend(value.assumed)
        for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            visit(one)

    visit([*values.values()])
    return tuple(dict.fromkeys(left)), tuple(dict.fromkeys(assumed))


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
        if isinstance(pair, list | tuple) and pair
    )
