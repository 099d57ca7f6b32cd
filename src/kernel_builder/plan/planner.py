"""Project, variants, toolchains, survey and identity -> :class:`BuildPlan`. Pure: nothing is read or started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_builder.actions.headers import Headers
from kernel_builder.actions.places import Places, literal
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError
from kernel_builder.frameworks import rules_of
from kernel_builder.plan import metadata
from kernel_builder.plan.compiled import CompiledVariant
from kernel_builder.plan.model import BuildPlan, InstalledFile, VariantPlan
from kernel_builder.plan.narrowing import NOT_NARROWED, Narrowing
from kernel_builder.plan.remarks import Remarks
from kernel_builder.plan.slim import uses_slim
from kernel_builder.project.identity import Identity
from kernel_builder.project.survey import Survey
from kernel_builder.project.tree import GENERATED_NAMES, GENERATED_OPS, PackageFiles
from kernel_builder.toml.nodes import printable
from kernel_builder.toolchain.model import Toolchain
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.variants.matrix import Kept
from kernel_builder.variants.support import SupportTable

_NAMED_FILES = 5


@dataclass(frozen=True, kw_only=True)
class Planning:
    """All that a plan follows from.

    ``toolchains`` has an entry per name of a variant that is compiled, ``table`` is the support table, ``survey`` what
    the project's tree holds, ``identity`` how it is named. ``headers`` says which of torch's headers device code is
    compiled with; with ``complete`` what is published is proved. ``differing`` are the sources of each variant that a
    proof found to need all headers. ``narrowing`` says for which of its architectures it is built, ``build_type``
    what for. ``environ`` is the user's environment, in which compilers are asked what they would do.
    """

    project: Project
    variants: tuple[Kept, ...]
    toolchains: Mapping[str, Toolchain]
    table: SupportTable
    identity: Identity
    survey: Survey
    places: Places
    headers: Headers = Headers.SLIM
    complete: bool = False
    differing: Mapping[str, frozenset[str]] = field(default_factory=dict)
    narrowing: Narrowing = NOT_NARROWED
    build_type: BuildType = RELEASE
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def plan_build(planning: Planning) -> BuildPlan:
    """The plan. Raises :class:`ConfigError` when the project cannot be built as it is: an empty set of architectures, a
    source that its backend cannot compile.
    """
    project, identity, files = planning.project, planning.identity, planning.survey.package
    remarks = Remarks()
    if identity.reason is not None:
        (remarks.warn if identity.dirty else remarks.note)(identity.reason)
    _mention_left_out(project, files, remarks)
    _refuse_unwritable_paths(planning)
    planned: list[VariantPlan] = []
    problems: dict[str, list[str]] = {}
    for kept in planning.variants:
        try:
            planned.append(_plan_variant(planning, kept, remarks))
        except ConfigError as error:
            problems.setdefault(error.message, []).append(kept.name)
    if problems:
        told = (f"{', '.join(names)}: {message}" for message, names in problems.items())
        raise ConfigError("\n".join(told), hint="nothing was built")
    return BuildPlan(
        places=planning.places,
        name=project.name,
        python_name=project.python_name,
        variants=tuple(planned),
        hub=project.hub,
        warnings=remarks.warnings,
        notes=remarks.notes,
    )


def _plan_variant(planning: Planning, kept: Kept, remarks: Remarks) -> VariantPlan:
    project, identity = planning.project, planning.identity
    ops_id = identity.ops_id(project, kept.backend)
    installed = _installed(planning, ops_id, compiled=kept.row is not None, remarks=remarks)
    if kept.row is None:
        archs = tuple(map(str, project.framework.architectures.get(kept.backend, ())))
        return VariantPlan(
            variant=kept.variant,
            ops_id=ops_id,
            generated=(),
            actions=(),
            library=None,
            installed=installed,
            metadata=metadata.describe(project, kept.backend, identity, archs=archs),
        )
    toolchain = planning.toolchains[kept.name]
    variant = CompiledVariant(
        project=project,
        kept=kept,
        row=kept.row,
        toolchain=toolchain,
        table=planning.table,
        identity=identity,
        survey=planning.survey,
        places=planning.places,
        narrowing=planning.narrowing,
        remarks=remarks,
        headers=uses_slim(planning.headers, toolchain.framework, complete=planning.complete),
        differing=planning.differing.get(kept.name, frozenset()),
        build_type=planning.build_type,
        environ=planning.environ,
    )
    return variant.plan(installed)


def _mention_left_out(project: Project, files: PackageFiles, remarks: Remarks) -> None:
    for name in sorted(GENERATED_NAMES & set(files.left_out)):
        remarks.warn(f"{project.package.name}/{name} is not installed: the generated one takes its place")
    others = [path for path in files.left_out if path not in GENERATED_NAMES]
    if others:
        shown = ", ".join(others[:_NAMED_FILES]) + (", ..." if len(others) > _NAMED_FILES else "")
        remarks.note(
            f"left out of the package: {shown}"
            f" (if the kernel reads them, add their suffix to {project.framework.kind.value}.pyext)"
        )


def _refuse_unwritable_paths(planning: Planning) -> None:
    """Compilers' lists of headers have no way to write a path with a line break, nor most of our files one that is not
    UTF-8, and device compilers split what they pass on to others at commas.
    """
    project, places = planning.project, planning.places
    paths = [str(path) for path in dict.fromkeys((project.root, places.work, places.store))]
    paths += [*project.framework.src, *(source for section in project.sections for source in section.src)]
    has_toolkit = any(toolchain.toolkit is not None for toolchain in planning.toolchains.values())
    for what, wrong in (
        ("a line break", [path for path in paths if "\n" in path]),
        ("bytes that are not UTF-8", [path for path in (*paths, str(places.output)) if not _is_utf8(path)]),
        ("a comma, for a device compiler,", [path for path in paths if has_toolkit and "," in path]),
    ):
        if wrong:
            shown = ", ".join(repr(printable(path)) for path in wrong)
            raise ConfigError(f"paths with {what} cannot be built: {shown}", hint="rename the file or directory")


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _installed(planning: Planning, ops_id: str, *, compiled: bool, remarks: Remarks) -> tuple[InstalledFile, ...]:
    """Everything of the variant directory but the library and ``metadata.json``, sorted by path."""
    project, files = planning.project, planning.survey.package
    framework = rules_of(project.framework.kind)
    package = planning.places.word(project.package)
    installed = [InstalledFile(path=path, origin=f"{package}/{literal(path)}") for path in files.kept]
    installed.append(InstalledFile(path=GENERATED_OPS, content=framework.ops_module(ops_id, compiled=compiled)))
    name = project.python_name
    if any(path == f"{name}.py" or path.startswith(f"{name}/") for path in files.kept):
        # Flat loading comes first: a directory of that name would hide the kernel's own module from its relative
        # imports.
        remarks.note(f"the compatibility package is not written: the kernel has its own module {name}")
    else:
        content = framework.compatibility_package(name)
        installed.append(InstalledFile(path=f"{name}/__init__.py", content=content))
    return tuple(sorted(installed, key=lambda file: file.path))
