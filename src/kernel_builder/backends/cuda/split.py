"""nvcc's steps as actions: the host's half, the code for each architecture, and the object made of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from kernel_builder.actions.context import Context
from kernel_builder.actions.host import GIB, HEAVY_MEMORY
from kernel_builder.actions.model import Action, ActionKind, Tool, action_id
from kernel_builder.actions.places import tool_word
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.driver import (
    CICC,
    CUDAFE,
    FATBINARY,
    HOST,
    PTXAS,
    Pipeline,
    Question,
    Step,
    after,
    pipeline,
)
from kernel_builder.backends.protocol import UnitActions
from kernel_builder.toolchain.model import ToolkitSdk

_MEMORY = int(1.5 * GIB)
_HOST_MEMORY = int(1.5 * GIB)


def split_actions(context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> UnitActions:
    """The actions that make the object of ``unit``, which nvcc would compile with ``options``, as words.

    Raises :class:`~kernel_builder.backends.cuda.driver.UnknownStepError` where the steps of this nvcc are not known.
    """
    return _Splitter(context, toolkit, unit, options).actions()


class _Splitter:
    def __init__(self, context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> None:
        self._context, self._toolkit, self._unit = context, toolkit, unit
        layout, word = context.layout, context.places.word
        target = layout.object_for(unit.source)
        self._source, self._target = word(layout.root / unit.source), word(target)
        self._folder = word(target.with_name(f"{target.name}.steps"))
        question = Question(
            nvcc=toolkit.compiler, cxx=context.host.cxx, digest=toolkit.identity + context.cxx.digest, options=options
        )
        self._pipeline = pipeline(question, source=self._source, target=self._target, folder=self._folder)

    def actions(self) -> UnitActions:
        steps: Pipeline = self._pipeline
        split = self._action(ActionKind.SPLIT, steps.split, memory=_MEMORY)
        devices = [
            self._action(ActionKind.DEVICE, chain, memory=_MEMORY, architecture=self._architecture(chain))
            for chain in steps.devices
        ]
        last = self._action(ActionKind.COMPILE, steps.compile, memory=_HOST_MEMORY)
        return UnitActions(actions=(split, *devices, last), objects=(self._target,))

    def _architecture(self, chain: tuple[Step, ...]) -> str:
        compiler = next(step for step in chain if step.program == CICC)
        return after(compiler, "-arch") or PurePosixPath(chain[-1].made[0]).name

    def _action(
        self, kind: ActionKind, group: tuple[Step, ...], *, memory: int, architecture: str | None = None
    ) -> Action:
        context, steps = self._context, self._pipeline
        outputs = steps.passed_on(group)
        scratch = tuple(name for step in group for name in step.made if name not in outputs)
        own = {name for step in group for name in step.made}
        given = dict.fromkeys(name for step in group for name in step.read if name not in own)
        reads_source = any(step.preprocesses for step in group)
        implicit = () if reads_source else self._stubs(steps)
        name = self._unit.source if architecture is None else f"{self._unit.source}.{architecture}"
        log = context.layout.log_for(name if kind is not ActionKind.SPLIT else f"{name}.split")
        depfile = context.places.word(log.with_suffix(".d")) if reads_source else None
        commands = [self._command(step, depfile, outputs[0]) for step in group]
        heavy = self._unit.source in context.heavy
        return Action(
            id=action_id(context.variant, kind, self._unit.source, architecture),
            kind=kind,
            variant=context.variant,
            source=self._unit.source,
            before=tuple(commands[:-1]),
            command=commands[-1],
            inputs=((self._source, *given) if reads_source else tuple(given)),
            implicit=implicit,
            outputs=outputs,
            scratch=scratch,
            depfile=depfile,
            log=context.places.word(log),
            memory=max(memory, HEAVY_MEMORY) if heavy else memory,
            tools=self._tools(group),
            trees=context.trees(*(library.name for library in self._unit.libraries)),
            architecture=architecture,
        )

    def _stubs(self, steps: Pipeline) -> tuple[str, ...]:
        """What the host's half includes by name."""
        wanted = {after(step, "--stub_file_name") for step in steps.split}
        made = [name for chain in steps.devices for step in chain for name in step.made]
        return tuple(name for name in made if PurePosixPath(name).name in wanted)

    def _command(self, step: Step, depfile: str | None, made: str) -> tuple[str, ...]:
        context = self._context
        settings = [f"{name}={self._placed(value)}" for name, value in self._pipeline.settings]
        words = [self._placed(argument) for argument in step.arguments]
        if step.preprocesses and depfile is not None:
            words += ["-MMD", "-MF", depfile, "-MQ", made]
        if step.program == CICC and settings:
            return ("env", *settings, tool_word(self._tool(step)), *words)
        program = context.cxx if step.program == HOST else self._tool(step)
        return (tool_word(program), *words)

    def _placed(self, text: str) -> str:
        """``text`` of the driver's with the place of its programs as a word."""
        programs = self._pipeline.programs
        return text.replace(programs, self._context.word(Path(programs))) if programs else text

    def _tool(self, step: Step) -> Tool:
        path = Path(step.path)
        if not path.is_absolute():
            path = Path(self._pipeline.programs) / path
        return Tool(name=step.program, path=path, digest=self._toolkit.identity)

    def _tools(self, group: Iterable[Step]) -> tuple[Tool, ...]:
        own = {step.program: self._tool(step) for step in group if step.program in {CUDAFE, CICC, PTXAS, FATBINARY}}
        host = (self._context.cxx,) if any(step.program == HOST for step in group) else ()
        return (*own.values(), *host)
