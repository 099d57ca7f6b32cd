"""A CUDA compiler with its headers, put together from wheels (F3), and which wheels belong together."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kernel_builder.errors import ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import StoreKey, require_space
from kernel_builder.store.index import Index, IndexFile, choose_wheel
from kernel_builder.store.parallel import run_all
from kernel_builder.store.progress import Progress
from kernel_builder.store.transport import NotFoundError
from kernel_builder.store.wheel import Member, Wheel, matching
from kernel_builder.toolchain.index_torch import source_of
from kernel_builder.toolchain.link_tables import EXPORTS, read_symbols, table_cost, write_table
from kernel_builder.toolchain.model import CudaSdk
from kernel_builder.toolchain.recipe import PackageRecipe, Recipe, fill

_NVCC = "bin/nvcc"
_PROFILE = "bin/nvcc.profile"
_TABLE_SPACE = 8 * 2**20
_LEADING = 2**18  # bytes that the names of one large library take over the wire
_WORKERS = 4


def cuda_key(version: str, files: Sequence[IndexFile], recipe: Recipe) -> StoreKey:
    """The store's key of the tree that ``files`` make."""
    wheels = sorted(file.identity for file in files)
    return StoreKey.of(f"cuda-{version}", wheels=wheels, recipe=recipe.digest)


def cuda_sdk(version: str, recipe: Recipe, entry: Path, stubs: Path) -> CudaSdk:
    """The value that describes ``entry``, whether or not it exists yet."""
    names = [
        library.member.rpartition("/")[2] for package in recipe.cuda for library in package.for_cuda(version).libraries
    ]
    return CudaSdk(
        version=version,
        nvcc=entry / _NVCC,
        include=tuple(entry / folder for folder in recipe.cuda_include),
        libraries=stubs,
        exports=tuple(entry / EXPORTS / f"{name}.txt" for name in sorted(names)),
    )


def complete_releases(index: Index, recipe: Recipe, machine: str, major: int, tools: str) -> tuple[str, ...]:
    """The CUDA versions (``13.0``, ``13.2``) of ``major`` for which ``index`` has every part of the compiler."""
    pages = run_all(
        [partial(index.files, project) for project in recipe.cuda_compiler],
        cancel=index.cancel,
    )
    pages_by_project = dict(zip(recipe.cuda_compiler, pages, strict=True))
    minors = {
        f"{file.version.major}.{file.version.minor}"
        for file in pages_by_project[recipe.cuda_compiler[0]]
        if file.version.major == major
    }
    complete: list[str] = []
    for version in sorted(minors, key=lambda text: int(text.partition(".")[2])):
        try:
            for package in recipe.cuda:
                if package.project in pages_by_project:
                    choose_wheel(
                        pages_by_project[package.project],
                        project=package.project,
                        allowed=SpecifierSet(fill(package.version, version)),
                        machine=tools if package.tool else machine,
                    )
        except ToolchainError:
            continue
        complete.append(version)
    return tuple(complete)


def choose_cuda_wheels(version: str, index: Index, recipe: Recipe, machine: str, tools: str) -> tuple[IndexFile, ...]:
    """The wheels of CUDA ``version`` (``13.0``) that compile on ``tools`` for ``machine``, in the recipe's order.

    Taken are the versions that NVIDIA's meta package pins for the newest release of that minor whose parts
    are all on the index; without such a release, the newest of each package that its own rule admits. Raises
    :class:`ToolchainError` when a package is missing, :class:`NetworkError`.
    """
    packages = [package.for_cuda(version) for package in recipe.cuda]
    projects = [package.project for package in packages]
    release_files, *pages = run_all(
        [partial(_files_or_none, index, recipe.cuda_release)] + [partial(index.files, project) for project in projects],
        cancel=index.cancel,
    )
    files = dict(zip(projects, pages, strict=True))

    def target(package: PackageRecipe) -> str:
        return tools if package.tool else machine

    wanted = SpecifierSet(f"=={version}.*")
    releases = sorted({f.version for f in release_files if f.version in wanted and not f.version.is_prerelease})
    for release in reversed(releases):
        choice = choose_wheel(
            release_files, project=recipe.cuda_release, allowed=SpecifierSet(f"=={release}"), machine=machine
        )
        pins = _pins(index, choice.file)
        try:
            return tuple(_choose(package, files[package.project], target(package), pins) for package in packages)
        except ToolchainError:
            continue  # an incomplete mirror, or a release that was published in part
    return tuple(_choose(package, files[package.project], target(package), {}) for package in packages)


def _files_or_none(index: Index, project: str) -> tuple[IndexFile, ...]:
    try:
        return index.files(project)
    except NotFoundError:
        return ()


def _choose(
    package: PackageRecipe, files: Sequence[IndexFile], machine: str, pins: Mapping[str, SpecifierSet]
) -> IndexFile:
    own = SpecifierSet(package.version)
    pin = pins.get(package.project)
    if pin is not None:
        # A range such as ">=13.0.88,<14" leaves a choice: then the version of this very release is right.
        with contextlib.suppress(ToolchainError):
            return choose_wheel(files, project=package.project, allowed=pin & own, machine=machine).file
    return choose_wheel(files, project=package.project, allowed=own if pin is None else pin, machine=machine).file


def _pins(index: Index, file: IndexFile) -> dict[str, SpecifierSet]:
    """Project -> versions, out of the meta package's requirements (they all hang on extras)."""
    with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
        wheel = index.open(file, Path(scratch), lambda _: None)
        (name,) = matching(wheel.members, ["*.dist-info/METADATA"]) or ("",)
        if not name:
            return {}
        metadata = Metadata.from_email(wheel.read(name), validate=False)
    return {canonicalize_name(r.name): r.specifier for r in metadata.requires_dist or () if r.specifier}


def build_cuda(
    files: Sequence[IndexFile],
    *,
    version: str,
    recipe: Recipe,
    index: Index,
    scratch: Path,
    progress: Progress,
    into: Path,
) -> Sequence[Artefact]:
    """Fill ``into`` with the compiler, headers and export tables of CUDA ``version``, and see nvcc run.

    Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk), and
    :class:`ToolchainError` when the parts do not make a working compiler.
    """
    by_project = {canonicalize_name(package.project): package.for_cuda(version) for package in recipe.cuda}
    packages = [by_project[canonicalize_name(file.project)] for file in files]
    wheels = run_all(
        [partial(index.open, file, scratch, progress.add) for file in files],
        workers=_WORKERS,
        cancel=index.cancel,
    )
    selected = [wheel.select(package.include) for package, wheel in zip(packages, wheels, strict=True)]
    members = [member for group in selected for member in group]
    require_space(into.parent, sum(member.size for member in members) + _TABLE_SPACE)
    tables = sum(
        table_cost(wheel, package.libraries, leading_bytes=_LEADING)
        for package, wheel in zip(packages, wheels, strict=True)
    )
    progress.expect(sum(member.compressed for member in members) + tables)
    strip = fill(recipe.cuda_strip, version)

    def fetch(file: IndexFile, package: PackageRecipe, wheel: Wheel, members: Sequence[Member]) -> Artefact:
        wheel.extract(members, into, lambda name: name.removeprefix(strip))
        for library in package.libraries:
            write_table(into, *read_symbols(wheel, library.member, leading=library.leading))
        return source_of(file, wheel)

    sources = run_all(
        [partial(fetch, *parts) for parts in zip(files, packages, wheels, selected, strict=True)],
        workers=_WORKERS,
        cancel=index.cancel,
    )
    _check_compiler(into, version)
    return sources


def _check_compiler(tree: Path, version: str) -> None:
    """See that nvcc starts here and is of the version that was asked for."""
    if not (tree / _PROFILE).is_file():
        raise ToolchainError(f"the CUDA {version} wheels hold no {_PROFILE}, so nvcc would not find its own parts")
    try:
        completed = subprocess.run(
            [tree / _NVCC, "--version"],
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(
            f"nvcc of the CUDA {version} wheels does not run on this machine: {error}",
            hint="is the cache on a disk that is mounted noexec? KERNEL_BUILDER_CACHE names another",
        ) from error
    if f"release {version}," not in completed.stdout:
        raise ToolchainError(f"nvcc of the CUDA {version} wheels says it is another: {completed.stdout.strip()[-200:]}")
