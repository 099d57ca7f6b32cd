"""What became of slim headers in a build: who is told, and what later builds know.

The sources that a proof found to need all headers are kept in the work directory until the next proof of the variant.
Builds without a proof compile them with all headers, too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kernel_builder.actions.headers import Headers
from kernel_builder.actions.model import SLIM
from kernel_builder.engine.protocol import ActionResult
from kernel_builder.events import Notice, Reporter
from kernel_builder.files import parse_json, write_text
from kernel_builder.plan.model import VariantPlan

FILE = "slim-differs.json"
"""In the work directory."""


def known_to_differ(work: Path) -> Mapping[str, frozenset[str]]:
    """The sources that need all headers, by the name of the variant; none where nobody knows."""
    try:
        entries = parse_json((work / FILE).read_bytes())
        return {name: frozenset(map(str, sources)) for name, sources in entries.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def with_headers_told(
    variant: VariantPlan, results: Iterable[ActionResult], work: Path, reporter: Reporter
) -> VariantPlan:
    """``variant`` with metadata that name the sources which did not do with slim headers; people are told why. What a
    proof found is kept in ``work``. Raises ``OSError`` where that cannot be written.
    """
    fallen: dict[str, dict[str, list[str]]] = {}
    place = {action.id: at for at, action in enumerate(variant.actions)}
    for result in sorted(results, key=lambda one: place.get(one.action.id, len(place))):  # they come as actions end
        if result.fell_back is not None and any(tree.name == SLIM for tree in result.action.trees):
            by_reason = fallen.setdefault(result.action.source, {})
            by_reason.setdefault(result.fell_back, []).append(result.action.architecture or "host code")
    for source, by_reason in fallen.items():
        for reason, architectures in by_reason.items():
            what = f"{source} ({', '.join(architectures)})"
            message = f"{variant.name}: {what} is compiled with torch's full headers: {reason}"
            reporter.emit(Notice(message=message))
    provenance = variant.metadata.get("provenance")
    if not isinstance(provenance, dict):
        return variant
    known = known_to_differ(work).get(variant.name, frozenset())
    sources = frozenset(fallen)
    if provenance.get("headers") == Headers.VERIFY.value:
        _remember(work, variant.name, sources)
    else:
        sources |= known & {action.source for action in variant.actions}
    if not sources or "headers" not in provenance:
        return variant
    told = {**provenance, "full-headers": sorted(sources)}
    return replace(variant, metadata={**variant.metadata, "provenance": told})


def _remember(work: Path, variant: str, sources: Collection[str]) -> None:
    """Keep that of all sources of ``variant``, which were proved, just ``sources`` differ."""
    known = known_to_differ(work)
    if known.get(variant, frozenset()) != sources:
        entries = {name: sorted(found) for name, found in {**known, variant: sources}.items() if found}
        write_text(work / FILE, json.dumps(entries, indent=1, sort_keys=True) + "\n")
