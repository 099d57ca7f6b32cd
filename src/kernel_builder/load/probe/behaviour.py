# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""Whether ops do what their schemas say: each is called with made-up arguments, and what it wrote, what its results
share memory with and what its fake answers are compared with the schema.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .answers import announce_call, reason_of, tell_behaviour
from .made_up import Arguments, Attempt, ImpossibleError
from .search import Search

SEARCH_SECONDS = 5
OP_SECONDS = 30
ALL_SECONDS = 60
# Of an op's words and flags, so many are tried besides those that it took at first.
MOST_WORDS = 6
MOST_FLAGS = 8
WRITES, RETURNS, SHARES, TWINS = "writes", "returns", "shares", "results share"
FAKE_DIFFERS, FAKE_RAISES, FAKE_RETURNS = "fake differs", "fake raises", "fake returns"
COMPILER = "torch._dynamo"


class UnusableError(Exception):
    """An op cannot be judged by made-up arguments."""


def working(overload: Any, device: str, search: Search | None = None) -> Attempt:
    """Arguments that the op takes. Raises :class:`UnusableError` with the words of the first refusal."""
    import torch

    schema, first, ends = overload._schema, "", time.monotonic() + SEARCH_SECONDS
    search = search or Search(schema)
    for recipe in search:
        if time.monotonic() > ends:
            break
        try:
            given = Arguments(schema, recipe, device, 1)
        except ImpossibleError as error:
            raise UnusableError(f"no argument can be made up for {error}") from error
        try:
            with torch.no_grad():
                overload(*given.positional, **given.named)
                settle(device)
        except Exception as error:
            first = first or reason_of(error).splitlines()[0]
            search.learn(recipe, error)
            continue
        if any(tensor.overflows() for tensor in given.tensors):
            raise UnusableError("it accepted made-up arguments that are too small for it, and wrote past their end")
        return recipe
    raise UnusableError(first)


def settle(device: str) -> None:
    """Wait until the device has done what it was asked."""
    import torch

    module: Any = getattr(torch, device, None)
    if hasattr(module, "synchronize"):
        module.synchronize()


def observed(overload: Any, recipe: Attempt, device: str) -> dict[tuple[str, str], dict[str, str]]:
    """``(kind, argument)`` -> what one kind of call does that the schema does not say; seen twice, with other values.

    Raises :class:`UnusableError` where the op writes where it must not, for nothing can be told then.
    """
    rounds = [once(overload, recipe, device, seed) for seed in (2, 3)]
    return {key: value for key, value in rounds[0].items() if key in rounds[1]}


def once(overload: Any, recipe: Attempt, device: str, seed: int) -> dict[tuple[str, str], dict[str, str]]:
    import torch

    schema = overload._schema
    given = Arguments(schema, recipe, device, seed)
    with torch.no_grad():
        results = labelled(overload(*given.positional, **given.named), schema)
        settle(device)
    if any(tensor.overflows() for tensor in given.tensors):
        raise UnusableError("it accepted made-up arguments that are too small for it, and wrote past their end")
    infos = {argument.name: argument.alias_info for argument in schema.arguments}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for tensor in given.tensors:
        info = infos[tensor.name]
        if tensor.is_written() and not (info is not None and info.is_write):
            found[WRITES, tensor.name] = {"schema": schema_that_writes(schema, tensor.name)}
        for _, _, result in results:
            if tensor.owns(result) and not says_so(schema, info):
                kind = RETURNS if result is tensor.tensor or same_view(result, tensor.tensor) else SHARES
                found[kind, tensor.name] = {}
    new = [one for one in results if not any(tensor.owns(one[2]) for tensor in given.tensors)]
    for (label, info, one), (other_label, other_info, other) in itertools.combinations(new, 2):
        if share_memory(one, other) and not (info and other_info and info.before_set & other_info.before_set):
            found[TWINS, f"{label} and {other_label}"] = {}
    return found


def labelled(results: Any, schema: Any) -> list[tuple[str, Any, Any]]:
    """The results of a call: what each is called, what the schema says of its memory, and the result."""
    several = results if len(schema.returns) > 1 else [results]
    found = []
    for number, (told, result) in enumerate(zip(schema.returns, several), start=1):
        label = repr(told.name) if told.name else f"result {number}"
        for index, one in enumerate(flat(result)):
            found.append((f"{label}[{index}]" if isinstance(result, (list, tuple)) else label, told.alias_info, one))
    return found


def share_memory(one: Any, other: Any) -> bool:
    """Whether two results are views of the same memory."""
    import torch

    both = (one, other)
    if not all(isinstance(each, torch.Tensor) and each.layout == torch.strided and each.numel() for each in both):
        return False
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def same_view(result: Any, tensor: Any) -> bool:
    return bool(result.shape == tensor.shape and result.stride() == tensor.stride())


def says_so(schema: Any, info: Any) -> bool:
    """Whether the schema says that a result is what an argument with the alias ``info`` is."""
    if info is None:
        return False
    if any(found is not None and set(found.before_set) & set(info.before_set) for found in return_infos(schema)):
        return True
    # In lists the sets of the elements are not told.
    return not info.before_set and any(found is not None for found in return_infos(schema))


def return_infos(schema: Any) -> list[Any]:
    return [result.alias_info for result in schema.returns]


def flat(results: Any) -> list[Any]:
    """The results of a call, one after the other."""
    if isinstance(results, (list, tuple)):
        return [one for result in results for one in flat(result)]
    return [results]


# --- the fake ---


def has_own_fake(overload: Any) -> bool:
    """Whether someone wrote a fake for the op, in C++ or Python."""
    import torch
    from torch._library.simple_registry import singleton

    name = overload._schema.name
    decorated = getattr(importlib.import_module("torch._library.custom_ops"), "OPDEFS", {}).get(name)
    if decorated is not None:
        # Ops of the decorator custom_op all have a fake, which raises an error until one is registered.
        return decorated._abstract_fn is not None
    if torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "Meta"):
        return True
    return singleton.find(name).fake_impl.kernel is not None


def judge_fake(overload: Any, recipe: Attempt, device: str) -> dict[tuple[str, str], dict[str, str]]:
    """``(kind, what)`` -> how the op's fake differs from the op."""
    import torch

    given = Arguments(overload._schema, recipe, device, 4)
    with torch.no_grad():
        real = flat(overload(*given.positional, **given.named))
        settle(device)
    try:
        with without_compiler():
            inputs, call = in_fakes(overload, Arguments(overload._schema, recipe, device, 4))
            fake = call()
    except Exception:  # it may ask for the compiler, or be wrong
        return judge_fake_with_symbols(overload, recipe, device, real)
    return compared(real, fake, inputs, overload._schema)


def judge_fake_with_symbols(
    overload: Any, recipe: Attempt, device: str, real: list[Any]
) -> dict[tuple[str, str], dict[str, str]]:
    """As :func:`judge_fake`, for one whose sizes may depend on values, with all of torch; ``real`` are the op's
    results.
    """
    from torch._subclasses import fake_tensor
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    unknowable = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedOperatorException,
    )
    inputs, call = in_fakes(overload, Arguments(overload._schema, recipe, device, 4), ShapeEnv())
    try:
        fake = call()
    except unknowable:
        return {}
    except Exception as error:
        return {(FAKE_RAISES, ""): {"words": reason_of(error).splitlines()[0]}}
    return compared(real, fake, inputs, overload._schema)


def in_fakes(overload: Any, given: Arguments, symbols: Any = None) -> tuple[list[Any], Callable[[], list[Any]]]:
    """Fakes of what is ``given``, and what calls the op with them. Sizes are numbers where there are no ``symbols``."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(shape_env=symbols)

    def fake(value: Any) -> Any:
        if isinstance(value, list):
            return [fake(one) for one in value]
        return mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value

    positional = [fake(value) for value in given.positional]
    named = {name: fake(value) for name, value in given.named.items()}

    def call() -> list[Any]:
        with mode, torch.no_grad():
            return flat(overload(*positional, **named))

    return [*positional, *named.values()], call


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Torch's compiler is a package here whose modules can be imported, but that imports none itself.

    Fake tensors read its configuration, and ops in Python ask it not to trace them, which nothing does here. With the
    package comes all of it, which takes as long as torch itself, and where it is loaded nobody can tell what of a
    kernel ran.
    """
    import torch

    spec = None if COMPILER in sys.modules else importlib.util.find_spec(COMPILER)
    if spec is None:
        yield
        return
    parent: Any = torch
    package: Any = importlib.util.module_from_spec(spec)
    package.disable = lambda function, *_, **_words: function
    attribute = COMPILER.rpartition(".")[2]
    sys.modules[COMPILER] = package
    setattr(parent, attribute, package)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if f"{name}.".startswith(f"{COMPILER}.")]:
            del sys.modules[name]
        delattr(parent, attribute)


def compared(real: list[Any], fake: list[Any], given: list[Any], schema: Any) -> dict[tuple[str, str], dict[str, str]]:
    """How the results of the fake, which was given ``given``, differ from the real ones."""
    import torch

    if len(real) != len(fake):
        return {(FAKE_DIFFERS, "results"): {"words": f"{len(fake)} results, but the op returns {len(real)}"}}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for number, (one, other) in enumerate(zip(real, fake), start=1):
        which = f"result {number}" if len(real) > 1 else "the result"
        if isinstance(one, torch.Tensor) != isinstance(other, torch.Tensor):
            words = f"{kind_of(other)} as {which}, but the op returns {kind_of(one)}"
            found[FAKE_DIFFERS, which] = {"words": words}
        elif isinstance(one, torch.Tensor):
            for what, mine, its in facts(one, other):
                found[FAKE_DIFFERS, f"{what} of {which}"] = {"words": f"{what} {its}, but the op returns {mine}"}
            for argument, value in zip(schema.arguments, given):
                if shares_memory(other, value) and not says_so(schema, argument.alias_info):
                    found[FAKE_RETURNS, argument.name] = {}
    return found


def shares_memory(fake: Any, value: Any) -> bool:
    """Whether a fake tensor is a view of ``value``, of one of them where these are several, or one of them itself."""
    import torch

    if isinstance(value, list):
        return any(shares_memory(fake, one) for one in value)
    return isinstance(value, torch.Tensor) and fake.untyped_storage()._cdata == value.untyped_storage()._cdata


def kind_of(value: Any) -> str:
    import torch

    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)


def facts(real: Any, fake: Any) -> list[tuple[str, Any, Any]]:
    """What differs between a tensor and its fake: ``(what, the tensor's, the fake's)``."""
    found: list[tuple[str, Any, Any]] = []
    if real.dtype != fake.dtype:
        found.append(("dtype", real.dtype, fake.dtype))
    if real.device.type != fake.device.type:
        found.append(("device", real.device, fake.device))
    sizes = [plain(size) for size in fake.shape]
    if len(sizes) != real.dim() or any(size not in (None, own) for size, own in zip(sizes, real.shape)):
        found.append(("shape", tuple(real.shape), tuple(fake.shape)))
    elif real.layout == fake.layout and real.numel() > 0 and None not in sizes:
        own = [stride for size, stride in zip(real.shape, real.stride()) if size > 1]
        its = [stride for size, stride in zip(real.shape, fake.stride()) if size > 1]
        if own != its:
            found.append(("strides", real.stride(), tuple(fake.stride())))
    return found


def plain(size: Any) -> Any:
    """A size as a number; ``None`` where the fake leaves it open."""
    return size if isinstance(size, int) else None


# --- schemas as they should be ---


def readable(schema: Any) -> str:
    """A schema as people write it: without the namespace, and with ``Tensor!``."""
    text = str(schema).partition("::")[2] or str(schema)
    return re.sub(r"(\??)\((?:\$\d+|[a-z]+)!(?: -> (?:\$\d+|[a-z]+)?)?\)", r"!\1", text)


def schema_that_writes(schema: Any, name: str) -> str:
    """The schema with the mark for an argument that is written."""
    head, _, rest = readable(schema).partition("(")
    listed, arrow, results = rest.rpartition(") -> ")
    parts = [
        part.replace("Tensor", "Tensor!", 1) if part.split("=")[0].split()[-1] == name else part
        for part in re.split(r", (?![^\[(]*[\])])", listed)
    ]
    return f"{head}({', '.join(parts)}{arrow}{results}"


def tell_all(judges: dict[str, Callable[[], list[dict[str, str]]]]) -> None:
    """Tell how everything named behaves, as its judge finds out by calling it."""
    ends = time.monotonic() + ALL_SECONDS
    for name, find_out in judges.items():
        if time.monotonic() > ends:
            tell_behaviour(op=name, problem=f"no time was left after {ALL_SECONDS} s", deviations=[])
            continue
        announce_call(name)
        # Ends the process even where the op never returns to Python.
        faulthandler.dump_traceback_later(OP_SECONDS, exit=True)
        try:
            deviations, problem = find_out(), ""
        except UnusableError as error:
            deviations, problem = [], str(error)
        except Exception as error:
            deviations, problem = [], reason_of(error).splitlines()[0]
        finally:
            faulthandler.cancel_dump_traceback_later()
        tell_behaviour(op=name, problem=problem, deviations=deviations)


def overload_named(name: str) -> Any:
    """The op of a name as the dispatcher has it: ``namespace::op`` or ``namespace::op.overload``."""
    import torch

    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), op), overload or "default")


def judge_op(name: str, device: str, words: list[str]) -> list[dict[str, str]]:
    """:func:`judge` for the op of a name."""
    return judge(overload_named(name), device, words)


def judge(overload: Any, device: str, words: Iterable[str] = ()) -> list[dict[str, str]]:
    """All that an op does that its schema or its fake does not say. Raises :class:`UnusableError`."""
    search = Search(overload._schema, words)
    recipe = working(overload, device, search)
    found = observed(overload, recipe, device)
    ends = time.monotonic() + SEARCH_SECONDS
    for said, other in variations(overload, recipe, search, device):
        if time.monotonic() > ends:
            break
        with contextlib.suppress(Exception):  # it may not take this one
            for key, value in observed(overload, other, device).items():
                found.setdefault(key, {**value, "words": said} if said else value)
    if has_own_fake(overload):
        for key, value in judge_fake(overload, recipe, device).items():
            if key[0] != FAKE_RETURNS or not {(RETURNS, key[1]), (SHARES, key[1])} & found.keys():
                found[key] = value
    return [{"kind": kind, "name": name, **more} for (kind, name), more in found.items()]


def variations(overload: Any, recipe: Attempt, search: Search, device: str) -> Iterator[tuple[str, Attempt]]:
    """Other ways to call an op that takes ``recipe``, and what is special in them: all optional tensors are given, a
    flag has its other value, a string is another one of those that it takes.
    """
    kinds = [str(argument.type) for argument in overload._schema.arguments]
    optional = any(kind.startswith("Optional[") and "Tensor" in kind for kind in kinds)
    if optional:
        yield "", recipe.with_optional()
    for flag in search.flags[:MOST_FLAGS]:
        switched = {*recipe.switched} ^ {flag}
        other = recipe.with_switched(*sorted(switched))
        value = Arguments(overload._schema, other, device, 1).value_of(flag)
        yield f"{flag}={value}", other
        if optional:
            yield f"{flag}={value}", other.with_optional()
    for name in search.strings:
        taken = 0
        for word in [*search.tried_words, *search.words]:
            other = recipe.with_word(name, word)
            if other == recipe or taken == MOST_WORDS or not takes(overload, other, device):
                continue
            taken += 1
            yield f'{name}="{word}"', other


def takes(overload: Any, recipe: Attempt, device: str) -> bool:
    """Whether an op takes these arguments, too."""
    import torch

    given = Arguments(overload._schema, recipe, device, 1)
    try:
        with torch.no_grad():
            overload(*given.positional, **given.named)
            settle(device)
    except Exception:
        return False
    return True
