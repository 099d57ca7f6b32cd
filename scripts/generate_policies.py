"""Write src/kernel_builder/data/policies.toml: what each named policy allows a Linux library to need.

The limits of the manylinux policies are facts that the auditwheel package publishes; install it, then run

    python scripts/generate_policies.py

Only the newest version of each family is kept: a library that needs an older one can always be loaded.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "policies.toml"
FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
MACHINES = ("x86_64", "aarch64")

HEAD = """\
# What named policies allow a Linux library to need. Written by scripts/generate_policies.py; do not edit.
# Per machine and family the newest version allowed, and versions that are names, not numbers.

[[policy]]
name = "glibc-2.27-static"
summary = "the requirements page as first published: glibc 2.27, libstdc++ linked statically"
static-cxx = true
x86_64 = { GLIBC = "2.27", GCC = "7.0.0" }
aarch64 = { GLIBC = "2.27", GCC = "7.0.0" }
"""


def _number(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None


def _limits(families: dict[str, list[str]]) -> tuple[dict[str, str], list[str]]:
    newest: dict[str, str] = {}
    named: list[str] = []
    for family in FAMILIES:
        numbered = [(number, text) for text in families.get(family, []) if (number := _number(text)) is not None]
        if numbered:
            newest[family] = max(numbered)[1]
        named += [f"{family}_{text}" for text in families.get(family, []) if _number(text) is None]
    return newest, sorted(named)


def main() -> None:
    """Write the table."""
    data = resources.files("auditwheel").joinpath("policy", "manylinux-policy.json").read_text(encoding="utf-8")
    lines = [HEAD]
    for policy in json.loads(data):
        if not policy["name"].startswith("manylinux_"):
            continue
        minor = policy["name"].rpartition("_")[2]
        aliases = json.dumps(policy.get("aliases", []))
        lines += [
            "[[policy]]",
            f'name = "{policy["name"]}"',
            f"aliases = {aliases}",
            f'summary = "manylinux: glibc 2.{minor}, libstdc++ of that age may be linked dynamically"',
            "static-cxx = false",
        ]
        for machine in MACHINES:
            if machine in policy["symbol_versions"]:
                newest, named = _limits(policy["symbol_versions"][machine])
                fields = [f'{family} = "{version}"' for family, version in newest.items()]
                fields += [f"named = {json.dumps(named)}"] if named else []
                lines.append(f"{machine} = {{ {', '.join(fields)} }}")
        lines.append("")
    TARGET.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
