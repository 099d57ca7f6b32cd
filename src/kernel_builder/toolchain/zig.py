"""A host compiler that need not be installed: the clang, linker and archiver out of zig's wheel (DESIGN.md F9).

The program ``zig`` is LLVM's clang, lld and ar in one static file, and ``zig clang`` is clang itself: none of what
``zig cc`` adds (its own C library, sanitizers, this processor as the default) comes with it. Scripts with the usual
names make it a compiler like any other. It compiles with the libstdc++ that it finds, as every clang does here, and
where there is none, with that of :mod:`kernel_builder.toolchain.cxx_libraries`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kernel_builder.errors import ToolchainError
from kernel_builder.events import Reporter
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey, require_space
from kernel_builder.store.index import Index, choose_wheel, locate
from kernel_builder.store.offline import OfflineError
from kernel_builder.store.transport import NotFoundError
from kernel_builder.toolchain.answers import Answers
from kernel_builder.toolchain.cxx_libraries import CxxLibraries, is_cxx_library
from kernel_builder.toolchain.host import (
    Purpose,
    Rejected,
    build_machine,
    compiler_file,
    host_limits,
    inspect_compiler,
    why_unfit,
)
from kernel_builder.toolchain.model import Family, FetchedPart, HostCompiler
from kernel_builder.toolchain.recipe import ZigRecipe, default_recipe
from kernel_builder.toolchain.trees import fetching
from kernel_builder.toolchain.wheels import wheel_artefact

_TARGETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_SCRIPTS_RECIPE = 1  # raise when the scripts change
_CLANG = """\
#!/bin/sh
root=${{0%/*/*}}
exec "$root/ziglang/zig" clang --driver-mode=g++ --target={target} -resource-dir "$root/ziglang/lib" -B"$root/bin" "$@"
"""
_ON_LIBRARIES = """\
#!/bin/sh
store=${{0%/*/*}}
exec "$store/{zig}/bin/{name}" --sysroot="$store/{libraries}" "$@"
"""
_OTHERS = {"ld": "ld.lld", "ar": "ar", "as": f"clang --target={_TARGETS.get(build_machine(), '')} -c -x assembler"}
"""Where clang looks for its linker, and we for the archiver: the usual name -> zig's."""


def _gone(into: Path) -> Sequence[Artefact]:
    """An entry was there a moment ago."""
    raise ToolchainError(f"{into.name} was removed from the store meanwhile", hint="run the command again")


def is_zig(artefact: Artefact) -> bool:
    """Whether ``artefact`` is what a compiler is made of."""
    return artefact.name == default_recipe().zig.project


@dataclass(frozen=True, kw_only=True)
class ZigCompilers:
    """The compilers of zig's wheels on ``indexes``, for ``machine``. They run with the variables ``environ``.

    ``asked`` is whether the user wants no other compiler; ``libraries`` are for where no GCC is installed. What
    ``answers`` know is not asked again.
    """

    indexes: Sequence[Index]
    store: Store
    reporter: Reporter
    environ: Mapping[str, str]
    machine: str
    answers: Answers | None = None
    libraries: CxxLibraries | None = None
    offline: bool = False
    asked: bool = False

    @property
    def _recipe(self) -> ZigRecipe:
        return default_recipe().zig

    def provide(
        self, purpose: Purpose, *, locked: Sequence[Artefact] = (), fresh: bool = False
    ) -> HostCompiler | Rejected:
        """The compiler for ``purpose``, fetched now if the store has none; why it does not serve otherwise.

        It is the one that is made of ``locked``, if there is such an artefact, else the newest in the store that
        fits, else, or with ``fresh``, the newest on an index. Raises :class:`ToolchainError` when no index has one,
        :class:`NetworkError`, :class:`OfflineError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        clang = host_limits(purpose).get(Family.CLANG)
        project = Path(self._recipe.project)
        if clang is None:
            return Rejected(path=project, reason=f"{purpose.toolkit} accepts no clang that {purpose.headers} accepts")
        allowed = self._recipe.releases(clang.newest)
        if allowed is None:
            return Rejected(path=project, reason=f"every release contains a newer clang than {clang.newest}")
        wanted = next(filter(is_zig, locked), None)
        kept = None if fresh and wanted is None and not self.offline else self._kept(allowed, wanted)
        zig = kept or self._fetched(allowed, wanted)
        self.store.ensure(zig.key, _gone)
        if not any(map(is_cxx_library, locked)):
            host = self._judge(self._compiler(zig.key), (zig,), purpose)
            if self.libraries is None or (isinstance(host, HostCompiler) and self._can_link(host)):
                return host
        elif self.libraries is None:
            return Rejected(path=project, reason="the sources have no libraries for it")
        libraries = self.libraries.provide(host_limits(purpose)[Family.GCC], locked=locked, fresh=fresh)
        self.store.ensure(libraries.key, _gone)
        return self._judge(self._with_libraries(zig, libraries), (zig, libraries), purpose)

    def _judge(self, cxx: Path, packages: tuple[FetchedPart, ...], purpose: Purpose) -> HostCompiler | Rejected:
        found = inspect_compiler(cxx, self.environ, self.answers)
        if isinstance(found, Rejected):
            return found
        host = replace(found, packages=packages)
        reason = why_unfit(host, purpose)
        return host if reason is None else Rejected(path=host.cxx, reason=reason)

    def _can_link(self, host: HostCompiler) -> bool:
        """Whether the GCC of this machine, whose headers there are, came with its static library."""
        try:
            compiler_file(host, "libstdc++.a", self.environ, self.answers)
        except ToolchainError:
            return False
        return True

    def _with_libraries(self, zig: FetchedPart, libraries: FetchedPart) -> Path:
        """The compiler that takes ``libraries`` for the machine's; it lies in the store between the two."""
        name = f"{_TARGETS[self.machine]}-{Family.CLANG.program}"

        def build(into: Path) -> Sequence[Artefact]:
            text = _ON_LIBRARIES.format(zig=zig.key.name, name=name, libraries=libraries.key.name)
            (into / name).write_text(text, encoding="ascii")
            (into / name).chmod(0o755)
            return ()

        key = StoreKey.of("clang", zig=zig.key.name, libraries=libraries.key.name, recipe=_SCRIPTS_RECIPE)
        return self.store.ensure(key, build) / name

    def _compiler(self, key: StoreKey) -> Path:
        return self.store.path(key) / "bin" / f"{_TARGETS[self.machine]}-{Family.CLANG.program}"

    def _key(self, artefact: Artefact) -> StoreKey:
        stem = f"{self._recipe.project}-{artefact.version}"
        return StoreKey.of(stem, wheel=artefact.identity, recipe=[self._recipe.digest, _SCRIPTS_RECIPE])

    def _kept(self, allowed: SpecifierSet, wanted: Artefact | None) -> FetchedPart | None:
        """The newest in the store, or the one that is made of ``wanted``."""
        found = [
            package
            for package in self._stored()
            if wanted is None or self._key(package.artefacts[0]) == self._key(wanted)
            if allowed.contains(package.artefacts[0].version) and self.store.has(package.key)
        ]
        return max(found, key=lambda package: Version(package.artefacts[0].version), default=None)

    def _stored(self) -> Iterator[FetchedPart]:
        for name, artefacts in self.store.made_from(f"{self._recipe.project}-*"):
            if artefacts and self._key(artefacts[0]).name == name:
                yield self._part(artefacts)

    def _part(self, artefacts: tuple[Artefact, ...]) -> FetchedPart:
        name = f"{artefacts[0].name} {artefacts[0].version}"
        return FetchedPart(name=name, key=self._key(artefacts[0]), artefacts=artefacts)

    def _fetched(self, allowed: SpecifierSet, wanted: Artefact | None) -> FetchedPart:
        if self.offline:
            raise OfflineError(
                f"{self._recipe.project}{allowed} is not in the store ({self.store.root}), but --offline forbids using"
                " the network",
                hint="with network access, run: kernel-builder toolchain fetch --host-compiler zig",
            )
        index, artefact = self._choose(allowed) if wanted is None else self._locate(wanted)
        key = self._key(artefact)
        self.store.ensure(key, lambda into: self._fill(index, artefact, key, into), index.check)
        return self._part(self.store.artefacts(key))

    def _locate(self, wanted: Artefact) -> tuple[Index, Artefact]:
        index = next((index for index in self.indexes if index.label == wanted.source), None)
        if index is None:
            raise ToolchainError(f"the source {wanted.source!r} of {wanted.filename} is not configured")
        return index, wanted

    def _choose(self, allowed: SpecifierSet) -> tuple[Index, Artefact]:
        """The newest wheel of the first index that has one."""
        project = self._recipe.project
        reasons: list[str] = []
        for index in self.indexes:
            try:
                choice = choose_wheel(
                    index.files(project), project=project, allowed=allowed, machine=build_machine(), where=index.label
                )
                return index, choice.file.artefact(index.label)
            except NotFoundError as error:
                reasons.append(error.message)
            except ToolchainError as error:
                reasons.append(f"{error.message} ({error.hint})")
        raise ToolchainError(
            f"no package index has {project}{allowed}: {'; '.join(reasons) or 'no index is among the sources'}",
            hint="add an index that has it to your own kernel-builder.toml, or install a compiler",
        )

    def _fill(self, index: Index, artefact: Artefact, key: StoreKey, into: Path) -> Sequence[Artefact]:
        file = locate(index, artefact)
        what = f"{artefact.name} {artefact.version}"
        with fetching(self.store, self.reporter, what, key) as (scratch, progress):
            wheel = index.open(file, scratch, progress.add)
            members = wheel.select(self._recipe.include)
            require_space(into.parent, sum(member.size for member in members))
            progress.expect(sum(member.compressed for member in members))
            wheel.extract(members, into)
            write_scripts(into / "bin")
            return (wheel_artefact(file, wheel, index.label),)


def write_scripts(folder: Path) -> None:
    """Write the programs beside ``ziglang`` that make it a compiler like any other."""
    folder.mkdir()
    texts = {f"{target}-{Family.CLANG.program}": _CLANG.format(target=target) for target in _TARGETS.values()}
    for name, own in _OTHERS.items():
        texts[name] = f'#!/bin/sh\nexec "${{0%/*/*}}/ziglang/zig" {own} "$@"\n'
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)
