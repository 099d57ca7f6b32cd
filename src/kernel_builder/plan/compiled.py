"""How one compiled variant is made: its sections, its units, and the graph of actions that makes its library."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.actions.context import Context, Layout
from kernel_builder.actions.headers import Headers
from kernel_builder.actions.host import link_action, module_action
from kernel_builder.actions.model import SLIM, Action, GeneratedFile, Tree
from kernel_builder.actions.places import Places
from kernel_builder.actions.precompile import groups_worth_it
from kernel_builder.actions.units import CXX, HOST_LANGUAGES, Unit, suffix_of
from kernel_builder.backends import rules_for
from kernel_builder.backends.protocol import BackendRules, MakesForAll, UnitActions
from kernel_builder.config.backends import Backend, Role
from kernel_builder.config.model import Architecture, Project, Section
from kernel_builder.errors import ConfigError
from kernel_builder.frameworks import rules_of
from kernel_builder.frameworks.protocol import HEAVY, FrameworkRules, first_headers
from kernel_builder.plan import metadata
from kernel_builder.plan.inspection import covered_files, inspection
from kernel_builder.plan.model import EffectiveSection, InstalledFile, VariantPlan
from kernel_builder.plan.narrowing import Narrowing, left_out
from kernel_builder.plan.remarks import Remarks
from kernel_builder.plan.slim import covers_cxx, slim_definitions
from kernel_builder.plan.units import SectionInput, merge, raise_standard
from kernel_builder.project.identity import Identity
from kernel_builder.project.survey import Survey
from kernel_builder.toolchain.model import Family, Toolchain
from kernel_builder.variants.build_type import BuildType
from kernel_builder.variants.matrix import Kept, stable_target
from kernel_builder.variants.names import Abi, TorchTag
from kernel_builder.variants.support import SupportRow, SupportTable
from kernel_builder.versions import Version


@dataclass(kw_only=True)
class CompiledVariant:
    """Plans one compiled variant; the fields are those of :class:`~kernel_builder.plan.planner.Planning`."""

    project: Project
    kept: Kept
    row: SupportRow
    toolchain: Toolchain
    table: SupportTable
    identity: Identity
    survey: Survey
    places: Places
    narrowing: Narrowing
    remarks: Remarks
    headers: Headers
    differing: frozenset[str]
    build_type: BuildType
    environ: Mapping[str, str]

    def plan(self, installed: tuple[InstalledFile, ...]) -> VariantPlan:
        """The variant with everything that is compiled, linked and checked for it.

        Raises :class:`ConfigError` for sections that cannot be compiled.
        """
        sections, effective = self._sections()
        units = self._units(sections)
        ops_id = self.identity.ops_id(self.project, self.kept.backend)
        context = self._context(units, ops_id)
        sources = tuple(unit.source for unit in units)
        # What is signed cannot be given another name later.
        early = self._framework.binds_early(sources, self.survey) or self.toolchain.sdk is not None
        unique = self.identity.unique if early else _stand_in(self.identity.unique)
        linked_as = f"{self._ops_name}_{unique}"
        library = context.word(context.layout.variant / f"{linked_as}{self._framework.suffix}")
        actions, questions = self._actions(context, units, Path(self.places.text(library)))
        framework_files = self._framework.generated(
            context.layout, self.places, ops_id=linked_as, unique=unique, cxx11_abi=self._cxx11_abi
        )
        archs = tuple(str(one) for entry in effective for one in entry.effective)
        for part in self.toolchain.by_project:
            self.remarks.note(str(part))
        self._tell_trial()
        return VariantPlan(
            variant=self.kept.variant,
            ops_id=ops_id,
            generated=tuple(sorted((*framework_files, *questions), key=lambda file: file.path)),
            actions=actions,
            library=library,
            linked_as=linked_as,
            goals=actions[-1].outputs,
            installed=installed,
            metadata=metadata.describe(
                self.project,
                self.kept.backend,
                self.identity,
                archs=archs,
                left_out=left_out(effective),
                toolchain=self.toolchain,
                build_type=self.build_type,
                flags={unit.source: shlex.join(unit.own_flags) for unit in units if unit.own_flags},
                slim=self.headers if any(tree.name == SLIM for one in actions for tree in one.trees) else None,
            ),
            sections=effective,
            toolchain=self._versions(),
        )

    @property
    def _rules(self) -> BackendRules:
        return rules_for(self.kept.backend)

    @property
    def _framework(self) -> FrameworkRules:
        return rules_of(self.project.framework.kind)

    def _versions(self) -> Mapping[str, str]:
        """What the variant is compiled with, for people."""
        toolchain, toolkit = self.toolchain, self.toolchain.toolkit
        return {
            toolchain.framework.kind.value: toolchain.framework.version,
            **({toolkit.toolkit.backend.value: toolkit.toolkit.version} if toolkit else {}),
            **{library.name: library.version for library in toolchain.libraries},
            "c++": str(toolchain.host),
            **({"glibc floor": toolchain.sysroot.floor} if toolchain.sysroot else {}),
            **({"macOS": self._macos} if self._macos else {}),
        }

    def _units(self, sections: tuple[SectionInput, ...]) -> tuple[Unit, ...]:
        backend = self.kept.backend
        units = merge(backend, sections)
        for warning in units.warnings:
            self.remarks.warn(warning)
        if units.misplaced:
            raise ConfigError("; ".join(units.misplaced) + f"; {backend.value} kernels cannot compile it")
        return units.units

    def _context(self, units: tuple[Unit, ...], ops_id: str) -> Context:
        sources = tuple(unit.source for unit in units)
        inputs = self.survey.inputs
        # A file that is added, or a link that leads elsewhere, can take the place of another file of its name, without
        # any file having changed. And what no dependency file lists is known only as a part of the whole.
        facts = [*inputs.included, *(f"{path} -> {to}" for path, to in inputs.links)]
        facts += [] if inputs.is_listed else [inputs.digest]
        names = hashlib.sha256("\n".join(facts).encode("utf-8", "surrogateescape")).hexdigest()
        slim = self._slim(units)
        precompiled, slim = self._precompiled(units, slim)
        return Context(
            variant=self.kept.name,
            ops_name=self._ops_name,
            places=self.places,
            layout=self._layout(),
            toolchain=self.toolchain,
            cxx_standard=self._framework.cxx_standard(self.row),
            cxx11_abi=self._cxx11_abi,
            define=self._framework.definer(
                sources,
                self.survey,
                ops_id=ops_id,
                unique=self.identity.unique,
                cxx11_abi=self._cxx11_abi,
                stable=stable_target(self.kept),
            ),
            heavy=frozenset(s for s in sources if HEAVY in self.survey.marks.get(s, frozenset())),
            precompiled=precompiled,
            sources=Tree(name="project", identity=names, files=inputs.included),
            included=inputs.included,
            units=units,
            environ=self.environ,
            slim=slim,
            verify=self.headers is Headers.VERIFY,
            macos=self._macos,
            frameworks=self.kept.backend.macos.frameworks,
            build_type=self.build_type,
        )

    @property
    def _macos(self) -> str:
        """The oldest macOS that the variant runs on; empty for other systems."""
        return "" if self.toolchain.sdk is None else self.kept.backend.macos.oldest

    def _slim(self, units: tuple[Unit, ...]) -> Mapping[str, tuple[str, ...]]:
        """The sources that are compiled with slim headers, with what is defined for these: the backend's own, and those
        in C++ for g++. clang keeps precompiled headers even for one source, and is as fast with these.
        """
        if self.headers is Headers.FULL:
            return {}
        left_out = frozenset() if self.headers is Headers.VERIFY else self.differing
        languages = {self.kept.backend.value}
        has_proof = self._rules.has_torchs_own_headers or self.toolchain.framework.build is not None
        if (
            has_proof
            and self.toolchain.host.family is Family.GCC
            and covers_cxx(self.headers, self.toolchain.framework)
        ):
            languages.add(CXX)
        own = [unit.source for unit in units if unit.language in languages]
        return slim_definitions(
            self.survey, (source for source in own if source not in left_out), self.toolchain.framework
        )

    def _precompiled(
        self, units: tuple[Unit, ...], slim: Mapping[str, tuple[str, ...]]
    ) -> tuple[Mapping[str, tuple[str, ...]], Mapping[str, tuple[str, ...]]]:
        """The sources whose first headers are precompiled, with the names of these; and ``slim``, in which sources that
        share them have what any of these needs, also where that is only proved: then they are compiled in several ways.
        Precompiled headers are made for releases. With a toolkit, sources with slim headers are known by their text.
        """
        if self.toolchain.sdk is not None or not self.build_type.is_release:
            return {}, slim
        if self.toolchain.toolkit is not None:
            units = tuple(unit for unit in units if unit.source not in slim)
        marks = {unit.source: self.survey.marks.get(unit.source, frozenset()) for unit in units}
        first = {source: first_headers(found) for source, found in marks.items()}
        groups = groups_worth_it(units, first, self.toolchain.host.family, slim)
        needs = [tuple(sorted({one for source in group for one in slim.get(source, ())})) for group in groups]
        together = {source: own for group, own in zip(groups, needs, strict=True) for source in group if own}
        worth = frozenset().union(*groups) - (slim.keys() if self.headers is Headers.VERIFY else set())
        return {source: names for source, names in first.items() if source in worth}, {**slim, **together}

    def _actions(
        self, context: Context, units: tuple[Unit, ...], library: Path
    ) -> tuple[tuple[Action, ...], tuple[GeneratedFile, ...]]:
        """All actions, the last one being the check of the library, and the files that say what to check."""
        actions: list[Action] = []
        objects: list[str] = []
        generated: list[GeneratedFile] = []
        for made in self._compiled(context, units):
            generated += made.generated
            actions += made.actions
            objects += made.objects
            for note in made.notes:
                self.remarks.note(note)
        source = self._framework.module(context.layout)
        if source is not None:
            module = module_action(context, source)
            actions.append(module)
            objects += module.outputs
        shown = f"{self._ops_name}{self._framework.suffix}"  # what it is linked as means nothing to people
        link = link_action(context, tuple(objects), library, self._framework.library)
        versions = self._versions()
        named = (self.toolchain.framework.kind.value, *([self.kept.backend.value] if self.toolchain.toolkit else []))
        covered = covered_files(context, self.survey.inputs.real)
        check, question = inspection(
            context,
            tuple(actions),
            link.outputs[0],
            release=", ".join(f"{name} {versions[name]}" for name in named),
            limited_api=self._framework.limited_api,
            stable=stable_target(self.kept),
            covered=covered.path,
            elsewhere=self._elsewhere(units),
        )
        generated += (question, covered)
        return (*actions, replace(link, source=shown), replace(check, source=shown)), tuple(generated)

    def _compiled(self, context: Context, units: tuple[Unit, ...]) -> Iterator[UnitActions]:
        """What becomes of each unit, and what the backend makes once for all of them."""
        rules = self._rules
        units = tuple(map(self._raised, units))
        if isinstance(rules, MakesForAll):
            yield rules.before(context, units)
        for unit in units:
            yield rules.compile(context, unit, unit.own_flags)
        if isinstance(rules, MakesForAll):
            yield rules.after(context, units)

    @property
    def _ops_name(self) -> str:
        """The ops id but for its unique part."""
        return self.identity.ops_id(self.project, self.kept.backend).removesuffix(f"_{self.identity.unique}")

    def _elsewhere(self, units: tuple[Unit, ...]) -> Mapping[str, Mapping[str, object]]:
        """The sources that only other variants compile: for which section, and whether this backend could."""
        here = {unit.source for unit in units}
        suffixes = {*HOST_LANGUAGES, *self.kept.backend.sources}
        return {
            source: {
                "section": f"[kernel.{section.id}] ({section.backend.value})",
                "fits": suffix_of(source) in suffixes,
            }
            for section in self.project.sections
            for source in section.src
            if source not in here
        }

    @property
    def _cxx11_abi(self) -> bool:
        """Whether the variant is for the new C++ ABI of libstdc++."""
        tag = self.row.variant.tag
        return not (isinstance(tag, TorchTag) and tag.abi is Abi.CXX98)

    def _layout(self) -> Layout:
        directory = self.project.framework.directory
        generated = self.places.work / "generated"
        return Layout(
            root=self.project.root,
            work=self.places.work,
            variant=self.places.work / self.kept.name,
            registration=(self.project.root if self.survey.has_registration else generated) / directory,
            refused=generated / "refused",
            exports_map=generated / ("exports.map" if self._cxx11_abi else "exports-old-abi.map"),
            csrc=self.project.root / "csrc" if self.survey.has_csrc else None,
        )

    def _sections(self) -> tuple[tuple[SectionInput, ...], tuple[EffectiveSection, ...]]:
        """The framework's and the backend's sections, architectures chosen; too old toolkits skip some."""
        framework = self.project.framework
        supported = self._rules.supported(self.toolchain.toolkit, self.table)
        shared = self.toolchain.libraries
        own = EffectiveSection(id=framework.kind.value, effective=supported)
        inputs = [
            SectionInput(
                id=f"[{framework.kind.value}]",
                src=framework.src,
                include=framework.include,
                cxx_flags=framework.cxx_flags,
                flags=(),
                architectures=self._narrowed(own).effective,
                is_binding=True,
                # Bindings have no 'depends' of their own. They get what the sections have, where that is one release.
                libraries=shared if len({library.library for library in shared}) == len(shared) else (),
            )
        ]
        whole: list[EffectiveSection] = []
        if supported and any(suffix_of(source) in self.kept.backend.sources for source in framework.src):
            whole.append(own)
        for section in self.project.sections_for(self.kept.backend):
            if self._is_skipped(section):
                continue
            chosen = self._choose(section, supported)
            if supported:
                whole.append(chosen)
            inputs.append(
                SectionInput(
                    id=f"[kernel.{section.id}]",
                    src=section.src,
                    include=section.include,
                    cxx_flags=section.cxx_flags,
                    flags=section.flags,
                    architectures=self._narrowed(chosen).effective,
                    libraries=tuple(library for library in shared if library.name in section.depends),
                )
            )
        self._refuse_unmet(whole)
        effective = tuple(map(self._narrowed, whole))
        self._tell_left_out(effective)
        return tuple(inputs), effective

    def _narrowed(self, section: EffectiveSection) -> EffectiveSection:
        return self.narrowing.applied(self.kept.backend, section)

    def _refuse_unmet(self, whole: Sequence[EffectiveSection]) -> None:
        unmet = self.narrowing.unmet(self.kept.backend, whole)
        if unmet:
            compiled = ", ".join(dict.fromkeys(str(one) for section in whole for one in section.effective))
            asked = ", ".join(map(str, unmet))
            raise ConfigError(f"--arch {asked}: no section is compiled for it; choose from {compiled or 'nothing'}")

    def _tell_left_out(self, sections: Sequence[EffectiveSection]) -> None:
        """A build that lacks something must not be taken for a whole one."""
        if left_out(sections):
            built = ", ".join(dict.fromkeys(str(one) for section in sections for one in section.effective))
            text = "{variants}: built for {built} only, so upload refuses it; kernel-builder build builds for all"
            self.remarks.note(text, variants=self.kept.name, built=built)

    def _tell_trial(self) -> None:
        """What was compiled by a toolkit of no release must not be taken for a build that can be published."""
        toolkit = self.toolchain.toolkit
        if toolkit is not None and toolkit.unfit is not None:
            text = "{variants}: built for trying out only, so upload refuses it: {reasons}"
            self.remarks.warn(text, variants=self.kept.name, reasons=toolkit.unfit)

    def _is_skipped(self, section: Section) -> bool:
        toolkit, minver = self.toolchain.toolkit, section.toolkit_minver
        if minver is None or toolkit is None or Version.parse(toolkit.toolkit.version).is_at_least(minver):
            return False
        key = _key(self.kept.backend, Role.MINVER)
        text = f"{{variants}}: section {section.id} is skipped, because {key} is {minver}"
        self.remarks.note(text, variants=self.kept.name)
        return True

    def _choose(self, section: Section, supported: tuple[Architecture, ...]) -> EffectiveSection:
        selected = self._rules.select(section.architectures, supported)
        requested = ", ".join(map(str, section.architectures or ()))
        known = ", ".join(map(str, supported))
        toolkit = str(self.toolchain.toolkit.toolkit) if self.toolchain.toolkit else self.kept.backend.label
        if supported and not selected.effective:
            key = _key(self.kept.backend, Role.ARCHITECTURES)
            raise ConfigError(
                f"kernel.{section.id}.{key} lists {requested}, but {toolkit} builds for {known}: nothing is left"
            )
        if selected.dropped:
            dropped = ", ".join(map(str, selected.dropped))
            text = f"section {section.id}: {dropped} dropped; with {{toolkits}}, kernels are built for {known}"
            self.remarks.note(text, toolkits=toolkit)
        return EffectiveSection(id=section.id, effective=selected.effective, dropped=selected.dropped)

    def _raised(self, unit: Unit) -> Unit:
        """``unit`` with no flag that asks for an older standard than the framework's headers need."""
        standard, name = self._framework.cxx_standard(self.row), self.toolchain.framework.kind.value
        cxx_flags, for_cxx = raise_standard(unit.cxx_flags, standard)
        flags, for_device = raise_standard(unit.flags, standard)
        raised = replace(unit, cxx_flags=cxx_flags, flags=flags)
        for word in for_cxx if raised.own_flags is cxx_flags else for_device if raised.own_flags is flags else ():
            text = f"{{sources}}: {word} is raised to {{standards}}, which {name}'s headers need"
            self.remarks.warn(text, sources=unit.source, standards=f"C++{standard}")
        return raised


def _stand_in(unique: str) -> str:
    """What a library is linked with in the place of ``unique``, which changes with every edit and is put into it when
    it is installed: as long, always the same, and nothing that anybody writes.

    All digits: linkers keep a name that is the end of another one within it, and no name begins with a digit.
    """
    digest = hashlib.sha512(b"stands in for the unique part of an ops id").hexdigest()
    return str(int(digest, 16))[: len(unique)]


def _key(backend: Backend, role: Role) -> str:
    """What the backend's key of that role is called in ``build.toml``."""
    key = backend.key(role)
    return key.name if key is not None else role.value
