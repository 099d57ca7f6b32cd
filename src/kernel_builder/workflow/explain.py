"""Why a variant is compiled with what: each part of its toolchain, where it comes from, and what was not taken.

Nothing here prints; progress goes to a reporter and the result is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from kernel_builder.variants.matrix import Kept, all_variants, variants_of_any
from kernel_builder.variants.names import Variant
from kernel_builder.variants.support import SupportRow, load_support
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
    """The build of torch that is behind ``variant``, and what it is the name of; ``root``'s project may want another
    build than most.
    """
    table = load_support()
    entry: Kept | None = None
    if root is not None and (root / FILE_NAME).is_file():
        project, _ = load_project(root)
        entry = next((kept for kept in all_variants(project, table, None).kept if kept.name == variant), None)
        if entry is not None and entry.row is None:
            raise UsageError(f"{variant} of {project.name} is Python only: nothing is compiled for it")
    if entry is None:
        entry = next((kept for kept in variants_of_any(table, None) if kept.name == variant), None)
    if entry is None or entry.row is None:
        here = this_platform()
        raise UsageError(
            f"variant {variant!r} is neither in the support table nor in a project here",
            hint=_meant(variant, [row.name for row in table.rows if row.platform == here])
            or "run 'kernel-builder list-variants --set all' for a project's variants, or pass a project with"
            " --project",
        )
    if entry.obstacle is not None:
        raise UsageError(f"{variant}: {entry.obstacle}")
    return entry.row, entry.variant


def _meant(variant: str, names: list[str]) -> str | None:
    """Which of ``names`` a part of one, or one that is written almost right, may mean."""
    alike = names_like(variant, names)
    near = get_close_matches(variant, names, cutoff=0.9)
    if alike is None and not near:
        return None
    return f"did you mean one of {alike[1] if alike is not None else ', '.join(near)}?"
