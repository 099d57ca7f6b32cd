"""nvcc's passes over a source, with slim headers where it has them.

A pass that fails with slim headers runs again with all headers, the host's passes apart from those for device code. A
proof makes both: device code must be the same, and so must every function of the host's half without optimization.
With it, compilers make other code of a half that holds less, because they inline differently (DESIGN.md F14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_builder.actions.context import Context
from kernel_builder.actions.model import Action, Step, Tool
from kernel_builder.actions.slim import (
    DEVICE_PROOF,
    HOST_PROOF,
    PLAINLY,
    PYTHON,
    apart,
    proof_of,
    with_slim,
    words_of_slim,
)
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.driver import Invocation, after
from kernel_builder.backends.cuda.module_id import ID_FILE, given
from kernel_builder.backends.cuda.split import Splitter
from kernel_builder.backends.protocol import UnitActions
from kernel_builder.toolchain.model import ToolkitSdk

_SLIM, _FULL = "slim", "full"


def split_actions(context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> UnitActions:
    """The actions that make the object of ``unit``, which nvcc would compile with ``options``, as words.

    Raises :class:`~kernel_builder.backends.cuda.driver.UnknownStepError` where the steps of this nvcc are not known.
    """
    if words_of_slim(context, unit.source):
        return _SlimSplitter(context, toolkit, unit, options).actions()
    return Splitter(context, toolkit, unit, options).actions()


def _renamed(step: Invocation, names: Mapping[str, str]) -> Invocation:
    """``step`` with other files."""

    def word(text: str) -> str:
        return names.get(text, text)

    return replace(
        step,
        arguments=tuple(map(word, step.arguments)),
        made=tuple(map(word, step.made)),
        read=tuple(map(word, step.read)),
    )


class _SlimSplitter(Splitter):
    """A :class:`Splitter` for a source with slim headers."""

    def __init__(self, context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> None:
        super().__init__(context, toolkit, unit, options)
        self._before = words_of_slim(context, unit.source)

    def _slim(self, group: tuple[Invocation, ...]) -> tuple[Invocation, ...]:
        """``group`` with slim headers."""
        return tuple(
            replace(step, arguments=(*self._before, *step.arguments)) if step.preprocesses else step for step in group
        )

    def _device(self, group: tuple[Invocation, ...]) -> Action:
        """Compiles device code with slim headers. To prove them, code is made both ways and must be
        the same; the files of the slim ones have a name of their own.
        """
        full = super()._device(group)
        outputs, slim = full.outputs, self._slim(group)
        if not self._context.verify:
            return self._with_slim(full, steps=self._steps(slim, full.depfile, outputs[0]), fallback=full.steps)
        names = {name: apart(name, _SLIM) for step in group for name in step.made}
        slim = tuple(_renamed(step, names) for step in slim)
        proof = proof_of(DEVICE_PROOF, *(word for name in outputs for word in (names[name], name)))
        steps = (*self._steps(slim, full.depfile, outputs[0]), *full.steps, proof)
        return self._with_slim(full, steps=steps, fallback=full.steps, tools=(PYTHON, DEVICE_PROOF))

    def _split(self) -> Action:
        """Makes the host's half with slim headers. To prove them, it makes the other half, too."""
        full = super()._split()
        group, outputs = self._pipeline.split, full.outputs
        slim = self._steps(self._slim(group), full.depfile, outputs[0])
        if not self._context.verify:
            return self._with_slim(full, steps=slim, fallback=full.steps)
        other = self._steps(self._other_split, full.depfile, outputs[0])
        half, other_half = self._half, apart(self._half, _FULL)
        copy = Step(command=("cp", half, other_half), reads=(half,), writes=(other_half,))
        made = self._with_slim(full, steps=(*slim, *other), fallback=(*full.steps, copy))
        return replace(made, outputs=(*outputs, other_half))

    def _compile(self) -> Action:
        """Compiles the host's half that was made with slim headers. What only a half made with all headers would
        compile gets that one. To prove the slim half, both are compiled without optimization.
        """
        slim = super()._compile()
        *bundle, compiler = self._pipeline.compile
        other = _renamed(compiler, {self._half: apart(self._half, _FULL)})
        if self._context.verify:
            names = (apart(self._target, "plain"), apart(self._target, "plain-slim"))
            plain, proved = (self._plainly(one, name) for one, name in zip((other, compiler), names, strict=True))
            steps = (*self._steps((*bundle, plain, proved), None, self._target), proof_of(HOST_PROOF, *names))
            steps = (*steps, *self._steps((compiler,), None, self._target))
            fallback = self._steps((*bundle, other), None, self._target)
            made = replace(slim, inputs=(*slim.inputs, apart(self._half, _FULL)))
            return self._with_slim(made, steps=steps, fallback=fallback, tools=(PYTHON, HOST_PROOF))
        # Which headers decide the other half, only that half's preprocessor can tell.
        depfile = self._depfile(slim.kind)
        fallback = self._steps((*self._other_split, *bundle, other), depfile, self._target)
        read = (name for step in self._other_split for name in step.read if name not in slim.inputs)
        own = {name for step in self._other_split for name in step.made}
        tools = tuple(self._tool(step) for step in self._other_split)
        made = replace(slim, depfile=depfile, inputs=(*slim.inputs, *(name for name in read if name not in own)))
        made = replace(made, trees=self._trees((*slim.steps, *fallback), reads_source=False))
        return self._with_slim(made, steps=slim.steps, fallback=fallback, tools=tools)

    def _with_slim(
        self, action: Action, *, steps: tuple[Step, ...], fallback: tuple[Step, ...], tools: tuple[Tool, ...] = ()
    ) -> Action:
        return with_slim(self._context, action, steps=steps, fallback=fallback, tools=tools)

    @property
    def _half(self) -> str:
        """The host's half."""
        read = self._pipeline.compile[-1].read
        return next(name for step in self._pipeline.split for name in step.made if name in read)

    @property
    def _other_split(self) -> tuple[Invocation, ...]:
        """Makes the host's half with all headers beside the other one, and with the same id."""
        split = self._pipeline.split
        ids = {after(step, ID_FILE) for step in split}
        names = {name: apart(name, _FULL) for step in split for name in step.made if name not in ids}
        return tuple(given(_renamed(step, names)) for step in split)

    def _plainly(self, compiler: Invocation, target: str) -> Invocation:
        """``compiler`` without optimization, into ``target``."""
        renamed = _renamed(compiler, {self._target: target})
        return replace(renamed, arguments=(*renamed.arguments, *PLAINLY))
