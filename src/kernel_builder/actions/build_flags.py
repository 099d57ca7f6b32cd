"""What compilers are told for the sake of what a build is for. Pure.

Reference: GCC manual, "Options for Debugging Your Program" and "Program Instrumentation Options"; libstdc++ manual,
"Macros": ``_GLIBCXX_ASSERTIONS`` does not change the ABI; ``_GLIBCXX_DEBUG`` does, and torch is built without it.
"""

from __future__ import annotations

from kernel_builder.variants.build_type import BuildType, Debug, Sanitizer

_RELEASE = ("-O3", "-DNDEBUG")
_ASSERTIONS = ("-UNDEBUG", "-D_GLIBCXX_ASSERTIONS")


def optimizing(build_type: BuildType) -> tuple[str, ...]:
    """What every compiler is told before the project's own flags, whatever the language."""
    if build_type.debug is Debug.FULL:
        return ()
    return ("-O1",) if build_type.sanitizers else _RELEASE


def overriding(build_type: BuildType) -> tuple[str, ...]:
    """What every compiler is told after the project's own flags, which may ask for the opposite."""
    if build_type.is_release:
        return ()
    checked = build_type.debug is Debug.FULL or build_type.sanitizers
    return (*(["-O0"] if build_type.debug is Debug.FULL else []), "-g", *(_ASSERTIONS if checked else ()))


def of_the_host(build_type: BuildType) -> tuple[str, ...]:
    """What only the compiler of the host is told, after the project's own flags."""
    return (*traced(build_type), *(flag for one in build_type.sanitizers for flag in _instrumenting(one)))


def traced(build_type: BuildType) -> tuple[str, ...]:
    """What a compiler of another vendor is told after the project's own flags, in one pass for host and devices: it has
    sanitizers of its own, whose runtime is not the one that is loaded.

    With frame pointers, profilers and sanitizers tell who called, also in code without unwind tables.
    """
    return () if build_type.is_release else ("-fno-omit-frame-pointer",)


def _instrumenting(sanitizer: Sanitizer) -> tuple[str, ...]:
    """What is undefined ends the process, as other mistakes do, so that a test fails. ``vptr`` is left out: it compares
    objects of torch's with type information that torch does not export.
    """
    if sanitizer is Sanitizer.UNDEFINED:
        return ("-fsanitize=undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=undefined")
    return (f"-fsanitize={sanitizer.value}",)
