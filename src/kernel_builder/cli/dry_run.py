"""What ``build --dry-run`` prints: a table of what a build would do, and with ``-v`` every command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernel_builder.cli.console import size_text
from kernel_builder.cli.fitting import table, wrapped
from kernel_builder.plan.model import BuildPlan, VariantPlan
from kernel_builder.workflow.forecast import VariantForecast
from kernel_builder.workflow.prepare import Prepared

_HEAD = ("variant", "toolchain", "compile", "up to\ndate", "to fetch")
_SOURCES = 12


def dry_run_json(prepared: Prepared, forecasts: Sequence[VariantForecast]) -> dict[str, object]:
    """The plan, with what a build of it would do."""
    return {
        **prepared.plan.to_json(),
        "forecast": {forecast.plan.name: forecast.to_json() for forecast in forecasts},
        "unavailable": [entry.to_json() for entry in prepared.unavailable],
        "remarks": list(prepared.matrix.remarks),
    }


def dry_run_text(
    prepared: Prepared, forecasts: Sequence[VariantForecast], *, width: int | None, commands: bool, quiet: bool
) -> list[str]:
    """Lines for people, in ``width`` columns: what to know, with ``quiet`` only warnings, the table, and with
    ``commands`` all of them.
    """
    plan = prepared.plan
    lines = [f"nothing to build for {backend.value}: {reason}" for backend, reason in prepared.without_variant]
    lines += [f"warning: {text}" for text in plan.warnings]
    if not quiet:
        lines += [f"note: {text}" for text in (*plan.notes, *prepared.matrix.remarks)]
    if plan.hub.repo_id is not None and not quiet:
        branch = f", branch {plan.hub.branch}" if plan.hub.branch is not None else ""
        lines.append(f"upload target: {plan.hub.repo_id}{branch}")
    lines += ["", *table(_HEAD, [_row(forecast) for forecast in forecasts], width), ""]
    lines += _compiled(forecasts)
    lines.append(f"to fetch: {_fetched(forecasts)}")
    lines = wrapped("\n".join(lines), width).split("\n")
    return [*lines, *_commands(plan)] if commands else lines


def _row(forecast: VariantForecast) -> tuple[str, ...]:
    if forecast.plan.library is None:
        return forecast.plan.name, "Python only", "-", "-", "-"
    tools = [_tool(name, version) for name, version in forecast.plan.toolchain.items() if name != "glibc floor"]
    compiled = str(len(forecast.compiled)) if forecast.compiled or not forecast.links else "link"
    sizes = [_size(forecast.fetched), *(f"+ {name}" for name in forecast.besides)]
    return forecast.plan.name, "\n".join(tools), compiled, str(len(forecast.current)), "\n".join(sizes)


def _tool(name: str, version: str) -> str:
    return version if name == "c++" else f"{name} {version}"


def _size(count: int | None) -> str:
    return "unknown" if count is None else size_text(count) if count else "-"


def _compiled(forecasts: Iterable[VariantForecast]) -> list[str]:
    """The sources that are compiled, by backend."""
    by_backend: dict[str, dict[str, None]] = {}
    for forecast in forecasts:
        by_backend.setdefault(forecast.plan.backend.value, {}).update(dict.fromkeys(forecast.compiled))
    lines = []
    for backend, sources in by_backend.items():
        if sources:
            names = list(sources)
            more = f" and {len(names) - _SOURCES} more" if len(names) > _SOURCES else ""
            lines.append(f"to compile for {backend}: {', '.join(names[:_SOURCES])}{more}")
    return lines or ["nothing to compile"]


def _fetched(forecasts: Sequence[VariantForecast]) -> str:
    known = sum(forecast.fetched or 0 for forecast in forecasts)
    parts = [size_text(known)] if known else []
    parts += [name for forecast in forecasts for name in forecast.besides]
    if any(forecast.fetched is None for forecast in forecasts):
        parts.append("an unknown amount")
    return f"about {' and '.join(parts)}" if parts else "nothing"


def _commands(plan: BuildPlan) -> list[str]:
    return [line for variant in plan.variants for line in ("", *_commands_of(plan, variant))]


def _commands_of(plan: BuildPlan, variant: VariantPlan) -> list[str]:
    lines = [f"{variant.name}: {variant.ops_id}"]
    lines += [f"  {section.id}: {', '.join(map(str, section.effective))}" for section in variant.sections]
    for action in variant.actions:
        lines += [f"  {action.kind.value} {action.source}", f"    {' '.join(plan.places.command(action))}"]
    return lines + [f"  install {file.path}" for file in variant.installed]
