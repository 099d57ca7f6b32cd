"""The toy backend: a device that nobody has, and a compiler that is a shell script."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.actions.host import host_action
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, action_id
from kernel_builder.actions.places import literal, tool_word
from kernel_builder.backends.protocol import Selected, UnitActions
from kernel_builder.config.backends import Backend
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.toolchain.choice import Refused, Taken
from kernel_builder.toolchain.identity import tree_identity
from kernel_builder.toolchain.kinds import OpenedSource
from kernel_builder.toolchain.model import ToolkitSdk
from kernel_builder.toolchain.recipe import Component

COMPILER = Component(
    name="toycc", compiler=True, include=(), libraries=(), wheel=None, lacking="", redistrib=None, debian=False
)


class Recipe:
    digest = "toy 1"
    host_compilers = ()

    def components(self, version):
        return (COMPILER,)


class Installed:
    """Toolkits that TOY_HOME names."""

    label, whole = "local", True

    def __init__(self, environ):
        self.root = Path(environ.get("TOY_HOME", "/no/toy"))

    def offers(self, components, version, machine):
        compiler = self.root / "bin" / "toycc"
        if not compiler.is_file():
            return {"toycc": Refused(part="toycc", source="local", candidate=str(self.root), reason="it has no toycc")}
        identity = tree_identity([compiler], [])
        made = Artefact(
            name="toycc", version=version, filename="toy", kind=ArtefactKind.LOCAL, sha256=identity, source="local"
        )
        return {"toycc": Taken(part="toycc", source="local", artefact=made, root=self.root)}

    def weigh(self, parts, scratch):
        return {taken.artefact.filename: 0 for _, taken in parts}

    def fill(self, parts, tree):
        tree.progress.expect(0)
        return [taken.artefact for _, taken in parts]


class ToyToolkit:
    backend = Backend("toy")
    torch_maker = None
    recipe = Recipe()
    debian_releases = ()

    def open(self, opening):
        if opening.name != "local":
            return None
        return OpenedSource(source=Installed(opening.environ), facts="toy", at_hand=True)

    def describe(self, toolkit, taken, entry, stubs):
        compiler = taken[0].root / "bin" / "toycc"
        return ToolkitSdk(
            toolkit=toolkit, compiler=compiler, include=(), libraries=stubs, exports=(), identity=entry.name
        )

    def complete(self, toolkit, taken, entry, environ):
        pass

    def is_part(self, component, artefact):
        return artefact.name == component.name

    def where_else(self, toolkit, labels, silent):
        return f"install {toolkit}, and let TOY_HOME name it"

    def installed(self, environ, settings):
        return ()

    def devices(self, environ):
        return ()


class Toy:
    toolkit = ToyToolkit()
    has_torchs_own_headers = False

    def supported(self, toolkit, table):
        return ("t1", "t2")

    def select(self, requested, supported):
        wanted = supported if requested is None else requested
        return Selected(
            effective=tuple(one for one in wanted if one in supported),
            dropped=tuple(one for one in wanted if one not in supported),
        )

    def unknown(self, effective, toolkit):
        return ()

    def compile(self, context, unit, flags):
        """Device code for each chip, all of it in one bundle, and the bundle into an object."""
        if unit.language != "toy":
            action = host_action(context, unit, ("TOY_KERNEL",), flags)
            return UnitActions(actions=(action,), objects=action.outputs)
        word, layout = context.places.word, context.layout
        toycc = Tool(name="toycc", path=context.toolkit.compiler, digest=context.toolkit.identity)
        base = layout.object_for(unit.source)

        def action(kind, command, inputs, outputs, chip=None):
            return Action(
                id=action_id(context.variant, kind, unit.source, chip),
                kind=kind,
                variant=context.variant,
                source=unit.source,
                steps=(Step(command=command, writes=outputs),),
                inputs=inputs,
                outputs=outputs,
                log=word(layout.log_for(f"{unit.source}.{kind}.{chip or 'all'}")),
                memory=1 << 28,
                tools=(toycc, context.cxx),
                trees=context.trees(),
                architecture=chip,
            )

        source = word(layout.root / unit.source)
        devices = []
        for chip in unit.architectures:
            code, notes = (word(base.with_name(f"{base.name}.{chip}.{end}")) for end in ("code", "notes"))
            command = (tool_word(toycc), "device", chip, source, code, notes, *map(literal, flags))
            devices.append(action(ActionKind.DEVICE, command, (source,), (code, notes), chip))
        bundle = word(base.with_name(f"{base.name}.c"))
        codes = tuple(device.outputs[0] for device in devices)
        put = action(ActionKind.BUNDLE, (tool_word(toycc), "bundle", bundle, *codes), codes, (bundle,))
        target = word(base)
        command = (tool_word(context.cxx), "-x", "c", "-fPIC", "-c", bundle, "-o", target)
        compiled = action(ActionKind.COMPILE, command, (bundle,), (target,))
        return UnitActions(actions=(*devices, put, compiled), objects=(target,))


RULES = Toy()
