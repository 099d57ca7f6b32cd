"""The command line: one module per command, thin, the only part of the package that prints.

stdout carries the result of a command, stderr everything meant for people. This module imports click alone, so that
``--version`` and ``--help`` answer at once; a command's module is imported when the command runs.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

import click

from kernel_builder import __version__
from kernel_builder.cli.lazy import Entry, LazyGroup
from kernel_builder.errors import ConfigError, ExitCode, KernelBuilderError, MachineError
from kernel_builder.signals import ENDING

COMMANDS: dict[str, Entry] = {
    "init": Entry("init", "Create a new kernel project that builds as is."),
    "build": Entry("build", "Build the project's variants into build/<variant>/."),
    "build-and-copy": Entry("build", "Alias of build."),
    "test": Entry("test", "Build what is out of date, and run the project's tests against it."),
    "ci-test": Entry("ci_test", "Like test, but only for tests marked kernels_ci."),
    "watch": Entry("watch", "Rebuild and retest whenever a file changes."),
    "bench": Entry("bench", "Benchmark the kernel, also against torch, another revision or another build."),
    "devshell": Entry("devshell", "Start a shell with a variant's torch, compilers and test tools."),
    "testshell": Entry("testshell", "Build a variant, and start a shell to try it in."),
    "environment": Entry("environment", "List and remove the environments that tests and shells run in."),
    "merge": Entry("merge", "Merge variants that several jobs built into one directory."),
    "list-variants": Entry("list_variants", "List the variants that the project builds."),
    "check": Entry("check", "Check sources, variants and libraries against the Hub's requirements."),
    "explain": Entry("explain", "Explain a rule, an exit code or a message."),
    "check-abi": Entry("check_abi", "Check only the libraries of built variants."),
    "check-builds": Entry("check_builds", "Check only names, files and metadata of built variants."),
    "check-config": Entry("check_config", "Check build.toml and report all errors at once."),
    "update-build": Entry("update_build", "Update build.toml to the newest edition, keeping comments and layout."),
    "card": Entry("card", "Preview the card that is uploaded with the kernel."),
    "create-pyproject": Entry("create_pyproject", "Write a pyproject.toml, so that pip and build install the kernel."),
    "clean-pyproject": Entry("clean_pyproject", "Remove the pyproject.toml that create-pyproject wrote."),
    "api-diff": Entry("api_diff", "Check whether changes to the kernel's interface need a new version."),
    "attest": Entry("attest", "Write provenance for built variants; sign them; verify signatures."),
    "rebuild": Entry("rebuild", "Rebuild the commit of a build, and compare file by file."),
    "upload": Entry("upload", "Publish built variants on the Hub."),
    "build-and-upload": Entry("build_and_upload", "Build the project's variants, then publish them on the Hub."),
    "hash": Entry("hash", "Write the digests of built variants to their metadata."),
    "doctor": Entry("doctor", "Show what this machine has, what it can build, and how to fix the rest."),
    "lock": Entry("lock", "Lock exactly what each variant is compiled with, or check the lock."),
    "toolchain": Entry("toolchain", "Fetch, inspect, verify and move toolchains."),
    "worker": Entry("worker", "Compile for builds on other machines, through a dask scheduler."),
    "timing": Entry("timing", "Show where the time of the last build went."),
    "cache": Entry("cache", "Show, verify and shrink the compilation cache."),
    "compile-commands": Entry("compile_commands", "Write compile_commands.json, for clangd and other tools."),
    "skills": Entry("skills", "Add short texts for coding assistants: how to write, port, check and measure a kernel."),
    "schema": Entry("schema", "Print the JSON schema of build.toml, for editors."),
    "completions": Entry("completions", "Print a script that makes a shell complete commands, variants and rules."),
    "man": Entry("man", "Print the manual page."),
}
TASKS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "doctor", "update-build", "check-config"),
    "Build": ("build", "build-and-copy", "list-variants", "merge", "timing", "lock", "toolchain", "cache", "worker"),
    "Test and try": ("test", "ci-test", "watch", "bench", "devshell", "testshell", "environment"),
    "Check": ("check", "explain", "check-abi", "check-builds", "api-diff"),
    "Publish": ("card", "hash", "attest", "rebuild", "upload", "build-and-upload"),
    "Other tools": (
        "create-pyproject",
        "clean-pyproject",
        "compile-commands",
        "schema",
        "skills",
        "completions",
        "man",
    ),
}
"""The commands as ``--help`` groups them, by what one wants to do."""


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    tasks=TASKS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, "-V", "--version", prog_name="kernel-builder")
def cli() -> None:
    """Build conforming Hub kernels for PyTorch from a build.toml."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of :class:`ExitCode`. Expected failures never show a traceback."""
    # Nearly all that a command makes lasts until its end: looking for garbage so often would be a twentieth of the
    # time that passes before the first compiler starts.
    gc.set_threshold(50_000, 20, 50)
    code = _answer(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except OSError:
        # Told already, or the reader of our stdout went away (`| head`): nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    """Run the command line ``argv`` (without the program's name) and return its exit code.

    ``environ`` takes the place of the process's environment (``None``: that one), but for what libraries read by
    themselves: ``HF_*`` of huggingface_hub, proxies, the user's directories of platformdirs. May be called again and
    again in one process: handlers of signals are put back.
    """
    with _signal_handlers_kept():
        return _answer(argv, environ)


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # which alone can change them
        yield
        return
    handlers = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _answer(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
    snapshot = snapshot_of(environ)
    streams = sys.stdout, sys.stderr
    try:
        result = cli.main(args=list(argv), prog_name="kernel-builder", standalone_mode=False, obj=snapshot)
        with suppress(BrokenPipeError):  # the reader of our stdout went away (`| head`): not a failure of ours
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        return show_interruption()
    except KernelBuilderError as error:
        return show_failure(error)
    except SystemExit as done:
        # A shell was told what completes a word; or the reader of our stdout went away while the command wrote to it,
        # and click wraps both streams.
        sys.stdout, sys.stderr = streams
        return ExitCode.FAILED if done.code else ExitCode.OK
    except UnicodeEncodeError as error:
        shown = error.object.encode("utf-8", "backslashreplace").decode("ascii", "backslashreplace")
        _show(
            MachineError(f"this locale cannot display a name: {shown}", hint="set LC_ALL=C.UTF-8, or rename the file")
        )
        return ExitCode.SYSTEM
    except OSError as error:
        return show_failure(error)
    except Exception:  # noqa: BLE001  (the last line of defence: a bug is named as one)
        traceback.print_exc()
        click.echo(
            "\nThis is a bug in kernel-builder, not in your project. Please report it with the lines above"
            f" (kernel-builder {__version__}, Python {sys.version.split()[0]}).",
            err=True,
        )
        return ExitCode.INTERNAL
    return result if isinstance(result, int) else ExitCode.OK


def show_interruption() -> ExitCode:
    """Say on stderr that Ctrl-C ended the command; return the exit code for it. An impatient second Ctrl-C has nothing
    left to stop.
    """
    for wanted in ENDING:
        signal.signal(wanted, signal.SIG_IGN)
    click.echo("interrupted", err=True)
    return ExitCode.INTERRUPTED


def snapshot_of(environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The environment that a command runs with: ``environ``, or the process's own."""
    return MappingProxyType(_trusted(os.environ if environ is None else environ))


def _trusted(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ``, but programs are not looked for relative to the current directory, which often is a project."""
    variables = dict(environ)
    if "PATH" in variables:
        absolute = [place for place in variables["PATH"].split(os.pathsep) if os.path.isabs(place)]  # noqa: PTH117
        variables["PATH"] = os.pathsep.join(absolute) or os.defpath
    return variables


_WRONG = {
    errno.EROFS: "work in a copy of the directory, on a disk that can be written to",
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space on that disk, or ask for a larger quota",
}
"""What to do about an error of the system."""


def _from_os_error(error: OSError) -> MachineError:
    name = error.filename if isinstance(error.filename, str) else None
    if name is None:
        return MachineError(f"cannot write the output: {error.strerror or error}")
    return MachineError(
        f"cannot use {name}: {error.strerror or error}",
        hint=_WRONG.get(error.errno or 0, "check that its directory exists and that you may write to it"),
    )


def show_failure(error: KernelBuilderError | OSError) -> ExitCode:
    """Say on stderr what went wrong; return the exit code for it."""
    told = _from_os_error(error) if isinstance(error, OSError) else error
    _show(told)
    return told.exit_code


def _show(error: KernelBuilderError) -> None:
    if isinstance(error, ConfigError):
        for diagnostic in error.diagnostics:
            click.echo(diagnostic.render(), err=True)
    click.echo(f"error: {error.message}", err=True)
    if error.hint:
        click.echo(f"  hint: {error.hint}", err=True)
    from kernel_builder.workflow.troubleshooting import topic_of  # noqa: PLC0415  (start-up time)

    topic = topic_of(error.message)
    if topic is not None:
        click.echo(f"  more: kernel-builder explain {topic.name}", err=True)
