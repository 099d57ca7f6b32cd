"""``devshell`` and ``testshell``: a shell in the environment of a variant.

Reference: interoperability contract 6.5. The first has compilers and takes the kernel from whatever is in ``build/``;
the second has the variant itself, built and importable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.config.model import Project
from kernel_builder.config.reader import load_project
from kernel_builder.environments.variables import Changes, import_changes, kernel_changes, python_changes, together
from kernel_builder.events import Notice
from kernel_builder.project.tree import OUTPUT_DIRECTORY
from kernel_builder.toolchain.model import Toolchain
from kernel_builder.variants.matrix import Kept
from kernel_builder.workflow.build import BuildRequest, prepare_build
from kernel_builder.workflow.environments import (
    EnvironmentRequest,
    Workplace,
    best_variant,
    look_here,
    provide_environment,
)
from kernel_builder.workflow.outcome import BuildOutcome
from kernel_builder.workflow.run import Run
from kernel_builder.workflow.testing import QUIET, build_variant
from kernel_builder.workflow.toolchains import provide


@dataclass(frozen=True, kw_only=True)
class ShellRequest:
    """For which variant, in which environment; ``build`` says how it is built. With ``built`` the shell has the built
    variant, else its compilers.
    """

    environment: EnvironmentRequest
    build: BuildRequest
    built: bool


@dataclass(frozen=True, kw_only=True)
class ShellSetting:
    """What a shell sees. ``built`` is what came of the build, ``None`` where there was none; where it failed, there are
    no ``changes``.
    """

    variant: str
    changes: Changes
    built: BuildOutcome | None = None


def set_up_shell(request: ShellRequest, run: Run) -> ShellSetting:
    """Provide the environment and what else the shell has. Raises what providing and building raise."""
    root = request.environment.root
    project = load_project(root)[0]
    here = look_here(project, request.environment, run)
    # Compilers are of use without a device too, where a variant was asked for.
    entry = best_variant(project, request.environment, here, run, to_run=request.built)
    workplace = provide_environment(project, entry, request.environment, here, run)
    if project.hub.repo_id is None:
        message = "build.toml has no general.hub.repo-id, so LOCAL_KERNELS is not set: load the kernel by its path"
        run.reporter.emit(Notice(message=message))
    if request.built:
        return _test_shell(project, entry, workplace, request, run)
    place = root / OUTPUT_DIRECTORY
    changes = together(
        python_changes(workplace.python),
        kernel_changes(project.hub.repo_id, place, run.environ),
        _compilers(entry, request.build, run),
    )
    return ShellSetting(variant=entry.name, changes=changes)


def _test_shell(project: Project, entry: Kept, workplace: Workplace, request: ShellRequest, run: Run) -> ShellSetting:
    built = build_variant(entry, workplace, request.build, run)
    (variant,) = built.variants
    if variant.path is None:
        return ShellSetting(variant=entry.name, changes=Changes(), built=built)
    changes = together(
        python_changes(workplace.python),
        kernel_changes(project.hub.repo_id, variant.path, run.environ),
        import_changes([variant.path]),
        QUIET,
        Changes(values=built.variables),
    )
    return ShellSetting(variant=entry.name, changes=changes, built=built)


def _compilers(entry: Kept, build: BuildRequest, run: Run) -> Changes:
    """What the variant is compiled with, fetched where it is not in the store; nothing for Python alone."""
    if entry.row is None:
        return Changes()
    prepared = prepare_build(replace(build, patterns=(entry.name,)), run)
    provide(prepared.chosen, prepared.matrix, run)
    return compiler_changes(prepared.planning.toolchains[entry.name])


def compiler_changes(toolchain: Toolchain) -> Changes:
    """What makes tools use the compilers of ``toolchain``."""
    cxx = toolchain.host.cxx
    values: dict[str, str | None] = {"CXX": str(cxx)}
    c_compiler = cxx.with_name(cxx.name.replace("g++", "gcc").replace("clang++", "clang"))
    if c_compiler != cxx and c_compiler.is_file():
        values["CC"] = str(c_compiler)
    path: tuple[Path, ...] = ()
    if toolchain.toolkit is not None:
        folder = toolchain.toolkit.compiler.parent
        path = (folder,)
        values |= dict.fromkeys(toolchain.toolkit.toolkit.backend.runtime.home, str(folder.parent))
    return Changes(values=values, path=path)
