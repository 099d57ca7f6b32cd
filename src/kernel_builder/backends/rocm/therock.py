"""ROCm out of AMD's own wheels (TheRock), on an index that the settings name.

``rocm-sdk-core`` holds the compiler, HIP's headers and its runtime; everything else is in a tar file inside of
``rocm-sdk-devel``, which is read as it arrives. Links in it lead to the files of the first wheel.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from kernel_builder.errors import IntegrityError, ToolchainError
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import require_space
from kernel_builder.store.download import safe_path
from kernel_builder.store.index import Index, IndexFile, choose_wheel, describe_index, locate
from kernel_builder.store.transport import NotFoundError
from kernel_builder.store.wheel import Wheel, matching
from kernel_builder.toolchain.choice import Refused, Taken, ToolkitTree
from kernel_builder.toolchain.link_tables import read_symbols, write_table
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.wheels import wheel_artefact
from kernel_builder.variants.names import Machine

CORE, DEVEL = "rocm-sdk-core", "rocm-sdk-devel"
IN_CORE = ("compiler", "device-libs", "hip", "runtime", "hsa", "comgr")
"""The components that are in the first wheel."""
_CORE_ROOT = re.compile(r"_rocm_sdk_core\w*/")
_DEVEL_ROOT = re.compile(r"(?:\./)?_rocm_sdk_devel\w*/(?P<path>.+)")
_CORE_PARTS = (
    "lib/llvm/bin/clang",
    "lib/llvm/bin/clang++",
    *(f"lib/llvm/bin/clang-{digit}*" for digit in "123"),
    "lib/llvm/bin/lld",
    "lib/llvm/bin/clang-offload-bundler",
    "lib/llvm/lib/clang/**",
    "lib/llvm/lib/lib*.so*",
    "lib/llvm/amdgcn/bitcode/**",
    "lib/rocm_sysdeps/lib/*",
    "include/**",
)
_TAR = re.compile(r"rocm_sdk_devel/_devel\.tar(\.\w+)?")
_LARGEST = 64 << 30
_COPY = 1 << 20


class RocmWheels:
    """AMD's wheels on one index. A :class:`~kernel_builder.toolchain.choice.ComponentSource`."""

    whole = True

    def __init__(self, index: Index) -> None:
        self._index = index
        self._files: dict[str, IndexFile] = {}

    @property
    def label(self) -> str:
        """The index's."""
        return self._index.label

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        found = {project: self._find(project, version, machine) for project in (CORE, DEVEL)}
        answers: dict[str, Taken | Refused] = {}
        for component in components:
            project = CORE if component.name in IN_CORE else DEVEL
            file = found[project]
            if isinstance(file, str):
                candidate = f"{project} {version}"
                answers[component.name] = Refused(
                    part=component.name, source=self.label, candidate=candidate, reason=file
                )
            else:
                artefact = file.artefact(self.label)
                answers[component.name] = Taken(part=component.name, source=self.label, artefact=artefact)
        return answers

    def _find(self, project: str, version: str, machine: Machine) -> IndexFile | str:
        try:
            files = self._index.files(project)
            allowed = SpecifierSet(f"=={version}.*")
            file = choose_wheel(files, project=project, allowed=allowed, machine=machine.value).file
        except NotFoundError:
            return f"{describe_index(self.label)} has no such project"
        except ToolchainError as error:
            return error.hint or error.message
        self._files[file.filename] = file
        return file

    def _locate(self, artefact: Artefact) -> IndexFile:
        return self._files.get(artefact.filename) or locate(self._index, artefact)

    def weigh(self, parts: Sequence[tuple[Component, Taken]], scratch: Path) -> Mapping[str, int]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`. Reads the directories of the wheels."""
        bytes_of: dict[str, int] = {}
        for artefact in {taken.artefact.filename: taken.artefact for _, taken in parts}.values():
            wheel = self._index.open(self._locate(artefact), scratch, lambda _: None)
            bytes_of[artefact.filename] = _cost(wheel)
        return bytes_of

    def fill(self, parts: Sequence[tuple[Component, Taken]], tree: ToolkitTree) -> Sequence[Artefact]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`.

        Raises :class:`NetworkError`, :class:`IntegrityError`, :class:`MachineError` (disk).
        """
        artefacts = {taken.artefact.filename: taken.artefact for _, taken in parts}
        files = {name: self._locate(artefact) for name, artefact in artefacts.items()}
        wheels = {name: self._index.open(file, tree.scratch, tree.progress.add) for name, file in files.items()}
        tree.progress.expect(sum(map(_cost, wheels.values())))
        for name, wheel in wheels.items():
            wanted = [component for component, taken in parts if taken.artefact.filename == name]
            if any(component.name in IN_CORE for component in wanted):
                _fill_core(wheel, wanted, tree)
            else:
                _fill_devel(wheel, tree)
        return [wheel_artefact(files[name], wheel, self.label) for name, wheel in wheels.items()]


def _core_root(wheel: Wheel) -> str:
    root = next((match[0] for name in wheel.members if (match := _CORE_ROOT.match(name))), None)
    if root is None:
        raise ToolchainError(f"{wheel.filename} is not laid out as AMD's wheels of ROCm are: it has no _rocm_sdk_core")
    return root


def _fill_core(wheel: Wheel, components: Sequence[Component], tree: ToolkitTree) -> None:
    root = _core_root(wheel)
    members = wheel.select([f"{root}{pattern}" for pattern in _CORE_PARTS])
    require_space(tree.into.parent, sum(member.size for member in members))
    wheel.extract(members, tree.into, lambda name: name.removeprefix(root))
    for component in components:
        for library in component.libraries:
            symbols = read_symbols(wheel, f"{root}{library.member}", leading=library.leading)[1]
            write_table(tree.into, library.soname, symbols)


def _fill_devel(wheel: Wheel, tree: ToolkitTree) -> None:
    """Headers, out of the tar file. Links are passed over: they lead to files of the other wheel."""
    written, total = 0, 0
    with wheel.stream(_tar_member(wheel)) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|*") as tar:
                for entry in tar:
                    found = _DEVEL_ROOT.fullmatch(entry.name)
                    total += entry.size
                    if total > _LARGEST:
                        raise IntegrityError(f"{wheel.filename}: its tar file is larger than {_LARGEST} bytes")
                    path = found["path"] if found is not None else ""
                    content = tar.extractfile(entry) if entry.isreg() and matching([path], ["include/**"]) else None
                    if content is None:
                        continue
                    target = tree.into / safe_path(path)
                    if target.exists():  # both wheels have it
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as file:
                        while piece := content.read(_COPY):
                            file.write(piece)
                    written += 1
        except (tarfile.TarError, EOFError) as error:
            raise IntegrityError(f"{wheel.filename}: its tar file is damaged: {error}") from error
    if not written:
        raise ToolchainError(
            f"{wheel.filename} is not laid out as AMD's wheels of ROCm are: its tar file has no headers"
        )


def _tar_member(wheel: Wheel) -> str:
    name = next((name for name in wheel.members if _TAR.fullmatch(name)), None)
    if name is None:
        raise ToolchainError(f"{wheel.filename} is not laid out as AMD's wheels of ROCm are: it has no tar file")
    return name


def _cost(wheel: Wheel) -> int:
    """About how many bytes are fetched of a wheel."""
    tar = next((member for name, member in wheel.members.items() if _TAR.fullmatch(name)), None)
    if tar is not None:
        return tar.compressed
    root = _core_root(wheel)
    return sum(member.compressed for member in wheel.select([f"{root}{pattern}" for pattern in _CORE_PARTS]))
