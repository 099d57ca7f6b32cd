"""What a build would do, before it does anything: what is compiled for each variant, what is up to date, and how many
bytes are fetched.

Nothing is written, and of what is missing only the directories of wheels are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import ActionKind
from kernel_builder.engine.records import outdated
from kernel_builder.errors import NetworkError
from kernel_builder.plan.model import VariantPlan
from kernel_builder.workflow.prepare import Prepared
from kernel_builder.workflow.toolchains import Chosen

# What makes sources may make several at once; what is compiled after it is out of date with it.
_BESIDES_COMPILING = {ActionKind.TRANSLATE, ActionKind.LINK, ActionKind.INSPECT}


@dataclass(frozen=True, kw_only=True)
class VariantForecast:
    """What a build would do for one variant.

    ``compiled`` are sources that are compiled, ``current`` those whose objects are up to date; ``links``: whether the
    library is linked. ``fetched`` is about how many bytes come for it and for no variant before it (``None``: nobody
    could be asked), ``besides`` names libraries that come too and whose size nobody tells beforehand.
    """

    plan: VariantPlan
    compiled: tuple[str, ...]
    current: tuple[str, ...]
    links: bool
    fetched: int | None
    besides: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """As a JSON object."""
        return {
            "compiled": list(self.compiled),
            "up-to-date": list(self.current),
            "links": self.links,
            "bytes-to-fetch": self.fetched,
            "libraries-to-fetch": list(self.besides),
        }


def forecast(prepared: Prepared, environ: Mapping[str, str]) -> tuple[VariantForecast, ...]:
    """What building ``prepared`` with the variables ``environ`` would do, by variant, in plan order."""
    plan = prepared.plan
    due = outdated(plan, environ)
    counted: set[tuple[str, str]] = set()
    named: set[str] = set()
    found: list[VariantForecast] = []
    for variant in plan.variants:
        sources: dict[str, bool] = {}
        for action in variant.actions:
            if action.kind not in _BESIDES_COMPILING and action.source != MODULE_SOURCE:
                sources[action.source] = sources.get(action.source, False) or action.id in due
        libraries = [name for name in _libraries(prepared.chosen, variant) if name not in named]
        named.update(libraries)
        found.append(
            VariantForecast(
                plan=variant,
                compiled=tuple(source for source, stale in sources.items() if stale),
                current=tuple(source for source, stale in sources.items() if not stale),
                links=any(action.kind is ActionKind.LINK and action.id in due for action in variant.actions),
                fetched=_bytes(prepared.chosen, variant.name, counted),
                besides=tuple(libraries),
            )
        )
    return tuple(found)


def _bytes(chosen: Chosen, name: str, counted: set[tuple[str, str]]) -> int | None:
    """About how many bytes are fetched for the toolchain of a variant, without what ``counted`` has, which grows."""
    resolved = chosen.resolved.get(name)
    if resolved is None or chosen.provider is None:
        return 0
    try:
        weights = chosen.provider.weigh(resolved)
    except NetworkError:
        return None
    total = 0
    for taken in resolved.chain.taken:
        key = (
            resolved.framework_key
            if taken is resolved.chain.taken[0]
            else resolved.toolkit_key or resolved.framework_key
        )
        file = key.name, taken.artefact.filename
        if file not in counted:
            counted.add(file)
            total += weights[taken.artefact.filename]
    return total


def _libraries(chosen: Chosen, variant: VariantPlan) -> list[str]:
    """The libraries that the sections of a variant depend on and that are not in the store."""
    return [
        library.release.label
        for library in chosen.depends.get(variant.name, ())
        if library.local is None and not all(folder.is_dir() for folder in library.headers.include)
    ]
