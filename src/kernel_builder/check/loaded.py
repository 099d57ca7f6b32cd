"""What loading a variant showed, judged: one place for builds, ``check --load`` and uploads.

Nothing is loaded here. :mod:`kernel_builder.load` brings the evidence, whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from kernel_builder.check.behaviour import judge_behaviour
from kernel_builder.check.model import Finding, Placed, Severity, few, rule
from kernel_builder.check.namespace import registration_instead
from kernel_builder.config.backends import Backend
from kernel_builder.load.evidence import Foreign, LoadedOp, LoadResult, LoadStatus, Serves

NOT_LOADED = rule(
    "KB500",
    "not-loaded",
    Severity.NOTE,
    summary="The check loads every variant",
    rationale="A variant that was not loaded here may not load anywhere.",
    remedy="Run kernel-builder check --load --python FILE with an environment whose torch fits the variant.",
    source="kernel-builder",
)
FAILED = rule(
    "KB501",
    "load-failed",
    Severity.ERROR,
    summary="The client can load the variant",
    rationale="Users get this error.",
    remedy="Fix what the message reports.",
    source="docs/requirements.md, 'Loading'",
)
CRASHED = rule(
    "KB502",
    "load-crashed",
    Severity.ERROR,
    summary="Loading the variant does not crash the process",
    rationale="Users lose their program.",
    remedy="Look for failing static initializers, ops registered twice, and clashing C++ runtimes.",
    source="docs/requirements.md, 'Loading'",
)
FOREIGN = rule(
    "KB503",
    "foreign-registration",
    Severity.ERROR,
    summary="Loading the kernel registers ops, kernels and classes in its own namespace only",
    rationale="Two versions of the kernel in one process would register the same op, which aborts the process or makes"
    " one version run the other's code.",
    remedy="Use add_op_namespace_prefix in Python, and TORCH_EXTENSION_NAME with registration.h in C++.",
    source="docs/requirements.md, 'Loading'",
)
UNIMPLEMENTED = rule(
    "KB504",
    "op-unimplemented",
    Severity.ERROR,
    summary="Every declared op has an implementation for the variant's backend",
    rationale="Calling it raises an error.",
    remedy="Add an impl() for the backend, or declare the op only where it has one.",
    source="docs/requirements.md, 'Loading'",
    acceptable=True,
)
AUTOGRAD_ONLY = rule(
    "KB509",
    "op-autograd-only",
    Severity.WARNING,
    summary="Ops have an implementation besides the one that records gradients",
    rationale="torch.inference_mode() skips autograd's implementation, so calling the op raises an error.",
    remedy="Add an impl() for the backend, or register the kernel as CompositeImplicitAutograd.",
    source="torch's notes on dispatch keys",
)

UNDEFINED = rule(
    "KB515",
    "impl-without-def",
    Severity.ERROR,
    summary="Every op that the kernel implements is defined",
    rationale=(
        "torch silently accepts an implementation of an op that nothing defines. Nobody can call it, and the op "
        "that it was meant for has no implementation."
    ),
    remedy="Define the op with def(), fix its name in impl(), or remove the implementation.",
    source="docs/requirements.md, 'Loading'",
    acceptable=True,
)
STOOD_IN = rule(
    "KB510",
    "loaded-with-stand-ins",
    Severity.NOTE,
    summary="The variant is loaded with the libraries that it needs",
    rationale=(
        "Where this machine lacks them, stand-ins define their symbols. The variant then loads and registers its "
        "ops, but the ops were not run."
    ),
    remedy="Also run the check on a machine that has the device.",
    source="kernel-builder",
)

CANNOT_LOAD = "the kernels client cannot load it"


def judge(place: Placed | str, result: LoadResult, *, ops_id: str, backend: Backend) -> Iterator[Finding]:
    """The findings about a variant at ``place``, for ``backend`` and with the op namespace ``ops_id``."""
    if result.status is LoadStatus.NOT_LOADED:
        yield NOT_LOADED.at(place, result.reason or "")
    elif result.status is LoadStatus.FAILED:
        yield (CRASHED if result.crashed else FAILED).at(
            place, failure_text("the kernels client cannot load it", result)
        )
        yield from judge_foreign(place, result.foreign, ops_id)  # why its Python does not find its ops, perhaps
    else:
        if result.status is LoadStatus.STOOD_IN:
            yield STOOD_IN.at(place, f"{result.told}; {result.reason}" if result.reason else result.told)
        yield from judge_foreign(place, result.foreign, ops_id)
        yield from _defined(place, result)
        yield from _implemented(place, result.ops, backend)
        yield from judge_behaviour(place, result)


def failure_text(what: str, result: LoadResult) -> str:
    """What went wrong, where in the kernel's files, and where all that was said is kept."""
    lines = [f"{what}: {result.reason}", *(f"    {frame}" for frame in result.frames)]
    if result.foreign:
        lines.append(f"  by then it had registered outside its own namespace: {_names(result.foreign)}")
    return "\n".join([*lines, f"  full output: {result.log}"] if result.log is not None else lines)


def judge_foreign(place: Placed | str, found: tuple[Foreign, ...], ops_id: str) -> Iterator[Finding]:
    """What was registered outside the namespace ``ops_id``: one finding for each namespace and kind."""
    groups: dict[tuple[str, str], list[Foreign]] = {}
    for one in found:
        groups.setdefault((one.namespace, one.kind), []).append(one)
    for (namespace, kind), ones in groups.items():
        shown = _names(ones)
        listed = f": {shown}" if shown else ""
        said = {
            "kernel": f"loading it changes ops of namespace {namespace!r} for the whole process{listed}",
            "class": f"loading it registers classes in namespace {namespace!r} instead of its own, {ops_id!r}{listed}",
            "global": f"loading it registers functions for the whole process in tvm-ffi's registry{listed}",
            "fallback": f"loading it changes what all ops without a kernel do for a dispatch key{listed}",
        }
        ops = f"loading it registers ops in namespace {namespace!r} instead of its own, {ops_id!r}{listed}"
        yield FOREIGN.at(place, said.get(kind, ops), symbol=namespace, hint=_remedy(namespace, kind, ones))


def _names(found: Sequence[Foreign]) -> str:
    """The first of them, with the places where they are registered."""
    names = [f"{one.name} ({one.place})" if one.place else one.name for one in found if one.name]
    return few(names)


def _remedy(namespace: str, kind: str, ones: list[Foreign]) -> str:
    """What to write instead of registrations of one kind in ``namespace``."""
    if kind == "global":
        return "Export the function with TVM_FFI_DLL_EXPORT_TYPED_FUNC; it then belongs to the kernel's own library."
    if kind in {"kernel", "fallback"}:
        return "Define an op of the kernel's own and call that one; other ops belong to everybody in the process."
    first = next((one for one in ones if one.name), ones[0])
    name = (first.name or "NAME").rpartition("::")[2].rpartition(".")[2]
    if kind == "class":
        return (
            'Register the class in the block of the kernel\'s ops (include "registration.h"):\n'
            f'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {{ ops.class_<{name}>("{name}"); }}'
        )
    if first.place.rpartition(":")[0].endswith(".py"):
        return f'Name it add_op_namespace_prefix("{name}"), with: from ._ops import add_op_namespace_prefix'
    return registration_instead(namespace, name)


def _defined(place: Placed | str, result: LoadResult) -> Iterator[Finding]:
    names = {op.short: op for op in result.ops}
    for one in result.undefined:
        where = f" ({one.place})" if one.place else ""
        near = get_close_matches(one.name.partition("::")[2], names, n=1, cutoff=0.0)
        meant = f"; the nearest op that is defined: {names[near[0]].name}" if near else "; the kernel defines no op"
        yield UNDEFINED.at(place, f"{one.name} is implemented{where}, but nothing defines it{meant}", symbol=one.name)


def _implemented(place: Placed | str, ops: tuple[LoadedOp, ...], backend: Backend) -> Iterator[Finding]:
    key = backend.torch.dispatch_key
    for op in ops:
        serves = op.serves(key)
        if serves is Serves.NO:
            others = f"is implemented for {', '.join(op.devices)} only" if op.devices else "has no implementation"
            yield UNIMPLEMENTED.at(place, f"{op.name} {others}, but the variant is for {backend.label}", symbol=op.name)
        elif serves is Serves.WITHOUT_TENSORS:
            said = (
                f"{op.name} takes no tensor, so torch cannot choose its implementation for {', '.join(op.devices)}, and"
                " every call raises an error"
            )
            yield UNIMPLEMENTED.at(
                place, said, symbol=op.name, hint="Pass the function to def(), or to impl() without a dispatch key."
            )
        elif serves is Serves.NOT_WITHOUT_AUTOGRAD:
            said = f"{op.name} is implemented for autograd only, so it raises an error under torch.inference_mode()"
            yield AUTOGRAD_ONLY.at(place, said, symbol=op.name)
