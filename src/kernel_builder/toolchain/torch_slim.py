"""Slim headers: what takes the place of torch's umbrella headers where a pass of the compiler needs little of them.

``torch/all.h`` and its like include everything that torch has. A file of kernels uses a handful of it, and the passes
for device code use less still (DESIGN.md F12 and F14). Slim headers are the release's own, line by line, but for two
things that are asked for by macros: what an umbrella header includes besides tensors (:data:`PARTS`), and whatever
there is once for every operator. ``ATen/Functions.h`` asks ``KERNEL_BUILDER_OP_sum`` before it includes
``ATen/ops/sum.h``. What needs most of torch is left out.

They are made of the headers of the release at hand, and of nothing else: equal headers give equal slim headers.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from kernel_builder.config.backends import Backend
from kernel_builder.store.artefact import Artefact
from kernel_builder.store.cache import Store, StoreKey
from kernel_builder.toolchain.model import FrameworkSdk

OPERATOR_MACRO = "KERNEL_BUILDER_OP_"
PART_MACRO = "KERNEL_BUILDER_PART_"
DEFINITIONS = ("AT_PER_OPERATOR_HEADERS",)
"""Torch's own macro: its headers then include the operators that they use, one by one, and not all of them."""

OPERATORS = "operators.txt"
_RECIPE = 2
"""Changes whenever equal headers would get other slim ones."""
_API = "torch/csrc/api/include"
_FUNCTIONS = "ATen/Functions.h"

SLIM = (
    "ATen/ATen.h",
    _FUNCTIONS,
    "ATen/NativeFunctions.h",
    f"{_API}/torch/all.h",
    f"{_API}/torch/types.h",
    f"{_API}/torch/utils.h",
    "torch/csrc/autograd/generated/variable_factories.h",
    "torch/script.h",
)
"""The headers that have a slim form. ``torch/torch.h`` has none: it includes ``torch/all.h`` alone."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What umbrella headers include besides tensors. It is included if one of ``words`` is in the source."""

    name: str
    headers: tuple[str, ...]
    words: tuple[str, ...]


PARTS = (
    Part(
        name="library",
        headers=("torch/library.h", "torch/custom_class.h"),
        words=(
            *("TORCH_LIBRARY", "TORCH_LIBRARY_EXPAND", "TORCH_LIBRARY_FRAGMENT"),
            *("TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_IMPL_EXPAND"),
            *("TORCH_SELECTIVE", "Library", "CppFunction", "RegisterOperators", "class_", "schema"),
        ),
    ),
    Part(
        name="autograd",
        headers=("torch/autograd.h", "torch/csrc/autograd/custom_function.h"),
        words=("autograd",),
    ),
    Part(
        name="utils",
        headers=("torch/utils.h", "torch/csrc/autograd/grad_mode.h"),
        words=("NoGradGuard", "AutoGradMode", "manual_seed", "get_num_threads", "set_num_threads", "parallel_for"),
    ),
    Part(name="native", headers=("ATen/NativeFunctions.h",), words=("native",)),
)
_WHOLE_HEADERS = (
    "torch/data.h",
    "torch/fft.h",
    "torch/jit.h",
    "torch/nested.h",
    "torch/nn.h",
    "torch/optim.h",
    "torch/serialize.h",
    "torch/sparse.h",
    "torch/special.h",
    "torch/csrc/jit/runtime/custom_operator.h",
    "torch/csrc/jit/serialization/import.h",
    "torch/csrc/jit/serialization/pickle.h",
)

_INCLUDE = re.compile(r"\s*#\s*include\s*[<\"]([^>\"]+)[>\"]")
_OPERATOR = re.compile(r"ATen/ops/(\w+?)(?:_native)?\.h")
_FUNCTION = re.compile(r"(?:inline|static|template)\b")
_NAME = re.compile(r"(\w+)\(")
_CALL = re.compile(r"\b(?:at|torch)::(\w+?)(?:_symint)?\(")


@dataclass(frozen=True, kw_only=True)
class SlimHeaders:
    """``files`` (path on the include path -> text) and the operators that they can be asked for."""

    files: Mapping[str, str]
    operators: frozenset[str]


def slim_headers(include: Path) -> SlimHeaders | None:
    """The slim form of torch's headers in ``include``; ``None`` for a release that lacks one of :data:`SLIM`."""
    texts = {name: (include / name) for name in SLIM}
    if not all(path.is_file() for path in texts.values()):
        return None
    operators = frozenset(
        match[1]
        for line in texts[_FUNCTIONS].read_text(encoding="utf-8").splitlines()
        if (found := _INCLUDE.match(line)) and (match := _OPERATOR.fullmatch(found[1]))
    )
    files: dict[str, str] = {}
    for name, path in texts.items():
        spelled = name.removeprefix(f"{_API}/")
        files[spelled] = _slim(path.read_text(encoding="utf-8"), operators)
        if spelled != name:  # torch's own headers name some by the longer path
            files[name] = f"#include <{spelled}>\n"
    return SlimHeaders(files=files, operators=operators)


def is_proved(release: str, *, build: Backend | None = None, cxx: bool = False) -> bool:
    """Whether slim headers of torch ``release`` (``2.13.0``) were proved over real sources with device code; with
    ``cxx``, over C++ sources, too (docs/slim-passes.md). A ``build`` with headers of its own has a proof of its own.
    """
    of_build = [entry for entry in _proved() if entry.get("build") == build]
    found = (entry for entry in of_build if release == entry["torch"] or release.startswith(f"{entry['torch']}."))
    return any(entry["cxx"] or not cxx for entry in found)


@functools.cache
def _proved() -> tuple[Mapping[str, Any], ...]:
    text = (resources.files("kernel_builder.data") / "slim.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text).get("proved", ()))


def slim_sdk(store: Store, torch: FrameworkSdk) -> FrameworkSdk:
    """``torch`` with the place where :func:`provide_slim_headers` puts its slim headers."""
    return replace(torch, slim=store.path(_key(torch)))


def provide_slim_headers(store: Store, torch: FrameworkSdk) -> None:
    """Make the slim headers of ``torch`` in the store, if they are not there yet. For a release that has none, the
    entry has no file but an empty list of operators.

    Raises :class:`MachineError` when the store cannot be written.
    """

    def build(into: Path) -> Sequence[Artefact]:
        made = slim_headers(torch.include[0])
        for name, text in (made.files if made else {}).items():
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        names = sorted(made.operators) if made else []
        (into / OPERATORS).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        return ()

    store.ensure(_key(torch), build)


def operators_of(folder: Path) -> frozenset[str] | None:
    """The operators that the slim headers in ``folder`` can be asked for; ``None`` while they are not made."""
    try:
        return frozenset((folder / OPERATORS).read_text(encoding="utf-8").split())
    except FileNotFoundError:
        return None


def definitions(words: frozenset[str], operators: frozenset[str]) -> tuple[str, ...]:
    """What to define for a source with these ``words``, so that the slim headers have all that it can name."""
    parts = [part.name for part in PARTS if not words.isdisjoint(part.words)]
    return (
        *DEFINITIONS,
        *(f"{PART_MACRO}{name}" for name in parts),
        *(f"{OPERATOR_MACRO}{name}" for name in sorted(words & operators)),
    )


def _key(torch: FrameworkSdk) -> StoreKey:
    return StoreKey.of(f"torch-{torch.version}-slim", headers=torch.identity, recipe=_RECIPE)


def _slim(text: str, operators: frozenset[str]) -> str:
    """``text`` with what is optional behind macros."""
    lines: list[str] = []
    pending = iter(text.splitlines())
    for line in pending:
        found = _INCLUDE.match(line)
        if found is not None:
            lines += _guarded([line], _macros_of_header(found[1], operators))
            continue
        if _FUNCTION.match(line):
            block = [line]
            while block[-1] != "}" and ("{" in "".join(block) or not block[-1].endswith(";")):
                block.append(next(pending, "}"))
            lines += _guarded(block, _macros_of_function(block, operators))
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def _guarded(lines: list[str], wanted: list[str] | None) -> list[str]:
    """``lines`` if all of ``wanted`` are defined; ``None`` leaves them out."""
    if wanted is None:
        return []
    if not wanted:
        return lines
    return ["#if " + " && ".join(f"defined({name})" for name in wanted), *lines, "#endif"]


def _macros_of_header(name: str, operators: frozenset[str]) -> list[str] | None:
    if name in _WHOLE_HEADERS:
        return None
    match = _OPERATOR.fullmatch(name)
    if match is not None and match[1] in operators:
        return [f"{OPERATOR_MACRO}{match[1]}"]
    return [f"{PART_MACRO}{part.name}" for part in PARTS if name in part.headers]


def _macros_of_function(lines: list[str], operators: frozenset[str]) -> list[str]:
    text = "\n".join(lines)
    named = _NAME.search(text)
    used = {*_CALL.findall(text), *([named[1]] if named else [])} & operators
    return [f"{OPERATOR_MACRO}{name}" for name in sorted(used)]
