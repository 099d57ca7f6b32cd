"""How CUDA kernels are compiled: ``.cu`` with nvcc, everything else with the host compiler.

Reference: interoperability contract 2.7 (capabilities) and 3.5 (definitions, flags); corpus edge cases 7 and 8.
"""

from __future__ import annotations

from kernel_builder.actions.build_flags import of_the_host, optimizing, overriding
from kernel_builder.actions.context import Context
from kernel_builder.actions.host import (
    GIB,
    compile_action,
    cxx_flags,
    definitions,
    host_action,
    host_code_flags,
    includes,
)
from kernel_builder.actions.model import Action, Threads, Tool
from kernel_builder.actions.places import literal, tool_word
from kernel_builder.actions.units import Unit
from kernel_builder.backends.cuda.driver import UnknownStepError
from kernel_builder.backends.cuda.passes import split_actions
from kernel_builder.backends.protocol import Selected, UnitActions
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import capabilities_of, select_capabilities
from kernel_builder.config.model import Architecture, Capability, Suffix
from kernel_builder.toolchain.model import ToolkitSdk
from kernel_builder.variants.build_type import Debug
from kernel_builder.variants.support import SupportTable
from kernel_builder.versions import Version

BACKEND = Backend("cuda")
_KERNEL, _OF_TORCH = "CUDA_KERNEL", "USE_CUDA=1"
"""What is defined for every kernel, and for those of torch alone. Interoperability contract 3.5."""

_NVCC_MEMORY = int(1.5 * GIB)

# What torch's own build gives nvcc, so that kernels written against it compile: without the four macros
# __CUDA_NO_HALF_OPERATORS__, __CUDA_NO_HALF_CONVERSIONS__, __CUDA_NO_HALF2_OPERATORS__ and
# __CUDA_NO_BFLOAT16_CONVERSIONS__, which the reference takes out too.
_DIALECT = ("--expt-extended-lambda", "--expt-relaxed-constexpr")
_TORCH_MACROS = ("-DONNX_NAMESPACE=onnx_c2", "-DENABLE_FP8")
_SUPPRESSED = (
    "cc_clobber_ignored",
    "field_without_dll_interface",
    "base_class_has_different_dll_interface",
    "dll_interface_conflict_none_assumed",
    "dll_interface_conflict_dllexport_assumed",
    "bad_friend_decl",
)
_TEMPLATE_STUB_FLAG = "-static-global-template-stub"
_TEMPLATE_STUB_SINCE = Version.parse("12.8")


def gencode(capabilities: tuple[Capability, ...]) -> list[str]:
    """Explicit architectures for nvcc: with none it would quietly build for one old chip (case T5).

    A plain ``10.0`` beside ``10.0f`` is left out: it is the same code, and nvcc refuses to make it twice. Raises
    ``ValueError`` for an empty list.
    """
    if not capabilities:
        raise ValueError("nvcc must be given at least one architecture")
    families = {(entry.major, entry.minor) for entry in capabilities if entry.suffix is Suffix.FAMILY}
    capabilities = tuple(
        entry
        for entry in capabilities
        if entry.suffix is not Suffix.NONE or entry.ptx or (entry.major, entry.minor) not in families
    )
    options: list[str] = []
    for capability in capabilities:
        number = capability.number
        options.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if capability.ptx:
            options.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return options


def _usable_flags(flags: tuple[str, ...], toolkit: ToolkitSdk) -> tuple[str, ...]:
    if Version.parse(toolkit.toolkit.version) >= _TEMPLATE_STUB_SINCE:
        return flags
    return tuple(flag for flag in flags if not flag.lstrip("-").startswith(_TEMPLATE_STUB_FLAG.lstrip("-")))


def _definitions(context: Context) -> tuple[str, ...]:
    return (_KERNEL, _OF_TORCH) if context.is_for_torch else (_KERNEL,)


def _options(context: Context, toolkit: ToolkitSdk, unit: Unit, flags: tuple[str, ...]) -> tuple[str, ...]:
    """What nvcc is told besides its source and what to do with it."""
    return (
        f"-std=c++{context.cxx_standard}",
        *optimizing(context.build_type),
        # Flags that only the host compiler knows may stand in cuda-flags, as they may under CMake.
        "-forward-unknown-to-host-compiler",
        *(f"-Xcompiler={flag}" for flag in (*host_code_flags(context), *cxx_flags(context))),
        *_DIALECT,
        *(_TORCH_MACROS if context.is_for_torch else ()),
        *(word for name in _SUPPRESSED for word in ("-Xcudafe", f"--diag_suppress={name}")),
        *gencode(capabilities_of(unit.architectures)),
        *definitions(context, unit.source, _definitions(context)),
        *includes(context, unit, toolkit.include),
        *map(literal, _usable_flags(flags, toolkit)),
        *_traced(context),
    )


def _traced(context: Context) -> tuple[str, ...]:
    """What a build that is no release adds, after the project's own flags."""
    build_type = context.build_type
    lines = {None: (), Debug.LINES: ("-lineinfo",), Debug.FULL: ("-G",)}[build_type.device_lines]
    return (*overriding(build_type), *lines, *(f"-Xcompiler={flag}" for flag in of_the_host(build_type)))


def _nvcc_action(context: Context, toolkit: ToolkitSdk, unit: Unit, options: tuple[str, ...]) -> Action:
    """nvcc drives its own steps, one architecture after the other, or as many at once as the engine allows."""
    nvcc = Tool(name="nvcc", path=toolkit.compiler, digest=toolkit.identity)
    # In the environment, not in the command: the number of jobs must not make anything out of date.
    most = len(gencode(capabilities_of(unit.architectures)))
    threads = Threads(variable="NVCC_APPEND_FLAGS", value="--threads {count}", most=most)
    compiler = [tool_word(nvcc), "-ccbin", tool_word(context.cxx)]
    return compile_action(
        context, unit, compiler, options, tools=(nvcc, context.cxx), memory=_NVCC_MEMORY, threads=threads
    )


class CudaCompiler:
    """The compile half of :class:`~kernel_builder.backends.protocol.BackendRules`."""

    def supported(self, toolkit: ToolkitSdk | None, table: SupportTable) -> tuple[Architecture, ...]:
        """The capabilities that the support table lists for this toolkit."""
        if toolkit is None:
            return ()
        return table.default_architectures(toolkit.toolkit.backend, Version.parse(toolkit.toolkit.version))

    def select(self, requested: tuple[Architecture, ...] | None, supported: tuple[Architecture, ...]) -> Selected:
        """See :func:`~kernel_builder.config.capabilities.select_capabilities`."""
        wanted = None if requested is None else capabilities_of(requested)
        selection = select_capabilities(wanted, capabilities_of(supported))
        return Selected(effective=selection.effective, dropped=selection.dropped)

    def unknown(self, effective: tuple[Architecture, ...], toolkit: ToolkitSdk) -> tuple[Architecture, ...]:
        """Those without a code that nvcc itself lists. It does not list the variants of one, such as sm_90a."""
        known = toolkit.known_codes()
        if known is None:
            return ()
        return tuple(one for one in capabilities_of(effective) if f"sm_{one.major}{one.minor}" not in known)

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """The steps of nvcc where it is at hand and they are known, else nvcc itself."""
        toolkit = context.toolkit
        if toolkit is None or unit.language != BACKEND.value:
            action = host_action(context, unit, _definitions(context), flags)
            return UnitActions(actions=(action,), objects=action.outputs)
        options = _options(context, toolkit, unit, flags)
        notes: tuple[str, ...] = ()
        if toolkit.compiler.is_file():
            try:
                return split_actions(context, toolkit, unit, options)
            except UnknownStepError as error:
                notes = (f"{toolkit.toolkit}: nvcc runs its steps itself, one after the other: {error}",)
        action = _nvcc_action(context, toolkit, unit, options)
        return UnitActions(actions=(action,), objects=action.outputs, notes=notes)
