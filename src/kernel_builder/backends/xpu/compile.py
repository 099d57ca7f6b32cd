"""How SYCL kernels are compiled: the C++ of kernel sections with icpx, everything else with the host compiler.

An object of icpx holds code for the processor, and for GPUs what is not linked yet. ``icpx -fsycl-link`` links the
latter of all objects, and compiles it ahead of time; what that makes is one more object for the host's linker, as in
torch's own build. So the library is linked as that of every other backend.

Reference: interoperability contract 1.6 (sycl_tla), 2.9 (targets) and 3.5 (definitions, flags).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_builder.actions.build_flags import optimizing, overriding, traced
from kernel_builder.actions.context import Context
from kernel_builder.actions.host import (
    CLANG_ABI,
    GIB,
    compile_action,
    definitions,
    host_action,
    host_code_flags,
    includes,
)
from kernel_builder.actions.model import Action, ActionKind, Step, Tool, action_id
from kernel_builder.actions.places import literal, tool_word
from kernel_builder.actions.units import CXX, Unit
from kernel_builder.backends.protocol import NOTHING, NoArchitectures, UnitActions
from kernel_builder.toolchain.model import Family, ToolkitSdk
from kernel_builder.versions import Version

DEFINITIONS, TORCH_DEFINITIONS = ("XPU_KERNEL",), ("USE_XPU",)
"""Interoperability contract 3.5."""

_MEMORY = 3 * GIB
_LINK_MEMORY = 4 * GIB

_FLOATING_POINT = (
    # icpx takes the liberties of -ffast-math unless it is told not to.
    "-fhonor-nans",
    "-fhonor-infinities",
    "-fno-associative-math",
    "-fno-approx-func",
    "-foffload-fp32-prec-div",
    "-foffload-fp32-prec-sqrt",
)
_COMPILE = (
    "-fsycl",
    *_FLOATING_POINT,
    "-fno-sycl-instrument-device-code",
    "--offload-compress",
    # The host's linker links the library: it knows nothing of Intel's own C and mathematics libraries.
    "-no-intel-lib",
)
_DEVICES = "pvc,xe-lpg,ats-m150"
_BACKEND_OPTIONS = (
    "-cl-poison-unsupported-fp64-kernels",
    "-cl-intel-enable-auto-large-GRF-mode",
    "-cl-intel-greater-than-4GB-buffer-required",
)

_TLA = "sycl-tla"
_TLA_DEFINITIONS = (
    "CUTLASS_ENABLE_SYCL=1",
    "SYCL_INTEL_TARGET=1",
    "DPCPP_SYCL_TARGET=intel_gpu_bmg_g21,intel_gpu_pvc",
)
_TLA_EXTENSIONS = (
    "-Xspirv-translator",
    "-spirv-ext=+SPV_INTEL_split_barrier,+SPV_INTEL_2d_block_io,+SPV_INTEL_subgroup_matrix_multiply_accumulate",
)
"""The extensions of SPIR-V that its kernels use (intel/sycl-tla and torch-xpu-ops pass them so)."""
_TLA_AHEAD_OF_TIME = Version.parse("2026.0")
_NEXT_GPU = "__SYCL_TARGET_INTEL_GPU_CRI__"
"""Projects that define it in ``sycl-flags`` want code for that GPU alone."""


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What device code is made for: the compiler's targets, and the GPUs that ``spir64_gen`` stands for."""

    names: tuple[str, ...]
    devices: str = ""

    @property
    def option(self) -> str:
        """For compiling as for linking."""
        return f"-fsycl-targets={','.join(self.names)}"

    @property
    def backends(self) -> tuple[str, ...]:
        """What the compilers behind the targets are told when device code is linked: ocloc ahead of time, or the driver
        on the user's machine.
        """
        ahead = " ".join([f"-device {self.devices}", *(f"-options {option}" for option in _BACKEND_OPTIONS)])
        told = {"spir64_gen": ahead, "spir64": " ".join(_BACKEND_OPTIONS)}
        pairs = ((f"-Xsycl-target-backend={name}", told[name]) for name in self.names if name in told)
        return tuple(word for pair in pairs for word in pair)


def targets_of(units: tuple[Unit, ...], version: Version) -> Targets:
    """The targets of a library that is made of ``units`` with the compiler ``version``: they share one link."""
    if not any(_uses_tla(unit) for unit in units):
        return Targets(names=("spir64_gen", "spir64"), devices=_DEVICES)
    if version < _TLA_AHEAD_OF_TIME:
        return Targets(names=("spir64",))
    if any(_NEXT_GPU in flag for unit in units for flag in unit.flags):
        return Targets(names=("intel_gpu_pvc", "intel_gpu_bmg_g21", "spir64_gen", "spir64"), devices="cri")
    return Targets(names=("spir64_gen", "spir64"), devices="pvc,bmg-g21,cri")


def _uses_tla(unit: Unit) -> bool:
    return any(library.library == _TLA for library in unit.libraries)


def is_sycl(unit: Unit) -> bool:
    """Whether icpx compiles ``unit``. C has no SYCL, and bindings hold no kernels."""
    return unit.language == CXX and not unit.is_binding


def _targets(context: Context, toolkit: ToolkitSdk) -> Targets:
    """What all of its objects are compiled for, and linked for."""
    return targets_of(tuple(filter(is_sycl, context.units)), Version.parse(toolkit.toolkit.version))


def _icpx(context: Context, toolkit: ToolkitSdk) -> Tool:
    return context.clang_of("icpx", toolkit)


def _definitions(context: Context) -> tuple[str, ...]:
    return DEFINITIONS + (TORCH_DEFINITIONS if context.is_for_torch else ())


class SyclCompiler(NoArchitectures):
    """The compile half of :class:`~kernel_builder.backends.protocol.BackendRules`. The list of targets is the same for
    every kernel (contract 2.9).
    """

    def before(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:  # noqa: ARG002
        """See :class:`~kernel_builder.backends.protocol.MakesForAll`."""
        return NOTHING

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """One action: of icpx, which compiles for the processor and for GPUs, or of the host compiler."""
        toolkit = context.toolkit
        if toolkit is None or not is_sycl(unit):
            action = host_action(context, unit, _definitions(context), flags)
            return UnitActions(actions=(action,), objects=action.outputs)
        icpx = _icpx(context, toolkit)
        action = compile_action(
            context,
            unit,
            [tool_word(icpx), "-x", "c++", f"-std=c++{context.cxx_standard}"],
            [
                *optimizing(context.build_type),
                *host_code_flags(context, Family.CLANG),
                CLANG_ABI,
                *_COMPILE,
                _targets(context, toolkit).option,
                *definitions(
                    context, unit.source, _definitions(context) + (_TLA_DEFINITIONS if _uses_tla(unit) else ())
                ),
                *includes(context, unit, toolkit.include),
                *map(literal, (*flags, *unit.flags)),
                *overriding(context.build_type),
                *traced(context.build_type),
            ],
            tools=(icpx,),
            memory=_MEMORY,
        )
        return UnitActions(actions=(action,), objects=action.outputs)

    def after(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:
        """The link of device code, which all objects of icpx share. It is compiled ahead of time here."""
        toolkit, layout, word = context.toolkit, context.layout, context.places.word
        own = tuple(unit for unit in units if is_sycl(unit))
        if toolkit is None or not own:
            return NOTHING
        icpx = _icpx(context, toolkit)
        targets = _targets(context, toolkit)
        objects = tuple(word(layout.object_for(unit.source)) for unit in own)
        made = word(layout.variant / "obj" / "kernel-builder-device.o")
        command = (
            tool_word(icpx),
            "-fsycl",
            "-fsycl-link",
            "-fPIC",
            "--offload-compress",
            "-foffload-fp32-prec-div",
            "-foffload-fp32-prec-sqrt",
            targets.option,
            *targets.backends,
            *(_TLA_EXTENSIONS if any(map(_uses_tla, own)) else ()),
            *objects,
            "-o",
            made,
        )
        action = Action(
            id=action_id(context.variant, ActionKind.BUNDLE, "device code"),
            kind=ActionKind.BUNDLE,
            variant=context.variant,
            source="device code",
            steps=(Step(command=command, writes=(made,)),),
            inputs=objects,
            outputs=(made,),
            log=word(layout.log_for("device-code")),
            memory=_LINK_MEMORY,
            tools=(icpx,),
            trees=context.trees_named("toolkit"),
        )
        return UnitActions(actions=(action,), objects=action.outputs)
