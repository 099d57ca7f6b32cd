"""Why a variant is compiled with what: each part of its toolchain, where it comes from, and what was not taken.

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.errors import UsageError
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.host import Rejected, find_host_compilers, judge_host_compilers
from kernel_builder.toolchain.provide import purpose_of
from kernel_builder.toolchain.resolved import ResolvedToolchain
from kernel_builder.toolchain.settings import ToolchainSettings
from kernel_builder.variants.matrix import all_variants, why_not_compiled
from kernel_builder.variants.names import ArchVariant, TvmFfiTag, Variant, parse_variant
from kernel_builder.variants.support import SupportRow, SupportTable, load_support
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.select import names_like, this_platform
from kernel_builder.workflow.toolchains import open_toolchains, toolchain_request


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What was chosen for ``variant``. ``rejected`` are host compilers that were not taken; ``fetched`` says about how
    many bytes are still to be fetched of each file that was, by its name.
    """

    variant: str
    request: ToolchainRequest
    settings: ToolchainSettings
    resolved: ResolvedToolchain
    rejected: tuple[Rejected, ...]
    fetched: Mapping[str, int]


def explain(variant: str, run: Run, *, root: Path | None = None) -> Explanation:
    """Choose the toolchain of ``variant`` again, as the settings of the project in ``root`` say.

    Raises :class:`UsageError` for a name that neither the support table nor the project has, and what reading the
    project and choosing raise: then the message has all reasons.
    """
    row, compiled = _row(variant, root)
    request = toolchain_request(row, compiled)
    settings = run.settings(root)
    compilers = find_host_compilers(run.environ, machine=request.machine.value, choice=settings.host_compiler)
    _, rejected = judge_host_compilers(compilers, purpose_of(request, toolkit_kinds()))
    toolchains = open_toolchains(run, root, request.machine.value)
    resolved = toolchains.resolve(request, fresh=True)
    return Explanation(
        variant=variant,
        request=request,
        settings=settings,
        resolved=resolved,
        rejected=rejected,
        fetched=toolchains.weigh(resolved),
    )


def _row(variant: str, root: Path | None) -> tuple[SupportRow, Variant]:
    """The build of torch that is behind ``variant``, and what it is the name of; for torch's stable ABI, ``root``'s
    project says which.
    """
    table = load_support()
    compiled = _parsed(variant)
    row = next((row for row in table.rows if row.name == variant), _paired(table, compiled))
    obstacle = why_not_compiled(row.variant) if row is not None else None
    if root is not None and (root / FILE_NAME).is_file():
        project, _ = load_project(root)
        entry = next((kept for kept in all_variants(project, table, None).kept if kept.name == variant), None)
        if entry is not None and entry.row is None:
            raise UsageError(f"{variant} of {project.name} is Python only: nothing is compiled for it")
        if entry is not None:
            row, compiled, obstacle = entry.row, entry.variant, entry.obstacle
    if row is None or compiled is None:
        here = this_platform()
        raise UsageError(
            f"variant {variant!r} is neither in the support table nor in a project here",
            hint=_meant(variant, [row.name for row in table.rows if row.platform == here])
            or "run 'kernel-builder list-variants --set all' for a project's variants, or pass a project with"
            " --project",
        )
    if obstacle is not None:
        raise UsageError(f"{variant}: {obstacle}")
    return row, compiled


def _parsed(name: str) -> Variant | None:
    try:
        return parse_variant(name)
    except ValueError:
        return None


def _paired(table: SupportTable, compiled: Variant | None) -> SupportRow | None:
    """The newest build of torch that a variant for tvm-ffi is paired with."""
    if not isinstance(compiled, ArchVariant) or not isinstance(compiled.tag, TvmFfiTag):
        return None
    rows = [
        row
        for row in table.rows
        if row.tvm_ffi is not None
        and (row.tvm_ffi.major, row.tvm_ffi.minor) == compiled.tag.version
        and replace(compiled, tag=row.variant.tag) == row.variant
    ]
    return rows[-1] if rows else None


def _meant(variant: str, names: list[str]) -> str | None:
    """Which of ``names`` a part of one, or one that is written almost right, may mean."""
    alike = names_like(variant, names)
    near = get_close_matches(variant, names, cutoff=0.9)
    if alike is None and not near:
        return None
    return f"did you mean one of {alike[1] if alike is not None else ', '.join(near)}?"
