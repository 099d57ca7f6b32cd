"""How ROCm kernels are compiled: ``.cu`` is made HIP by torch's own hipify, which with ``.hip`` goes to ROCm's clang;
everything else to the host compiler.

What clang's driver does one after the other are actions here: code for each architecture, the bundle of these, and the
host's half with the bundle in it. They run side by side, and what is made for one architecture serves every build.
Reference: interoperability contract 2.8 (architectures) and 3.5 (definitions, flags); LLVM, "Clang Offload Bundler" and
"HIP Support".
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernel_builder.actions.build_flags import optimizing, overriding, traced
from kernel_builder.actions.context import Context
from kernel_builder.actions.host import (
    CLANG_ABI,
    GIB,
    HEAVY_MEMORY,
    definitions,
    host_action,
    host_code_flags,
    includes,
)
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, action_id
from kernel_builder.actions.places import literal, tool_word
from kernel_builder.actions.slim import slim_compile, slim_device, words_of_slim
from kernel_builder.actions.units import HOST_LANGUAGES, Unit, suffix_of
from kernel_builder.backends.protocol import NOTHING, Selected, UnitActions
from kernel_builder.backends.rocm import hipify
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import Architecture
from kernel_builder.toolchain.model import Family, ToolkitSdk
from kernel_builder.variants.support import SupportTable
from kernel_builder.versions import Version

BACKEND = Backend("rocm")
DEFINITIONS = ("ROCM_KERNEL", "USE_ROCM=1", "__HIP_PLATFORM_AMD__=1", "HIPBLAS_V2")
"""Interoperability contract 3.5, and what torch's headers and HIP's ask for on every host compiler."""
HIPIFIED = ".cu"
"""The suffix of sources that are made HIP first."""
MIRROR = "hipified"
"""The directory of a variant's work directory with what hipify made, laid out as the project is."""
BUNDLER = "clang-offload-bundler"

# What torch's own build gives HIP's compiler, so that kernels written against it compile.
_DEVICE = ("CUDA_HAS_FP16=1", "HIP_ENABLE_WARP_SYNC_BUILTINS=1", "ENABLE_FP8")
_UNDEFINED = ("__HIP_NO_HALF_CONVERSIONS__", "__HIP_NO_HALF_OPERATORS__")
_HOST_TARGET, _DEVICE_TARGET = "host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--"
_MEMORY = int(1.5 * GIB)
_SMALL = 1 << 28
_COMPRESS, _PLAIN = {"--offload-compress", "-offload-compress"}, {"--no-offload-compress", "-no-offload-compress"}


class RocmCompiler:
    """The compile half of :class:`~kernel_builder.backends.protocol.BackendRules`."""

    def supported(self, toolkit: ToolkitSdk | None, table: SupportTable) -> tuple[Architecture, ...]:
        """The architectures that the support table lists, as far as the compiler, once it is there, knows them."""
        if toolkit is None:
            return ()
        known = toolkit.known_codes()
        listed = table.default_architectures(BACKEND, Version.parse(toolkit.toolkit.version))
        return tuple(one for one in listed if known is None or str(one) in known)

    def select(self, requested: tuple[Architecture, ...] | None, supported: tuple[Architecture, ...]) -> Selected:
        """What is in both lists, in the order of strings (interoperability contract 2.8)."""
        wanted = supported if requested is None else requested
        return Selected(
            effective=tuple(sorted({one for one in wanted if one in supported}, key=str)),
            dropped=tuple(dict.fromkeys(one for one in wanted if one not in supported)),
        )

    def unknown(self, effective: tuple[Architecture, ...], toolkit: ToolkitSdk) -> tuple[Architecture, ...]:
        """Those that clang does not list."""
        known = toolkit.known_codes()
        return () if known is None else tuple(one for one in effective if str(one) not in known)

    def before(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:
        """Make HIP of the sources that are CUDA, and of the project's files that these may include."""
        if context.toolkit is None or not any(map(_is_hipified, units)):
            return NOTHING
        return UnitActions(actions=(_hipify_action(context, units),), objects=())

    def after(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:  # noqa: ARG002
        """Nothing."""
        return NOTHING

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """An action of the host compiler; for a device's source, those that make its object."""
        toolkit = context.toolkit
        if toolkit is None or unit.language != BACKEND.value:
            action = host_action(context, unit, DEFINITIONS, flags)
            return UnitActions(actions=(action,), objects=action.outputs)
        return _Source(context, toolkit, unit, flags).actions()


def _is_hipified(unit: Unit) -> bool:
    return unit.language == BACKEND.value and suffix_of(unit.source) == HIPIFIED


def _mirror(context: Context) -> Path:
    return context.layout.variant / MIRROR


def _hipify_action(context: Context, units: tuple[Unit, ...]) -> Action:
    """One for all sources: they share headers, and starting Python takes longer than the work."""
    word, layout, torch = context.places.word, context.layout, context.toolchain.framework
    own = [unit.source for unit in units if _is_hipified(unit)]
    # What a source of the host may include is its own affair, and so is what only another backend can compile.
    foreign = {suffix for other in Backend for suffix in other.sources} - set(BACKEND.sources)
    foreign |= set(HOST_LANGUAGES)
    others = {unit.source for unit in units} | {path for path in context.included if suffix_of(path) in foreign}
    files = sorted({*own, *(path for path in context.included if path not in others)})
    sources = tuple(word(layout.root / path) for path in files)
    made = tuple(word(_mirror(context) / path) for path in files)
    tools = (
        # Which Python runs it decides nothing.
        Tool(name="python", path=Path(sys.executable), digest="runs hipify"),
        Tool(name="hipify", path=Path(hipify.__file__), digest=hipify.VERSION),
    )
    package = context.word((torch.package or torch.include[0].parent) / "utils" / "hipify")
    command = (tool_word(tools[0]), "-I", "-B", tool_word(tools[1]), package, "{project}", word(_mirror(context)))
    return Action(
        id=action_id(context.variant, ActionKind.TRANSLATE, "(hipify)"),
        kind=ActionKind.TRANSLATE,
        variant=context.variant,
        source=own[0] if len(own) == 1 else f"{len(own)} sources",
        steps=(Step(command=(*command, *map(literal, files)), writes=made),),
        inputs=sources,
        outputs=made,
        log=word(layout.log_for("hipify")),
        memory=_SMALL,
        tools=tools,
        trees=context.trees_named(torch.kind.value),
    )


class _Source:
    """The actions that make the object of one source."""

    def __init__(self, context: Context, toolkit: ToolkitSdk, unit: Unit, flags: tuple[str, ...]) -> None:
        self._context, self._unit, self._flags = context, unit, flags
        word = context.places.word
        root = _mirror(context) if _is_hipified(unit) else context.layout.root
        self._text = word(root / unit.source)
        self._target = context.layout.object_for(unit.source)
        self._folder = self._target.with_name(f"{self._target.name}.steps")
        self._clang = context.clang_of("hip-clang", toolkit)
        self._bundler = Tool(name="bundler", path=toolkit.compiler.with_name(BUNDLER), digest=toolkit.identity)
        self._architectures = tuple(map(str, unit.architectures))
        self._slim = words_of_slim(context, unit.source)
        # Once for all architectures: there are many words in it.
        self._options = {slim: _options(context, toolkit, unit, flags, slim) for slim in {(), self._slim}}

    def actions(self) -> UnitActions:
        devices = tuple(map(self._device, self._architectures))
        bundle = self._bundle(tuple(device.outputs[0] for device in devices))
        host = self._host(bundle.outputs[0])
        return UnitActions(actions=(*devices, bundle, host), objects=host.outputs)

    def _device(self, architecture: str) -> Action:
        """Code for one architecture, linked: an ELF file of its own."""
        made = self._context.places.word(self._folder / f"{PurePosixPath(self._unit.source).stem}.{architecture}.co")
        only = ("--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={architecture}")
        return self._compile(ActionKind.DEVICE, only, made, architecture=architecture)

    def _host(self, bundle: str) -> Action:
        """The host's half, with the bundle in it."""
        first = f"--offload-arch={self._architectures[0]}"  # or else clang looks for a device of this machine
        only = ("--cuda-host-only", first, "-Xclang", "-fcuda-include-gpubinary", "-Xclang", bundle)
        return self._compile(ActionKind.COMPILE, only, self._context.places.word(self._target), given=(bundle,))

    def _compile(
        self,
        kind: ActionKind,
        only: tuple[str, ...],
        made: str,
        *,
        given: tuple[str, ...] = (),
        architecture: str | None = None,
    ) -> Action:
        context, unit, word = self._context, self._unit, self._context.places.word
        log = context.layout.log_for(unit.source if architecture is None else f"{unit.source}.{architecture}")
        depfile = word(log.with_suffix(".d"))
        # For a device, clang's driver passes on what is asked of dependency files, but not where they go.
        lists = ("-sys-header-deps", "-dependency-file", depfile, "-MT", made)
        listed: tuple[str, ...] = ("-MD", "-MF", depfile, "-MQ", made)
        if architecture is not None:
            listed = tuple(one for text in lists for one in ("-Xclang", text))
        common = (tool_word(self._clang), "-x", "hip", *only, "-c", self._text, "-o", made, *listed)

        def compiled(slim: tuple[str, ...]) -> Step:
            return Step(command=(*common, *self._options[slim]), writes=(made,))

        full = Action(
            id=action_id(context.variant, kind, unit.source, architecture),
            kind=kind,
            variant=context.variant,
            source=unit.source,
            steps=(compiled(()),),
            inputs=(self._text, *given),
            outputs=(made,),
            depfile=depfile,
            log=word(log),
            memory=HEAVY_MEMORY if unit.source in context.heavy else _MEMORY,
            tools=(self._clang,),
            trees=context.trees(*(library.name for library in unit.libraries)),
            architecture=architecture,
        )
        if not self._slim:
            return full
        if architecture is None:
            return slim_compile(context, full, replace(full, steps=(compiled(self._slim),)))
        return slim_device(context, full, compiled(self._slim))

    def _bundle(self, codes: tuple[str, ...]) -> Action:
        """All code in one file, as clang's driver would bundle it. The host has an empty part in it."""
        context, unit, word = self._context, self._unit, self._context.places.word
        made = word(self._folder / f"{PurePosixPath(unit.source).stem}.hipfb")
        targets = [_HOST_TARGET, *(f"{_DEVICE_TARGET}{one}" for one in self._architectures)]
        asked = [flag for flag in self._flags if flag in _COMPRESS | _PLAIN]
        command = (
            tool_word(self._bundler),
            "-type=o",
            "-bundle-align=4096",
            f"-targets={','.join(targets)}",
            "-input=/dev/null",
            *(f"-input={code}" for code in codes),
            f"-output={made}",
            *(["-compress"] if asked and asked[-1] in _COMPRESS else []),
        )
        return Action(
            id=action_id(context.variant, ActionKind.BUNDLE, unit.source),
            kind=ActionKind.BUNDLE,
            variant=context.variant,
            source=unit.source,
            steps=(Step(command=command, writes=(made,), reads=codes),),
            inputs=codes,
            outputs=(made,),
            log=word(context.layout.log_for(f"{unit.source}.bundle")),
            memory=_SMALL,
            tools=(self._bundler,),
            trees=context.trees_named("toolkit"),
        )


def _options(
    context: Context, toolkit: ToolkitSdk, unit: Unit, flags: tuple[str, ...], slim: tuple[str, ...]
) -> tuple[str, ...]:
    """What clang is told besides its source and what to do with it; ``slim`` are the words for slim headers."""
    # Names of what is local to a file hold it; by itself, clang makes it of the whole path.
    cuid = hashlib.sha256(unit.source.encode()).hexdigest()[:16]
    return (
        f"-std=c++{context.cxx_standard}",
        *optimizing(context.build_type),
        "-fno-gpu-rdc",
        f"-cuid={cuid}",
        *host_code_flags(context, Family.CLANG),
        CLANG_ABI,
        # Of one command, clang's passes use a part each.
        "-Wno-unused-command-line-argument",
        *definitions(context, unit.source, (*DEFINITIONS, *_DEVICE)),
        *(f"-U{name}" for name in _UNDEFINED),
        *slim,
        *_includes(context, toolkit, unit),
        *map(literal, (flag for flag in flags if flag not in _COMPRESS | _PLAIN)),
        *overriding(context.build_type),
        *traced(context.build_type),
    )


def _includes(context: Context, toolkit: ToolkitSdk, unit: Unit) -> list[str]:
    """The directories of headers: before each of the project's, for a hipified source, the one in its mirror."""
    words = includes(context, unit, toolkit.include)
    if not _is_hipified(unit):
        return words
    mirror = context.places.word(_mirror(context))
    found: list[str] = []
    for text in words:
        if text == "-I{project}" or text.startswith("-I{project}/"):
            found.append(f"-I{mirror}{text.removeprefix('-I{project}')}")
        found.append(text)
    return found
