"""An environment that is there already: has it all that running a variant takes?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernel_builder.environments.wanted import Needs
from kernel_builder.load.child import ask
from kernel_builder.load.client import Environment, why_not_loadable


def why_not_adopted(environment: Environment, wanted: Needs, environ: Mapping[str, str]) -> str | None:
    """Why ``environment`` cannot run the tests of a variant; ``None`` when it can."""
    variant = wanted.variant
    reason = why_not_loadable(variant, environment)
    if reason is None and wanted.torch and not environment.torch:
        reason = f"its tests need torch, but {environment.label} is installed"
    if reason is None and variant.backend not in environment.toolkits:
        reason = f"it needs torch with {variant.backend.label}, but {environment.label} is installed"
    if reason is not None:
        return reason
    missing = missing_packages(environment.python, wanted.requirements, environ)
    return f"{environment.python} lacks {', '.join(missing)}" if missing else None


def missing_packages(python: Path, requirements: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """Those of ``requirements`` that ``python`` does not meet; all of them when it cannot be asked."""
    answer = ask(python, environ, "packages", {}).answer
    if answer is None:
        return list(requirements)
    found = {canonicalize_name(name): version for name, version in answer["packages"].items()}
    release = str(answer["python"])
    markers = {"python_full_version": release, "python_version": ".".join(release.split(".")[:2]), "extra": ""}
    missing = []
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate(markers):
            continue
        version = found.get(canonicalize_name(wanted.name))
        if version is None or not wanted.specifier.contains(version, prereleases=True):
            missing.append(text)
    return missing
