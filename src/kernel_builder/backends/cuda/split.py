"""nvcc's steps as actions: the host's half, the code for each architecture, and the object made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernel_builder.actions.context import Context
from kernel_builder.actions.host import GIB, HEAVY_MEMORY
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, Tree, action_id, seen
from kernel_builder.actions.places import tool_word
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.driver import CICC, HOST, SHELL, Invocation, Question, after, pipeline
from kernel_builder.backends.cuda.module_id import Guess, ahead, guess, settled
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
        known = pipeline(
            question, source=self._source, target=self._target, folder=self._folder, shown=f"/{unit.source}"
        )
        known = replace(known, split=tuple(map(settled, known.split)))
        # A proof compares what the host's half and device code come to in the end.
        guessed = None if context.verify else _guessed(layout.root / unit.source)
        self._pipeline = known if guessed is None else ahead(known, guessed)
        # Once: an action has thousands of words, and finding the word of a path takes its time.
        self._programs = context.word(Path(self._pipeline.programs))

    def actions(self) -> UnitActions:
        """The actions that make the object."""
        steps = self._pipeline
        devices = map(self._device, steps.devices)
        assemblies = map(self._assembly, steps.assemblies, steps.again)
        actions = (self._split(), *devices, *assemblies, self._compile())
        return UnitActions(actions=actions, objects=(self._target,))

    def _split(self) -> Action:
        """Makes the host's half."""
        return self._action(ActionKind.SPLIT, self._pipeline.split)

    def _device(self, group: tuple[Invocation, ...]) -> Action:
        """Compiles device code."""
        return self._action(ActionKind.DEVICE, group, self._architecture(group))

    def _assembly(self, group: tuple[Invocation, ...], again: tuple[Invocation, ...]) -> Action:
        """Makes of device code what the object needs, or compiles it again, with all headers and the right id."""
        made = self._action(ActionKind.ASSEMBLE, group, self._architecture(again))
        # Which headers decide what is compiled again, only its own preprocessor can tell.
        depfile = self._depfile(made.kind, made.architecture)
        return replace(
            made,
            depfile=depfile,
            fallback=self._steps(again, depfile, made.outputs[0]),
            memory=_MEMORY,
            tools=self._tools((*group, *again)),
            trees=self._trees(made.steps, reads_source=True),
        )

    def _compile(self) -> Action:
        """Makes the object."""
        return self._action(ActionKind.COMPILE, self._pipeline.compile)

    def _architecture(self, chain: tuple[Invocation, ...]) -> str:
        compiler = next(step for step in chain if step.program == CICC)
        return after(compiler, "-arch") or PurePosixPath(chain[-1].made[0]).name

    def _action(self, kind: ActionKind, group: tuple[Invocation, ...], architecture: str | None = None) -> Action:
        context, steps = self._context, self._pipeline
        outputs = steps.passed_on(group)
        own = {name for step in group for name in step.made}
        given = dict.fromkeys(name for step in group for name in step.read if name not in own)
        reads_source = any(step.preprocesses for step in group)
        depfile = self._depfile(kind, architecture) if reads_source else None
        made = self._steps(group, depfile, outputs[0])
        return Action(
            id=action_id(context.variant, kind, self._unit.source, architecture),
            kind=kind,
            variant=context.variant,
            source=self._unit.source,
            steps=made,
            inputs=((self._source, *given) if reads_source else tuple(given)),
            implicit=steps.stubs if group is steps.compile else (),
            outputs=outputs,
            depfile=depfile,
            log=context.places.word(self._log(kind, architecture)),
            memory=HEAVY_MEMORY if self._unit.source in context.heavy else _MEMORY,
            tools=self._tools(group),
            trees=self._trees(made, reads_source=reads_source),
            architecture=architecture,
        )

    def _log(self, kind: ActionKind, architecture: str | None) -> Path:
        words = [self._unit.source, architecture, {ActionKind.SPLIT: "split", ActionKind.ASSEMBLE: "ptxas"}.get(kind)]
        return self._context.layout.log_for(".".join(word for word in words if word))

    def _depfile(self, kind: ActionKind, architecture: str | None = None) -> str:
        return self._context.places.word(self._log(kind, architecture).with_suffix(".d"))

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
            reads=None if step.program in {HOST, SHELL} else step.read,
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
        program = SHELL if step.program == SHELL else tool_word(self._tool(step))
        return (*step.before, *before, program, *words)

    def _placed(self, text: str) -> str:
        """``text`` of the driver's with the place of its programs as a word."""
        return text.replace(self._pipeline.programs, self._programs) if self._pipeline.programs else text

    def _tools(self, group: Iterable[Invocation]) -> tuple[Tool, ...]:
        return tuple({step.program: self._tool(step) for step in group if step.program != SHELL}.values())

    def _tool(self, step: Invocation) -> Tool:
        if step.program == HOST:
            return self._context.cxx
        path = Path(step.path)
        if not path.is_absolute():
            path = Path(self._pipeline.programs) / path
        return Tool(name=step.program, path=path, digest=self._toolkit.identity)


def _guessed(source: Path) -> Guess | None:
    """What the id of ``source`` will be made of; ``None`` where it cannot be read."""
    try:
        return guess(source.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
