"""Two interfaces of a kernel -> what changed, and whether the rules of versioning demand a new ``version``. Pure.

The rule (kernels documentation, "Versioning" of the kernel requirements and "Adopting kernel versions"): within one
version, a kernel never breaks its users; when its API changes, or when it no longer supports a torch release, its
version is raised. Version 0 is exempt: it is for kernels whose API is still moving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernel_builder.interface.read import Class, Function, Interface, Layer, Parameter, ParameterKind, Signature
from kernel_builder.variants.names import ArchVariant, TorchTag, parse_variant

_VARIADIC = (ParameterKind.VARIADIC, ParameterKind.VARIADIC_KEYWORD)
_BY_NAME = (ParameterKind.POSITIONAL, ParameterKind.KEYWORD_ONLY)
_BY_PLACE = (ParameterKind.POSITIONAL_ONLY, ParameterKind.POSITIONAL)


class Effect(StrEnum):
    """What a change means for users of the earlier interface."""

    BREAKING = "breaking"
    ADDITION = "addition"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference. ``subject`` is the name it is about (``relu``, ``layers.ReLU``, ``op relu_out``)."""

    effect: Effect
    subject: str
    message: str
    is_support: bool = False  # about what it runs on, not about its API

    def __str__(self) -> str:
        return f"{self.subject}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All changes, and what they mean for the version."""

    old_version: int
    new_version: int
    changes: tuple[Change, ...]

    @property
    def breaking(self) -> tuple[Change, ...]:
        """The changes that users of the earlier version would notice."""
        return tuple(change for change in self.changes if change.effect is Effect.BREAKING)

    @property
    def demands_new_version(self) -> bool:
        """Whether the earlier version must not be given these changes."""
        return bool(self.breaking) and self.old_version != 0

    @property
    def is_satisfied(self) -> bool:
        """Whether nothing is demanded, or the version was raised."""
        return not self.demands_new_version or self.new_version > self.old_version


@dataclass(frozen=True, kw_only=True)
class Published:
    """One side of a comparison: the interface, the version, and the names of its variants (none: not known)."""

    interface: Interface
    version: int
    variants: tuple[str, ...] = ()


def compare(old: Published, new: Published) -> Verdict:
    """What changed from ``old`` to ``new``, breaking changes first, each group in the order of the old interface."""
    changes = [
        *_names(old.interface, new.interface),
        *_functions(old.interface, new.interface),
        *_classes(old.interface, new.interface),
        *_layers(old.interface, new.interface),
        *_ops(old.interface, new.interface),
        *_library(old.interface, new.interface),
        *_support(old.variants, new.variants),
    ]
    order = list(Effect)
    return Verdict(
        old_version=old.version,
        new_version=new.version,
        changes=tuple(sorted(changes, key=lambda change: order.index(change.effect))),
    )


def _public(interface: Interface) -> dict[str, str]:
    return {
        **{function.name: "a function" for function in interface.functions},
        **dict.fromkeys(interface.others, "a name"),
    }


def _names(old: Interface, new: Interface) -> Iterator[Change]:
    before, after = _public(old), _public(new)
    for name in before:
        if name not in after:
            yield Change(effect=Effect.BREAKING, subject=name, message="removed from the top module")
        elif before[name] == "a function" and after[name] != "a function":
            yield Change(effect=Effect.NOTE, subject=name, message="its signature can no longer be read")
    for name in after:
        if name not in before:
            yield Change(effect=Effect.ADDITION, subject=name, message=f"new: {after[name]}")


def _functions(old: Interface, new: Interface) -> Iterator[Change]:
    after = {function.name: function for function in new.functions}
    for function in old.functions:
        other = after.get(function.name)
        if other is not None:
            yield from _function(function, other, old.ops, new.ops)


def _function(before: Function, after: Function, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Change]:
    one = before.signature or _of_op(before.op, old)
    other = after.signature or _of_op(after.op, new)
    if one is None or other is None:
        if before.op != after.op or (one is None) != (other is None):
            yield Change(effect=Effect.NOTE, subject=before.name, message="its signatures cannot be compared")
        return
    yield from signature_changes(before.name, one, other)


def _of_op(op: str | None, ops: Mapping[str, str]) -> Signature | None:
    return schema_signature(ops[op]) if op is not None and op in ops else None


def signature_changes(subject: str, old: Signature, new: Signature) -> Iterator[Change]:
    """What callers notice of a function that had ``old`` and now has ``new``."""

    def breaks(message: str) -> Change:
        return Change(effect=Effect.BREAKING, subject=subject, message=message)

    after = {parameter.name: parameter for parameter in new.parameters}
    catches_names = any(parameter.kind is ParameterKind.VARIADIC_KEYWORD for parameter in new.parameters)
    catches_places = any(parameter.kind is ParameterKind.VARIADIC for parameter in new.parameters)
    for parameter in old.parameters:
        other = after.get(parameter.name)
        if parameter.kind in _VARIADIC:
            if not any(candidate.kind is parameter.kind for candidate in new.parameters):
                yield breaks(f"no longer takes {parameter.kind.value}")
        elif other is None or other.kind in _VARIADIC:
            if not (catches_names and parameter.kind is ParameterKind.KEYWORD_ONLY):
                yield breaks(f"parameter {parameter.name!r} was removed")
        else:
            yield from _parameter(subject, parameter, other)
    before = {parameter.name for parameter in old.parameters}
    for parameter in new.parameters:
        if parameter.name in before or parameter.kind in _VARIADIC:
            continue
        if parameter.is_required:
            yield breaks(f"new parameter {parameter.name!r} has no default")
        else:
            yield Change(effect=Effect.ADDITION, subject=subject, message=f"new parameter {parameter.name!r}")
    moved = _moved(old.parameters, new.parameters)
    if moved and not catches_places:
        yield breaks(f"positional parameter {moved!r} has moved")
    if old.returns != new.returns:
        message = f"return type changed from {old.returns or 'unannotated'} to {new.returns or 'unannotated'}"
        yield Change(effect=Effect.NOTE, subject=subject, message=message)


def _parameter(subject: str, old: Parameter, new: Parameter) -> Iterator[Change]:
    def breaks(message: str) -> Change:
        return Change(effect=Effect.BREAKING, subject=subject, message=f"parameter {old.name!r} {message}")

    if not old.is_required and new.is_required:
        yield breaks("no longer has a default")
    elif old.default != new.default and old.default is not None:
        message = f"default of parameter {old.name!r} changed from {old.default} to {new.default}"
        yield Change(effect=Effect.NOTE, subject=subject, message=message)
    if old.kind in _BY_NAME and new.kind not in _BY_NAME:
        yield breaks("can no longer be passed by name")
    if old.kind in _BY_PLACE and new.kind not in _BY_PLACE:
        yield breaks("can no longer be passed by position")
    if old.annotation != new.annotation and old.annotation is not None:
        message = f"annotation of parameter {old.name!r} changed from {old.annotation} to {new.annotation or 'none'}"
        yield Change(effect=Effect.NOTE, subject=subject, message=message)


def _moved(old: Sequence[Parameter], new: Sequence[Parameter]) -> str | None:
    """The first parameter that can be passed by position on both sides, and has another position now."""
    places = {p.name: place for place, p in enumerate(p for p in new if p.kind in _BY_PLACE)}
    for place, parameter in enumerate(p for p in old if p.kind in _BY_PLACE):
        if places.get(parameter.name, place) != place:
            return parameter.name
    return None


def _classes(old: Interface, new: Interface) -> Iterator[Change]:
    after = {entry.name: entry for entry in new.classes}
    for entry in old.classes:
        other = after.get(entry.name)
        if other is not None:
            if entry.call is not None and other.call is not None:
                yield from signature_changes(entry.name, entry.call, other.call)
            elif entry.call != other.call:
                message = "what it takes when it is called cannot be compared"
                yield Change(effect=Effect.NOTE, subject=entry.name, message=message)
            yield from _members(entry, other)


def _members(old: Class, new: Class) -> Iterator[Change]:
    for name, signature in old.members.items():
        subject = f"{old.name}.{name}"
        if name not in new.members:
            effect = Effect.BREAKING if new.is_whole else Effect.NOTE
            message = "it was removed" if new.is_whole else "it was removed, unless a class outside the package has it"
            yield Change(effect=effect, subject=subject, message=message)
            continue
        other = new.members[name]
        if signature is not None and other is not None:
            yield from signature_changes(subject, signature, other)
        elif signature != other:
            yield Change(effect=Effect.NOTE, subject=subject, message="its signatures cannot be compared")
    for name in new.members:
        if name not in old.members:
            yield Change(effect=Effect.ADDITION, subject=f"{old.name}.{name}", message="a member that is new")


def _layers(old: Interface, new: Interface) -> Iterator[Change]:
    after = {layer.name: layer for layer in new.layers}
    before = {layer.name for layer in old.layers}
    for layer in old.layers:
        subject = f"layers.{layer.name}"
        other = after.get(layer.name)
        if other is None:
            yield Change(effect=Effect.BREAKING, subject=subject, message="the layer was removed")
            continue
        if layer.forward is not None and other.forward is not None:
            yield from signature_changes(f"{subject}.forward", layer.forward, other.forward)
        yield from _flags(subject, layer, other)
    for layer in new.layers:
        if layer.name not in before:
            yield Change(effect=Effect.ADDITION, subject=f"layers.{layer.name}", message="new layer")


def _flags(subject: str, old: Layer, new: Layer) -> Iterator[Change]:
    for flag, value in old.flags.items():
        now = new.flags.get(flag, value)
        if value and not now:
            yield Change(effect=Effect.BREAKING, subject=subject, message=f"{flag} is now False")
        elif now and not value:
            yield Change(effect=Effect.ADDITION, subject=subject, message=f"{flag} is now True")


def _ops(old: Interface, new: Interface) -> Iterator[Change]:
    """Ops are an inner matter of a kernel, unless it publishes them: their namespace is new with every build."""
    if not old.ops or not new.ops:
        return  # the schemas of one side are not known
    published = "ops" in old.others
    lost = Effect.BREAKING if published else Effect.NOTE
    for name, schema in old.ops.items():
        subject = f"op {name}"
        if name not in new.ops:
            yield Change(effect=lost, subject=subject, message="the op was removed")
        elif _plain(schema) != _plain(new.ops[name]):
            yield from _schema_changes(subject, schema, new.ops[name], published=published)
    for name in new.ops:
        if name not in old.ops:
            effect = Effect.ADDITION if published else Effect.NOTE
            yield Change(effect=effect, subject=f"op {name}", message="new op")


def _library(old: Interface, new: Interface) -> Iterator[Change]:
    """What the library offers through tvm-ffi is as inner a matter as ops are; it has no schemas to compare."""
    if not old.library or not new.library:
        return  # what one side offers is not known
    published = "ops" in old.others
    for name in old.library:
        if name not in new.library:
            effect = Effect.BREAKING if published else Effect.NOTE
            yield Change(effect=effect, subject=f"tvm-ffi function {name}", message="the function was removed")
    for name in new.library:
        if name not in old.library:
            effect = Effect.ADDITION if published else Effect.NOTE
            yield Change(effect=effect, subject=f"tvm-ffi function {name}", message="new function")


def _plain(schema: str) -> str:
    return "".join(schema.split())


def _schema_changes(subject: str, old: str, new: str, *, published: bool) -> Iterator[Change]:
    one, other = schema_signature(old), schema_signature(new)
    found = list(signature_changes(subject, one, other)) if one is not None and other is not None else []
    breaking = [change for change in found if change.effect is Effect.BREAKING]
    # Types and results are part of what an op accepts, unlike Python's annotations.
    types = [change for change in found if change.effect is Effect.NOTE]
    if published and (breaking or types or not found):
        yield Change(effect=Effect.BREAKING, subject=subject, message=f"schema changed from {old} to {new}")
    else:
        yield Change(effect=Effect.NOTE, subject=subject, message=f"schema changed from {old} to {new}")


def schema_signature(schema: str) -> Signature | None:
    """An op's schema as a signature; ``None`` for text that is not one.

    Grammar: torch's function schemas (``name(Type name=default, *, Type name) -> Type``).
    """
    _, opened, rest = schema.partition("(")
    arguments, arrow, returns = rest.rpartition("->")
    arguments = arguments.strip()
    if not opened or not arrow or not arguments.endswith(")"):
        return None
    kind = ParameterKind.POSITIONAL
    parameters: list[Parameter] = []
    for text in _split(arguments[:-1]):
        if text == "*":
            kind = ParameterKind.KEYWORD_ONLY
            continue
        declared, _, default = text.partition("=")
        type_, space, name = declared.strip().rpartition(" ")
        if not space:
            return None
        parameters.append(
            Parameter(name=name, kind=kind, default=default.strip() or None, annotation="".join(type_.split()))
        )
    return Signature(parameters=tuple(parameters), returns="".join(returns.split()))


def _split(arguments: str) -> list[str]:
    """Arguments at their commas, those within brackets left alone."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _support(old: Iterable[str], new: Iterable[str]) -> Iterator[Change]:
    after = _supported(new)
    if not after:
        return
    for compute, releases in _supported(old).items():
        if compute not in after:
            message = f"no longer has variants for {compute}"
        else:
            lost = [release for release in sorted(releases) if release < min(after[compute])]
            if not lost:
                continue
            message = "no longer has variants for torch " + ", ".join(f"{major}.{minor}" for major, minor in lost)
        yield Change(effect=Effect.BREAKING, subject=compute, message=message, is_support=True)


def _supported(names: Iterable[str]) -> dict[str, set[tuple[int, int]]]:
    """Backend and platform -> the torch releases that there are variants for."""
    found: dict[str, set[tuple[int, int]]] = {}
    for name in names:
        try:
            variant = parse_variant(name)
        except ValueError:
            continue
        if isinstance(variant, ArchVariant) and isinstance(variant.tag, TorchTag):
            place = f"{variant.backend.value} on {variant.machine.value}-{variant.system.value}"
            found.setdefault(place, set()).add(variant.tag.version)
    return found
