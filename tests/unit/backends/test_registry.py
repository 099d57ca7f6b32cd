"""The table of backends and the modules for them go together."""

from __future__ import annotations

import pkgutil

import pytest

from kernel_builder import backends
from kernel_builder.backends import rules_for, toolkit_kinds
from kernel_builder.config.backends import Backend


def test_each_row_with_a_module_has_one_and_each_module_a_row() -> None:
    modules = {module.name for module in pkgutil.iter_modules(backends.__path__)} - {"protocol"}
    assert {backend.value for backend in Backend if backend.has_module} == modules


@pytest.mark.parametrize("backend", [backend for backend in Backend if not backend.has_module], ids=lambda b: b.value)
def test_a_backend_without_a_module_has_no_rules(backend: Backend) -> None:
    with pytest.raises(LookupError, match=f"this version cannot compile {backend.value} kernels"):
        rules_for(backend)


def test_a_toolkit_is_that_of_its_backend() -> None:
    assert all(kind.backend is backend for backend, kind in toolkit_kinds().items())
    assert all(backend.prefix is not None for backend in toolkit_kinds()), "its version is part of variant names"
