"""Rules about versions of the C and C++ runtimes, from the version needs that the dynamic linker checks.

The needs are in the loaded part of the file, so stripping changes nothing, and they are the same whichever linker
wrote them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kernel_builder.binary.elf import ElfFile
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.policies import VersionLimits, find_policy
from kernel_builder.check.subject import LibraryFile
from kernel_builder.versions import Version

TOO_NEW = rule(
    "KB103",
    "runtime-version",
    Severity.ERROR,
    summary="No symbol needs a newer glibc, libgcc or libstdc++ than the policy allows",
    rationale=(
        "The dynamic linker rejects the whole library on a machine whose runtime lacks one version that it needs,"
        " whether or not the symbol is ever used; weak symbols count too."
    ),
    remedy="Build against an older glibc (kernel-builder does), or avoid the function.",
    source="docs/requirements.md, 'Libraries'",
    acceptable=True,
)
PRIVATE_VERSION = rule(
    "KB104",
    "private-version",
    Severity.ERROR,
    summary="No symbol needs a private or optional version node of the runtime, such as GLIBC_PRIVATE",
    rationale=(
        "GLIBC_PRIVATE symbols change with every build of glibc; GLIBC_ABI_DT_RELR needs glibc 2.36,"
        " and CXXABI_TM_1 a libstdc++ with transactional memory."
    ),
    remedy=(
        "Avoid the function; for GLIBC_ABI_DT_RELR link with -Wl,-z,nopack-relative-relocs or without"
        " --pack-dyn-relocs=relr."
    ),
    source="docs/requirements.md, 'Libraries'",
)
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_(.+)")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)*")
_SUPPLIERS = {"GLIBC": "glibc", "GLIBCXX": "libstdc++", "CXXABI": "libstdc++ (its C++ ABI)", "GCC": "libgcc"}
_NAMED = 4


def several(names: list[str], limit: int = _NAMED) -> str:
    """``a, b, c, d and 7 more``."""
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _users(elf: ElfFile) -> dict[str, list[str]]:
    """Version -> names of the symbols that are bound to it, sorted; versions that nothing is bound to as well."""
    users: dict[str, list[str]] = defaultdict(list)
    for need in elf.version_needs:
        users[need.version] += []
    for symbol in elf.undefined:
        if symbol.version is not None:
            users[symbol.version].append(symbol.name)
    return {version: sorted(names) for version, names in sorted(users.items())}


@checks(LibraryFile, TOO_NEW, PRIVATE_VERSION)
def versions(library: LibraryFile, settings: Settings) -> Iterator[Finding]:
    """Compares every version need with the policy."""
    policy = find_policy(settings.policy)
    limits = policy.limits.get(library.elf.machine) if library.elf is not None else None
    if library.elf is None or limits is None:
        return
    for version, users in _users(library.elf).items():
        match = _VERSION.fullmatch(version)
        if match is None or version in limits.named:
            continue
        family, number = match[1], match[2]
        who = several(users) or "the library as a whole"
        if _NUMBER.fullmatch(number) is None or len(number) > 32:
            yield PRIVATE_VERSION.at(
                library,
                f"{who} {'need' if len(users) > 1 else 'needs'} {version}, a version that {policy.name} does not allow",
                symbol=users[0] if users else version,
            )
        else:
            yield from _too_new(library, policy.name, limits, family, Version.parse(number), users)


def _too_new(
    library: LibraryFile, policy: str, limits: VersionLimits, family: str, version: Version, users: list[str]
) -> Iterator[Finding]:
    limit = limits.newest.get(family)
    if limit is None or version <= limit:  # a family without limit is not allowed at all: KB105 says so
        return
    yield TOO_NEW.at(
        library,
        f"{several(users) or 'the library as a whole'} {'need' if len(users) > 1 else 'needs'} {_SUPPLIERS[family]}"
        f" {version}; {policy} allows {limit} at most",
        symbol=users[0] if users else f"{family}_{version}",
    )
