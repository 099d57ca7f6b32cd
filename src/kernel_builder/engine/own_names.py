"""Why a project's own function is missing from its library: found in the objects that were made and in the sources."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kernel_builder.binary.causes import NamedCause
from kernel_builder.engine.definitions import Spelled, Written, find_class, find_written, mentions, spell
from kernel_builder.project.tree import HEADER_SUFFIXES, native_files

_CLASS = ("vtable for ", "VTT for ", "typeinfo for ", "typeinfo name for ")
_UNNAMED = "(anonymous namespace)"


def demangle(names: Iterable[str]) -> dict[str, str]:
    """C++ names as people write them; a name stays as it is where ``c++filt`` is missing."""
    ordered = list(names)
    try:
        completed = subprocess.run(
            ["c++filt"], input="\n".join(ordered), capture_output=True, text=True, errors="surrogateescape", check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in ordered}
    return dict(zip(ordered, completed.stdout.splitlines(), strict=False))


def same_but_for_strings(one: str, other: str) -> bool:
    """Whether two demangled names differ in the C++ ABI alone: libstdc++ names its strings and lists by it."""
    return one != other and _plain(one) == _plain(other)


def _plain(readable: str) -> str:
    long = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"
    return readable.replace("__cxx11::", "").replace("[abi:cxx11]", "").replace(long, "std::string")


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A source that other variants compile: ``section`` says for whom, ``fits`` whether this one could."""

    section: str
    fits: bool


@dataclass(frozen=True, kw_only=True)
class _Defined:
    symbol: str
    readable: str
    source: str
    is_local: bool

    @cached_property
    def spelled(self) -> Spelled:
        return spell(self.readable)


@dataclass(frozen=True, kw_only=True)
class OwnNames:
    """The project in ``root`` with all its ``files`` of C++, and the ``objects`` that were made of which source.

    ``elsewhere`` are sources that only other variants compile. ``nm`` is the program that lists names.
    """

    root: Path
    files: tuple[str, ...]
    objects: Mapping[Path, str]
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    headers: frozenset[str] = frozenset()
    nm: str = "nm"

    @classmethod
    def of(cls, root: Path, objects: Mapping[Path, str], elsewhere: Mapping[str, Elsewhere] | None = None) -> OwnNames:
        """The project in ``root`` as it is on the disk."""
        files = native_files(root)
        headers = frozenset(path for path in files if Path(path).suffix.lower() in HEADER_SUFFIXES)
        return cls(root=root, files=files, objects=objects, elsewhere=elsewhere or {}, headers=headers)

    @cached_property
    def _defined(self) -> tuple[tuple[str, str, bool], ...]:
        """``(symbol, source, whether no other file sees it)`` of everything that the objects define."""
        found: list[tuple[str, str, bool]] = []
        for path, source in self.objects.items():
            try:
                completed = subprocess.run(
                    [self.nm, "--defined-only", str(path)],
                    capture_output=True,
                    text=True,
                    errors="surrogateescape",
                    check=False,
                )
            except OSError:  # no binutils on PATH: the texts alone, then
                return ()
            rows = [line.split(maxsplit=2) for line in completed.stdout.splitlines()]
            found += [(row[2], source, row[1].islower() and row[1] not in "uvw") for row in rows if len(row) == 3]
        return tuple(found)

    def _rivals(self, symbol: str, spelled: Spelled) -> list[_Defined]:
        """What is defined under the same last name."""
        rows = [row for row in self._defined if spelled.base in row[0] and row[0] != symbol]
        names = demangle(row[0] for row in rows)
        found = [
            _Defined(symbol=name, readable=names.get(name, name), source=source, is_local=is_local)
            for name, source, is_local in rows
        ]
        return [entry for entry in found if entry.spelled.base == spelled.base]

    def cause(self, symbol: str, readable: str, users: tuple[str, ...]) -> NamedCause | None:
        """Why ``symbol`` is missing, if the project defines it or something like it."""
        if readable.startswith(_CLASS):
            return self._of_class(readable.partition(" for ")[2])
        spelled = spell(readable)
        rivals = self._rivals(symbol, spelled)
        written = self._written(spelled.base)
        fitting = [entry for entry in written if entry.is_definition and _fits(entry, spelled)]
        declared = next((entry for entry in written if not entry.is_definition and _fits(entry, spelled)), None)
        return (
            self._hidden(fitting, rivals, readable)
            or self._not_compiled(fitting)
            or _different(rivals, readable, spelled, declared)
            or self._compiled_in_vain(fitting, readable, spelled, users)
            or self._written_otherwise(written, spelled, declared)
            or self._of_member(spelled)
        )

    def _written(self, base: str) -> tuple[Written, ...]:
        """Where the texts have a function ``base``. A definition has the linkage of a declaration that came before it,
        out of a header mostly.
        """
        found = find_written(self.root, self.files, base)
        c_names = {(entry.scope, entry.parameters) for entry in found if entry.is_c}
        return tuple(replace(entry, is_c=entry.is_c or (entry.scope, entry.parameters) in c_names) for entry in found)

    def definitions(self, readable: str) -> tuple[Written, ...]:
        """Where the texts of the project define what is called so, headers last."""
        spelled = spell(readable)
        written = self._written(spelled.base)
        found = [entry for entry in written if entry.is_definition and _fits(entry, spelled)]
        return tuple(sorted(found, key=lambda entry: (entry.file in self.headers, entry.file, entry.line)))

    def definition(self, readable: str) -> Written | None:
        """The first of :meth:`definitions`."""
        return next(iter(self.definitions(readable)), None)

    def definers(self, readable: str) -> tuple[str, ...]:
        """The sources whose objects define what is called so, for others to see; sorted."""
        base = spell(readable).base
        rows = [row for row in self._defined if base in row[0] and not row[2]]
        names = demangle(row[0] for row in rows)
        return tuple(sorted({source for name, source, _ in rows if readable in {name, names.get(name)}}))

    def declaration(self, readable: str) -> Written | None:
        """Where the project declares what nobody defines."""
        spelled = spell(readable)
        written = self._written(spelled.base)
        return next((entry for entry in written if not entry.is_definition and _fits(entry, spelled)), None)

    def _hidden(self, fitting: list[Written], rivals: list[_Defined], readable: str) -> NamedCause | None:
        for entry in rivals:
            if entry.is_local and entry.readable == readable:
                return _static(entry.source)
            if entry.readable != readable and entry.readable.replace(f"{_UNNAMED}::", "") == readable:
                return _unnamed(entry.source)
        for written in fitting:  # what nobody uses in its own file is not even in the object
            if written.file in self.objects.values() and "{}" in written.scope.split("::"):
                return _unnamed(written.place)
            if written.file in self.objects.values() and written.has("static") and not written.in_class:
                return _static(written.place)
        return None

    def _not_compiled(self, fitting: list[Written]) -> NamedCause | None:
        for entry in fitting:
            if entry.file in self.objects.values() or entry.file in self.headers:
                continue
            return self._uncompiled(entry.file)
        return None

    def _uncompiled(self, file: str) -> NamedCause:
        """``file`` would supply the name: the same for all names that it defines."""
        where = self.elsewhere.get(file)
        if where is None:
            why = f"{file} defines it, but no section of build.toml lists that file in 'src'"
            return NamedCause(why=why, instead=f"add \"{file}\" to 'src' of the section that needs it")
        why = f"{file} defines it, but only {where.section} compiles that file"
        if where.fits:
            return NamedCause(why=why, instead=f"add \"{file}\" to 'src' of a section of this variant, too")
        return NamedCause(why=why, instead="move the call to a source of that section")

    def _compiled_in_vain(
        self, fitting: list[Written], readable: str, spelled: Spelled, users: tuple[str, ...]
    ) -> NamedCause | None:
        for entry in fitting:
            who = " and ".join(users) or "what uses it"
            if entry.file in self.headers:
                why = f"{entry.place} defines it, but {who} sees a declaration only"
                return NamedCause(why=why, instead=f"include {entry.file} in {who}")
            if entry.text.startswith("template") or spelled.arguments:
                why = (
                    f"{entry.place} defines the template, but does not instantiate it for {spelled.arguments or 'this'}"
                )
                return NamedCause(why=why, instead=f"add to the end of {entry.file}: template {readable};")
            if entry.has("inline") or entry.has("constexpr"):
                why = f"{entry.place} defines it inline, so only that file has it"
                return NamedCause(
                    why=why, instead=f"remove 'inline' there, or move the definition to a header that {who} includes"
                )
            why = f"{entry.place} defines it, but what the compiler saw of that file does not"
            return NamedCause(why=why, instead="check the conditions (#if) and macros around that definition")
        return None

    def _written_otherwise(
        self, written: tuple[Written, ...], spelled: Spelled, declared: Written | None
    ) -> NamedCause | None:
        for entry in written:
            if not entry.is_definition or _fits(entry, spelled):
                continue
            what = "parameters" if entry.scope == spelled.scope else "namespace"
            unlisted = entry.file not in self.objects.values() and entry.file not in self.headers
            beside = " (a file that this variant does not compile)" if unlisted else ""
            named = f"{declared.place} declares it" if declared is not None else "it is declared so"
            why = f"{named}, but {entry.place}{beside} defines '{entry.text}': the {what} differ"
            return NamedCause(why=why, instead="write both alike")
        return None

    def _of_class(self, name: str) -> NamedCause:
        """What a class has of itself where its first virtual function is."""
        base = spell(name).base
        sources = [file for file in mentions(self.root, self.files, f"{base}::") if file not in self.headers]
        left_out = next((file for file in sources if file not in self.objects.values()), None)
        if left_out is not None:
            return self._uncompiled(left_out)
        missing = None if sources else self._of_member(spell(f"{name}::{base}"))
        if missing is not None:
            return missing
        why = f"no source defines the first virtual function of {name} that is neither inline nor pure"
        return NamedCause(why=why, instead="define that function, or make it pure (= 0)")

    def _of_member(self, spelled: Spelled) -> NamedCause | None:
        """What is missing of a class whose body is there: the same for all of its members."""
        name = _bare(spelled.scope).rpartition("::")[2]
        place = find_class(self.root, self.files, name) if name.isidentifier() else None
        if place is None:
            return None
        for file in mentions(self.root, self.files, f"{name}::{spelled.base}"):
            if file not in self.objects.values() and file not in self.headers:
                return self._uncompiled(file)
        why = f"{place} declares it in {name}, but neither the project nor a library that it may need defines it"
        return NamedCause(why=why, instead="add the source that defines it to 'src'")


def _fits(entry: Written, spelled: Spelled) -> bool:
    """Whether a text may be that of a name: as many parameters, in the same scope."""
    if spelled.count is None:
        return entry.is_c
    scope = "::".join(part for part in entry.scope.split("::") if part not in {"", "{}"})
    wanted = spelled.scope.replace(f"{_UNNAMED}::", "")
    return entry.parameters == spelled.count and _bare(scope) == _bare(wanted) and not entry.is_c


def _bare(scope: str) -> str:
    """A scope without the arguments of templates."""
    depth, kept = 0, ""
    for character in scope:
        depth -= character == ">"
        kept += character if depth == 0 and character not in "<>" else ""
        depth += character == "<"
    return kept


def _static(place: str) -> NamedCause:
    why = f"{place} defines it as static, so only that file has it"
    return NamedCause(why=why, instead="remove 'static' from that definition")


def _unnamed(place: str) -> NamedCause:
    why = f"{place} defines it in an unnamed namespace, so only that file has it"
    return NamedCause(why=why, instead="move that definition out of the unnamed namespace")


def _different(rivals: list[_Defined], readable: str, spelled: Spelled, declared: Written | None) -> NamedCause | None:
    """What is defined instead of what is declared, both with their files."""
    others = [entry for entry in rivals if not entry.is_local]
    others.sort(
        key=lambda entry: (entry.spelled.scope != spelled.scope, entry.spelled.parameters != spelled.parameters)
    )
    if not others:
        return None
    found = others[0]
    named = f"{declared.place} declares it" if declared is not None else "it is used so"
    what = f"{named}, but {found.source} defines '{found.readable}'"
    if same_but_for_strings(found.readable, readable):
        why = f"{what}: one of the two is compiled for the other C++ ABI"
        return NamedCause(why=why, instead="remove _GLIBCXX_USE_CXX11_ABI from the sources")
    if (found.spelled.parameters is None) != (spelled.parameters is None):
        why = f"{what}: one of the two has C linkage"
        return NamedCause(why=why, instead='write extern "C" at both, or at neither')
    if spelled.arguments and found.spelled.arguments:
        why = f"{found.source} instantiates the template as '{found.readable}' only"
        return NamedCause(why=why, instead=f"add to the end of the file with its definition: template {readable};")
    differs = "parameters"
    if _bare(found.spelled.scope) != _bare(spelled.scope):
        differs = "namespaces"
    elif found.spelled.parameters == spelled.parameters and found.spelled.after != spelled.after:
        differs = "qualifiers (const)"
    return NamedCause(why=f"{what}: the {differs} differ", instead="write both alike")
