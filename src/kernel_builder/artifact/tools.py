"""What metadata tell of the sources, compilers, headers and libraries that made a variant; how two builds differ."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from kernel_builder.project.digests import by_path, file_differences

FLAGS = "flags"
"""The key of what a project's sections gave compilers for each source."""
_BUILDER = "kernel-builder"
_TOLD = (_BUILDER, "tools", FLAGS, "sandbox")
"""The keys of the provenance that say by what a variant was made, and not what it is."""
HEADERS = "headers-read"
"""The key of those of a compiler's and the C library's headers that compiles read, each with its digest."""
_SHORT = 12
"""Digits of a digest that people see."""


def without_tools(metadata: Mapping[str, object]) -> dict[str, object]:
    """``metadata`` without what made the variant: another compiler may well make the same."""
    provenance = metadata.get("provenance")
    if not isinstance(provenance, dict):
        return dict(metadata)
    return {**metadata, "provenance": {key: value for key, value in provenance.items() if key not in _TOLD}}


def source_differences(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, ...]:
    """Which files of the project are others in ``other``, a line each for people. Nothing for metadata that do not say
    what they were built from, or say it in another way.
    """
    ours, theirs = (_table(_table(document, "provenance"), "sources") for document in (one, other))
    if not ours or ours.get("scheme") != theirs.get("scheme") or ours.get("sha256") == theirs.get("sha256"):
        return ()
    files = [by_path(record.get("files")) for record in (ours, theirs)]
    if not all(files):
        return ("built from other sources; builds of older versions do not record which files differ",)
    found = tuple(file_differences("built from", *files))
    return found or ("built from other sources, although the recorded names and beginnings of digests are the same",)


def tool_differences(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, ...]:
    """What made ``one`` and is another thing in ``other``, a line each for people. Nothing for metadata that do not
    say what made them.
    """
    builders = [_table(_table(document, "provenance"), _BUILDER).get("version") for document in (one, other)]
    lines = [f"built with {_BUILDER} {builders[0]}, here {builders[1]}"] if builders[0] != builders[1] else []
    ours, theirs = _tools(one), _tools(other)
    return (*(lines if all(builders) else ()), *(_lines(ours, theirs) if ours and theirs else ()))


def flag_differences(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[str, ...]:
    """Which flags of the project's ``one`` was compiled with and ``other`` was not, a line each for people. Nothing
    where the sources are the same, which hold the flags: builds of older versions do not tell them.
    """
    before, after = (_table(document, "provenance") for document in (one, other))
    if before.get("sources") == after.get("sources"):
        return ()
    ours, theirs = _table(before, FLAGS), _table(after, FLAGS)
    sources = dict.fromkeys((*ours, *theirs))
    return tuple(line for name in sources for line in _flags(name, _words(ours.get(name)), _words(theirs.get(name))))


def _flags(source: str, one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    gone, new = ([flag for flag in of if flag not in rest] for of, rest in ((one, other), (other, one)))
    if gone:
        yield f"{source} was compiled with {shlex.join(gone)}, here {f'with {shlex.join(new)}' if new else 'without'}"
    elif new:
        yield f"{source} was compiled without {shlex.join(new)}, here with"
    elif one != other:
        yield f"{source} was compiled with {shlex.join(one)}, here with {shlex.join(other)}"


def _words(flags: object) -> list[str]:
    try:
        return shlex.split(flags) if isinstance(flags, str) else []
    except ValueError:  # nothing of ours: a quotation mark that does not end
        return [str(flags)]


def _table(of: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def _tools(metadata: Mapping[str, object]) -> list[Mapping[str, object]]:
    listed = _table(metadata, "provenance").get("tools")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _lines(ours: list[Mapping[str, object]], theirs: list[Mapping[str, object]]) -> Iterator[str]:
    if ours[0].get("name") != theirs[0].get("name"):  # the host's compiler comes first
        yield f"built with {_shown(ours[0])}, here {_shown(theirs[0])}"
        ours, theirs = ours[1:], theirs[1:]
    by_name = {str(tool.get("name")): tool for tool in theirs}
    for tool in ours:
        here = by_name.pop(str(tool.get("name")), None)
        if here is None:
            yield f"built with {_shown(tool)}, here without"
        elif _shown(tool) != _shown(here):
            yield f"built with {_shown(tool)}, here {_shown(here).removeprefix(str(tool.get('name'))).strip()}"
        else:
            yield from _parts(tool, here)
    for tool in by_name.values():
        yield f"built without {tool.get('name')}, here with {_shown(tool)}"


def _parts(one: Mapping[str, object], other: Mapping[str, object]) -> Iterator[str]:
    """Two of one name and version, and what is not the same of them."""
    ours, theirs = one.get("sha256"), other.get("sha256")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        differing = [name for name in ours if name in theirs and ours[name] != theirs[name]]
        if differing:
            pairs = (f"{name} {str(ours[name])[:_SHORT]}, here {str(theirs[name])[:_SHORT]}" for name in differing)
            yield f"built with another {_shown(one)}: {'; '.join(pairs)}"
    read, here = by_path(one.get(HEADERS)), by_path(other.get(HEADERS))
    if read and here:
        yield from file_differences("built with", read, here)
    if one.get("id") != other.get("id"):
        yield f"built with another {_shown(one)}: {one.get('id')}, here {other.get('id')}"


def _shown(tool: Mapping[str, object]) -> str:
    packages, target = tool.get("packages"), tool.get("target")
    listed = f" ({', '.join(map(str, packages))})" if isinstance(packages, list) else ""
    return f"{tool.get('name')} {tool.get('version')}{f' for {target}' if target else ''}{listed}"
