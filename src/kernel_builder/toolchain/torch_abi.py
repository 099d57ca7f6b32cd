"""Which C++ ABI of libstdc++ a torch was built with, proved by the names that its libraries export.

Only names of torch's own count: the wheels of torch 2.6 and earlier export half of a C++ runtime, too, which has both
ABIs in it (measured: 153 names with ``std::__cxx11`` in a libc10.so of the old ABI).
"""

from __future__ import annotations

from collections.abc import Iterable

from kernel_builder.variants.names import Abi

_OWN = ("_ZN3c10", "_ZNK3c10")
_NEW_STRING = "NSt7__cxx1112basic_string"
_OLD_STRING = "Ss"
"""``std::string`` of the old ABI, as the Itanium C++ ABI abbreviates it; at the end of a name it is a parameter."""


def prove_abi(names: Iterable[str]) -> Abi | None:
    """The ABI of the functions of namespace ``c10`` among ``names`` that take a ``std::string``.

    ``None`` when there are none, or of both kinds.
    """
    new = old = False
    for name in names:
        if name.startswith(_OWN):
            new = new or _NEW_STRING in name
            old = old or name.endswith(_OLD_STRING)
    if new == old:
        return None
    return Abi.CXX11 if new else Abi.CXX98
