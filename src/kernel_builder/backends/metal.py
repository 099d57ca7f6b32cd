"""The metal backend: shaders with Apple's Metal compiler, everything else with Apple's clang.

All shaders become one library, which is put into the kernel's as data. Sources reach it by a header that the reference
names: it is plain text, so nobody waits for the shaders.

Reference: interoperability contract 2.9 (language and macOS) and 3.5 (definitions, the header).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_builder.actions.build_flags import optimizing
from kernel_builder.actions.context import Context
from kernel_builder.actions.host import (
    GIB,
    apple_target,
    apple_trees,
    compile_action,
    definitions,
    host_action,
    host_code_flags,
    includes,
    own_flags,
)
from kernel_builder.actions.model import Action, ActionKind, GeneratedFile, Step, Tool, action_id
from kernel_builder.actions.places import tool_word
from kernel_builder.actions.units import Unit, suffix_of
from kernel_builder.backends.protocol import NOTHING, NoArchitectures, UnitActions
from kernel_builder.config.backends import Backend
from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.model import AppleSdk

BACKEND = Backend("metal")
_SHADER = ".metal"
_OBJECTIVE = {".mm": ("objective-c++", True), ".m": ("objective-c", False)}
_LANGUAGE = "-std=metal4.0"
_MEMORY = GIB // 2
_CXX_MEMORY = int(1.5 * GIB)

_HEADER = """\
// The Metal library of this kernel, which is part of its own. Written by kernel-builder.
#pragma once

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dispatch/dispatch.h>

extern "C" const unsigned char kernel_builder_metallib[];
extern "C" const unsigned char kernel_builder_metallib_end[];

namespace {namespace} {{

// A new library out of the embedded data, or nil and the reason in `error`. The caller releases it.
static inline id<MTLLibrary> createLibrary(id<MTLDevice> device, NSError **error) {{
  dispatch_data_t data = dispatch_data_create(
      kernel_builder_metallib, static_cast<size_t>(kernel_builder_metallib_end - kernel_builder_metallib),
      dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0), ^{{
      }});
  return [device newLibraryWithData:data error:error];
}}

}} // namespace {namespace}
"""
_ASSEMBLY = """\
    .section __TEXT,__const
    .private_extern _kernel_builder_metallib
    .private_extern _kernel_builder_metallib_end
    .p2align 4
_kernel_builder_metallib:
    .incbin "{library}"
_kernel_builder_metallib_end:
    .byte 0
"""


def _is_shader(unit: Unit) -> bool:
    return suffix_of(unit.source) == _SHADER


def _sdk(context: Context) -> AppleSdk:
    if context.toolchain.sdk is None:
        raise ToolchainError(f"{BACKEND.label} kernels are compiled with Apple's SDK for macOS, which is not installed")
    return context.toolchain.sdk


def _program(path: Path | None, name: str, sdk: AppleSdk) -> Tool:
    if path is None:
        raise ToolchainError(
            f"Xcode is installed without its Metal compiler: xcrun finds no {name}",
            hint="run: xcodebuild -downloadComponent MetalToolchain",
        )
    return Tool(name=name, path=path, digest=sdk.identity)


class Metal(NoArchitectures):
    """See :class:`~kernel_builder.backends.protocol.BackendRules`. Machine code is made by the driver,
    of what the Metal compiler makes.
    """

    toolkit = None
    has_torchs_own_headers = False

    def before(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:
        """The shaders' library as an object, and the header by which sources reach it."""
        shaders = [unit for unit in units if _is_shader(unit)]
        if not shaders:
            return NOTHING
        layout, word = context.layout, context.places.word
        compiled = [_shader_action(context, unit) for unit in shaders]
        library = layout.variant / "obj" / "kernel-builder.metallib"
        assembly = layout.variant / "generated" / "metallib.S"
        target = layout.variant / "obj" / "kernel-builder-metallib.o"
        linked = _library_action(context, [action.outputs[0] for action in compiled], library)
        command = (
            tool_word(context.cxx),
            *apple_target(context),
            *("-x", "assembler", "-c", word(assembly), "-o", word(target)),
            *("-I", word(library.parent)),
        )
        embedded = Action(
            id=action_id(context.variant, ActionKind.COMPILE, library.name),
            kind=ActionKind.COMPILE,
            variant=context.variant,
            source=library.name,
            steps=(Step(command=command, writes=(word(target),)),),
            inputs=(word(assembly),),
            implicit=(word(library),),
            outputs=(word(target),),
            log=word(layout.log_for("embed-metallib")),
            memory=_MEMORY,
            tools=(context.cxx,),
            trees=apple_trees(context),
        )
        header = layout.refused.parent / _header_name(context)
        return UnitActions(
            actions=(*compiled, linked, embedded),
            objects=embedded.outputs,
            generated=(
                GeneratedFile(path=word(header), content=_HEADER.format(namespace=_namespace(context))),
                GeneratedFile(path=word(assembly), content=_ASSEMBLY.format(library=library.name)),
            ),
        )

    def compile(self, context: Context, unit: Unit, flags: tuple[str, ...]) -> UnitActions:
        """One action of Apple's clang; shaders were compiled before."""
        suffix = suffix_of(unit.source)
        if suffix == _SHADER:
            return NOTHING
        defined = (
            "METAL_KERNEL",
            f'EMBEDDED_METALLIB_HEADER="{_header_name(context)}"',
            f"EMBEDDED_METALLIB_NAMESPACE={_namespace(context)}",
        )
        if suffix not in _OBJECTIVE:
            action = host_action(context, unit, defined, flags)
            return UnitActions(actions=(action,), objects=action.outputs)
        language, is_cxx = _OBJECTIVE[suffix]
        options = [
            *optimizing(context.build_type),
            *host_code_flags(context),
            *definitions(context, unit.source, defined),
            *includes(context, unit),
            *own_flags(context, unit.cxx_flags if is_cxx else ()),
        ]
        standard = [f"-std=c++{context.cxx_standard}"] if is_cxx else []
        compiler = [tool_word(context.cxx), "-x", language, *standard]
        action = compile_action(context, unit, compiler, options, tools=(context.cxx,), memory=_CXX_MEMORY)
        return UnitActions(actions=(action,), objects=action.outputs)

    def after(self, context: Context, units: tuple[Unit, ...]) -> UnitActions:  # noqa: ARG002
        """See :class:`~kernel_builder.backends.protocol.MakesForAll`."""
        return NOTHING


def _header_name(context: Context) -> str:
    return f"{context.ops_name}_metallib.h"


def _namespace(context: Context) -> str:
    return f"{context.ops_name}_metal"


def _shader_action(context: Context, unit: Unit) -> Action:
    """One shader into Metal's intermediate code."""
    sdk = _sdk(context)
    metal = _program(sdk.metal, "metal", sdk)
    own = [word for word in includes(context, replace(unit, libraries=())) if word.startswith("-I")]
    compiler = [tool_word(metal), _LANGUAGE, "-O2", f"-mmacosx-version-min={context.macos}"]
    action = compile_action(context, unit, compiler, own, tools=(metal,), memory=_MEMORY)
    return replace(action, trees=(context.sources, *apple_trees(context)))


def _library_action(context: Context, compiled: list[str], library: Path) -> Action:
    """All of these in one library."""
    layout, word, sdk = context.layout, context.places.word, _sdk(context)
    metallib = _program(sdk.metallib, "metallib", sdk)
    return Action(
        id=action_id(context.variant, ActionKind.BUNDLE, library.name),
        kind=ActionKind.BUNDLE,
        variant=context.variant,
        source=library.name,
        steps=(Step(command=(tool_word(metallib), *compiled, "-o", word(library)), writes=(word(library),)),),
        inputs=tuple(compiled),
        outputs=(word(library),),
        log=word(layout.log_for("metallib")),
        memory=_MEMORY,
        tools=(metallib,),
    )


RULES = Metal()
