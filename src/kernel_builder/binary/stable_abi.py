"""torch's stable ABI: C functions that no later release of torch takes away, and since which release each is there.

The table ``data/stable_abi.toml`` comes from torch's own wheels. Reference: interoperability contract 7.5.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from kernel_builder.binary.causes import NamedCause
from kernel_builder.binary.mangled import namespace, readable
from kernel_builder.versions import Version

_C_NAME = re.compile(r"(aoti_torch|torch)_\w+")
_NAMESPACES = ("at", "c10", "torch", "caffe2")
_INLINE = ("torch::stable::", "torch::headeronly::")
"""What is in headers alone: each library has such names of its own, and torch exports none of them."""


def looks_like_torch(symbol: str) -> bool:
    """Whether ``symbol`` is named as what torch exports is, in C or in C++."""
    if _C_NAME.fullmatch(symbol):
        return True
    return namespace(symbol) in _NAMESPACES and not readable(symbol).startswith(_INLINE)


@cache
def _document() -> dict[str, object]:
    text = resources.files("kernel_builder.data").joinpath("stable_abi.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def stable_header_roots() -> tuple[str, ...]:
    """Directories below torch's ``include`` that hold the stable ABI and need no other header of torch's."""
    roots = _document()["headers"]
    assert isinstance(roots, list)  # noqa: S101  (the package's own data)
    return tuple(roots)


@cache
def stable_functions() -> dict[str, Version]:
    """Function -> the release of torch from which on it can be used."""
    groups = _document()["functions"]
    assert isinstance(groups, dict)  # noqa: S101  (the package's own data)
    return {name: Version.parse(release) for release, names in groups.items() for name in names}


def why_not_stable(symbol: str, target: Version) -> NamedCause | None:
    """Why a kernel for ``target`` and every later torch cannot need ``symbol`` of torch; ``None`` when it can."""
    since = stable_functions().get(symbol)
    if since is None:
        what = "torch's C++ interface" if namespace(symbol) in _NAMESPACES else "it"
        return NamedCause(
            why=f"{what} is not part of torch's stable ABI, which the kernel targets",
            instead="include only torch/csrc/stable and torch/headeronly",
        )
    if since > target:
        return NamedCause(
            why=f"torch has it since {since}, but the kernel targets the stable ABI of {target}",
            instead=f'set stable-abi to "{since}" in build.toml',
        )
    return None


def target_definition(target: Version) -> str:
    """What tells torch's headers the release that is aimed at: ``TORCH_TARGET_VERSION=0x20b000000000000``.

    Major in the highest byte, minor in the next (interoperability contract 3.5).
    """
    return f"TORCH_TARGET_VERSION={(target.major << 56) | (target.minor << 48):#x}"
