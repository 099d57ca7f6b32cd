"""Named policies: which versions of the C and C++ runtimes a Linux library may need. Read from data/policies.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources

from kernel_builder.errors import UsageError
from kernel_builder.versions import Version


@dataclass(frozen=True, kw_only=True)
class VersionLimits:
    """What one machine's libraries may need: the newest version of each family, and versions that are no numbers."""

    newest: Mapping[str, Version]
    named: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A named policy. ``static_cxx``: libstdc++ must not be linked dynamically at all."""

    name: str
    summary: str
    static_cxx: bool
    limits: Mapping[str, VersionLimits]
    aliases: tuple[str, ...] = ()


@cache
def load_policies() -> Mapping[str, Policy]:
    """All policies by name, in order of the table."""
    text = resources.files("kernel_builder.data").joinpath("policies.toml").read_text(encoding="utf-8")
    found: dict[str, Policy] = {}
    for row in tomllib.loads(text)["policy"]:
        limits = {
            machine: VersionLimits(
                newest={family: Version.parse(v) for family, v in row[machine].items() if family != "named"},
                named=frozenset(row[machine].get("named", ())),
            )
            for machine in ("x86_64", "aarch64")
            if machine in row
        }
        found[row["name"]] = Policy(
            name=row["name"],
            summary=row["summary"],
            static_cxx=row["static-cxx"],
            limits=limits,
            aliases=tuple(row.get("aliases", ())),
        )
    return found


def find_policy(name: str) -> Policy:
    """The policy of that name or alias. Raises :class:`UsageError` with the names there are."""
    policies = load_policies()
    for policy in policies.values():
        if name == policy.name or name in policy.aliases:
            return policy
    near = get_close_matches(name, policies, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(f"unknown policy {name!r}", hint=f"{hint}Available: {', '.join(policies)}")
