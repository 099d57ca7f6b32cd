"""``kernel-builder init``: create a new kernel project that builds as is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from kernel_builder.cli.completing import OneOf
from kernel_builder.cli.options import PathName
from kernel_builder.cli.session import environment
from kernel_builder.config.backends import Backend
from kernel_builder.config.known import read_license
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import UsageError
from kernel_builder.scaffold.names import ProjectName, nearest, parse_name, parse_repo_id
from kernel_builder.scaffold.render import BACKENDS, FRAMEWORKS, USUAL, backends_for, choose_backends, render_project
from kernel_builder.scaffold.repository import start_repository
from kernel_builder.scaffold.write import former_files, write_project

_OPTION = "--backends"
_WORDS = frozenset({*Backend, "all"})


def spread_backends(args: Sequence[str]) -> list[str]:
    """Rewrite ``--backends cpu cuda`` as ``--backends=cpu --backends=cuda``: click's options take one word.

    The word after the option is its value whatever it says; further words belong to it as long as each is a
    list of backends. Raises :class:`UsageError` if there is no word, and for the first further one that looks
    like a misspelled backend: it would otherwise pass for the directory.
    """
    result: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*result, word, *words]
        if word == _OPTION:
            if not words or words[0].startswith("-"):
                raise UsageError(
                    f"{_OPTION} needs at least one backend", hint=f"for example {_OPTION} {' '.join(USUAL)}"
                )
            result.append(f"{_OPTION}={words.pop(0)}")
        elif word.startswith(f"{_OPTION}="):
            result.append(word)
        else:
            result.append(word)
            continue
        while words and _are_backends(words[0]):
            result.append(f"{_OPTION}={words.pop(0)}")
        if words and not words[0].startswith("-"):
            _refuse_misspelled(words[0])
    return result


def _are_backends(word: str) -> bool:
    return all(part.lower() in _WORDS for part in word.split(",") if part) and word.strip(",") != ""


def _refuse_misspelled(word: str) -> None:
    near = get_close_matches(word.lower(), sorted(_WORDS), n=1, cutoff=0.6)
    if near and Path(word).name == word and not Path(word).exists():
        raise UsageError(
            f"{word!r} is not a backend",
            hint=f"use {near[0]}, or ./{word} if it is the project directory",
        )


class _InitCommand(click.Command):
    """A command whose ``--backends`` takes any number of words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            args = spread_backends(args)
        except UsageError:
            if not ctx.resilient_parsing:  # a shell that completes a word asks about a line that is not whole
                raise
        return super().parse_args(ctx, args)


class _Place(PathName):
    """The project's directory; behind ``--backends cpu`` another backend may be meant just as well."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """See :class:`click.ParamType`."""
        given = ctx.params.get("backends") or ()
        more = [backend for backend in BACKENDS if given and backend not in given and backend.startswith(incomplete)]
        offered = [CompletionItem(backend.value, help=backend.label) for backend in more]
        # Paths first: bash forgets, for directories, what came before them.
        return super().shell_complete(ctx, param, incomplete) + offered


@click.command("init", cls=_InitCommand)
@click.argument("path", required=False, type=_Place(file_okay=False))
@click.option(
    "--name",
    "repo_id",
    metavar="OWNER/REPO",
    help="The kernel's repository on the Hub; REPO is also the kernel's name. OWNER/ is optional.",
)
@click.option(
    _OPTION,
    "backends",
    multiple=True,
    type=OneOf(lambda _: [(backend.value, backend.label) for backend in BACKENDS] + [("all", "")]),
    metavar="BACKEND...",
    help=f"Backends of the kernel: {', '.join(BACKENDS)}, or all. Several words, commas and"
    f" repetition work. Write a directory named like a backend as ./{BACKENDS[0]}.  "
    f"[default: {' '.join(USUAL)}]",
)
@click.option(
    "--framework",
    type=click.Choice([framework.value for framework in FRAMEWORKS]),
    default=FRAMEWORKS[0].value,
    show_default=True,
    help="What the kernel is written for: torch, or tvm-ffi, which works with every framework that supports DLPack.",
)
@click.option(
    "--license",
    "license_id",
    default="Apache-2.0",
    show_default=True,
    help="The kernel's license identifier. LICENSE gets the text of the usual ones.",
)
@click.option(
    "--minimal",
    is_flag=True,
    help="Write a first kernel that you can read in five minutes, without a card, benchmark, layers and gradient.",
)
@click.option(
    "--from-extension",
    "extension",
    metavar="DIR",
    type=PathName(exists=True, file_okay=False),
    help="Convert the C++ extension in DIR. Its setup.py is read, but never run.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Overwrite files of an existing project. Files that an earlier init wrote and the new project does not have"
    " are removed, unless they were changed since.",
)
@click.pass_context
def command(
    ctx: click.Context,
    path: Path | None,
    repo_id: str | None,
    backends: tuple[str, ...],
    framework: str,
    license_id: str,
    minimal: bool,
    extension: Path | None,
    overwrite: bool,
) -> None:
    """Create a new kernel project that builds as is.

    The project goes to PATH; without PATH, to ./REPO if --name is given, else to the current directory. Without --name,
    the kernel is named after that directory, and build.toml leaves its owner open.

    \b
      kernel-builder init --name me/my-kernel
      kernel-builder init my-kernel --backends cpu
      kernel-builder init my-kernel --from-extension ../my_extension
    """
    if extension is not None:
        if minimal:
            raise UsageError(
                "--minimal writes a new kernel, but --from-extension converts an extension; remove one of them"
            )
        if ctx.get_parameter_source("framework") is not ParameterSource.DEFAULT:
            raise UsageError("--from-extension always writes a kernel for torch; remove --framework")
        if backends:
            raise UsageError("--from-extension takes the backends from setup.py; remove --backends")
        given = ctx.get_parameter_source("license_id") is not ParameterSource.DEFAULT
        _convert(path, repo_id, extension, read_license(license_id) if given else None, overwrite=overwrite)
        return
    words = [word for value in backends for word in value.split(",")]
    kind = FrameworkKind(framework)
    usual = tuple(backend for backend in backends_for(kind) if backend in USUAL)
    chosen = choose_backends(words, kind) if words else usual
    names, root, notes = _place(path, repo_id)
    files = render_project(names, backends=chosen, license_id=read_license(license_id), minimal=minimal, framework=kind)
    kept = write_project(root, files, former=former_files(root, names, files) if overwrite else {}, overwrite=overwrite)
    notes += tuple(f"{path} belongs to the earlier project, but was changed since, so it was kept" for path in kept)
    start_repository(root, files, environment())
    if not any(path.startswith("LICENSE") for path in files):
        notes += (f"kernel-builder does not have the text of the license {license_id}: add it as LICENSE",)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"Initialized `{names.repo_id or names.name}` at {root}")
    click.echo("Next:")
    if root != Path.cwd():
        click.echo(f"  cd {shlex.quote(str(_shown(root)))}")
    click.echo("  kernel-builder build --local   # builds the variant for this environment's torch")
    if not minimal:
        click.echo("  python example.py")
    click.echo("  kernel-builder test            # builds what is out of date, and runs tests/ against it")


def _convert(
    path: Path | None, repo_id: str | None, extension: Path, license_id: str | None, *, overwrite: bool
) -> None:
    """Write the project of an extension, and say what is left to decide."""
    from kernel_builder.workflow.from_extension import LIST, convert, name_of_extension  # noqa: PLC0415  (start-up time)

    if path is None and repo_id is None:
        repo_id = nearest(name_of_extension(extension))
    names, root, notes = _place(path, repo_id)
    if root == extension.resolve():
        raise UsageError(f"{root} is the extension itself", hint="pass another directory for the kernel project")
    conversion = convert(extension, names.name, environment(), repo_id=names.repo_id, license_id=license_id)
    write_project(root, conversion.files, overwrite=overwrite)
    start_repository(root, conversion.files, environment())
    for note in notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"Converted {extension} to {root}: {len(conversion.schemas)} op{'s' * (len(conversion.schemas) != 1)}")
    for schema in conversion.schemas:
        click.echo(f"  {schema}")
    if conversion.decisions:
        click.echo(f"To decide (also in {LIST}):")
        for decision in conversion.decisions:
            click.echo(f"  {decision}")
    click.echo("Next: kernel-builder check-config, then kernel-builder build --local")


def _place(path: Path | None, repo_id: str | None) -> tuple[ProjectName, Path, tuple[str, ...]]:
    """The names and the directory of the project, with notes on spellings that were changed."""
    if repo_id is not None:
        names, notes = parse_repo_id(repo_id)
        return names, (Path(names.name) if path is None else path).absolute().resolve(), notes
    root = (Path() if path is None else path).resolve()
    name, notes = parse_name(root.name)
    if path is not None and len(path.parts) == 2 and not path.is_absolute() and not root.parent.exists():
        notes += (f"{path} is a path; for the repository {path} of the Hub, run kernel-builder init --name {path}",)
    return ProjectName(name=name), root, notes


def _shown(root: Path) -> Path:
    """``root`` as one would type it from here."""
    here = Path.cwd()
    return root.relative_to(here) if root.is_relative_to(here) else root
