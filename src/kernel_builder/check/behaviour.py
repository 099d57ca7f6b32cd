"""Whether ops do what their schemas and fakes say: what calling them showed, judged.

torch believes schemas. ``torch.compile`` keeps what an op returns and drops what it writes unless the schema says that
it writes it, so an op with a wrong schema is right when it is called directly and silently wrong in a compiled model.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.check.model import Finding, Placed, Severity, rule
from kernel_builder.load.evidence import Behaviour, Deviation, Fault, LoadedOp, LoadResult

OP_CRASHED = rule(
    "KB507",
    "op-crashed",
    Severity.WARNING,
    summary="Calling an op with bad arguments raises an error and does not crash the process",
    rationale="A user's mistake should raise an exception, not crash the program.",
    remedy="Check shapes and dtypes with TORCH_CHECK at the start of the op.",
    source="kernel-builder",
)
NOT_CALLED = rule(
    "KB508",
    "op-not-called",
    Severity.NOTE,
    summary="The check calls every op",
    rationale=(
        "The check makes up arguments from the schema, but the op rejects all of them. So its behavior was not "
        "compared with its schema, and it was not compiled."
    ),
    remedy="Test the op in the kernel's own tests, with torch.library.opcheck.",
    source="kernel-builder",
)
WRITES = rule(
    "KB511",
    "undeclared-write",
    Severity.ERROR,
    summary="An op writes only those arguments that its schema says it writes",
    rationale=(
        "The op is right when called directly, but torch.compile drops or reorders such writes, and the compiled "
        "model is silently wrong."
    ),
    remedy="Mark the argument in the schema: Tensor! instead of Tensor.",
    source="torch.library.opcheck, test_schema",
)
SHARES = rule(
    "KB512",
    "undeclared-alias",
    Severity.ERROR,
    summary="An op returns new tensors, not its arguments, views of them, or the same memory twice",
    rationale=(
        "The op is right when called directly, but torch.compile assumes that results are new tensors, so a later "
        "write to one of them is lost or shows up in another tensor."
    ),
    remedy="Return a copy (clone()); an op that writes an argument returns nothing.",
    source="torch.library.opcheck, test_schema; torch.library.custom_op",
)
FAKE = rule(
    "KB513",
    "wrong-fake",
    Severity.ERROR,
    summary="A fake's results have the shapes, strides, dtypes and devices of the op's results",
    rationale=(
        "torch.compile generates code for what the fake returns, so the compiled model fails or is silently wrong."
    ),
    remedy="Fix the fake.",
    source="torch.library.opcheck, test_faketensor",
)
NO_BACKWARD = rule(
    "KB514",
    "layer-without-backward",
    Severity.ERROR,
    summary="A layer with has_backward computes gradients",
    rationale=(
        "The client uses the layer for training, and the model trains on missing or wrong gradients. A layer has "
        "has_backward unless it sets it to False."
    ),
    remedy="Write has_backward = False in the class, or register a backward with torch.library.register_autograd.",
    source="docs/requirements.md, 'Loading'",
)
IDLE = rule(
    "KB516",
    "op-without-effect",
    Severity.WARNING,
    summary="An op returns something, or its schema says which arguments it writes",
    rationale=(
        "torch.compile trusts schemas: it drops calls of an op that returns nothing and writes nothing. Such an op "
        "is useless, or its schema is wrong; the check could not call it to find out."
    ),
    remedy="Mark the arguments that the op writes in the schema: Tensor! instead of Tensor.",
    source="torch.library.opcheck, test_schema",
    acceptable=True,
)
RULES = (OP_CRASHED, NOT_CALLED, WRITES, SHARES, FAKE, NO_BACKWARD, IDLE)


def judge_behaviour(place: Placed | str, result: LoadResult) -> Iterator[Finding]:
    """The findings about what calling the ops of a variant at ``place`` showed."""
    ops = {op.name: op for op in result.ops}
    called = {behaviour.op for behaviour in result.behaviour if not behaviour.problem}
    for op in result.ops:
        if op.idle and not op.is_traced and op.name not in called:
            said = f"{op.name} takes tensors, returns nothing and, according to its schema, writes to none of them"
            yield IDLE.at(place, said, symbol=op.name)
    for behaviour in result.behaviour:
        if behaviour.crashed:
            said = f"{behaviour.op}, called with small made-up arguments, crashed the process: {behaviour.problem}"
            yield OP_CRASHED.at(place, said, symbol=behaviour.op)
        elif behaviour.problem:
            said = f"{behaviour.op} cannot be called with made-up arguments: {behaviour.problem}"
            yield NOT_CALLED.at(place, said, symbol=behaviour.op)
        known = ops.get(behaviour.op)
        both = set() if known is not None and known.is_traced else _written_and_returned(behaviour)
        for name in sorted(both):
            yield _write_and_return(place, behaviour.op, name)
        for deviation in behaviour.deviations:
            if deviation.name not in both or deviation.fault not in {Fault.WRITES, Fault.RETURNS, Fault.SHARES}:
                yield from _deviation(place, behaviour, deviation, known)


def _written_and_returned(behaviour: Behaviour) -> set[str]:
    """The arguments that the op writes without saying so, and also gives back."""
    faults = {fault: {one.name for one in behaviour.deviations if one.fault is fault} for fault in Fault}
    return faults[Fault.WRITES] & (faults[Fault.RETURNS] | faults[Fault.SHARES])


def _write_and_return(place: Placed | str, name: str, argument: str) -> Finding:
    """One finding for both: a schema cannot say it in a way that torch.compile takes."""
    hint = (
        f"Clone it first ({argument}.clone()), so that the op returns a new tensor, and copy that back in Python:"
        f" {argument}.copy_(result). Or return nothing, and mark it in the schema: Tensor! instead of Tensor,"
        " Tensor(a!)? instead of Tensor?."
    )
    said = f"{name} writes its argument {argument!r}, but its schema does not say so, and returns it"
    return WRITES.at(place, said, symbol=name, hint=hint)


def _deviation(
    place: Placed | str, behaviour: Behaviour, deviation: Deviation, op: LoadedOp | None
) -> Iterator[Finding]:
    name, argument = behaviour.op, f"its argument {deviation.name!r}"
    if deviation.words and deviation.fault in {Fault.WRITES, Fault.RETURNS, Fault.SHARES}:
        argument += f" when called with {deviation.words}"
    traced = op is not None and op.is_traced
    if deviation.fault is Fault.WRITES:
        said = f"{name} writes {argument}, but its schema does not say so; write the schema as {deviation.schema}"
        if traced:
            said += " (torch.compile sees it nevertheless, because the op is implemented for all devices)"
        severity = Severity.WARNING if traced else None
        yield WRITES.at(place, said, symbol=name, severity=severity)
    elif deviation.fault in {Fault.RETURNS, Fault.SHARES}:
        if not traced:
            what = "returns" if deviation.fault is Fault.RETURNS else "returns a tensor that shares memory with"
            yield SHARES.at(place, f"{name} {what} {argument}", symbol=name)
    elif deviation.fault is Fault.RESULTS_SHARE:
        if not traced:
            called = f" when called with {deviation.words}" if deviation.words else ""
            yield SHARES.at(place, f"{name} returns results that share memory{called}: {deviation.name}", symbol=name)
    elif deviation.fault in {Fault.NO_GRADIENT, Fault.GIVES_NONE}:
        yield _backward(place, name, deviation)
    elif deviation.fault is Fault.FAKE_RAISES:
        said = f"the fake of {name} raises an error for arguments that the op takes: {deviation.words}"
        yield FAKE.at(place, said, symbol=name)
    elif deviation.fault is Fault.FAKE_RETURNS:
        said = f"the fake of {name} returns {argument} or a view of it, but the op returns a new tensor"
        yield FAKE.at(
            place, said, symbol=name, hint=f"Return a new tensor, such as torch.empty_like({deviation.name})."
        )
    else:
        yield FAKE.at(place, f"the fake of {name} returns {deviation.words}", symbol=name)


def _backward(place: Placed | str, name: str, deviation: Deviation) -> Finding:
    """The finding about a layer ``name`` that gives no gradients."""
    claims = "claims has_backward" if deviation.words else "claims has_backward, as it does not say False"
    said, hint = f"{name} {claims}, but its ops have no gradient: {deviation.name}", None
    if deviation.fault is Fault.GIVES_NONE:
        said = f"{name} {claims}, but the backward of its ops gives None for every input: {deviation.name}"
        hint = "Return a gradient for each floating-point input in the backward, or write has_backward = False."
    return NO_BACKWARD.at(place, said, symbol=name, hint=hint, severity=None if deviation.words else Severity.WARNING)
