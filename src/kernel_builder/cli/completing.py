"""Values that shells complete: names of variants, rules and sources. Looked up when a shell asks, never before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kernel_builder.errors import KernelBuilderError

if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:  # older releases of click have no types with parameters
    _Text = click.ParamType

Found = Iterable[tuple[str, str]]
"""Values, each with a word on it."""


class OneOf(_Text):
    """Text, for which shells offer the values that ``find`` gives for the command's context."""

    name = "text"

    def __init__(self, find: Callable[[click.Context], Found]) -> None:
        self._find = find

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """The text as it was given: commands say more about a wrong one than completion knows."""
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """See :class:`click.ParamType`; a project with mistakes has nothing to offer."""
        try:
            found = list(self._find(ctx))
        except (KernelBuilderError, OSError):
            return []
        return [CompletionItem(value, help=word) for value, word in found if value.startswith(incomplete)]


def _variants(ctx: click.Context) -> Found:
    """Those of the project that the command names, or of the one that this directory is in."""
    from kernel_builder.config.reader import load_project  # noqa: PLC0415  (start-up time)
    from kernel_builder.variants.matrix import all_variants  # noqa: PLC0415
    from kernel_builder.variants.support import load_support  # noqa: PLC0415

    directory = next((value for value in ctx.params.values() if isinstance(value, Path) and value.is_dir()), Path())
    project, _ = load_project(directory.resolve())
    return [(kept.name, kept.backend.label) for kept in all_variants(project, load_support(), None).kept]


def _rules(_: click.Context) -> Found:
    from kernel_builder.check.engine import all_rules  # noqa: PLC0415  (start-up time)

    return [pair for rule in all_rules() for pair in ((rule.code, rule.slug), (rule.slug, rule.code))]


def _sources(_: click.Context) -> Found:
    from kernel_builder.toolchain.settings import BUILT_IN  # noqa: PLC0415  (start-up time)

    return [(name, "") for name in BUILT_IN]


def _environments(ctx: click.Context) -> Found:
    """Those that are kept, but for those that are named already."""
    from kernel_builder.environments.kept import FOLDER  # noqa: PLC0415  (start-up time)
    from kernel_builder.store.cache import default_root  # noqa: PLC0415

    folder = default_root(ctx.obj) / FOLDER
    there = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return [(name, "") for name in there if name not in (ctx.params.get("names") or ())]


ENVIRONMENT = OneOf(_environments)
VARIANT, RULE, SOURCE = OneOf(_variants), OneOf(_rules), OneOf(_sources)


def _explained(context: click.Context) -> Found:
    from kernel_builder.workflow.troubleshooting import topics  # noqa: PLC0415  (start-up time)

    return [*_rules(context), *((topic.name, topic.title) for topic in topics())]


EXPLAINED = OneOf(_explained)
