"""The values of ``build.toml``, one function for each kind: from what a table holds to the model's types.

Every mistake is noticed in the report; what is returned then is good enough to go on judging the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import listed_in_one, parse_architecture
from kernel_builder.config.checks import ProjectTree, listed_twice
from kernel_builder.config.flags import judge_flags, words_of
from kernel_builder.config.intents import instead_of
from kernel_builder.config.known import OLDEST_STABLE_ABI, dependencies, licenses, newest_torch
from kernel_builder.config.model import Architecture, Capability, KernelDependency, Suffix
from kernel_builder.config.schema import COMPILED, EXAMPLES, KERNEL_DEPENDENCY, Kind
from kernel_builder.config.tables import TableReader, TextEntry, is_number, text_of, version_of
from kernel_builder.toml.nodes import Leaf, ListNode, TableNode, describe, in_words, quoted, shortened
from kernel_builder.toml.report import Report
from kernel_builder.versions import Version

NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
NAME_RULE = (
    "names have at least two characters: lowercase letters, digits and dashes, starting with a letter and "
    "not ending "
    "with a dash"
)
REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/\s]+)(/\S*)?")
_SCP = re.compile(r"[^\s/:]+:[^\s/]\S*")
_SUFFIX = re.compile(r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*")

_BACKEND_WORDS = {word: backend.value for backend in Backend for word in backend.words}


def name(reader: TableReader, report: Report) -> str | None:
    """``general.name`` (interoperability contract 1.2)."""
    entry = reader.text("name")
    if entry is None:
        return None
    if NAME.fullmatch(entry.text) is None:
        proper = re.sub(r"[^a-z0-9]+", "-", entry.text.lower()).strip("-").lstrip("0123456789-")
        hint = f'write: name = "{proper}"; {NAME_RULE}' if NAME.fullmatch(proper) else NAME_RULE
        report.error(entry.path, f"{quoted(entry.text)} is not a kernel name", hint=hint)
        return None
    return entry.text


def license_(reader: TableReader, report: Report) -> str | None:
    """``general.license``: any text; one that the Hub does not know is warned of."""
    entry = reader.text("license")
    if entry is None:
        return None
    known = licenses()
    if entry.text.lower() not in known:
        near = report.near(entry.text, known)
        report.warning(
            entry.path,
            f"{quoted(entry.text)} is not on the Hub's list of licenses and will be shown as unknown",
            hint=f"did you mean '{near}'?" if near else 'for any other license, write: license = "other"',
        )
    return entry.text


def _backend(entry: TextEntry, report: Report, allowed: tuple[Backend, ...]) -> Backend | None:
    if entry.text in {backend.value for backend in allowed}:
        return Backend(entry.text)
    if entry.text in {backend.value for backend in Backend}:
        report.error(
            entry.path,
            f"'{entry.text}' has no kernel sections: its variants are Python only",
            hint=f"kernel sections are for {_listed(allowed)}",
        )
        return None
    word = _BACKEND_WORDS.get(entry.text.lower())
    near = word or report.near(entry.text, [backend.value for backend in allowed])
    listed = f"backends: {_listed(allowed)}"
    report.error(
        entry.path,
        f"unknown backend {quoted(entry.text)}",
        hint=f"did you mean '{near}'? {listed}" if near else listed,
    )
    return None


def _listed(backends: tuple[Backend, ...]) -> str:
    return ", ".join(backend.value for backend in backends)


def backends(reader: TableReader, report: Report) -> tuple[Backend, ...] | None:
    """``general.backends``: known ones, each once, at least one."""
    entries = reader.texts("backends")
    if entries is None:
        return None
    node = reader.node("backends")
    if isinstance(node, ListNode) and not node.items:
        report.error(node.path, "must list at least one backend", hint=f"backends: {_listed(tuple(Backend))}")
        return None
    found: dict[Backend, None] = {}
    for entry in entries:
        backend = _backend(entry, report, tuple(Backend))
        if backend in found:
            report.error(entry.path, f"'{backend.value}' is listed twice", hint="remove one of the two")
        elif backend is not None:
            found[backend] = None
    return tuple(found)


def section_backend(node: TableNode, report: Report) -> Backend | None:
    """``kernel.<id>.backend``, which decides on the other keys; ``None`` when it is missing or wrong."""
    value = node.get("backend")
    if value is None:
        return None
    entry = text_of(value, report, example=EXAMPLES[Kind.BACKEND])
    return None if entry is None else _backend(entry, report, COMPILED)


def git_url(reader: TableReader, key: str, report: Report) -> str | None:
    """``general.upstream`` or ``general.source``, as written (interoperability contract 1.2)."""
    entry = reader.text(key)
    if entry is None:
        return None
    text = entry.text
    match = _URL.fullmatch(text)
    if match is not None and match[1].lower() in GIT_SCHEMES:
        return text
    if match is None and "://" not in text and _SCP.fullmatch(text) is not None:
        return text
    hint = f"use https://host/owner/name or git@host:owner/name; schemes: {', '.join(GIT_SCHEMES)}"
    if match is None and re.fullmatch(r"[\w.-]+\.[a-z]+/\S+", text):
        hint = f'write: {key} = "https://{text}"'
    report.error(entry.path, f"{quoted(text)} is not the URL of a git repository", hint=hint)
    return None


def is_repo_id(text: str) -> bool:
    """Whether the Hub takes this for the name of a repository."""
    return (
        REPO_ID.fullmatch(text) is not None
        and len(text) <= 96
        and "--" not in text
        and ".." not in text
        and not text.endswith((".git", "-", "."))
    )


_PATHS = ("/", ".", "~", "file:")
_NO_PATH = "kernels are named as on the Hub, owner/name; a directory of this machine cannot be one"


def _repo_id(entry: TextEntry, report: Report) -> str | None:
    if is_repo_id(entry.text):
        return entry.text
    hint = 'use owner/name, with letters, digits, "-", "_" and "."'
    stripped = re.sub(r"^https?://[^/]+/(kernels/)?|\.git$", "", entry.text).strip("/")
    if entry.text.startswith(_PATHS):
        hint = _NO_PATH
    elif stripped != entry.text and is_repo_id(stripped):
        hint = f'write: "{stripped}"'
    report.error(entry.path, f"{quoted(entry.text)} is not the name of a repository on the Hub", hint=hint)
    return None


def repo_id(reader: TableReader, report: Report) -> str | None:
    """``general.hub.repo-id``."""
    entry = reader.text("repo-id")
    return None if entry is None else _repo_id(entry, report)


def branch(reader: TableReader, report: Report) -> str | None:
    """``general.hub.branch``: what git takes as a branch name."""
    entry = reader.text("branch")
    if entry is None:
        return None
    if not is_git_name(entry.text):
        report.error(
            entry.path,
            f"{quoted(entry.text)} is not a valid git branch name",
            hint='write something like "main"',
        )
        return None
    return entry.text


def is_git_name(text: str) -> bool:
    """Whether git takes this for the name of a branch, a tag or a commit (git-check-ref-format(1))."""
    return (
        re.search(r"[\s~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|[\x00-\x1f\x7f]", text) is None
        and not text.startswith(("-", "/", "."))
        and not text.endswith(("/", "."))
        and text not in {"", "@"}
    )


def _revision(entry: TextEntry | None, report: Report) -> str | None:
    """``revision`` of a kernel: a branch, a tag or a commit."""
    if entry is None or is_git_name(entry.text):
        return None if entry is None else entry.text
    report.error(
        entry.path,
        f"{quoted(entry.text)} is not a valid name of a branch, tag or commit",
        hint='write something like "main"',
    )
    return None


def kernel_depends(reader: TableReader, report: Report) -> tuple[KernelDependency, ...]:
    """``kernel-depends``: tables of a ``repo-id`` with either a ``version`` or a ``revision``."""
    node = reader.node("kernel-depends")
    if node is None:
        return ()
    example = '{ repo-id = "owner/name", version = 1 }'
    if not isinstance(node, ListNode):
        report.error(node.path, f"must be a list of tables, not {describe(node)}", hint=f"write: [{example}]")
        return ()
    found: dict[str, KernelDependency] = {}
    for item in node.items:
        if not isinstance(item, TableNode):
            name = item.value if isinstance(item, Leaf) and isinstance(item.value, str) else ""
            shown = example.replace("owner/name", name) if is_repo_id(name) else example
            hint = _NO_PATH if name.startswith(_PATHS) else f"write: {shown}"
            report.error(item.path, f"must be a table, not {describe(item)}", hint=hint)
            continue
        inner = TableReader(item, KERNEL_DEPENDENCY, report)
        entry, version, revision = inner.text("repo-id"), inner.uint("version"), inner.text("revision")
        written = [key for key in ("version", "revision") if inner.node(key) is not None]
        if len(written) != 1:
            count = "both 'version' and 'revision'" if written else "neither 'version' nor 'revision'"
            report.error(item.path, f"has {count}; exactly one is required", hint=f"write: {example}")
        repository = None if entry is None else _repo_id(entry, report)
        if repository is None or entry is None:
            continue
        if repository in found:
            report.error(entry.path, f"'{repository}' is listed twice", hint="keep one of the two")
        found[repository] = KernelDependency(repo_id=repository, version=version, revision=_revision(revision, report))
    return tuple(found.values())


def python_depends(reader: TableReader, backend: Backend | None, report: Report) -> tuple[str, ...]:
    """``python-depends`` of ``[general]`` (``None``) or of a backend: names of that table (contract 1.6)."""
    table = dependencies().python_table(backend)
    found: dict[str, None] = {}
    for entry in reader.texts("python-depends") or ():
        if entry.text in table:
            if entry.text in found:
                report.warning(entry.path, f"'{entry.text}' is listed twice")
            found[entry.text] = None
            continue
        message, hint = _python_depends_words(entry.text, backend, report)
        report.error(entry.path, message, hint=hint)
    return tuple(found)


def _python_depends_words(text: str, backend: Backend | None, report: Report) -> tuple[str, str]:
    tables = dependencies().python
    here = "[general]" if backend is None else f"[general.{backend.value}]"
    owner = next((name for name, packages in tables.items() if text in packages), None)
    if owner is not None:
        place = "[general]" if owner == "general" else f"[general.{owner}]"
        return f"'{text}' is not a dependency for {here}", f"put it in 'python-depends' of {place}"
    allowed = list(dependencies().python_table(backend))
    if not allowed and instead_of("python-depends", text) is None:
        return (
            f"{quoted(text)} is not an allowed Python dependency: '{backend}' has none",
            "remove it",
        )
    instead = instead_of("python-depends", text)
    if instead is not None:
        return f"{quoted(text)} is not an allowed Python dependency", instead
    near = report.near(text, allowed)
    listed = f"allowed in {here}: {', '.join(allowed)}"
    hint = f"did you mean '{near}'? {listed}" if near else listed
    return f"{quoted(text)} is not an allowed Python dependency", hint


def depends(reader: TableReader, backend: Backend | None, report: Report) -> tuple[str, ...]:
    """``kernel.<id>.depends``: C++ libraries for that backend (contract 1.6)."""
    table = dependencies()
    found: dict[str, None] = {}
    for entry in reader.texts("depends") or ():
        owners = table.depends.get(entry.text)
        if owners is None:
            new = table.renamed.get(entry.text)
            possible = {
                name: owners
                for name, owners in table.depends.items()
                if backend is None or not owners or backend in owners
            }
            near = report.near(entry.text, possible) if new is None else None
            known = ", ".join(
                name if not owners else f"{name} ({', '.join(owners)})" for name, owners in possible.items()
            )
            hint = instead_of("depends", entry.text) or f"allowed: {known}"
            if new is not None:
                hint = f"it is now called '{new}'"
            elif near is not None and instead_of("depends", entry.text) is None:
                hint = f"did you mean '{near}'? {hint}"
            report.error(entry.path, f"unknown dependency {quoted(entry.text)}", hint=hint)
        elif owners and backend is not None and backend not in owners:
            report.error(
                entry.path,
                f"'{entry.text}' is for {in_words(owners)}; this section is for {backend.value}",
                hint="remove it",
            )
        elif entry.text in found:
            report.warning(entry.path, f"'{entry.text}' is listed twice")
        else:
            found[entry.text] = None
    return tuple(found)


def architectures(
    reader: TableReader, key: str, backend: Backend, report: Report, *, compiled: bool
) -> tuple[Architecture, ...] | None:
    """A list of architectures of ``backend``. An empty one of capabilities is a mistake in a section: nothing could
    be compiled (``compiled``).
    """
    node = reader.node(key)
    if node is None:
        return None
    known = backend.architectures
    listed = listed_in_one(backend, node.value) if isinstance(node, Leaf) and isinstance(node.value, str) else ()
    if listed:
        written = ", ".join(f'"{one}"' for one in listed)
        report.error(node.path, f"must be a list of strings, not {describe(node)}", hint=f"write: {key} = [{written}]")
        return None
    if known is None or not isinstance(node, ListNode):
        reader.texts(key)
        return None
    numbered = known.pattern is None
    if compiled and numbered and not node.items:
        report.error(
            node.path,
            "must not be empty: nothing would be compiled",
            hint="remove the key to compile for all",
        )
    example = f'"{known.examples[0]}"' if numbered else reader.example(key)
    found: dict[Architecture, None] = {}
    for item in node.items:
        number = numbered and is_number(item)
        text = shortened(report.written(item.path)) if number else None
        entry = TextEntry(text, item.path) if text is not None else text_of(item, report, example=example)
        if entry is None:
            continue
        try:
            architecture = parse_architecture(backend, entry.text)
        except ValueError as error:
            message, _, hint = str(error).rpartition("; ")
            parts = listed_in_one(backend, entry.text)
            if parts:
                message = f"{quoted(entry.text)} is {len(parts)} {known.plural} in one string"
                hint = "write each as its own string: " + ", ".join(f'"{one}"' for one in parts)
            report.error(entry.path, message, hint=hint)
            continue
        if number:
            report.error(item.path, f"must be a string, not the number {text}", hint=f'put it in quotes: "{text}"')
            continue
        if architecture in found:
            report.warning(entry.path, f"'{architecture}' is listed twice")
        elif isinstance(architecture, Capability):
            _judge_ptx(architecture, entry, report)
        found[architecture] = None
    return tuple(found)


def _judge_ptx(capability: Capability, entry: TextEntry, report: Report) -> None:
    """Warn of ``+PTX`` on a capability whose code no newer chip runs."""
    if not capability.ptx or capability.suffix is Suffix.NONE:
        return
    report.warning(
        entry.path,
        f"'{capability}': code for {capability.major}.{capability.minor}{capability.suffix} runs on "
        f"{'no newer GPU' if capability.suffix is Suffix.ARCH else 'its family only'}, not as PTX "
        f"either",
        hint=f"write \"{capability.major}.{capability.minor}{capability.suffix}\", and '+PTX' on "
        f"one without "
        f"'{capability.suffix}'",
    )


def suffixes(reader: TableReader, report: Report) -> tuple[str, ...] | None:
    """``pyext``: suffixes without a dot in front."""
    entries = reader.texts("pyext")
    if entries is None:
        return None
    found: dict[str, None] = {}
    for entry in entries:
        if _SUFFIX.fullmatch(entry.text) is None:
            proper = entry.text.strip("*. ")
            hint = f'write: "{proper}"' if _SUFFIX.fullmatch(proper) else 'write only the suffix: "json"'
            report.error(entry.path, f"{quoted(entry.text)} is not a file name suffix", hint=hint)
        elif entry.text in found:
            report.warning(entry.path, f"'{entry.text}' is listed twice")
        else:
            found[entry.text] = None
    return tuple(found)


def flags(reader: TableReader, key: str, backend: Backend | None, report: Report) -> tuple[str, ...]:
    """A list of compiler flags, in order, repetitions kept. ``backend`` is that of the section, if it is in one."""
    node = reader.node(key)
    if isinstance(node, Leaf) and isinstance(node.value, str) and len(words_of(node.value)) > 1:
        written = ", ".join(f'"{word}"' for word in words_of(node.value))
        report.error(node.path, f"must be a list of strings, not {describe(node)}", hint=f"write: {key} = [{written}]")
        return ()
    entries = reader.texts(key) or ()
    judge_flags(entries, backend, report)
    return tuple(entry.text for entry in entries)


def paths(reader: TableReader, key: str, tree: ProjectTree, report: Report) -> tuple[str, ...]:
    """``src`` or ``include``: paths inside the project, as written; the tree is looked at later."""
    entries = reader.texts(key) or ()
    for entry in entries:
        tree.add(entry.text, entry.path, directory=key == "include")
    listed_twice(entries, report)
    return tuple(entry.text for entry in entries)


def check_range(reader: TableReader, minver: Version | None, maxver: Version | None, report: Report) -> None:
    """Notice a version range that nothing is in. A bound speaks of the parts that it writes (2.12 admits
    2.12.1).
    """
    if minver is not None and maxver is not None and not minver.is_at_most(maxver):
        report.error(
            (*reader.path, "maxver"),
            f"no version is both {minver} or newer and {maxver} or older",
            hint=f"'maxver' must not be older than 'minver' ({minver})",
        )


def stable_abi(
    reader: TableReader,
    backends: tuple[Backend, ...],
    maxver: Version | None,
    report: Report,
) -> Mapping[Backend, Version]:
    """``torch.stable-abi``: one version for all ``backends``, or a table from backend to version."""
    node = reader.node("stable-abi")
    if node is None:
        return MappingProxyType({})
    if not isinstance(node, TableNode):
        version = version_of(node, report)
        if version is None or not _is_stable_target(version, node.path, maxver, report):
            return MappingProxyType({})
        return MappingProxyType(dict.fromkeys(backends, version))
    found: dict[Backend, Version] = {}
    for key, value in node.items.items():
        backend = _backend(TextEntry(key, value.path), report, tuple(Backend))
        version = version_of(value, report)
        if version is None or not _is_stable_target(version, value.path, maxver, report) or backend is None:
            continue
        if backends and backend not in backends:
            report.warning(
                value.path,
                f"has no effect: '{backend.value}' is not in general.backends",
                hint="remove it, or add the backend",
                at_key=True,
            )
        else:
            found[backend] = version
    return MappingProxyType(found)


def _is_stable_target(version: Version, path: tuple[str | int, ...], maxver: Version | None, report: Report) -> bool:
    if len(version.parts) < 2:
        report.error(path, f"'{version}' has no minor version", hint='write both, such as "2.11"')
        return False
    if version < OLDEST_STABLE_ABI:
        report.error(
            path,
            f"torch {version} has no stable ABI to build kernels for; {OLDEST_STABLE_ABI} is the first with one",
            hint=f'write "{OLDEST_STABLE_ABI}" or newer',
        )
        return False
    newest = newest_torch()
    if not version.is_at_most(newest):
        report.error(
            path,
            f"the newest known torch is {newest}; there is no stable ABI of {version}",
            hint=f'write "{newest}" or older',
        )
        return False
    if maxver is not None and not version.is_at_most(maxver):
        report.error(
            path,
            f"this stable ABI needs torch {version} or newer, but 'maxver' allows none newer than {maxver}",
            hint="lower it, or raise 'maxver'",
        )
        return False
    return True
