"""``build.toml`` of editions 1-4 to the current one, in place: only what must change does.

What comes out is read again and compared with what went in. A file that would mean something else afterwards,
or that cannot be read, is refused and left alone.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.editions.v1 import ARCHS, DEFAULT_LANGUAGE, LANGUAGES
from kernel_builder.config.editions.v2 import BOUNDED, BOUNDS, MOVED_PYTHON_DEPENDS
from kernel_builder.config.known import dependencies
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.config.reader import read_project
from kernel_builder.config.schema import CURRENT_EDITION, FRAMEWORKS
from kernel_builder.errors import ConfigError, Diagnostic, Level, UsageError
from kernel_builder.files import write_bytes
from kernel_builder.toml.document import decode
from kernel_builder.toml.editor import CannotEditError, Editor
from kernel_builder.toml.nodes import Leaf, ListNode, TableNode, table_of

_GENERAL = ("general",)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class Update:
    """What an update does to a file. ``before`` and ``after`` are its content, equal when nothing is due.

    ``edition`` is the one it was in; ``warnings`` are those of reading it.
    """

    before: bytes
    after: bytes
    edition: int
    warnings: tuple[Diagnostic, ...]

    @property
    def is_due(self) -> bool:
        """Whether the file is to change."""
        return self.before != self.after


def update(data: bytes, *, file: Path, root: Path, license_: str | None = None) -> Update:
    """The update that ``data``, the content of ``file``, needs. ``license_`` is for a file without a licence.

    Raises :class:`ConfigError` when the file has mistakes, lacks a licence, or is written in a way that
    cannot be changed in place; :class:`UsageError` when ``license_`` contradicts the file.
    """
    project, diagnostics = read_project(data, file=file, root=root, tree=False)
    if license_ is not None and project.license is not None and license_ != project.license:
        raise UsageError(
            f"{file} already has a license: {project.license}",
            hint="run kernel-builder update-build without --license, or edit the file",
        )
    if project.edition == CURRENT_EDITION:
        return Update(before=data, after=data, edition=project.edition, warnings=diagnostics)
    if project.license is None and license_ is None:
        raise ConfigError(
            f"{file} has no license, but edition {CURRENT_EDITION} needs one",
            hint="run again with a license identifier: kernel-builder update-build --license apache-2.0",
        )
    text, _ = decode(data)
    editor = Editor(text)
    try:
        _Migration(editor, project, license_).run()
    except CannotEditError as error:
        raise ConfigError(f"cannot update {file} in place; it was left unchanged", hint=str(error)) from None
    after = _apply(data, editor)
    _confirm(after, replace(project, edition=CURRENT_EDITION, license=project.license or license_), file)
    return Update(before=data, after=after, edition=project.edition, warnings=diagnostics)


def write(file: Path, change: Update) -> None:
    """Put ``change.after`` in place of ``file``, whole or not at all. Raises ``OSError``."""
    write_bytes(file, change.after)


def _apply(data: bytes, editor: Editor) -> bytes:
    """The changes made to the file as it is: with its own line ends, which the editor's text does not
    have.
    """
    original = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    # Offsets, in the editor's text, of line ends that are two characters in the file.
    wide: list[int] = []
    for match in re.finditer("\r\n", original):
        wide.append(match.start() - len(wide))
    newline = "\r\n" if len(wide) * 2 > editor.text.count("\n") else "\n"
    pieces: list[str] = []
    position = 0
    for start, end, new in editor.changes():
        begin = start + bisect_left(wide, start)
        pieces += [original[position:begin], new.replace("\n", newline)]
        position = max(position, end + bisect_left(wide, end))
    return "".join([*pieces, original[position:]]).encode()


def _confirm(after: bytes, expected: Project, file: Path) -> None:
    """Refuse an update whose outcome is not the same project."""
    try:
        outcome, _ = read_project(after, file=file, root=expected.root, tree=False)
    except ConfigError as error:
        outcome = None
        wrong = [one for one in error.diagnostics if one.severity is Level.ERROR]
        reason = f"{wrong[0].key}: {wrong[0].message}" if wrong else error.message
    else:
        reason = "the result would mean something else"
    if outcome != expected:
        raise ConfigError(
            f"cannot update {file} in place; it was left unchanged ({reason})",
            hint="write every table under its own header, one key per line, and run this again",
        )


class _Migration:
    """The changes that carry one document over to the current edition."""

    def __init__(self, editor: Editor, project: Project, license_: str | None) -> None:
        self._editor = editor
        self._project = project
        self._license = license_
        self._top = table_of(editor.source.parse()[0])
        self._general = self._top.table("general")

    def run(self) -> None:
        """Ask the editor for all changes."""
        if self._project.edition == 1:
            for name, section in self._top.table("kernel").items.items():
                if isinstance(section, TableNode):
                    self._section(name, section)
        if self._project.edition == 2:
            self._bounded_table()
        self._universal()
        if self._project.edition < 4:
            self._renamed_dependencies()
        self._general_keys()

    def _general_keys(self) -> None:
        """``version``, ``edition``, ``license`` and ``backends``, as far as they are missing, in this
        order.
        """
        items = self._general.items
        after = ("version", "name") if "version" in items else ("name",)
        lines = []
        if "version" not in items:
            lines.append(f"version = {self._project.version}")
        if "edition" in items:
            self._editor.set_value(("general", "edition"), str(CURRENT_EDITION))
        else:
            lines.append(f"edition = {CURRENT_EDITION}")
        if self._license is not None and "license" not in items:
            lines.append(f"license = {_quoted(self._license)}")
        if "backends" not in items:
            listed = ", ".join(_quoted(backend.value) for backend in self._project.backends)
            lines.append(f"backends = [{listed}]")
        for line in lines:
            self._editor.insert(_GENERAL, line, after=after)

    def _section(self, name: str, section: TableNode) -> None:
        """``language`` to ``backend``; ``cuda-hipify`` becomes two sections."""
        language = section.get("language")
        if language is None and "backend" in section.items:
            return
        value = language.value if isinstance(language, Leaf) else DEFAULT_LANGUAGE
        backends = LANGUAGES[str(value)]
        path = ("kernel", name)
        for backend in backends[1:]:
            self._copy_for(backend, name)
        _retarget(self._editor, path, section, backends[0])

    def _copy_for(self, backend: Backend, name: str) -> None:
        start, end = self._editor.block(("kernel", name))
        copy = Editor(self._editor.text[start:end])
        section = table_of(copy.source.parse()[0]).table("kernel").table(name)
        copy.rename_table(("kernel", name), _key(f"{name}_{backend}"))
        _retarget(copy, ("kernel", name), section, backend)
        text = copy.result()
        self._editor.insert_text(end, "\n" + text + ("" if text.endswith("\n") else "\n"))

    def _universal(self) -> None:
        """``universal`` to ``[torch-noarch]``, which a kernel of Python code alone has from edition 4 on."""
        torch = self._top.table("torch")
        if "universal" in torch.items and self._project.edition == 1:
            self._editor.remove(("torch", "universal"))
        if "universal" in self._general.items and self._project.edition == 2:
            self._editor.remove(("general", "universal"))
        if self._project.framework.kind is not FrameworkKind.TORCH_NOARCH or "torch-noarch" in self._top.items:
            return
        if "torch" in self._top.items:
            self._editor.rename_table(("torch",), "torch-noarch")
            for name in ("src", "include"):
                if name in torch.items:
                    self._editor.remove(("torch", name))
        elif not any(name in self._top.items for name in FRAMEWORKS):
            self._editor.append_table(["[torch-noarch]"])

    def _bounded_table(self) -> None:
        """Bounds of a toolkit and Python dependencies, from ``[general]`` to the table of their backend."""
        lines = []
        for old, new in BOUNDS.items():
            node = self._general.get(old)
            if node is not None:
                lines.append(f"{new} = {self._editor.rest_of_line(node.path)}")
                self._editor.remove(node.path)
        depends = self._general.get("python-depends")
        if isinstance(depends, ListNode):
            moved = [node for node in depends.items if isinstance(node, Leaf) and node.value in MOVED_PYTHON_DEPENDS]
            if moved:
                if len(moved) == len(depends.items):
                    self._editor.remove(depends.path)
                else:
                    kept = [node for node in depends.items if node not in moved]
                    texts = [self._editor.text[slice(*self._editor.value_span(node.path))] for node in kept]
                    self._editor.set_value(depends.path, f"[{', '.join(texts)}]")
                lines.append(f"python-depends = [{', '.join(_quoted(str(node.value)) for node in moved)}]")
        if not lines:
            return
        if BOUNDED.value in self._general.items:
            for line in lines:
                self._editor.insert(("general", BOUNDED.value), line, after=("minver", "maxver", "kernel-depends"))
        else:
            self._editor.insert_table(_GENERAL, [f"[general.{BOUNDED}]", *lines])

    def _renamed_dependencies(self) -> None:
        renamed = dependencies().renamed
        for section in self._top.table("kernel").items.values():
            depends = section.get("depends") if isinstance(section, TableNode) else None
            for node in depends.items if isinstance(depends, ListNode) else ():
                if isinstance(node, Leaf) and isinstance(node.value, str) and node.value in renamed:
                    self._editor.set_value(node.path, _quoted(renamed[node.value]))


def _retarget(editor: Editor, path: tuple[str, str], section: TableNode, backend: Backend) -> None:
    """Make a section of edition 1 one for ``backend``: its ``language`` goes, and architectures of other
    backends.
    """
    if "language" in section.items:
        editor.set_pair((*path, "language"), "backend", _quoted(backend.value))
    else:
        editor.insert(path, f"backend = {_quoted(backend.value)}")
    for key, owner in ARCHS.items():
        if key in section.items and owner is not backend:
            editor.remove((*path, key))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)
