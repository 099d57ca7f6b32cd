"""``kernel-builder.lock``: exactly what each variant is compiled with. Users commit it; there is no host name in it.

Artefacts stand in it once, and variants refer to them by file name (``name@file`` for parts of this machine). What is
written depends on nothing but its contents, down to the byte, so that a difference between two locks is one in what is
compiled with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from kernel_builder.errors import ConfigError, ToolchainError
from kernel_builder.files import write_text
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toml.document import open_document
from kernel_builder.toml.nodes import Leaf, ListNode, Node, TableNode, describe, quoted
from kernel_builder.toml.report import Report
from kernel_builder.toolchain.model import Family, HostCompiler

LOCK_NAME = "kernel-builder.lock"
FORMAT = 1
_MAX_BYTES = 16 << 20
_HEAD = """\
# What the variants of this kernel are compiled with, file by file. Commit it; do not edit it.
# 'kernel-builder lock' keeps it in step with build.toml, 'kernel-builder lock --upgrade' takes what is newest.
"""
_HEX = re.compile(r"[0-9a-f]{64}")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!~:-]*")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!~:-]*(?:/[A-Za-z0-9][A-Za-z0-9._+!~:-]*)*")
_VARIANT = re.compile(r"[a-z0-9]+(?:-[a-z0-9_]+)+")
_TOP = ("format", "variant", "artefact")
_VARIANT_KEYS = ("name", "host-compiler", "artefacts")
_ARTEFACT_KEYS = ("filename", "name", "version", "kind", "source", "size", "sha256", "record-sha256")


class LockError(ToolchainError):
    """What is to be built is not what the lock says: every difference is one of ``problems``."""

    def __init__(self, problems: Sequence[str]) -> None:
        what = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(
            f"{LOCK_NAME} does not match what would be used now:{what}",
            hint="run 'kernel-builder lock' to follow build.toml, or 'kernel-builder lock --upgrade' to"
            " choose everything again",
        )
        self.problems = tuple(problems)


def sorted_families(accepted: Mapping[Family, str]) -> list[tuple[Family, str]]:
    """In the order of the families themselves, whatever that of the mapping."""
    return [(family, accepted[family]) for family in Family if family in accepted]


@dataclass(frozen=True, kw_only=True)
class LockedVariant:
    """A variant with everything that it is compiled with, the host's own compiler apart.

    ``host_compiler`` says which versions of each family are accepted, as a specifier (``>=11,<16``). ``artefacts`` are
    sorted by file name.
    """

    name: str
    host_compiler: Mapping[Family, str]
    artefacts: tuple[Artefact, ...]

    def accepts(self, host: HostCompiler) -> bool:
        """Whether this host compiler may be used."""
        accepted = self.host_compiler.get(host.family)
        return accepted is not None and SpecifierSet(accepted).contains(Version(host.version))

    @property
    def accepted(self) -> str:
        """``host_compiler`` for people: ``g++ >=11,<16 or clang++ >=13,<21``."""
        return " or ".join(f"{family.program} {accepted}" for family, accepted in sorted_families(self.host_compiler))


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The whole lock; variants sorted by name."""

    variants: tuple[LockedVariant, ...]

    @classmethod
    def of(cls, variants: Iterable[LockedVariant]) -> Lock:
        """A lock of ``variants`` in any order."""
        ordered = sorted(variants, key=lambda variant: variant.name)
        return cls(
            variants=tuple(
                LockedVariant(
                    name=variant.name,
                    host_compiler=variant.host_compiler,
                    artefacts=tuple(sorted(variant.artefacts, key=_reference)),
                )
                for variant in ordered
            )
        )

    def get(self, name: str) -> LockedVariant | None:
        """The variant of that name, if it is locked."""
        return next((variant for variant in self.variants if variant.name == name), None)


def _reference(artefact: Artefact) -> str:
    """What variants call it. Several parts are taken from one toolkit on this machine."""
    if artefact.kind is ArtefactKind.LOCAL:
        return f"{artefact.name}@{artefact.filename}"
    return artefact.filename


def render(lock: Lock) -> str:
    """The text of the file. Raises :class:`ConfigError` when two different artefacts have one file name."""
    artefacts: dict[str, Artefact] = {}
    for variant in lock.variants:
        for artefact in variant.artefacts:
            if artefacts.setdefault(_reference(artefact), artefact) != artefact:
                raise ConfigError(
                    f"two different files are called {artefact.filename}: a lock cannot tell them apart",
                    hint="build all variants from the same index",
                )
    blocks = [f"{_HEAD}\nformat = {FORMAT}\n"]
    for variant in lock.variants:
        names = "".join(f"  {_text(_reference(artefact))},\n" for artefact in variant.artefacts)
        families = sorted_families(variant.host_compiler)
        compilers = ", ".join(f"{family.value} = {_text(accepted)}" for family, accepted in families)
        blocks.append(
            f"[[variant]]\nname = {_text(variant.name)}\nhost-compiler = {{ {compilers} }}\nartefacts = [\n{names}]\n"
        )
    for _, artefact in sorted(artefacts.items()):
        lines = ["[[artefact]]"]
        for key, value in _values(artefact).items():
            lines.append(f"{key} = {value if isinstance(value, int) else _text(value)}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _values(artefact: Artefact) -> Mapping[str, str | int]:
    values: dict[str, str | int | None] = {
        "filename": artefact.filename,
        "name": artefact.name,
        "version": artefact.version,
        "kind": artefact.kind.value,
        "source": artefact.source,
        "size": artefact.size,
        "sha256": artefact.sha256,
        "record-sha256": artefact.record_sha256,
    }
    return {key: value for key, value in values.items() if value is not None}


def _text(value: str) -> str:
    """A basic string of TOML, which JSON's is, too, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_lock(root: Path, lock: Lock) -> None:
    """Replace the lock of the project in ``root``; nobody sees half of it. Raises ``OSError``."""
    write_text(root / LOCK_NAME, render(lock))


def read_lock(root: Path) -> Lock | None:
    """The lock of the project in ``root``; ``None`` when it has none.

    Raises :class:`ConfigError` with every mistake in it, each with its line; ``OSError`` when it cannot be read.
    """
    file = root / LOCK_NAME
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{file} is too large for a lock", hint="is it a different file with that name?")
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    return parse_lock(data, file)


def parse_lock(data: bytes, file: Path) -> Lock:
    """:func:`read_lock` for contents that are there; ``file`` is for messages."""
    tables, report = open_document(data, file)
    lock = None if report.has_errors else _Reader(report).lock(tables)
    if lock is None or report.has_errors:
        diagnostics = report.diagnostics()
        what = "a mistake" if len(diagnostics) == 1 else f"{len(diagnostics)} mistakes"
        raise ConfigError(
            f"{file} has {what}",
            diagnostics=diagnostics,
            hint="restore it from version control, or delete it and run: kernel-builder lock",
        )
    return lock


class _Reader:
    """Reads strictly: nothing is guessed, nothing is passed over."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def lock(self, top: TableNode) -> Lock | None:
        form = top.get("format")
        if not isinstance(form, Leaf) or form.value != FORMAT or isinstance(form.value, bool):
            found = "format is missing" if form is None else f"format is {describe(form)}"
            self._report.error(
                ("format",),
                f"{found}; this version of kernel-builder reads format {FORMAT}",
                hint="use the version of kernel-builder that wrote it, or a newer one",
            )
            return None
        self._known(top, _TOP)
        artefacts: dict[str, Artefact] = {}
        places: dict[str, TableNode] = {}
        for table in self._tables(top, "artefact"):
            artefact = self._artefact(table)
            if _reference(artefact) in artefacts:
                self._report.error((*table.path, "filename"), "it appears twice")
            artefacts[_reference(artefact)] = artefact
            places[_reference(artefact)] = table
        variants: dict[str, LockedVariant] = {}
        used: set[str] = set()
        for table in self._tables(top, "variant"):
            variant = self._variant(table, artefacts, used)
            if variant.name in variants:
                self._report.error((*table.path, "name"), "it appears twice")
            variants[variant.name] = variant
        for reference, table in places.items():
            if reference not in used:
                self._report.error((*table.path, "filename"), "no variant refers to it")
        return Lock.of(variants.values())

    def _known(self, table: TableNode, keys: tuple[str, ...]) -> None:
        for key in table.items:
            if key not in keys:
                self._report.error((*table.path, key), f"unknown key {quoted(key)}", at_key=True)

    def _tables(self, top: TableNode, key: str) -> list[TableNode]:
        node = top.get(key)
        if node is None:
            return []
        if not isinstance(node, ListNode) or not all(isinstance(item, TableNode) for item in node.items):
            self._report.error((key,), f"must be tables [[{key}]], not {describe(node)}")
            return []
        return [item for item in node.items if isinstance(item, TableNode)]

    def _string(self, table: TableNode, key: str, form: re.Pattern[str], what: str) -> str:
        found = self._optional(table, key, form, what)
        if found is None and table.get(key) is None:
            self._report.error(table.path, f"the key {quoted(key)} is missing")
        return found or ""

    def _optional(self, table: TableNode, key: str, form: re.Pattern[str], what: str) -> str | None:
        node = table.get(key)
        if node is None:
            return None
        if isinstance(node, Leaf) and isinstance(node.value, str) and form.fullmatch(node.value):
            return node.value
        self._report.error(node.path, f"must be {what}, not {describe(node)}")
        return None

    def _artefact(self, table: TableNode) -> Artefact:
        self._known(table, _ARTEFACT_KEYS)
        version = self._string(table, "version", _PLAIN, "a version")
        kind = self._string(table, "kind", _PLAIN, "a kind of file")
        kinds = [known.value for known in ArtefactKind]
        if kind and kind not in kinds:
            self._report.error((*table.path, "kind"), f"must be one of {', '.join(kinds)}, not {quoted(kind)}")
            kind = ""
        filename = self._string(table, "filename", _FILE, "a file name")
        name = self._string(table, "name", _PLAIN, "a name")
        if kind == ArtefactKind.WHEEL and version and not _is_version(version):
            self._report.error((*table.path, "version"), f"{quoted(version)} is not a valid wheel version")
        elif kind == ArtefactKind.WHEEL and filename and name and version:
            self._wheel(table, filename, name, version)
        size = table.get("size")
        amount = size.value if isinstance(size, Leaf) else None
        if size is not None and (not isinstance(amount, int) or isinstance(amount, bool) or amount < 0):
            self._report.error(size.path, f"must be a number of bytes, not {describe(size)}")
            amount = None
        digest = self._optional(table, "sha256", _HEX, "a SHA-256 in hex")
        record = self._optional(table, "record-sha256", _HEX, "a SHA-256 in hex")
        if table.get("sha256") is None and table.get("record-sha256") is None:
            self._report.error(table.path, "it has neither sha256 nor record-sha256, so it cannot be identified")
        return Artefact(
            filename=filename,
            name=name,
            version=version,
            kind=ArtefactKind(kind or ArtefactKind.WHEEL),
            source=self._string(table, "source", _PLAIN, "the label of a source"),
            size=amount if isinstance(amount, int) else None,
            sha256=digest,
            record_sha256=record,
        )

    def _wheel(self, table: TableNode, filename: str, name: str, version: str) -> None:
        """The name of a wheel's file says what it is: whoever edits one and not the other is told."""
        try:
            project, released, _, _ = parse_wheel_filename(filename)
        except InvalidWheelFilename:
            self._report.error((*table.path, "filename"), f"{quoted(filename)} is not a valid wheel name")
            return
        if canonicalize_name(name) != project:
            self._report.error((*table.path, "name"), f"{quoted(filename)} is a wheel of {project}")
        if Version(version) != released:
            self._report.error((*table.path, "version"), f"{quoted(filename)} is version {released}")

    def _variant(self, table: TableNode, artefacts: Mapping[str, Artefact], used: set[str]) -> LockedVariant:
        self._known(table, _VARIANT_KEYS)
        name = self._string(table, "name", _VARIANT, "the name of a variant")
        compilers = self._host_compiler(table)
        names = self._names(table.get("artefacts"), table)
        found: list[Artefact] = []
        for path, reference in names:
            if reference not in artefacts:
                self._report.error(path, f"no [[artefact]] has the filename {quoted(reference)}")
            elif artefacts[reference] in found:
                self._report.error(path, "it appears twice")
            else:
                found.append(artefacts[reference])
                used.add(reference)
        return LockedVariant(name=name, host_compiler=compilers, artefacts=tuple(found))

    def _host_compiler(self, table: TableNode) -> Mapping[Family, str]:
        node = table.get("host-compiler")
        if node is None:
            self._report.error(table.path, "the key 'host-compiler' is missing")
            return {}
        if not isinstance(node, TableNode) or not node.items:
            wanted = '{ gcc = ">=11,<16" }'
            self._report.error(node.path, f"must be a table of bounds such as {wanted}, not {describe(node)}")
            return {}
        self._known(node, tuple(family.value for family in Family))
        found: dict[Family, str] = {}
        for family in Family:
            bounds = node.get(family.value)
            if bounds is None:
                continue
            if isinstance(bounds, Leaf) and isinstance(bounds.value, str) and _is_specifier(bounds.value):
                found[family] = bounds.value
            else:
                self._report.error(bounds.path, f"must be bounds such as '>=11,<16', not {describe(bounds)}")
        return found

    def _names(self, node: Node | None, table: TableNode) -> list[tuple[tuple[str | int, ...], str]]:
        if node is None:
            self._report.error(table.path, "the key 'artefacts' is missing")
            return []
        if not isinstance(node, ListNode) or not node.items:
            self._report.error(node.path, f"must be a list of file names, not {describe(node)}")
            return []
        names: list[tuple[tuple[str | int, ...], str]] = []
        for item in node.items:
            if isinstance(item, Leaf) and isinstance(item.value, str):
                names.append((item.path, item.value))
            else:
                self._report.error(item.path, f"must be a file name, not {describe(item)}")
        return names


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _is_specifier(text: str) -> bool:
    try:
        return len(SpecifierSet(text)) > 0
    except InvalidSpecifier:
        return False


def changes(old: Lock | None, new: Lock) -> tuple[str, ...]:
    """What is different in ``new``: a line per variant that came or went, per file and per bounds that changed; sorted.

    ``torch 2.13.0 -> 2.13.1 (torch213-cxx11-cpu-x86_64-linux, ...)``.
    """
    before = {variant.name: variant for variant in old.variants} if old else {}
    after = {variant.name: variant for variant in new.variants}
    lines = [f"+ {name}" for name in after if name not in before]
    lines += [f"- {name}" for name in before if name not in after]
    users: dict[str, list[str]] = {}
    for name in sorted(before.keys() & after.keys()):
        for text in _differences(before[name], after[name]):
            users.setdefault(text, []).append(name)
    lines += [f"{text} ({', '.join(names)})" for text, names in users.items()]
    return tuple(sorted(lines))


def _differences(old: LockedVariant, new: LockedVariant) -> list[str]:
    lines: list[str] = []
    if old.host_compiler != new.host_compiler:
        lines.append(f"host compiler {old.accepted} -> {new.accepted}")
    before = {artefact.name: artefact for artefact in old.artefacts}
    after = {artefact.name: artefact for artefact in new.artefacts}
    for name in sorted(before.keys() | after.keys()):
        then, now = before.get(name), after.get(name)
        if then == now:
            continue
        if then is None or now is None:
            lines.append(f"{name} {then.version if then else '(none)'} -> {now.version if now else '(none)'}")
        elif then.version != now.version:
            lines.append(f"{name} {then.version} -> {now.version}")
        else:
            lines.append(f"{name} {now.version}: {_what_changed(then, now)}")
    return lines


def _what_changed(then: Artefact, now: Artefact) -> str:
    """Which values of an artefact of the same name and version are others."""
    old, new = _values(then), _values(now)
    keys = [key for key in _ARTEFACT_KEYS if old.get(key) != new.get(key)]
    return "; ".join(f"{key} {_short(old.get(key))} -> {_short(new.get(key))}" for key in keys)


def _short(value: object) -> str:
    text = "(none)" if value is None else str(value)
    return f"{text[:12]}..." if _HEX.fullmatch(text) else text
