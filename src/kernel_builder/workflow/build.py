"""Building a project: what was asked for, and the answer: that nothing changed, or what was made.

Nothing here prints; progress goes to a reporter and the result is a value. What makes variants is imported only where
there is something to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.actions.headers import Headers
from kernel_builder.config.backends import Backend
from kernel_builder.engine.work import claim
from kernel_builder.project.tree import WORK_DIRECTORY
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.variants.build_type import RELEASE, BuildType
from kernel_builder.variants.names import Platform
from kernel_builder.variants.support import VariantSet
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.unchanged import recall

if TYPE_CHECKING:
    from kernel_builder.workflow.prepare import Prepared


class SandboxUse(StrEnum):
    """Whether actions run under bubblewrap."""

    NO = "no"
    TRY = "try"
    """Where it can run; otherwise that is said."""
    ALWAYS = "always"
    """Where it cannot run, nothing is built."""


def sandbox_use(*, always: bool, where_possible: bool) -> SandboxUse:
    """What ``--sandbox`` and ``--try-sandbox`` ask for."""
    if always:
        return SandboxUse.ALWAYS
    return SandboxUse.TRY if where_possible else SandboxUse.NO


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What ``kernel-builder build`` was asked for.

    ``patterns`` are globs over variant names, ``architectures`` those to build for, as they are written (empty: all),
    ``fast`` means those of this machine's devices, ``local`` what the client loads in the active environment, and
    what can run there, ``platform`` and ``within`` are as in :class:`Selection`; with ``complete`` all of them must be
    possible here; with ``list_unreachable`` a server that does not answer makes variants unavailable, instead of
    being an error at once; with ``recall`` a source that had nothing is not asked again for an hour; ``lock`` says
    what becomes of the project's lock. ``jobs`` overrides the number of jobs, ``variants_at_once`` and ``cores``
    that of variants and of one variant's jobs; without ``load`` none is loaded, which is said unless they are
    ``loaded_next``, as by tests; without ``cache`` the action cache is not used; ``output`` the directory for variants
    (default ``build``), ``python`` the interpreter that loads them, ``ignore`` the conformance rules that are passed
    over.
    ``mark`` is added to the variants' namespace, which is that of the Hub form without it.
    ``headers`` says which of torch's headers sources are compiled with, ``build_type`` what it is built for.
    ``sandbox`` says whether actions run in a sandbox.
    ``scheduler`` is the address of dask's scheduler, whose workers run what can run there.
    ``settings_from``: whose ``kernel-builder.toml`` counts (default: that of the root).
    """

    root: Path
    patterns: tuple[str, ...] = ()
    backends: tuple[Backend, ...] = ()
    architectures: tuple[str, ...] = ()
    fast: bool = False
    local: bool = False
    platform: Platform | None = None
    within: VariantSet | None = None
    complete: bool = False
    list_unreachable: bool = False
    recall: bool = False
    lock: LockUse = LockUse.PREFER
    jobs: int | None = None
    variants_at_once: int | None = None
    cores: int | None = None
    load: bool = True
    loaded_next: bool = False
    cache: bool = True
    keep_going: bool = False
    verbose: bool = False
    output: Path | None = None
    python: Path | None = None
    ignore: tuple[str, ...] = ()
    mark: str = ""
    settings_from: Path | None = None
    headers: Headers = Headers.SLIM
    build_type: BuildType = RELEASE
    sandbox: SandboxUse = SandboxUse.NO
    scheduler: str | None = None


def build(request: BuildRequest, run: Run) -> BuildOutcome:
    """Build, install and load the variants of ``request``; where nothing that they rest on changed, say so at once.

    A variant that fails is a value of the outcome. Raises what the earlier stages raise; Ctrl-C leaves no child and no
    half-made variant.
    """
    claim(request.root.resolve() / WORK_DIRECTORY, run.store.root, run.reporter)
    unchanged = recall(request, run)
    if unchanged is not None:
        return unchanged
    from kernel_builder.workflow.making import make  # noqa: PLC0415  (start-up time)

    return make(request, run)


def prepare_build(request: BuildRequest, run: Run) -> Prepared:
    """Everything up to the plan of ``request``. Raises what :func:`~kernel_builder.workflow.prepare.prepare` does."""
    from kernel_builder.workflow.making import prepared_for  # noqa: PLC0415  (start-up time)

    return prepared_for(request, run)
