"""Generated sources: ``registration.h``, the Python module, ``_ops.py`` and the compatibility package.

Reference: interoperability contract 3.3 and 3.4. Templates lie in ``templates/glue``.
"""

from __future__ import annotations

from importlib import resources
from string import Template

from kernel_builder.frameworks.torch_binding import PLACEHOLDER

_LOADING = """
from . import ${ops_id}  # noqa: F401  (loads the library, which registers the ops)
"""


def filled(name: str, **values: str) -> str:
    """One of the templates in ``templates/glue`` with ``values``. Not jinja2's: every build needs them, and importing
    that takes its time.
    """
    return Template(_verbatim(f"{name}.in")).substitute(values)


def _verbatim(name: str) -> str:
    return resources.files("kernel_builder").joinpath("templates", "glue", name).read_text(encoding="utf-8")


def registration_header() -> str:
    """``registration.h``, the same for every kernel."""
    return _verbatim("registration.h")


def exports_map(*, cxx11_abi: bool) -> str:
    """The version script that keeps C++ names inside a library for the new, or the old, C++ ABI of libstdc++."""
    return _verbatim("exports.map" if cxx11_abi else "exports-old-abi.map")


REFUSED_HEADERS = ("pybind11/pybind11.h", "torch/extension.h", "torch/python.h")
"""Headers that cannot be compiled for the limited API; ours stand before them and say so (case T18)."""


def refused_header(name: str) -> str:
    """What stands in for one of :data:`REFUSED_HEADERS`: a single error that names the way out."""
    return _verbatim(f"refused/{name}")


def module_source(ops_id: str, unique: str) -> str:
    """C source of the Python module ``ops_id``."""
    return filled("module.c", ops_id=ops_id, unique=unique, placeholder=PLACEHOLDER)


def ops_module(ops_id: str, *, compiled: bool) -> str:
    """``_ops.py``: the namespace of the variant it lies in, whatever machine loads it (contract sharp edge 11)."""
    loading = Template(_LOADING).substitute(ops_id=ops_id) if compiled else ""
    return filled("ops.py", ops_id=ops_id, loading=loading)


def compatibility_package(python_name: str) -> str:
    """``<python name>/__init__.py`` inside the variant, for ``PYTHONPATH``."""
    return filled("compat.py", python_name=python_name)
