"""The build backend that ``create-pyproject`` names: what pip and build call in the project's directory.

Reference: PEP 517 and PEP 660. ``--config-settings`` knows ``variant``: its name, in place of what the installed torch
loads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernel_builder.cli import show_failure, show_interruption, snapshot_of
from kernel_builder.cli.console import ConsoleReporter
from kernel_builder.errors import KernelBuilderError, UsageError
from kernel_builder.store.cache import Store, default_root
from kernel_builder.store.offline import asks_for_offline
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.wheel import source_distribution_of, wheel_of

Settings = Mapping[str, object] | None
_VARIANT = "variant"


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,  # noqa: ARG001
) -> str:
    """See PEP 517."""
    return _wheel(wheel_directory, config_settings, editable=False)


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,  # noqa: ARG001
) -> str:
    """See PEP 660."""
    return _wheel(wheel_directory, config_settings, editable=True)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:  # noqa: ARG001
    """See PEP 517."""
    with _failures():
        return source_distribution_of(Path.cwd(), Path(sdist_directory))


def _wheel(directory: str, settings: Settings, *, editable: bool) -> str:
    environ = snapshot_of()
    with _failures(), ConsoleReporter(quiet=False) as reporter:
        store = Store(default_root(environ), reporter)
        try:
            run = Run(environ=environ, store=store, reporter=reporter, offline=asks_for_offline(environ))
            return wheel_of(
                Path.cwd(),
                Path(directory),
                run,
                variant=_variant(settings),
                python=Path(sys.executable),
                editable=editable,
            )
        finally:
            store.close()


def _variant(settings: Settings) -> str | None:
    given = dict(settings or {})
    name = given.pop(_VARIANT, None)
    if given:
        raise UsageError(
            f"unknown config setting {', '.join(sorted(given))}", hint="the only one is variant: -C variant=NAME"
        )
    if name is not None and not (isinstance(name, str) and name):
        raise UsageError("the config setting variant takes one name", hint="kernel-builder list-variants shows them")
    return name


@contextmanager
def _failures() -> Iterator[None]:
    """Frontends show the end of what a hook says: an error, and no traceback."""
    try:
        yield
    except (KernelBuilderError, OSError) as error:
        raise SystemExit(show_failure(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(show_interruption()) from None
