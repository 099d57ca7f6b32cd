"""``kernel-builder check-config``: judge a project's build.toml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kernel_builder.check.annotations import annotation
from kernel_builder.cli.options import project_argument
from kernel_builder.cli.session import environment
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME
from kernel_builder.errors import ConfigError, Diagnostic, ExitCode, Level


@click.command(name="check-config")
@project_argument()
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Output format: json includes the parsed project; github prints annotations.",
)
def command(directory: Path, *, as_json: bool, form: str) -> int:
    """Check build.toml in DIRECTORY and everything else that would stop a build, and report all errors at once.

    Finds, for example, a missing license, files that do not exist, Python code that Hub kernels must not contain,
    undeclared imports, and files that must not be published. Reads every edition of build.toml; runs and fetches
    nothing. Exits with 3 when there are errors, with 0 when there are none or only warnings.
    """
    form = "json" if as_json else form
    from kernel_builder.workflow.conformance import examine  # noqa: PLC0415  (start-up time)

    try:
        found = examine(directory, environment())
    except ConfigError as error:
        if form == "text":
            raise
        _tell(None, (_without_place(error),), directory, form=form)
        return error.exit_code
    errors = sum(one.severity is Level.ERROR for one in found.all_diagnostics)
    _tell(None if errors else found.project, found.all_diagnostics, directory, form=form)
    if errors and form == "text":
        many = "" if errors == 1 else "s"
        raise ConfigError(f"{errors} error{many} would stop a build")
    return ExitCode.CONFIG if errors else ExitCode.OK


def _without_place(error: ConfigError) -> Diagnostic:
    """A mistake that is not in the file: there is none, or it is not to be read."""
    return Diagnostic(severity=Level.ERROR, message=error.message, hint=error.hint)


def _tell(project: Project | None, diagnostics: Sequence[Diagnostic], directory: Path, *, form: str) -> None:
    if form == "json":
        import json  # noqa: PLC0415  (start-up time)

        click.echo(json.dumps(_report(project, diagnostics, directory), indent=2))
        return
    for diagnostic in diagnostics:
        if form == "github":
            click.echo(_annotation(diagnostic))
        else:
            click.echo(diagnostic.render(), err=True)
    if project is not None and form == "text":
        click.echo(_summary(project))


def _summary(project: Project) -> str:
    backends = ", ".join(
        f"{backend.value}{'' if project.is_compiled_for(backend) else ' (Python only)'}" for backend in project.backends
    )
    edition = f"{FILE_NAME} (edition {project.edition})"
    return f"{edition} is valid: {project.name} version {project.version}, for {backends}"


def _report(project: Project | None, diagnostics: Sequence[Diagnostic], directory: Path) -> dict[str, object]:
    from kernel_builder.config.document import document_of  # noqa: PLC0415  (start-up time)

    return {
        "file": str(directory / FILE_NAME),
        "ok": project is not None,
        "edition": None if project is None else project.edition,
        "project": None if project is None else document_of(project),
        "diagnostics": [
            {
                "severity": diagnostic.severity.value,
                "file": None if diagnostic.file is None else str(diagnostic.file),
                "key": diagnostic.key,
                "line": diagnostic.line,
                "column": diagnostic.column,
                "message": diagnostic.message,
                "hint": diagnostic.hint,
            }
            for diagnostic in diagnostics
        ],
    }


def _annotation(diagnostic: Diagnostic) -> str:
    """A workflow command of GitHub Actions, which shows the message beside the line."""
    place = {"file": diagnostic.file, "line": diagnostic.line, "col": diagnostic.column}
    text = f"{diagnostic.key}: {diagnostic.message}" if diagnostic.key else diagnostic.message
    if diagnostic.hint:
        text += f"\n{diagnostic.hint}"
    return annotation(diagnostic.severity.value, place, text)
