"""Project, variants, toolchains and identity -> :class:`BuildPlan`. Reads the tree, starts nothing, writes nothing."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import capabilities_of, select_capabilities
from kernel_builder.config.model import Capability, Project, Section
from kernel_builder.errors import ConfigError
from kernel_builder.plan import cpu, cuda, glue, metadata
from kernel_builder.plan.binding import decide_binding
from kernel_builder.plan.compile import LIMITED_API, Context, Layout, link_step, module_step
from kernel_builder.plan.model import (
    BuildPlan,
    EffectiveSection,
    GeneratedFile,
    InstalledFile,
    Step,
    UndefinedPolicy,
    VariantPlan,
)
from kernel_builder.plan.units import (
    Language,
    SectionInput,
    Unit,
    clashing_libraries,
    language_of,
    merge,
    raise_standard,
)
from kernel_builder.project.identity import Identity
from kernel_builder.project.tree import GENERATED_NAMES, GENERATED_OPS, PackageFiles, includable_files, package_files
from kernel_builder.toolchain.model import Family, LibraryHeaders, Toolchain
from kernel_builder.variants.matrix import Kept
from kernel_builder.variants.names import Abi, ArchVariant, StableAbiTag, TorchTag
from kernel_builder.variants.support import SupportRow, SupportTable
from kernel_builder.versions import Version

_COMPILERS: Mapping[Backend, Callable[[Context, Unit, tuple[str, ...]], Step]] = {
    Backend("cpu"): cpu.compile_step,
    Backend("cuda"): cuda.compile_step,
}
_VENDORED = "registration.h"
_NAMED_FILES = 5
_OPENMP = re.compile(r"(^|[=,])-fopenmp($|[=,])")
"""The flag, by itself or after ``-Xcompiler=``; ``-fopenmp-simd`` is another one, which needs no runtime."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a build reads and writes: project root, the tool's work directory, the output directory, the store."""

    root: Path
    work: Path
    output: Path
    store: Path


@dataclass(kw_only=True)
class _Remarks:
    """What planning has to tell people, once each however many variants say it."""

    warnings: list[str]
    notes: list[str]

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def plan_build(
    project: Project,
    variants: tuple[Kept, ...],
    *,
    toolchains: Mapping[str, Toolchain],
    table: SupportTable,
    identity: Identity,
    places: Places,
) -> BuildPlan:
    """Plan ``variants``. ``toolchains`` has an entry per name of a variant that is compiled.

    Raises :class:`ConfigError` when the project cannot be built as it is: an empty set of capabilities, a source that
    its backend cannot compile.
    """
    remarks = _Remarks(warnings=[], notes=[])
    if identity.reason is not None:
        (remarks.warn if identity.dirty else remarks.note)(identity.reason)
    files = package_files(project)
    _mention_left_out(project, files, remarks)
    includable = includable_files(project.root, places.output)
    _refuse_unwritable_paths(project)
    planned: list[VariantPlan] = []
    problems: list[str] = []
    for kept in variants:
        try:
            if kept.row is None:
                planned.append(_plan_noarch(project, kept, files, identity, remarks))
            else:
                planner = _CompiledVariant(
                    project=project,
                    kept=kept,
                    row=kept.row,
                    toolchain=toolchains[kept.name],
                    table=table,
                    identity=identity,
                    places=places,
                    remarks=remarks,
                )
                planned.append(planner.plan(files, includable))
        except ConfigError as error:
            problems.append(f"{kept.name}: {error.message}")
    if problems:
        raise ConfigError("\n".join(problems), hint="nothing was built")
    return BuildPlan(
        root=project.root,
        work=places.work,
        output=places.output,
        name=project.name,
        python_name=project.python_name,
        variants=tuple(planned),
        hub=project.hub,
        warnings=tuple(remarks.warnings),
        notes=tuple(remarks.notes),
    )


def _mention_left_out(project: Project, files: PackageFiles, remarks: _Remarks) -> None:
    for name in sorted(GENERATED_NAMES & set(files.left_out)):
        remarks.warn(f"{project.package.name}/{name} is not installed: the generated one takes its place")
    others = [path for path in files.left_out if path not in GENERATED_NAMES]
    if others:
        shown = ", ".join(others[:_NAMED_FILES]) + (", ..." if len(others) > _NAMED_FILES else "")
        remarks.note(
            f"left out of the package: {shown}"
            f" (a suffix in {project.framework.kind.value}.pyext brings such files in, if the kernel reads them)"
        )


def _refuse_unwritable_paths(project: Project) -> None:
    """ninja's files have no way to write a path with a line break or a vertical bar."""
    sources = [*project.framework.src, *(source for section in project.sections for source in section.src)]
    wrong = [path for path in (str(project.root), *sources) if "|" in path or "\n" in path]
    if wrong:
        raise ConfigError(
            "paths with a vertical bar or a line break cannot be built: " + ", ".join(repr(path) for path in wrong),
            hint="rename the file or directory",
        )


def _installed(
    project: Project, files: PackageFiles, ops_id: str, *, compiled: bool, remarks: _Remarks
) -> tuple[InstalledFile, ...]:
    """Everything of the variant directory but the library and ``metadata.json``, sorted by path."""
    installed = [InstalledFile(path=path, origin=project.package / path) for path in files.kept]
    installed.append(InstalledFile(path=GENERATED_OPS, content=glue.ops_module(ops_id, compiled=compiled)))
    name = project.python_name
    if any(path == f"{name}.py" or path.startswith(f"{name}/") for path in files.kept):
        # Flat loading comes first: a directory of that name would hide the kernel's own module from its relative
        # imports.
        remarks.note(f"no compatibility package is written: the kernel has a module of its own called {name}")
    else:
        installed.append(InstalledFile(path=f"{name}/__init__.py", content=glue.compatibility_package(name)))
    return tuple(sorted(installed, key=lambda file: file.path))


def _plan_noarch(
    project: Project, kept: Kept, files: PackageFiles, identity: Identity, remarks: _Remarks
) -> VariantPlan:
    framework = project.framework
    archs = tuple(str(architecture) for architecture in framework.architectures.get(kept.backend, ()))
    ops_id = identity.ops_id(project, kept.backend)
    return VariantPlan(
        variant=kept.variant,
        ops_id=ops_id,
        generated=(),
        steps=(),
        library=None,
        installed=_installed(project, files, ops_id, compiled=False, remarks=remarks),
        metadata=metadata.describe(project, kept.backend, identity, archs=archs),
    )


def python_include() -> tuple[Path, ...]:
    """Directory of this Python's headers, if they are installed. Only a kernel that includes Python.h needs them.

    Those of a free-threaded Python cannot be compiled for the limited API.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return ()
    include = Path(sysconfig.get_paths()["include"])
    return (include,) if (include / "Python.h").is_file() else ()


def stable_target(kept: Kept) -> Version | None:
    """The release whose stable ABI a variant is for; ``None`` for one that uses all of torch."""
    variant = kept.variant
    if not isinstance(variant, ArchVariant) or not isinstance(variant.tag, StableAbiTag):
        return None
    major, minor = variant.tag.version
    return Version.parse(f"{major}.{minor}")


@dataclass(kw_only=True)
class _CompiledVariant:
    """Plans one compiled variant."""

    project: Project
    kept: Kept
    row: SupportRow
    toolchain: Toolchain
    table: SupportTable
    identity: Identity
    places: Places
    remarks: _Remarks

    def plan(self, files: PackageFiles, includable: tuple[str, ...]) -> VariantPlan:
        project, backend = self.project, self.kept.backend
        sections, effective = self._sections()
        units = merge(backend, sections)
        for warning in units.warnings:
            self.remarks.warn(warning)
        if units.misplaced:
            raise ConfigError("; ".join(units.misplaced) + f"; {backend.value} kernels cannot compile it")
        self._refuse_clashes(units.units)
        self._refuse_openmp_of_clang(units.units)
        ops_id = self.identity.ops_id(project, backend)
        layout = self._layout()
        sources = tuple(unit.source for unit in units.units)
        context = Context(
            layout=layout,
            toolchain=self.toolchain,
            ops_id=ops_id,
            ops_stem=ops_id.removesuffix(self.identity.unique),
            binding=decide_binding(project.root, sources, includable),
            cxx_standard=self.row.cxx_standard,
            cxx11_abi=self._cxx11_abi,
            headers_include=python_include(),
            stable_target=stable_target(self.kept),
        )
        module = GeneratedFile(
            path=layout.variant / "generated" / "module.c",
            content=glue.module_source(ops_id, self.identity.unique),
        )
        generated = [
            GeneratedFile(path=layout.exports_map, content=glue.exports_map(cxx11_abi=self._cxx11_abi)),
            # A file that is added can take the place of another one of its name, without any file having changed.
            GeneratedFile(path=layout.headers_stamp, content="".join(f"{path}\n" for path in includable)),
            GeneratedFile(path=layout.compiler_stamp, content=f"{self.toolchain.host!r}\n"),
            module,
        ]
        generated += [
            GeneratedFile(path=layout.refused / name, content=glue.refused_header(name))
            for name in glue.REFUSED_HEADERS
        ]
        if layout.registration.is_relative_to(self.places.work):
            generated.append(GeneratedFile(path=layout.registration / _VENDORED, content=glue.registration_header()))
        steps = [_COMPILERS[backend](context, unit, self._flags(unit)) for unit in units.units]
        steps.append(module_step(context, module.path))
        library = layout.variant / f"{ops_id}.abi3.so"
        steps.append(link_step(context, tuple(step.output for step in steps), library))
        torch, nvcc = self.toolchain.torch, self.toolchain.cuda
        return VariantPlan(
            variant=self.kept.variant,
            ops_id=ops_id,
            generated=tuple(sorted(generated, key=lambda file: file.path)),
            steps=tuple(steps),
            library=library,
            installed=_installed(project, files, ops_id, compiled=True, remarks=self.remarks),
            metadata=metadata.describe(
                project,
                backend,
                self.identity,
                capabilities=tuple(capability for entry in effective for capability in entry.capabilities),
            ),
            sections=effective,
            undefined=UndefinedPolicy(
                tables=nvcc.exports if nvcc else (),
                torch=torch.exports,
                python=LIMITED_API,
                stable=context.stable_target,
            ),
            toolchain={
                "torch": torch.version,
                **({"cuda": nvcc.version} if nvcc else {}),
                **{library.name: library.version for library in self.toolchain.libraries},
                "c++": str(self.toolchain.host),
                "glibc floor": self.toolchain.sysroot.floor,
            },
        )

    def _refuse_clashes(self, units: tuple[Unit, ...]) -> None:
        for unit in units:
            clash: tuple[LibraryHeaders, ...] = clashing_libraries(unit)
            if clash:
                raise ConfigError(
                    f"{unit.source} is in {' and '.join(unit.sections)}, which depend on"
                    f" {' and '.join(library.name for library in clash)}: a file is compiled once, with one of them"
                )

    def _refuse_openmp_of_clang(self, units: tuple[Unit, ...]) -> None:
        """torch brings GNU's OpenMP runtime, and clang makes calls to LLVM's alone."""
        host = self.toolchain.host
        users = [unit for unit in units if any(map(_OPENMP.search, unit.flags()))]
        if host.family is Family.CLANG and users:
            sections = dict.fromkeys(section for unit in users for section in unit.sections)
            raise ConfigError(
                f"{' and '.join(sections)}: -fopenmp with {host} ({host.cxx}) needs LLVM's OpenMP runtime, and torch"
                f" brings GNU's; build with g++, or leave -fopenmp out"
            )

    @property
    def _cxx11_abi(self) -> bool:
        """Whether the variant is for the new C++ ABI of libstdc++."""
        tag = self.row.variant.tag
        return not (isinstance(tag, TorchTag) and tag.abi is Abi.CXX98)

    def _layout(self) -> Layout:
        vendored = self.project.root / self.project.framework.directory
        variant = self.places.work / self.kept.name
        generated = self.places.work / "generated" / self.project.framework.directory
        return Layout(
            root=self.project.root,
            work=self.places.work,
            variant=variant,
            registration=vendored if (vendored / _VENDORED).is_file() else generated,
            refused=self.places.work / "generated" / "refused",
            exports_map=self.places.work / "generated" / ("exports.map" if self._cxx11_abi else "exports-old-abi.map"),
            compiler_stamp=variant / "generated" / "compiler.txt",  # variants may have compilers of their own
            headers_stamp=self.places.work / "generated" / "includable.txt",
            store=self.places.store,
        )

    def _sections(self) -> tuple[tuple[SectionInput, ...], tuple[EffectiveSection, ...]]:
        """The framework's and the backend's sections with their capabilities chosen; too old toolkits skip some."""
        framework = self.project.framework
        supported = self._supported()
        shared = self.toolchain.libraries
        inputs = [
            SectionInput(
                id=f"[{framework.kind.value}]",
                src=framework.src,
                include=framework.include,
                cxx_flags=framework.cxx_flags,
                cuda_flags=(),
                capabilities=supported,
                # Bindings have no 'depends' of their own. They get what the sections have, where that is one release.
                libraries=shared if len({library.library for library in shared}) == len(shared) else (),
            )
        ]
        effective: list[EffectiveSection] = []
        if any(language_of(source) is Language.CUDA for source in framework.src):
            effective.append(EffectiveSection(id=framework.kind.value, capabilities=supported))
        for section in self.project.sections_for(self.kept.backend):
            if self._is_skipped(section):
                continue
            capabilities: tuple[Capability, ...] = ()
            if self.kept.backend is Backend("cuda"):
                chosen = self._choose(section, supported)
                effective.append(chosen)
                capabilities = chosen.capabilities
            inputs.append(
                SectionInput(
                    id=f"[kernel.{section.id}]",
                    src=section.src,
                    include=section.include,
                    cxx_flags=section.cxx_flags,
                    cuda_flags=section.flags,
                    capabilities=capabilities,
                    libraries=tuple(library for library in shared if library.name in section.depends),
                )
            )
        return tuple(inputs), tuple(effective)

    def _supported(self) -> tuple[Capability, ...]:
        if self.toolchain.cuda is None:
            return ()
        version = Version.parse(self.toolchain.cuda.version)
        return capabilities_of(self.table.default_architectures(self.kept.backend, version))

    def _is_skipped(self, section: Section) -> bool:
        toolkit = self.toolchain.cuda
        if section.toolkit_minver is None or toolkit is None:
            return False
        if Version.parse(toolkit.version).is_at_least(section.toolkit_minver):
            return False
        self.remarks.note(
            f"{self.kept.name}: section {section.id} is skipped, because cuda-minver is {section.toolkit_minver}"
        )
        return True

    def _choose(self, section: Section, supported: tuple[Capability, ...]) -> EffectiveSection:
        wanted = None if section.architectures is None else capabilities_of(section.architectures)
        selection = select_capabilities(wanted, supported)
        requested = ", ".join(str(capability) for capability in wanted or ())
        known = ", ".join(str(capability) for capability in supported)
        toolkit = f"CUDA {self.toolchain.cuda.version}" if self.toolchain.cuda else "CUDA"
        if not selection.effective:
            raise ConfigError(
                f"kernel.{section.id}.cuda-capabilities asks for {requested}, and {toolkit} builds for {known}:"
                " nothing is left"
            )
        if selection.dropped:
            dropped = ", ".join(str(capability) for capability in selection.dropped)
            self.remarks.note(f"section {section.id}: {dropped} dropped, {toolkit} builds for {known}")
        return EffectiveSection(id=section.id, capabilities=selection.effective, dropped=selection.dropped)

    def _flags(self, unit: Unit) -> tuple[str, ...]:
        for word in unit.flags():
            if word in {"-march=native", "-mcpu=native", "-mtune=native"}:
                self.remarks.warn(
                    f"{unit.source}: {word} makes code for this machine's processor; others may not run it"
                )
        flags, replaced = raise_standard(unit.flags(), self.row.cxx_standard)
        for word in replaced:
            self.remarks.warn(
                f"{unit.source}: {word} is raised to C++{self.row.cxx_standard}, which torch {self.row.torch} needs"
            )
        return flags
