"""Compare data/support.toml with what the configured package index really has, release by release (needs a network).

Usage: python scripts/check_support.py [--write]

Checked of each release: its newest version, the platforms that it has wheels for, the CUDA version of each (by the
NVIDIA packages that the wheel requires), the C++ ABI that it was built with, that its headers ask for no newer C++
standard than the table says, and the oldest Python that it has a wheel for; and that no release of the index is
missing. Differences are printed and end in exit code 1; ``--write`` writes them into the table instead, comments and
layout kept. A release that is new to it gets the builds that the index has; other toolkits, and what is required since
when, are published elsewhere and written by hand. Wheels are read in parts: about 75 MiB in all.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from packaging.metadata import Metadata
from packaging.version import Version

from kernel_builder.errors import KernelBuilderError
from kernel_builder.events import Silent
from kernel_builder.store.index import PYTHONS, IndexFile, SimpleIndex
from kernel_builder.store.settings import find_index
from kernel_builder.store.wheel import matching

TABLE = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "support.toml"
PLATFORMS = {
    "x86_64-linux": re.compile(r"(many)?linux.*_x86_64"),
    "aarch64-linux": re.compile(r"(many)?linux.*_aarch64"),
    "aarch64-darwin": re.compile(r"macosx_.*_arm64"),
    "x86_64-windows": re.compile(r"win_amd64"),
}
CONFIG = "torch/share/cmake/Torch/TorchConfig.cmake"
STANDARD_HEADERS = ("torch/include/torch/csrc/api/include/torch/all.h", "torch/include/c10/util/C++17.h")
# The package of the CUDA runtime has the CUDA version in its own, and so does the package of a whole release.
RUNTIME = re.compile(r"(nvidia-cuda-runtime(-cu\d+)?|cuda-toolkit)")


@dataclass(frozen=True)
class Facts:
    """What the index has of one release. ``platforms`` maps a platform to ``cpu`` or, on Linux, ``cxx11-cu130``;
    ``python`` is the oldest that has a wheel.
    """

    version: str
    platforms: dict[str, str]
    cxx_standard: int
    python: str


def newest_of(files: tuple[IndexFile, ...], release: str) -> list[IndexFile]:
    """The wheels of the newest final version of ``release``."""
    fitting = [
        file
        for file in files
        if f"{file.version.major}.{file.version.minor}" == release
        and not file.version.is_prerelease
        and file.yanked is None
    ]
    newest = max((file.version for file in fitting), default=None)
    return [file for file in fitting if file.version == newest]


def wheel_for(files: list[IndexFile], platform: re.Pattern[str]) -> IndexFile | None:
    """The wheel for ``platform``, of a Python that kernel-builder would take."""
    fitting = [file for file in files if any(platform.fullmatch(tag.platform) for tag in file.tags)]
    for python in PYTHONS:
        for file in fitting:
            if any(tag.interpreter == python and not tag.abi.endswith("t") for tag in file.tags):
                return file
    return fitting[0] if fitting else None


def flavour(metadata: bytes, platform: str) -> str:
    """``cu130`` or ``cpu``, from the wheel's requirements on ``platform``."""
    machine, system = platform.split("-")
    environment = {"platform_machine": machine, "platform_system": system.title(), "extra": ""}
    for requirement in Metadata.from_email(metadata, validate=False).requires_dist or ():
        applies = requirement.marker is None or requirement.marker.evaluate(environment)
        if applies and RUNTIME.fullmatch(requirement.name):
            (pin, *_) = (Version(specifier.version.removesuffix(".*")) for specifier in requirement.specifier)
            return f"cu{pin.major}{pin.minor}"
    return "cpu"


def oldest_python(files: list[IndexFile]) -> str:
    """``3.10``, when the oldest CPython among the wheels is ``cp310``."""
    tags = (re.fullmatch(r"cp3(\d+)", tag.interpreter) for file in files for tag in file.tags)
    return f"3.{min(int(match[1]) for match in tags if match is not None)}"


def examine(index: SimpleIndex, files: list[IndexFile]) -> Facts:
    """Read the facts of one release out of its wheels."""
    platforms: dict[str, str] = {}
    standard = 14
    for platform, pattern in PLATFORMS.items():
        file = wheel_for(files, pattern)
        if file is None:
            continue
        with tempfile.TemporaryDirectory(prefix="kernel-builder-") as scratch:
            wheel = index.open(file, Path(scratch), lambda _: None)
            (name,) = matching(wheel.members, ["*.dist-info/METADATA"])
            platforms[platform] = flavour(wheel.read(name), platform)
            if platform.endswith("-linux"):
                abi = "cxx98" if b"_GLIBCXX_USE_CXX11_ABI=0" in wheel.read(CONFIG) else "cxx11"
                platforms[platform] = f"{abi}-{platforms[platform]}"
                for header in STANDARD_HEADERS:
                    if header in wheel.members:
                        text = wheel.read(header).decode()
                        found = [int(year) for year in re.findall(r"__cplusplus\s*<\s*20([12][0-9])", text)]
                        standard = max([standard, *({17: 17, 20: 20, 23: 23}.get(year, 14) for year in found)])
    return Facts(version=str(files[0].version), platforms=platforms, cxx_standard=standard, python=oldest_python(files))


def differences(release: tomlkit.items.Table, facts: Facts, *, write: bool) -> list[str]:
    """Where ``release`` of the table differs from ``facts``, as lines; with ``write`` it is made equal."""
    found: list[str] = []
    name = release["version"]
    wheels = release["wheels"]
    expected = {"version": facts.version, **facts.platforms}
    for key in sorted({*wheels, *expected}):
        if wheels.get(key) != expected.get(key):
            found.append(f"torch {name}: wheels.{key} is {wheels.get(key)!r}, the index has {expected.get(key)!r}")
    if release["cxx-standard"] < facts.cxx_standard:
        found.append(
            f"torch {name}: cxx-standard is {release['cxx-standard']}, the headers ask for {facts.cxx_standard}"
        )
    if release["python"] != facts.python:
        found.append(f"torch {name}: python is {release['python']}, the oldest wheel is for {facts.python}")
    if write and found:
        table = tomlkit.inline_table()
        table.update(expected)
        release["wheels"] = table
        release["cxx-standard"] = max(release["cxx-standard"], facts.cxx_standard)
        release["python"] = facts.python
    return found


def new_release(release: str, facts: Facts) -> tomlkit.items.Table:
    """A table for a release that the support table does not have yet: the builds that the index has."""
    flavours = {platform: text.rpartition("-")[2] for platform, text in facts.platforms.items()}
    unix = [platform for platform in flavours if not platform.endswith("-windows")]
    builds: list[dict[str, object]] = [{"backend": "cpu", "platforms": unix}]
    for toolkit in sorted({flavour for flavour in flavours.values() if flavour.startswith("cu")}):
        digits = toolkit.removeprefix("cu")
        where = [platform for platform in unix if flavours[platform] == toolkit]
        builds.append({"backend": "cuda", "versions": [f"{digits[:-1]}.{digits[-1]}"], "platforms": where})
    builds.append({"backend": "metal", "platforms": [platform for platform in unix if platform.endswith("-darwin")]})
    table = tomlkit.table()
    table.update({"version": release, "cxx-standard": facts.cxx_standard, "python": facts.python})
    table["wheels"] = tomlkit.inline_table()
    table["wheels"].update({"version": facts.version, **facts.platforms})
    rows = tomlkit.array().multiline(True)
    for build in builds:
        if build["platforms"]:
            row = tomlkit.inline_table()
            row.update(build)
            rows.append(row)
    table["builds"] = rows
    return table


def missing_releases(known: set[str], files: tuple[IndexFile, ...]) -> list[str]:
    """Releases of the index that are newer than all that the table has, the oldest first."""
    newest = max(map(Version, known))
    releases = {f"{file.version.major}.{file.version.minor}" for file in files if not file.version.is_prerelease}
    return sorted((release for release in releases if Version(release) > newest), key=Version)


def main() -> int:
    """Exit code 0: the table is right; 1: it is not; 5: the index cannot be read."""
    write = sys.argv[1:] == ["--write"]
    if sys.argv[1:] and not write:
        print(__doc__)
        return 2
    document = tomlkit.parse(TABLE.read_text(encoding="utf-8"))
    index = SimpleIndex(find_index(), Silent())
    try:
        files = index.files("torch")
        found: list[str] = []
        for release in document["torch"]:
            wheels = newest_of(files, release["version"])
            if not wheels:
                found.append(f"torch {release['version']}: the index has no wheel of it")
                continue
            found += differences(release, examine(index, wheels), write=write)
        for name in missing_releases({str(release["version"]) for release in document["torch"]}, files):
            found.append(f"torch {name} is on the index and not in the table")
            if write:
                document["torch"].append(new_release(name, examine(index, newest_of(files, name))))
    except KernelBuilderError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return int(error.exit_code)
    print("\n".join(found) or "the table agrees with the index")
    print(f"{index.bytes_received / 2**20:.1f} MiB read", file=sys.stderr)
    if write:
        TABLE.write_text(tomlkit.dumps(document), encoding="utf-8")
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
