"""tvm-ffi: how its kernels are compiled and packaged. They serve every framework that hands tensors over by DLPack.

Reference: interoperability contract 3.3 to 3.5. Such a kernel is a plain shared library that offers C functions; it is
no Python module, and nothing of torch is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernel_builder.actions.context import Layout
from kernel_builder.actions.model import GeneratedFile
from kernel_builder.actions.places import Places
from kernel_builder.frameworks import torch_glue, tvm_ffi_glue
from kernel_builder.project.survey import Survey
from kernel_builder.variants.support import SupportRow
from kernel_builder.versions import Version

_NAME = "TVM_FFI_EXTENSION_NAME"
_NAMES = "names"
"""The mark of a file that says the ops id."""


class TvmFfi:
    """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""

    library = "libtvm_ffi.so"
    suffix = ".so"
    limited_api = None

    def cxx_standard(self, row: SupportRow) -> int:  # noqa: ARG002
        """C++17, by ``target_compile_features`` of tvm-ffi's own CMake package."""
        return 17

    def marks_of(self, text: bytes) -> frozenset[str]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return frozenset({_NAMES} if _NAME.encode() in text else ())

    def needs_of(self, text: bytes) -> frozenset[str]:  # noqa: ARG002
        """Nothing: these headers are small, and have no slim form."""
        return frozenset()

    def binds_early(self, sources: tuple[str, ...], survey: Survey) -> bool:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return bool(_named_in(sources, survey))

    def definer(
        self,
        sources: tuple[str, ...],
        survey: Survey,
        *,
        ops_id: str,
        unique: str,  # noqa: ARG002
        cxx11_abi: bool,  # noqa: ARG002
        stable: Version | None,  # noqa: ARG002
    ) -> Callable[[str], tuple[str, ...]]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`. Whoever does not say the name does not get
        it, and is not compiled again when it changes.
        """
        named = _named_in(sources, survey)
        return lambda source: (f"{_NAME}={ops_id}",) if source in named else ()

    def generated(
        self,
        layout: Layout,
        places: Places,
        *,
        ops_id: str,  # noqa: ARG002
        unique: str,  # noqa: ARG002
        cxx11_abi: bool,
    ) -> tuple[GeneratedFile, ...]:
        """The version script alone."""
        text = torch_glue.exports_map(cxx11_abi=cxx11_abi)
        return (GeneratedFile(path=places.word(layout.exports_map), content=text),)

    def module(self, layout: Layout) -> Path | None:  # noqa: ARG002
        """None: Python does not load the library, tvm-ffi does."""
        return None

    def ops_module(self, ops_id: str, *, compiled: bool) -> str:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`. Python alone is loaded with torch (contract
        2.1), whatever the section of its project is called.
        """
        if not compiled:
            return torch_glue.ops_module(ops_id, compiled=False)
        return tvm_ffi_glue.ops_module(ops_id, f"{ops_id}{self.suffix}")

    def compatibility_package(self, python_name: str) -> str:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return torch_glue.compatibility_package(python_name)


def _named_in(sources: tuple[str, ...], survey: Survey) -> frozenset[str]:
    """Of ``sources``, those that may say the ops id: themselves, or by a header, of which nobody knows yet who includes
    it.
    """
    nothing: frozenset[str] = frozenset()
    named = {path for path in (*sources, *survey.inputs.included) if _NAMES in survey.marks.get(path, nothing)}
    return frozenset(named if named <= set(sources) else sources)


RULES = TvmFfi()
