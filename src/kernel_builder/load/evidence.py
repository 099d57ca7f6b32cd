"""What loading a variant showed: the evidence that builds, checks and uploads are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from kernel_builder.config.backends import Backend

# Keys whose kernels run an op on every device.
_COMPOSITE = frozenset(
    {"CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"}
)
# Kernels of these keys run something besides the op, or only say what it would give.
_NOT_DEVICES = ("Autograd", "Autocast", "ADInplaceOrView", "FuncTorch", "Batched", "VmapMode", "Composite", "Python")
_NEITHER = frozenset(
    {"Meta", "Functionalize", "BackendSelect", "Named", "Tracer", "PreDispatch", "Undefined", "ZeroTensor", "Conjugate",
     "Negative"}
)  # fmt: skip
# A device's kernels for tensors of another layout are registered for keys of their own.
_LAYOUTS = ("", "Sparse", "SparseCsr", "Quantized", "NestedTensor")


NOT_AGAIN = "not again: "
"""How the reason begins of a proof that is carried over from another variant."""


class LoadStatus(StrEnum):
    """What came of loading a variant. ``STOOD_IN`` is the second level of proof: what only the device's own machine
    has was stood in for, so nothing of it was called.
    """

    LOADED = "loaded"
    STOOD_IN = "loaded with stand-ins"
    FAILED = "failed"
    NOT_LOADED = "not loaded here"


class Serves(StrEnum):
    """Whether an op runs on a device."""

    YES = "yes"
    NOT_WITHOUT_AUTOGRAD = "only where autograd records"
    WITHOUT_TENSORS = "without tensors nothing chooses its kernel"
    NO = "no"


@dataclass(frozen=True, kw_only=True)
class LoadedOp:
    """An op that a variant registered: the dispatch keys with a kernel, and whether it takes tensors. ``idle``: by its
    schema it takes tensors, writes none of them, and gives nothing.
    """

    name: str
    keys: tuple[str, ...] = ()
    tensors: bool = True
    idle: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the probe's answer, or from what was remembered."""
        return cls(
            name=str(value["name"]),
            keys=tuple(map(str, value["keys"])),
            tensors=bool(value["tensors"]),
            idle=bool(value["idle"]),
        )

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.partition("::")[2]

    @property
    def devices(self) -> tuple[str, ...]:
        """The keys of devices that it is implemented for."""
        return tuple(key for key in self.keys if key not in _NEITHER and not key.startswith(_NOT_DEVICES))

    @property
    def is_composite(self) -> bool:
        """Whether one kernel serves every device."""
        return not _COMPOSITE.isdisjoint(self.keys)

    @property
    def is_traced(self) -> bool:
        """Whether torch.compile looks into the op instead of believing its schema."""
        return "CompositeImplicitAutograd" in self.keys and not self.devices

    def serves(self, key: str) -> Serves:
        """Whether it runs on the device with the dispatch key ``key``.

        The dispatcher chooses by the arguments: without a tensor among them, only a kernel for every device runs, or
        one that selects (``BackendSelect``). Kernels for ``Autograd`` run where gradients may be recorded, but not
        under ``torch.inference_mode``.
        """
        if self.is_composite or (not self.tensors and "BackendSelect" in self.keys):
            return Serves.YES
        if any(layout + key in self.keys for layout in _LAYOUTS):
            return Serves.YES if self.tensors else Serves.WITHOUT_TENSORS
        if not self.devices and self.tensors and {"Autograd", f"Autograd{key}"} & set(self.keys):
            return Serves.NOT_WITHOUT_AUTOGRAD
        return Serves.NO


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """Something that a variant registered outside its own namespace.

    ``kind`` is ``op``, ``kernel`` (of an op that was there before; ``name`` tells its key), ``class``, ``fallback``
    (of a dispatch key, for all ops), or ``global`` (a function in tvm-ffi's registry). ``place`` is where the source
    registers it, as far as torch knows.
    """

    kind: str
    namespace: str
    name: str
    place: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the probe's answer, or from what was remembered."""
        return cls(**{key: str(value[key]) for key in ("kind", "namespace", "name", "place")})


@dataclass(frozen=True, kw_only=True)
class Undefined:
    """A kernel for an op of the variant's namespace that nothing defines; ``place`` is where it is registered."""

    name: str
    place: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the probe's answer, or from what was remembered."""
        return cls(name=str(value["name"]), place=str(value["place"]))


class Fault(StrEnum):
    """How an op can differ from its schema, or from its fake, and a layer from what it claims."""

    WRITES = "writes"
    RETURNS = "returns"
    SHARES = "shares"
    RESULTS_SHARE = "results share"
    FAKE_DIFFERS = "fake differs"
    FAKE_RAISES = "fake raises"
    FAKE_RETURNS = "fake returns"
    NO_GRADIENT = "no gradient"
    GIVES_NONE = "backward gives none"


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """A fault of an op: ``name`` is the argument that it is about, or the results; ``words`` say more of a fake, or how
    the op was called where that matters. ``schema`` is what the schema should be. A layer without a gradient: ``name``
    lists the ops it calls, ``words`` are empty where the layer itself says nothing about a backward.
    """

    fault: Fault
    name: str
    words: str = ""
    schema: str = ""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the probe's answer, or from what was remembered."""
        fault = Fault(value.get("kind") or value["fault"])
        texts = {key: str(value.get(key, "")) for key in ("name", "words", "schema")}
        return cls(fault=fault, **texts)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What calling an op or a layer with made-up arguments showed. ``problem`` says why it could not be called,
    ``crashed`` that the process ended with it.
    """

    op: str
    deviations: tuple[Deviation, ...] = ()
    problem: str = ""
    crashed: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the probe's answer, or from what was remembered."""
        return cls(
            op=str(value["op"]),
            deviations=tuple(Deviation.from_json(one) for one in value["deviations"]),
            problem=str(value["problem"]),
            crashed=bool(value.get("crashed", False)),
        )


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """``reason`` says why a variant was not loaded, what went wrong, or, of one that was loaded with stand-ins, why its
    Python was not run; ``frames`` where in the kernel's files. ``stood_in`` are the libraries that were missing.

    ``ops`` are the ops that the variant registered, ``functions`` those that its library offers through tvm-ffi,
    ``undefined`` what it implements without defining it, ``foreign``
    what it registered outside its namespace, ``behaviour`` what calling the ops showed. ``crashed``: the process died.
    ``log`` is the file with all that was said about a failure. ``ran`` is which code of its Python files ran, as file,
    line and name; ``None`` where that is not known.
    """

    status: LoadStatus
    reason: str | None = None
    frames: tuple[str, ...] = ()
    ops: tuple[LoadedOp, ...] = ()
    functions: tuple[str, ...] = ()
    undefined: tuple[Undefined, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    behaviour: tuple[Behaviour, ...] = ()
    crashed: bool = False
    log: Path | None = None
    stood_in: tuple[str, ...] = ()
    ran: frozenset[tuple[str, int, str]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What :meth:`to_json` gave. Raises ``KeyError``, ``TypeError``, ``ValueError``."""
        return cls(
            status=LoadStatus(value["status"]),
            reason=value["reason"],
            stood_in=tuple(value["stood-in"]),
            ops=tuple(LoadedOp.from_json(op) for op in value["ops"]),
            functions=tuple(map(str, value["functions"])),
            undefined=tuple(Undefined.from_json(one) for one in value["undefined"]),
            foreign=tuple(Foreign.from_json(one) for one in value["foreign"]),
            behaviour=tuple(Behaviour.from_json(one) for one in value["behaviour"]),
        )

    def to_json(self) -> dict[str, object]:
        """As plain JSON values: what is known of a variant that did not fail to load."""
        return {
            "status": self.status.value,
            "reason": self.reason,
            "stood-in": self.stood_in,
            "ops": [asdict(op) for op in self.ops],
            "functions": list(self.functions),
            "undefined": [asdict(one) for one in self.undefined],
            "foreign": [asdict(one) for one in self.foreign],
            "behaviour": [asdict(one) for one in self.behaviour],
        }

    @property
    def loaded(self) -> bool:
        """Whether it was loaded, on either level of proof."""
        return self.status in {LoadStatus.LOADED, LoadStatus.STOOD_IN}

    @property
    def is_carried(self) -> bool:
        """Whether another variant was loaded, which does the very same then."""
        return self.loaded and (self.reason or "").startswith(NOT_AGAIN)

    @property
    def told(self) -> str:
        """The proof for people: ``loaded with stand-ins: 2 ops, implemented for CUDA``."""
        if not self.loaded:
            return f"{self.status}: {self.reason}"
        count = len(self.ops)
        keys = dict.fromkeys(key for op in self.ops for key in op.devices)
        implemented = [*keys, *(["all devices"] if any(op.is_composite for op in self.ops) else [])]
        ops = f"{count} op{'' if count == 1 else 's'}" if count else ""
        if self.functions:
            offered = f"{len(self.functions)} function{'' if len(self.functions) == 1 else 's'}"
            ops = f"{offered} and {ops}" if ops else offered
        if implemented and self.status is LoadStatus.STOOD_IN:
            ops += f", implemented for {' and '.join(implemented)}"
        if self.refused:
            ops += f" ({count - len(self.refused)} of {count} called, the others reject made-up arguments)"
        separator = ": " if self.status is LoadStatus.STOOD_IN else ", "
        status = f"{self.status} earlier" if self.is_carried else str(self.status)
        return f"{status}{separator}{ops}" if ops else status

    @property
    def refused(self) -> tuple[str, ...]:
        """The ops that could not be called, so that nothing is known of what they do."""
        names = {op.name for op in self.ops}
        return tuple(one.op for one in self.behaviour if one.problem and one.op in names)

    def unimplemented(self, backend: Backend) -> tuple[LoadedOp, ...]:
        """The ops that cannot be called with tensors of ``backend``."""
        return tuple(
            op for op in self.ops if op.serves(backend.torch.dispatch_key) in {Serves.NO, Serves.WITHOUT_TENSORS}
        )


class CallStatus(StrEnum):
    """What came of calling an op with made-up arguments."""

    COMPILED = "compiled"
    NOT_COMPILED = "not compiled"
    NOT_CALLED = "not called"
    NO_FAKE = "no fake"
    CRASHED = "crashed"


@dataclass(frozen=True, kw_only=True)
class Call:
    """An op, what came of calling it, and the error's words."""

    op: str
    status: CallStatus
    words: str = ""
