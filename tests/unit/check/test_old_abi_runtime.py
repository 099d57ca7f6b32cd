"""Variants for the old C++ ABI share libstdc++, and they alone may."""

from __future__ import annotations

from pathlib import Path

from kernel_libraries import CPU, Workshop, messages

SOURCE = '#include <stdexcept>\nvoid fail() { throw std::runtime_error("no"); }\n'


def test_a_variant_for_the_old_abi_may_share_libstdcxx_and_another_may_not(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    library = workshop.library(SOURCE, language="cpp")
    assert messages(workshop.variant("torch26-cxx98-cpu-x86_64-linux", library), "KB105") == []
    assert messages(workshop.variant(CPU, library), "KB105") == ["libstdc++.so.6 is linked dynamically"]
