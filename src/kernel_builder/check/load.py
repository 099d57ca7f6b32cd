"""Rules that only loading can judge: ``check --load`` runs the kernel, in processes of its own.

Each variant that the chosen Python can load is imported by the real client, isolated from user site-packages and
PYTHONPATH; what it registers with torch is compared before and after; a second version of it is loaded beside it; and
its ops are called under ``torch.compile``. A child that dies is a finding, never this program's end.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from kernel_builder.artifact.digest import hash_variant
from kernel_builder.check.behaviour import OP_CRASHED
from kernel_builder.check.behaviour import RULES as BEHAVIOUR
from kernel_builder.check.loaded import (
    AUTOGRAD_ONLY,
    CRASHED,
    FAILED,
    FOREIGN,
    NOT_LOADED,
    STOOD_IN,
    UNDEFINED,
    UNIMPLEMENTED,
    failure_text,
    judge,
)
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import VariantDir, is_library_name
from kernel_builder.config.backends import Backend
from kernel_builder.config.known import dependencies
from kernel_builder.errors import BuildError
from kernel_builder.files import LARGEST_FILE
from kernel_builder.load.client import (
    Environment,
    Loadable,
    NoEnvironment,
    call_ops,
    find_environment,
    load_together,
    load_variant,
    what_is_missing,
)
from kernel_builder.load.evidence import CallStatus, LoadResult, LoadStatus
from kernel_builder.load.proofs import Proofs
from kernel_builder.load.proving import prove
from kernel_builder.toml.nodes import printable

TOGETHER = rule(
    "KB505",
    "versions-clash",
    Severity.ERROR,
    summary="Two versions of the kernel can be loaded in one process",
    rationale="Libraries pin different versions of a kernel; a program that uses two of them breaks.",
    remedy="Keep every process-wide name (ops, classes, modules) in the kernel's own namespace.",
    source="docs/requirements.md, 'Loading'",
)
NOT_COMPILED = rule(
    "KB506",
    "op-not-compiled",
    Severity.ERROR,
    summary="Ops that have a fake work under torch.compile(fullgraph=True)",
    rationale="The op works when called directly, but breaks compiled models.",
    remedy="Fix the fake: its results must have the same shape, dtype and device as the op's.",
    source="docs/requirements.md, 'Loading'",
)

_TRACED = (
    "The op is registered for all devices, so torch.compile runs its code on tensors without data. Define it with a"
    ' schema, def("NAME(Tensor x) -> Tensor"), implement it for each device, impl("NAME", c10::DispatchKey::...,'
    " &NAME), and register a fake in Python."
)

_ONE_AT_A_TIME = threading.Lock()  # torch takes memory


@cache
def _environment(
    python: Path | None, variables: frozenset[tuple[str, str]], *, torch: bool = True
) -> Environment | NoEnvironment:
    return find_environment(python, dict(variables), torch=torch)


def confinement(settings: Settings) -> str:
    """How the code of kernels is confined where ``settings`` ask for them to be loaded."""
    environment = _environment(settings.python, frozenset(settings.environ.items()), torch=False)
    return f"kernels were {environment.confinement}"


_RULES = (NOT_LOADED, STOOD_IN, FAILED, CRASHED, FOREIGN, UNDEFINED, UNIMPLEMENTED, AUTOGRAD_ONLY, TOGETHER,
          NOT_COMPILED, *BEHAVIOUR)  # fmt: skip


@checks(VariantDir, *_RULES)
def load(variant: VariantDir, settings: Settings) -> Iterator[Finding]:
    """Everything about one variant, where loading was asked for."""
    kernel = loadable(variant)
    if kernel is None:
        return  # other rules say so
    ops_id, backend = kernel.ops_id, kernel.variant.backend
    if variant.name in settings.evidence:
        yield from judge(variant, settings.evidence[variant.name], ops_id=ops_id, backend=backend)
        return
    if not settings.load:
        return
    large = next((file.relative for file in variant.listing.files if file.size > LARGEST_FILE), None)
    if large is not None:
        yield NOT_LOADED.at(variant, f"{printable(large)} is larger than the Hub takes")
        return
    with _ONE_AT_A_TIME:
        variables = frozenset(settings.environ.items())
        environment = _environment(settings.python, variables, torch=kernel.variant.needs_torch)
        if isinstance(environment, NoEnvironment):
            yield NOT_LOADED.at(variant, environment.reason)
            return
        log = settings.logs / f"{variant.name}-{ops_id}.log" if settings.logs is not None else None
        result = _proof(kernel, environment, settings, log)
        yield from judge(variant, result, ops_id=ops_id, backend=backend)
        if result.loaded:
            yield from _second_version(variant, kernel, result, environment, log)
            yield from _calls(variant, kernel, result, environment)


def _proof(kernel: Loadable, environment: Environment, settings: Settings, log: Path | None) -> LoadResult:
    """What loading ``kernel`` shows, or showed whoever loaded the very same."""
    try:
        files = hash_variant(kernel.directory) if settings.proofs is not None else None
    except (OSError, BuildError):
        files = None  # other rules say what is wrong with its files
    if settings.proofs is None or files is None:
        return load_variant(kernel, environment, log=log)
    return prove(kernel, environment, Proofs(settings.proofs), files, log=log)


def loadable(variant: VariantDir) -> Loadable | None:
    """``variant`` as it is loaded; ``None`` where its name or its metadata do not tell how."""
    named, name = variant.variant, variant.metadata_text("name")
    if named is None or variant.id is None or name is None:
        return None
    return Loadable(
        directory=variant.path.absolute(),
        variant=named,
        ops_id=variant.id,
        python_name=name.replace("-", "_"),
        depends=_depends(variant, named.backend),
    )


def _depends(variant: VariantDir, backend: Backend) -> dict[str, str]:
    known = dependencies()
    tables = {**known.python_table(None), **known.python_table(backend)}
    declared = variant.python.depends or ()
    return {tables[name].package: tables[name].module for name in declared if name in tables and tables[name].module}


def _second_version(
    variant: VariantDir, kernel: Loadable, first: LoadResult, environment: Environment, log: Path | None
) -> Iterator[Finding]:
    """A copy of the variant under another id, loaded beside it in one process."""
    with tempfile.TemporaryDirectory(prefix="kernel-builder-check-") as directory:
        made = another_version(variant, kernel.ops_id, Path(directory))
        if made is None:
            return
        other = replace(kernel, ops_id=made[0], directory=made[1])
        alone = load_variant(other, environment, call=False)
        # A copy that keeps some of its names under the old id is no second version, and proves nothing.
        if not alone.loaded or len(alone.ops) != len(first.ops) or not {*alone.foreign} <= {*first.foreign}:
            yield NOT_LOADED.at(variant, "could not create a second version to load with it")
            return
        together = load_together(kernel, other, environment, log=log)
        if together.status is LoadStatus.FAILED:
            yield TOGETHER.at(variant, failure_text("cannot load a second version with it", together))


def _calls(variant: VariantDir, kernel: Loadable, loaded: LoadResult, environment: Environment) -> Iterator[Finding]:
    if not environment.has_device(kernel.variant.backend) or what_is_missing(kernel.variant, environment) is not None:
        return
    traced = {op.name for op in loaded.ops if op.is_traced}
    # What cannot be called needs not be compiled.
    for call in call_ops(kernel, environment, skip=[one.op for one in loaded.behaviour if one.problem]):
        if call.status is CallStatus.NOT_COMPILED:
            hint = _TRACED if call.op in traced else None
            yield NOT_COMPILED.at(variant, f"{call.op} does not compile: {call.words}", symbol=call.op, hint=hint)
        elif call.status is CallStatus.CRASHED:
            said = f"{call.op}, compiled and called with small made-up arguments, crashed the process: {call.words}"
            yield OP_CRASHED.at(variant, said, symbol=call.op)


# --- a second version ---


def another_id(ops_id: str, prefix: str) -> str | None:
    """Another id of the same length whose GNU hash is the same, so that it can stand in a library's symbol table.

    The hash is ``h * 33 + c`` over the characters: one more here and 33 less there change nothing. Only what follows
    ``prefix`` is changed. ``None`` where no such change gives an identifier.
    """
    for index in range(len(prefix), len(ops_id) - 1):
        for step in (1, -1):
            pair = chr(ord(ops_id[index]) + step) + chr(ord(ops_id[index + 1]) - 33 * step)
            changed = ops_id[:index] + pair + ops_id[index + 2 :]
            if all(character.isascii() and (character.isalnum() or character == "_") for character in pair):
                return changed
    return None


def another_version(variant: VariantDir, ops_id: str, directory: Path) -> tuple[str, Path] | None:
    """A copy of the variant under another id: ``(id, directory)``; ``None`` where it has no id that can be changed.

    The id is replaced wherever it stands, in libraries byte by byte, with one of the same length and hash. Our own
    libraries hold the last part of the id alone, too.
    """
    python_name = (variant.metadata_text("name") or "").replace("-", "_")
    prefix = next((start for start in (f"_{python_name}_{variant.backend}_", f"_{python_name}_", "_")
                   if ops_id.startswith(start)), "")  # fmt: skip
    other = another_id(ops_id, prefix)
    if other is None:
        return None
    copy = directory / variant.name
    shutil.copytree(variant.path, copy, symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    old, new = ops_id.encode(), other.encode()
    unique, changed = ops_id[len(prefix) :].encode(), other[len(prefix) :].encode()
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        is_library = is_library_name(path.name)
        if is_library or path.suffix in {".py", ".json"}:
            content = path.read_bytes()
            replaced = content.replace(old, new)
            if is_library:
                replaced = re.sub(rb"(?<=\0)" + re.escape(unique) + rb"(?=\0)", lambda _: changed, replaced)
            if replaced != content:
                path.write_bytes(replaced)
        if ops_id in path.name:
            path.rename(path.with_name(path.name.replace(ops_id, other)))
    return other, copy
