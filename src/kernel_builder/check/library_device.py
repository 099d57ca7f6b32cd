"""Rules about GPU code: there is some for every architecture that the metadata names, and for no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_builder.artifact.digest import METADATA
from kernel_builder.binary.device_code import READERS, DeviceCode
from kernel_builder.binary.elf import mapped
from kernel_builder.check.library_versions import several
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile, VariantDir, join
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import is_architecture
from kernel_builder.variants.names import ArchVariant

NO_CODE = rule(
    "KB141",
    "missing-device-code",
    Severity.ERROR,
    summary="The libraries have GPU code for every architecture in the metadata",
    rationale="Users and tools rely on the metadata; without the code, the first launch fails on that GPU.",
    remedy="Build for these architectures, or remove them from backend.archs.",
    source="docs/requirements.md, 'Libraries'",
)
UNNAMED_CODE = rule(
    "KB142",
    "unnamed-device-code",
    Severity.ERROR,
    summary="The libraries have no GPU code for architectures missing from the metadata",
    rationale="The metadata is wrong: it does not describe what was built.",
    remedy="Add the architectures to backend.archs, or do not build for them.",
    source="docs/requirements.md, 'Libraries'",
)
UNREAD_CODE = rule(
    "KB143",
    "unread-device-code",
    Severity.NOTE,
    summary="The architectures of GPU code can be read from the library",
    rationale="GPU code that cannot be read was not compared with the metadata.",
    remedy="Inspect it with the GPU vendor's tools.",
    source="kernel-builder",
)
OLD_LOADERS = rule(
    "KB144",
    "code-object-version",
    Severity.WARNING,
    summary="GPU code has a code object version that the variant's toolkit can load",
    rationale="Loaders reject code objects of versions that they do not know, so the first launch fails.",
    remedy="Compile with that toolkit's own compiler, without -mcode-object-version.",
    source='LLVM, "User Guide for AMDGPU Backend", code object versions',
)
NONE_AT_ALL = rule(
    "KB145",
    "no-device-code",
    Severity.WARNING,
    summary="The libraries of a variant for GPUs have GPU code",
    rationale=(
        "A kernel without GPU code has nothing to launch. Only kernels that just call other libraries need none."
    ),
    remedy="List the device sources in 'src' of the backend's sections, and link with the compiler that compiled them.",
    source="kernel-builder",
)
DAMAGED = rule(
    "KB146",
    "damaged-device-code",
    Severity.ERROR,
    summary="GPU code is complete, and for the architecture that it declares",
    rationale="The first launch fails on every GPU whose code is damaged.",
    remedy="Build the variant again, or copy it again from an intact place.",
    source='LLVM, "Clang Offload Bundler"; LLVM, "User Guide for AMDGPU Backend" (ELF code object)',
)
_LOADED = {4: (4, 5), 5: (6, 0), 6: (6, 4)}
"""Version of AMD's code objects -> the first release of ROCm whose own compiler makes it."""


def _archs(variant: VariantDir) -> list[str] | None:
    backend = (variant.metadata or {}).get("backend")
    archs = backend.get("archs") if isinstance(backend, dict) else None
    if not isinstance(archs, list) or not all(isinstance(arch, str) for arch in archs):
        return None
    return [str(arch) for arch in archs]


def _code(variant: VariantDir, reader: str) -> list[DeviceCode]:
    found: list[DeviceCode] = []
    for library in variant.libraries:
        if library.elf is None:
            continue
        with mapped(library.path) as data:
            code = READERS[reader](data, library.sections)
        if code is not None:
            found.append(code)
    return found


@checks(VariantDir, NO_CODE, UNNAMED_CODE, UNREAD_CODE, OLD_LOADERS, DAMAGED)
def device_code(variant: VariantDir, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Compares the GPU code in a variant's libraries with the metadata."""
    archs = _archs(variant)
    backend = next((one for one in Backend if one == variant.backend), None)
    reader = backend.architectures.device_code if backend is not None and backend.architectures is not None else None
    if backend is None or reader is None or not any(library.elf for library in variant.libraries):
        return
    place, code = join(variant.shown, METADATA), _code(variant, reader)
    unread = sorted({reason for part in code for reason in part.unread})
    for reason in unread:
        yield UNREAD_CODE.at(place, f"cannot read all GPU code of its libraries: {reason}")
    damaged = sorted({reason for part in code for reason in part.damaged})
    for reason in damaged:
        yield DAMAGED.at(place, f"the GPU code of its libraries is damaged: {reason}")
    yield from _versions(variant, frozenset[int]().union(*(part.versions for part in code)))
    machine_code = frozenset[str]().union(*(part.machine_code for part in code))
    ptx = frozenset[str]().union(*(part.ptx for part in code))
    if archs is None or not all(is_architecture(backend, arch) for arch in archs):
        return  # no list, or a malformed one, of which the rules about metadata speak
    named = {arch.removesuffix("+PTX") for arch in archs}
    named_ptx = {arch.removesuffix("+PTX") for arch in archs if arch.endswith("+PTX")}
    if not unread and not damaged:
        missing = sorted(named - machine_code) + [f"{arch}+PTX" for arch in sorted(named_ptx - ptx)]
        if missing:
            has = several(sorted(machine_code), 12) or "none"
            yield NO_CODE.at(
                place,
                f"no GPU code for {several(missing, 12)}; found code for: {has}",
                symbol="backend.archs",
            )
    extra = sorted(machine_code - named) + [f"{arch}+PTX" for arch in sorted(ptx - named_ptx)]
    if extra:
        text = f"the metadata does not list {several(extra, 12)}, but the libraries have GPU code for {_them(extra)}"
        yield UNNAMED_CODE.at(place, text, symbol="backend.archs")


@checks(VariantDir, NONE_AT_ALL)
def some_device_code(variant: VariantDir, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Variants for GPUs whose libraries have no code for any."""
    backend = next((one for one in Backend if one == variant.backend), None)
    if backend is None or not isinstance(variant.variant, ArchVariant) or _archs(variant):
        return  # code for the architectures that metadata names is looked for there
    libraries = [library for library in variant.libraries if library.elf is not None or library.macho]
    if libraries and not any(_has_device_code(library, backend) for library in libraries):
        yield NONE_AT_ALL.at(libraries[0], f"there is no {backend.label} code in the libraries of this variant")


def _has_device_code(library: LibraryFile, backend: Backend) -> bool:
    """Whether a library has code for the backend's devices, or is not known to have none."""
    if library.macho:
        return bool(library.metal) or not _is_shader(backend)
    if library.elf is None:
        return True
    if backend.architectures is not None and backend.architectures.device_code is not None:
        with mapped(library.path) as data:
            code = READERS[backend.architectures.device_code](data, library.sections)
        return code is not None and bool(code.machine_code or code.ptx or code.unread or code.damaged)
    if backend.registration is None:
        return True
    registers = re.compile(backend.registration)
    return any(registers.fullmatch(symbol.name) for symbol in library.elf.undefined)


def _is_shader(backend: Backend) -> bool:
    """Whether the backend's own language is that of Metal's shaders."""
    return ".metal" in backend.sources


def _them(items: list[str]) -> str:
    return "it" if len(items) == 1 else "them"


def _versions(variant: VariantDir, versions: frozenset[int]) -> Iterator[Finding]:
    """Versions of code objects that the toolkit of the variant's name does not make."""
    named = variant.variant
    toolkit = named.compute.version if isinstance(named, ArchVariant) else None
    for version in sorted(versions):
        since = _LOADED.get(version)
        if since is None:
            yield OLD_LOADERS.at(variant.shown, f"its GPU code is of version {version}, which is no longer made")
        elif toolkit is not None and toolkit < since:
            first, has = (".".join(map(str, numbers)) for numbers in (since, toolkit))
            yield OLD_LOADERS.at(
                variant.shown,
                f"its GPU code is of version {version}, which came with {first}; it is for {has}",
            )
