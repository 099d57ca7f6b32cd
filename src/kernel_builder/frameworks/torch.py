"""torch: how its kernels are compiled and packaged.

Reference: interoperability contract 3.3 to 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernel_builder.actions.context import Layout
from kernel_builder.actions.model import GeneratedFile
from kernel_builder.actions.places import Places
from kernel_builder.binary.stable_abi import target_definition
from kernel_builder.frameworks import torch_glue
from kernel_builder.frameworks.protocol import FIRST, HEAVY, INCLUDES, UMBRELLA, WHOLE, WORDS
from kernel_builder.frameworks.torch_binding import PLACEHOLDER, early_sources, marks_of
from kernel_builder.project.survey import REGISTRATION, Survey
from kernel_builder.variants.support import SupportRow
from kernel_builder.versions import Version

LIMITED_API = (3, 9)
"""The oldest Python whose limited API kernels are built for (kernel requirements)."""

_HEAVY_INCLUDES = (b"torch/all.h", b"torch/torch.h", b"torch/extension.h", b"ATen/ATen.h")

_COSTLY = frozenset(f"torch/{name}.h".encode() for name in ("all", "torch", "library", "types", "script")) | {
    b"ATen/ATen.h",
    b"ATen/Functions.h",
}
"""Headers that take seconds to read, are read once however often they are included, and do not include pybind11."""
_BLANK = re.compile(rb"(?:\s|//(?:\\[ \t]*\r?\n|[^\n])*|/\*.*?\*/)*", re.DOTALL)
_INCLUDE = re.compile(rb"#[ \t]*include[ \t]*<([\w./+-]+)>[ \t]*(?=\r?\n|//|/\*|\Z)")
_ANY_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\r\n]+)[>"]', re.MULTILINE)
_WORD = re.compile(rb"[A-Za-z_]\w*")
_UMBRELLA = re.compile(rb"(?:torch|ATen)/")
_WHOLE_INCLUDE = re.compile(rb"torch/(?:nn|optim|data|jit|serialize|fft|special|sparse|nested|csrc/jit)\b")
_WHOLE_NAME = re.compile(rb"\btorch\s*::\s*(?:nn|optim|data|jit|serialize|fft|special|sparse|nested)\b")


def _first_includes(text: bytes) -> tuple[str, ...]:
    """The costly headers that a source includes before it says anything else, in order."""
    names: list[str] = []
    end = 0
    while blank := _BLANK.match(text, end):
        include = _INCLUDE.match(text, blank.end())
        on_its_line = not names or b"\n" in blank[0]
        if include is None or include[1] not in _COSTLY or not on_its_line:
            break
        names.append(include[1].decode())
        end = include.end()
    return tuple(names)


class Torch:
    """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""

    library = "libtorch.so"
    suffix = ".abi3.so"
    limited_api = LIMITED_API

    def cxx_standard(self, row: SupportRow) -> int:
        """What the headers of that release of torch need."""
        return row.cxx_standard

    def marks_of(self, text: bytes) -> frozenset[str]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        first = _first_includes(text)
        own = {HEAVY} if any(name in text for name in _HEAVY_INCLUDES) else set()
        return marks_of(text) | own | ({f"{FIRST}{' '.join(first)}"} if first else set())

    def binds_early(self, sources: tuple[str, ...], survey: Survey) -> bool:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return bool(early_sources(sources, survey.inputs.included, survey.marks))

    def needs_of(self, text: bytes) -> frozenset[str]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        included = dict.fromkeys(_ANY_INCLUDE.findall(text))
        words = sorted(set(_WORD.findall(text)))
        return frozenset(
            {
                *([UMBRELLA] if any(map(_UMBRELLA.match, included)) else []),
                *([WHOLE] if any(map(_WHOLE_INCLUDE.match, included)) or _WHOLE_NAME.search(text) else []),
                *([INCLUDES + b"\n".join(included).decode("utf-8", "surrogateescape")] if included else []),
                *([WORDS + b" ".join(words).decode("ascii")] if words else []),
            }
        )

    def definer(
        self,
        sources: tuple[str, ...],
        survey: Survey,
        *,
        ops_id: str,
        unique: str,
        cxx11_abi: bool,
        stable: Version | None,
    ) -> Callable[[str], tuple[str, ...]]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        early = early_sources(sources, survey.inputs.included, survey.marks)
        late_name = f"{ops_id.removesuffix(unique)}{PLACEHOLDER}"
        major, minor = LIMITED_API
        common = (
            # Said even where it is the compiler's default: some distributions' compilers still default to the old ABI.
            f"_GLIBCXX_USE_CXX11_ABI={int(cxx11_abi)}",
            f"Py_LIMITED_API=0x{major:02x}{minor:02x}0000",
            *([target_definition(stable)] if stable else []),
        )
        return lambda source: (f"TORCH_EXTENSION_NAME={ops_id if source in early else late_name}", *common)

    def generated(
        self, layout: Layout, places: Places, *, ops_id: str, unique: str, cxx11_abi: bool
    ) -> tuple[GeneratedFile, ...]:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        files = {
            layout.exports_map: torch_glue.exports_map(cxx11_abi=cxx11_abi),
            self.module(layout): torch_glue.module_source(ops_id, unique),
            **{layout.refused / name: torch_glue.refused_header(name) for name in torch_glue.REFUSED_HEADERS},
        }
        if layout.registration.is_relative_to(layout.work):
            files[layout.registration / REGISTRATION] = torch_glue.registration_header()
        return tuple(GeneratedFile(path=places.word(path), content=files[path]) for path in sorted(files))

    def module(self, layout: Layout) -> Path:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return layout.variant / "generated" / "module.c"

    def ops_module(self, ops_id: str, *, compiled: bool) -> str:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return torch_glue.ops_module(ops_id, compiled=compiled)

    def compatibility_package(self, python_name: str) -> str:
        """See :class:`~kernel_builder.frameworks.protocol.FrameworkRules`."""
        return torch_glue.compatibility_package(python_name)


RULES = Torch()
