"""A kernel as an installed Python package: wheels, editable installs and source distributions of a project.

A wheel holds one variant, with a namespace of its own: the package and the Hub form of the same tree can be loaded in
one process.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jinja2

from kernel_builder.artifact.digest import METADATA
from kernel_builder.artifact.wheel import Distribution, write_source_distribution, write_wheel
from kernel_builder.config.known import dependencies, spdx_of
from kernel_builder.config.model import FrameworkKind, Project
from kernel_builder.config.python_project import NAME, PythonProject, read_python_project
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.config.settings import FILE_NAME as SETTINGS_NAME
from kernel_builder.errors import BuildError, UsageError
from kernel_builder.load.client import Environment, find_environment
from kernel_builder.project.inputs import build_inputs
from kernel_builder.project.tree import GENERATED_OPS, package_files
from kernel_builder.toolchain.lock import LOCK_NAME
from kernel_builder.variants.names import ArchVariant, StableAbiTag, TorchTag, TvmFfiTag, Variant, parse_variant
from kernel_builder.workflow.build import BuildRequest, build
from kernel_builder.workflow.outcome import VariantOutcome
from kernel_builder.workflow.run import Run

MARK = "wheel"
"""What tells the namespace of a package from that of the Hub form."""
_BESIDE = ("README.md", "CARD.md", SETTINGS_NAME, LOCK_NAME)
_DIRECTORIES = ("tests", "benchmarks")


def wheel_of(root: Path, into: Path, run: Run, *, variant: str | None, python: Path, editable: bool) -> str:
    """Build one variant and write its wheel into ``into``; return the file's name.

    ``variant`` is its name; ``None`` stands for what the torch of ``python`` loads, or, where that has none, that of
    the active environment. An editable wheel leaves the Python files where they are. Raises what building raises, and
    :class:`BuildError` if the variant could not be made.
    """
    described = read_python_project(root)
    target = _with_torch(python, run) if variant is None else None
    with tempfile.TemporaryDirectory(prefix="kernel-builder-wheel-") as output:
        request = BuildRequest(
            root=root,
            patterns=(variant,) if variant else (),
            local=variant is None,
            python=target,
            output=Path(output),
            mark=MARK,
        )
        outcome = build(request, run)
        built = next((one for one in outcome.variants if one.path is not None), None)
        if built is None or not outcome.ok:
            raise BuildError("\n".join(f"{one.name}: {one.problem}" for one in outcome.variants if one.problem))
        project, _ = load_project(root)
        files = _editable(project, built) if editable else _package(project, built)
        return write_wheel(into, _distribution(project, described, built), _tag(parse_variant(built.name)), files)


def _with_torch(python: Path, run: Run) -> Path | None:
    """``python`` if it can load kernels. Frontends start hooks in the environment that the package is for, or in one of
    their own, where there is no torch.
    """
    try:
        return python if isinstance(find_environment(python, run.environ, run.memory), Environment) else None
    except UsageError:
        return None


def source_distribution_of(root: Path, into: Path) -> str:
    """Write all that the kernel is built from, with its tests and texts, into ``into``; return the file's name.

    Raises :class:`ConfigError` and ``OSError``.
    """
    project, _ = load_project(root)
    paths = {NAME, FILE_NAME, *build_inputs(project).all}
    package = project.package.relative_to(project.root).as_posix()
    paths.update(f"{package}/{path}" for path in package_files(project).kept)
    paths.update(path for path in _BESIDE if (root / path).is_file())
    paths.update(_licenses(root))
    for directory in _DIRECTORIES:
        paths.update(path.relative_to(root).as_posix() for path in (root / directory).rglob("*.py"))
    files = {path: (root / path).read_bytes() for path in paths if (root / path).is_file()}
    return write_source_distribution(into, _distribution(project, read_python_project(root), None), files)


def _licenses(root: Path) -> dict[str, bytes]:
    """The files that hold the licence, which every copy must bring along."""
    found = (file for file in root.iterdir() if file.name.lower().startswith(("license", "licence", "notice")))
    return {file.name: file.read_bytes() for file in found if file.is_file()}


def _distribution(project: Project, described: PythonProject, built: VariantOutcome | None) -> Distribution:
    license_id = spdx_of(project.license or "")
    return Distribution(
        name=project.name,
        version=str(project.version),
        requires=(*described.dependencies, *(_requirements(built) if built else ())),
        fields=((("License-Expression", license_id),) if license_id else ()) + described.fields,
        description=described.description,
        licenses=_licenses(project.root),
        is_open=built is None,
    )


def _requirements(built: VariantOutcome) -> tuple[str, ...]:
    """The framework as the variant needs it, and the packages that it declares."""
    variant = parse_variant(built.name)
    tag = variant.tag if isinstance(variant, ArchVariant) else None
    framework = "torch"
    if isinstance(tag, TorchTag):
        framework = "torch=={}.{}.*".format(*tag.version)
    elif isinstance(tag, StableAbiTag):
        framework = "torch>={}.{}".format(*tag.version)
    elif isinstance(tag, TvmFfiTag):
        framework = "{}=={}.{}.*".format(FrameworkKind.TVM_FFI.package, *tag.version)
    known = dependencies()
    tables = {**known.python_table(None), **known.python_table(built.backend)}
    declared = json.loads((_made(built) / METADATA).read_bytes())["python-depends"]
    named = (tables[name].package for name in declared)
    return (framework, *(name for name in named if not framework.startswith(name)))


def _tag(variant: Variant) -> str:
    """Compiled code needs torch's libraries, which no manylinux policy allows for: the tag is what auditwheel says."""
    if not isinstance(variant, ArchVariant):
        return "py3-none-any"
    python = "py3-none" if isinstance(variant.tag, TvmFfiTag) else "cp39-abi3"
    return f"{python}-{variant.system.value}_{variant.machine.value}"


def _package(project: Project, built: VariantOutcome) -> Mapping[str, bytes]:
    """The variant as the package."""
    root = _made(built)
    return {
        f"{project.python_name}/{file.relative_to(root).as_posix()}": file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def _editable(project: Project, built: VariantOutcome) -> Mapping[str, bytes]:
    """What is generated, and a finder that takes everything else from the project."""
    root, hook = _made(built), f"__editable___{project.python_name}"
    generated = [*root.glob(f"{built.ops_id}.*"), root / GENERATED_OPS, root / METADATA]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernel_builder", "templates/pyproject"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  (source code, not HTML)
    )
    finder = environment.get_template("finder.py.j2").render(
        name=project.python_name, source=str(project.package), built=f"{hook}_built"
    )
    return {
        f"{hook}.pth": f"import {hook}_finder; {hook}_finder.install()\n".encode(),
        f"{hook}_finder.py": finder.encode(),
        **{f"{hook}_built/{file.name}": file.read_bytes() for file in generated},
    }


def _made(built: VariantOutcome) -> Path:
    if built.path is None:
        raise BuildError(f"{built.name} was not built")
    return built.path
