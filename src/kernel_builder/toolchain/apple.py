"""Apple's compilers and SDK, which Xcode or its command line tools bring; ``xcrun`` says where they are.

Reference: xcrun(1).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.model import AppleSdk, Family, HostCompiler
from kernel_builder.toolchain.programs import answer_of, ask

_HINT = "install Xcode, or its command line tools for kernels without shaders: xcode-select --install"
_CLANG = re.compile(r"clang version (\d+(?:\.\d+)*)")


@dataclass(frozen=True, kw_only=True)
class Apple:
    """What kernels for macOS are compiled with."""

    host: HostCompiler
    sdk: AppleSdk


def find_apple(environ: Mapping[str, str]) -> Apple:
    """What ``xcrun`` finds. Raises :class:`ToolchainError` where there is no Xcode, or something of it is missing."""
    xcrun = shutil.which("xcrun", path=environ.get("PATH"))
    if xcrun is None:
        raise ToolchainError("kernels for macOS are compiled with Xcode: there is no xcrun on PATH", hint=_HINT)

    def found(*question: str) -> str:
        try:
            return ask([xcrun, "--sdk", "macosx", *question], environ).stdout.strip()
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip() or f"it ends with code {error.returncode}"
        except (OSError, subprocess.SubprocessError) as error:
            said = str(error)
        raise ToolchainError(f"xcrun {' '.join(question)}: {said}", hint=_HINT)

    cxx = Path(found("--find", "clang++"))
    root, version = Path(found("--show-sdk-path")), found("--show-sdk-version")
    shaders = [answer_of([xcrun, "--sdk", "macosx", "--find", name], environ) for name in ("metal", "metallib")]
    metal, metallib = (Path(path) if path else None for path in shaders)
    banner = answer_of([cxx, "--version"], environ) or ""
    words = _CLANG.search(banner)
    if words is None:
        raise ToolchainError(f"{cxx} does not respond like clang", hint=_HINT)
    programs = [cxx, *(path for path in (metal, metallib) if path is not None)]
    identity = tree_identity([*programs, root / "SDKSettings.json"], [])
    target = answer_of([cxx, "-dumpmachine"], environ) or "arm64-apple-darwin"
    host = HostCompiler(cxx=cxx, version=words[1], target=target, library=0, family=Family.CLANG, fingerprint=identity)
    sdk = AppleSdk(root=root, version=version, identity=f"{version} {identity}", metal=metal, metallib=metallib)
    return Apple(host=host, sdk=sdk)
