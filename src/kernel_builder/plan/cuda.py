"""The cuda backend: ``.cu`` with nvcc, everything else with the host compiler, for which nvcc is the driver's peer.

Reference: interoperability contract 2.7 (capabilities) and 3.5 (definitions, flags); corpus edge cases 7 and 8.
"""

from __future__ import annotations

from kernel_builder.config.model import Capability, Suffix
from kernel_builder.plan import compile as common
from kernel_builder.plan.compile import GIB, Context, cxx_flags, definitions, host_code_flags, host_step, includes
from kernel_builder.plan.model import Step
from kernel_builder.plan.units import Language, Unit
from kernel_builder.toolchain.model import CudaSdk
from kernel_builder.versions import Version

DEFINITIONS = ("CUDA_KERNEL", "USE_CUDA=1")
"""Interoperability contract 3.5."""

_NVCC_MEMORY = int(1.5 * GIB)

# What torch's own build gives nvcc, so that kernels written against it compile: without the four macros
# __CUDA_NO_HALF_OPERATORS__, __CUDA_NO_HALF_CONVERSIONS__, __CUDA_NO_HALF2_OPERATORS__ and
# __CUDA_NO_BFLOAT16_CONVERSIONS__, which the reference takes out too.
_TORCH_FLAGS = (
    "--expt-extended-lambda",
    "--expt-relaxed-constexpr",
    "-DONNX_NAMESPACE=onnx_c2",
    "-DENABLE_FP8",
)
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


def _usable_flags(flags: tuple[str, ...], cuda: CudaSdk) -> tuple[str, ...]:
    if Version.parse(cuda.version) >= _TEMPLATE_STUB_SINCE:
        return flags
    return tuple(flag for flag in flags if not flag.lstrip("-").startswith(_TEMPLATE_STUB_FLAG.lstrip("-")))


def compile_step(context: Context, unit: Unit, flags: tuple[str, ...]) -> Step:
    """The step that compiles ``unit``, with the user's ``flags``."""
    cuda = context.toolchain.cuda
    if cuda is None or unit.language is not Language.CUDA:
        return host_step(context, unit, DEFINITIONS, flags)
    compiler = [str(cuda.nvcc), "-ccbin", str(context.toolchain.host.cxx), f"-std=c++{context.cxx_standard}"]
    options = [
        # Flags that only the host compiler knows may stand in cuda-flags, as they may under CMake.
        "-forward-unknown-to-host-compiler",
        *(f"-Xcompiler={flag}" for flag in (*host_code_flags(context), *cxx_flags(context))),
        *_TORCH_FLAGS,
        *(word for name in _SUPPRESSED for word in ("-Xcudafe", f"--diag_suppress={name}")),
        *gencode(unit.capabilities),
        *definitions(context, unit.source, DEFINITIONS),
        *includes(context, unit, cuda.include),
        *_usable_flags(flags, cuda),
    ]
    return common.compile_step(context, unit, compiler, options, memory=_NVCC_MEMORY)
