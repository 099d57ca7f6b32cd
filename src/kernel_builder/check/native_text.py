"""Rules about what native code says to the preprocessor: mistakes that would otherwise be seen when it is compiled, or
linked.

Only what every configuration reads counts: what stands under a condition that is not known here is left to the
compiler.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import SourceTree, join
from kernel_builder.config.flags import refused_definition
from kernel_builder.config.headers import is_included, where_instead

NOT_FOUND = rule(
    "KB210",
    "include-not-found",
    Severity.ERROR,
    summary="Compilers find the headers that sources include in quotes",
    rationale=(
        "No compiler finds the file, neither in the project nor among the headers of compilers, torch and toolkits."
    ),
    remedy="List the header's directory in 'include' of the section, or add the file to the project.",
    source="docs/build-toml.md",
)
REDEFINED = rule(
    "KB211",
    "build-macro-defined",
    Severity.ERROR,
    summary="Sources define no macro that the build defines for each variant",
    rationale=(
        "Code that is compiled like this does not match torch: the library cannot be linked or loaded, or its "
        "namespace differs from the one in its metadata."
    ),
    remedy="Remove the definition.",
    source="docs/build-toml.md",
)
_GENERATED = "registration.h"


@checks(SourceTree, NOT_FOUND)
def includes(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """Quoted includes of files that are in no directory of headers."""
    project = source.draft
    if project is None or not source.knows_all_includes:
        return
    folders = [*project.framework.include, *(path for section in project.sections for path in section.include)]
    folders += ["csrc", project.framework.directory]
    for file in source.compiled:
        if not file.certain:
            continue
        here = posixpath.dirname(file.path)
        for include in file.native.includes:
            if not include.certain or not include.quoted or include.next or include.path.startswith("/"):
                continue
            if posixpath.basename(include.path) == _GENERATED or is_included(
                project.root, [here, *folders], include.path
            ):
                continue
            yield NOT_FOUND.at(
                join(source.shown, file.path),
                f"{include.path} is neither beside this file nor in a directory of headers",
                line=include.line,
                symbol=include.path,
                hint=where_instead(project.root, include.path),
            )


@checks(SourceTree, REDEFINED)
def definitions(source: SourceTree, _settings: Settings) -> Iterator[Finding]:
    """``#define`` of what ``-D`` in flags must not define either."""
    for file in source.compiled:
        for definition in file.native.definitions if file.certain else ():
            refused = refused_definition(definition.name, definition.value) if definition.certain else None
            if refused is not None:
                why, instead = refused
                yield REDEFINED.at(
                    join(source.shown, file.path),
                    f"#define {definition.name} {definition.value}".rstrip() + f" {why}",
                    line=definition.line,
                    symbol=definition.name,
                    hint=instead,
                )
