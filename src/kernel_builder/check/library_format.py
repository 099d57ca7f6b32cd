"""Rules about a library as a file: it can be read, and it is for the machine that its variant names."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import LibraryFile
from kernel_builder.variants.names import ArchVariant, System

UNREADABLE_LIBRARY = rule(
    "KB101",
    "unreadable-library",
    Severity.ERROR,
    summary="Every library can be parsed, including its dynamic symbols",
    rationale="A library that cannot be parsed is not checked by any other rule, and the dynamic linker"
    " rejects it too.",
    remedy="Rebuild the library. A file that is not a library should not be named like one.",
    source="docs/requirements.md, 'Libraries'",
)
WRONG_MACHINE = rule(
    "KB102",
    "wrong-machine",
    Severity.ERROR,
    summary="A library matches the system and processor in its variant's name",
    rationale="The client chooses a variant by its name only, and then fails to load the library.",
    remedy="Move the library to the variant it was built for.",
    source="docs/requirements.md, 'Libraries'",
)
_FORMATS = {System.LINUX: "ELF", System.DARWIN: "Mach-O", System.WINDOWS: "PE"}
_SYSTEMS = {form: system.value for system, form in _FORMATS.items()}


@checks(LibraryFile, UNREADABLE_LIBRARY)
def unreadable(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Files named like libraries that are none, or that are damaged."""
    if library.error is not None:
        yield UNREADABLE_LIBRARY.at(library, f"cannot read the library: {library.error}")
    elif library.elf is not None and not library.elf.is_shared_object:
        yield UNREADABLE_LIBRARY.at(library, "an ELF file, but not a shared object")


@checks(LibraryFile, WRONG_MACHINE)
def wrong_machine(library: LibraryFile, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    """Libraries of another system or processor than the variant's."""
    variant = library.variant.variant if library.variant else None
    if not isinstance(variant, ArchVariant) or library.error is not None:
        return
    if library.format != _FORMATS[variant.system]:
        yield WRONG_MACHINE.at(
            library, f"the variant is for {variant.system.value}, but this file is for {_SYSTEMS[library.format]}"
        )
        return
    machines = [part.machine for part in library.macho]
    if library.elf is not None:
        machines = [library.elf.machine]
    elif library.pe is not None:
        machines = [library.pe.machine]
    if variant.machine.value not in machines:
        yield WRONG_MACHINE.at(
            library, f"the variant is for {variant.machine.value}, but the library for {', '.join(machines) or 'none'}"
        )
