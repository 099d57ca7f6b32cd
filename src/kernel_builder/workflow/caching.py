"""The action cache of a run: where it is, how large it may grow, and with whom it is shared."""

from __future__ import annotations

from kernel_builder.engine.cache import DEFAULT_LIMIT, ActionCache
from kernel_builder.errors import UsageError
from kernel_builder.files import bytes_of
from kernel_builder.store.shared import open_shared
from kernel_builder.workflow.run import Run

SIZE = "KERNEL_BUILDER_ACTIONS_SIZE"
_FOLDER = "actions"


def open_cache(run: Run, *, only_here: bool = False) -> ActionCache:
    """The action cache in the store of ``run``, before the one that it is shared with, unless it is to have what was
    made ``only_here``.

    Raises :class:`UsageError` for variables that say what cannot be.
    """
    said = run.environ.get(SIZE, "").strip()
    limit = bytes_of(said) if said else DEFAULT_LIMIT
    if limit is None:
        raise UsageError(f"{SIZE} is {said!r}, which is not a size", hint="write it as 5G or 800M")
    shared = None if only_here else open_shared(run.environ, run.reporter, offline=run.offline)
    return ActionCache(run.store.root / _FOLDER, limit=limit, remote=shared)
