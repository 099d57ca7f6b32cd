"""nvcc's steps as actions: the host's half, the code for each architecture, and the object made of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from kernel_builder.actions.context import Context
from kernel_builder.actions.host import GIB, HEAVY_MEMORY
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, Tree, action_id, seen
from kernel_builder.actions.places import tool_word
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.driver import CICC, HOST, Invocation, Question, after, pipeline
from kernel_builder.backends.protocol import UnitActions
from kernel_builder.toolchain.model import ToolkitSdk

_MEMORY = int(1.5 * GIB)
_WITH_LINES = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"}


class Splitter:
    """Splits what nvcc would do to compile ``unit`` with ``options``, as words.

    Raises :class:`~kernel_builder.backends.cuda.driver.UnknownStepError` where the steps of this nvcc are not known.
    """

    def __init__(self, context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> None:
        self._context, self._toolkit, self._unit = context, toolkit, unit
        self._unit_options = options
        layout, word = context.layout, context.places.word
        target = layout.object_for(unit.source)
        self._source, self._target = word(layout.root / unit.source), word(target)
        self._folder = word(target.with_name(f"{target.name}.steps"))
        question = Question(
            nvcc=toolkit.compiler,
            cxx=context.host.cxx,
            digest=toolkit.identity + context.cxx.digest,
            options=options,
            environ=tuple(sorted(seen(context.environ).items())),
        )
        self._pipeline = pipeline(
            question, source=self._source, target=self._target, folder=self._folder, shown=f"/{unit.source}"
        )
        # Once: an action has thousands of words, and finding the word of a path takes its time.
        self._programs = context.word(Path(self._pipeline.programs))

    def actions(self) -> UnitActions:
        """The actions that make the object."""
        steps = self._pipeline
        split = self._action(ActionKind.SPLIT, steps.split)
        devices = [self._action(ActionKind.DEVICE, chain, self._architecture(chain)) for chain in steps.devices]
        last = self._action(ActionKind.COMPILE, steps.compile)
        return UnitActions(actions=(split, *devices, last), objects=(self._target,))

    def _architecture(self, chain: tuple[Invocation, ...]) -> str:
        compiler = next(step for step in chain if step.program == CICC)
        return after(compiler, "-arch") or PurePosixPath(chain[-1].made[0]).name

    def _action(self, kind: ActionKind, group: tuple[Invocation, ...], architecture: str | None = None) -> Action:
        context, steps = self._context, self._pipeline
        outputs = steps.passed_on(group)
        own = {name for step in group for name in step.made}
        given = dict.fromkeys(name for step in group for name in step.read if name not in own)
        reads_source = any(step.preprocesses for step in group)
        name = self._unit.source if architecture is None else f"{self._unit.source}.{architecture}"
        log = context.layout.log_for(name if kind is not ActionKind.SPLIT else f"{name}.split")
        depfile = context.places.word(log.with_suffix(".d")) if reads_source else None
        made = self._steps(group, depfile, outputs[0])
        return Action(
            id=action_id(context.variant, kind, self._unit.source, architecture),
            kind=kind,
            variant=context.variant,
            source=self._unit.source,
            steps=made,
            inputs=((self._source, *given) if reads_source else tuple(given)),
            implicit=() if reads_source else steps.stubs,
            outputs=outputs,
            depfile=depfile,
            log=context.places.word(log),
            memory=HEAVY_MEMORY if self._unit.source in context.heavy else _MEMORY,
            tools=tuple({step.program: self._tool(step) for step in group}.values()),
            trees=self._trees(made, reads_source=reads_source),
            architecture=architecture,
        )

    def _trees(self, steps: tuple[Step, ...], *, reads_source: bool) -> tuple[Tree, ...]:
        trees = self._context.trees(*(library.name for library in self._unit.libraries))
        if reads_source:
            return trees
        # Of what others made, nothing is looked up in any other: equal files of theirs give equal results.
        words = " ".join(word for step in steps for word in step.command)
        return tuple(tree for tree in trees if tree.name == "toolkit" or f"{{tree:{tree.name}}}" in words)

    def _steps(self, group: Iterable[Invocation], depfile: str | None, made: str) -> tuple[Step, ...]:
        return tuple(self._step(step, depfile, made) for step in group)

    def _step(self, step: Invocation, depfile: str | None, made: str) -> Step:
        """What ``step`` reads is what others made: only preprocessors, and the host compiler, read headers."""
        return Step(
            command=self._command(step, depfile, made),
            writes=step.made,
            reads=None if step.program == HOST else step.read,
            texts=step.read if step.program == CICC and not self._keeps_lines else (),
        )

    @property
    def _keeps_lines(self) -> bool:
        """Whether machine code says which lines it comes from."""
        return any(option in _WITH_LINES for option in self._unit_options)

    def _command(self, step: Invocation, depfile: str | None, made: str) -> tuple[str, ...]:
        words = [self._placed(argument) for argument in step.arguments]
        if step.preprocesses and depfile is not None:
            words += ["-MD", "-MF", depfile, "-MQ", made]
        settings = [f"{name}={self._placed(value)}" for name, value in self._pipeline.settings]
        before = ("env", *settings) if step.program == CICC and settings else ()
        return (*before, tool_word(self._tool(step)), *words)

    def _placed(self, text: str) -> str:
        """``text`` of the driver's with the place of its programs as a word."""
        return text.replace(self._pipeline.programs, self._programs) if self._pipeline.programs else text

    def _tool(self, step: Invocation) -> Tool:
        if step.program == HOST:
            return self._context.cxx
        path = Path(step.path)
        if not path.is_absolute():
            path = Path(self._pipeline.programs) / path
        return Tool(name=step.program, path=path, digest=self._toolkit.identity)
