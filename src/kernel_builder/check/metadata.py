"""Rules about ``metadata.json``: complete, well-formed, and in agreement with everything around it.

Source: interoperability contract 4.1-4.3, and what the client reads (5.6).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.artifact.digest import METADATA
from kernel_builder.check.model import Finding, Settings, Severity, checks, rule
from kernel_builder.check.subject import BuildFolder, SourceTree, VariantDir, join
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import is_architecture
from kernel_builder.config.known import dependencies
from kernel_builder.config.tables import MAX_UINT
from kernel_builder.config.values import NAME, NAME_RULE, is_git_name, is_repo_id
from kernel_builder.files import LARGEST_FILE
from kernel_builder.toml.nodes import printable, shortened
from kernel_builder.variants.names import ArchVariant, TorchTag, TvmFfiTag

_MEND = "Rebuild the variant with a recent kernel-builder."

MISSING = rule(
    "KB410",
    "metadata-missing",
    Severity.ERROR,
    summary="Every variant has a metadata.json that is a JSON object",
    rationale="The client reads it first, and loads nothing without it.",
    remedy=_MEND,
    source="docs/requirements.md, 'Layout, names and metadata'",
)
INCOMPLETE = rule(
    "KB411",
    "metadata-incomplete",
    Severity.ERROR,
    summary="metadata.json has every key the client requires, with the right type",
    rationale="The client rejects a variant whose metadata lacks a key or has one of the wrong type.",
    remedy=_MEND,
    source="docs/requirements.md, 'Layout, names and metadata'",
)
MALFORMED = rule(
    "KB412",
    "metadata-value",
    Severity.ERROR,
    summary="The values in metadata.json are well-formed",
    rationale="The id becomes the name of a module and an op namespace; the other values decide what is loaded.",
    remedy="Fix build.toml and rebuild the variant.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
UNKNOWN_KEY = rule(
    "KB413",
    "metadata-unknown-key",
    Severity.NOTE,
    summary="metadata.json has only known keys",
    rationale="Clients ignore unknown keys; this one may be misspelled, or newer than this checker.",
    remedy="Remove it, unless a newer kernel-builder wrote it.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
ID_MISMATCH = rule(
    "KB414",
    "id-mismatch",
    Severity.ERROR,
    summary="The id is also the library's name and the op namespace in _ops.py",
    rationale="The client registers the kernel under its id; ops under a different name belong to another version.",
    remedy=_MEND,
    source="docs/requirements.md, 'Layout, names and metadata'",
)
DISAGREES = rule(
    "KB415",
    "metadata-disagrees",
    Severity.ERROR,
    summary="metadata.json agrees with the directory name, build.toml and the other variants",
    rationale="A variant whose metadata disagrees was copied, or is older than build.toml.",
    remedy="Rebuild the variant, or remove it.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
ARCHS = rule(
    "KB416",
    "archs-malformed",
    Severity.ERROR,
    summary=f"backend.archs lists {' or '.join(b.architectures.plural for b in Backend if b.architectures)},"
    " for those backends only",
    rationale="Users choose by this list; other values mean nothing to them.",
    remedy="Fix the capabilities in build.toml and rebuild the variant.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
NO_DIGEST = rule(
    "KB420",
    "digest-missing",
    Severity.WARNING,
    summary="metadata.json has a digest of the variant's files",
    rationale="Without it, nobody can verify that the files are the ones that were built. Signatures cover it.",
    remedy="Add it with: kernel-builder hash.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
DIGEST_MALFORMED = rule(
    "KB421",
    "digest-malformed",
    Severity.ERROR,
    summary="The digest has a known algorithm and a hash for each file",
    rationale="The client rejects metadata whose digest it cannot read.",
    remedy="Regenerate it with: kernel-builder hash.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
DIGEST_MISMATCH = rule(
    "KB422",
    "digest-mismatch",
    Severity.ERROR,
    summary="The files match the digest: none changed, missing or added",
    rationale="A file was edited, lost or added after the build; verifying the kernel fails.",
    remedy="Rebuild the variant; if the change is intended, regenerate the digest with: kernel-builder hash.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
PROVENANCE = rule(
    "KB430",
    "provenance-malformed",
    Severity.ERROR,
    summary="Provenance has the builder's version, full commits, and whether the trees were dirty",
    rationale="The client rejects metadata whose provenance it cannot read.",
    remedy=_MEND,
    source="docs/requirements.md, 'Layout, names and metadata'",
)
DIRTY = rule(
    "KB431",
    "provenance-dirty",
    Severity.WARNING,
    summary="Variants are built from a commit, without local changes",
    rationale="Nobody can reproduce such a build, and the client warns users about it.",
    remedy="Commit the changes and rebuild.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
NO_PROVENANCE = rule(
    "KB432",
    "provenance-missing",
    Severity.NOTE,
    summary="metadata.json records the commit that the variant was built from",
    rationale="Nobody can tell which sources it was built from.",
    remedy="Commit the sources in a git repository, then build.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)
STALE = rule(
    "KB433",
    "stale-build",
    Severity.WARNING,
    summary="Variants are built from the sources next to them",
    rationale="Users do not get what the sources say, and the next build will differ from what is checked.",
    remedy="Build again with: kernel-builder build.",
    source="kernel-builder",
)
PARTIAL = rule(
    "KB434",
    "partial-build",
    Severity.WARNING,
    summary="Variants are built for all of their architectures",
    rationale="It was built with --arch or --fast, to try it out: it does not run on the devices that were left out.",
    remedy="Build it for all architectures: kernel-builder build.",
    source="kernel-builder",
)
TRIAL = rule(
    "KB435",
    "trial-build",
    Severity.WARNING,
    summary="Variants are built with a toolkit of the release that they name",
    rationale="It was built to see whether it compiles, links and loads. Users' machines have the release itself.",
    remedy="Build it with a toolkit of that release: kernel-builder toolchain explain shows where it can come from.",
    source="kernel-builder",
)
NO_RELEASE = rule(
    "KB436",
    "no-release",
    Severity.WARNING,
    summary="Variants are built for users, not for debuggers and sanitizers",
    rationale="It was built with --debug, --lineinfo or --sanitize: it is slow and large, names files of the machine"
    " that built it, and with --sanitize it does not load without the sanitizer's runtime.",
    remedy="Build it for users with: kernel-builder build.",
    source="kernel-builder",
)
SHARED_ID = rule(
    "KB440",
    "id-shared",
    Severity.ERROR,
    summary="Variants of different commits have different ids",
    rationale="Two versions with the same id cannot be loaded in one process: the second registers the same ops again.",
    remedy="Rebuild the variants; let kernel-builder choose the id instead of passing --unique-id.",
    source="docs/requirements.md, 'Layout, names and metadata'",
)


@dataclass(frozen=True, kw_only=True)
class MetadataKey:
    """A key of the document: the types of its value, what they are called, and what the key says."""

    kinds: tuple[type, ...]
    expected: str
    meaning: str
    required: bool = False


def _needed(kind: type, expected: str, meaning: str) -> MetadataKey:
    return MetadataKey(kinds=(kind,), expected=expected, meaning=meaning, required=True)


def _optional(kind: type, expected: str, meaning: str) -> MetadataKey:
    return MetadataKey(kinds=(kind, type(None)), expected=expected, meaning=meaning)


KEYS: Mapping[str, MetadataKey] = {
    "name": _needed(str, "a string", "The kernel's name, as in build.toml."),
    "id": _needed(
        str,
        "a string",
        "The namespace of its ops; also the name of its library and of its Python module.",
    ),
    "version": _needed(int, "a number", "The kernel's version, as in build.toml."),
    "license": _needed(str, "a string", "The kernel's license, as in build.toml."),
    "python-depends": _needed(
        list,
        "a list",
        "Python packages that it imports, for all backends and for this one. The client does not load the kernel if"
        " one is missing.",
    ),
    "backend": _needed(
        dict,
        "an object",
        "`type`: what the variant runs on; `archs`: the architectures of its device code, absent if there are none.",
    ),
    "upstream": _optional(str, "a string", "The repository that the kernel comes from originally."),
    "source": _optional(str, "a string", "The repository of its project."),
    "kernel-depends": _optional(list, "a list", "Hub kernels that it loads."),
    "digest": _optional(
        dict,
        "an object",
        "`algorithm`; `files`: the hash of every file of the variant except this one and its signature, in base64.",
    ),
    "provenance": _optional(
        dict,
        "an object",
        "`kernel-builder`: the version that built it; `kernel`: the commit of the sources, and whether"
        " there were uncommitted changes; `sources`: their digest, and in `files` the first digits of each file's"
        " SHA-256; `toolchain`: parts from sources that the project named;"
        " `tools`: the compilers, headers and libraries used, with versions and digests; its `headers-read`:"
        " the headers of the compiler and the C library that were read, each with the first digits of its SHA-256;"
        " `flags`: the flags that `build.toml` gives for each source;"
        " `sandbox`: whether the actions ran without a network and saw only their declared inputs;"
        " `headers`: how slim headers were used; `partial`: architectures that were left out;"
        " `build-type`: set if the build is not for users, such as `debug`.",
    ),
}
"""In the order in which a build writes them."""


def _line_of(variant: VariantDir, key: str) -> int | None:
    """The line of a key, where it stands in the text exactly once or first."""
    raw = variant.metadata_bytes or b""
    position = raw.find(f'"{key}"'.encode())
    return raw.count(b"\n", 0, position) + 1 if position >= 0 else None


def _place(variant: VariantDir) -> str:
    return join(variant.shown, METADATA)


@checks(VariantDir, MISSING, INCOMPLETE, UNKNOWN_KEY)
def shape(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """The document, its keys and their types."""
    document = variant.metadata
    if document is None:
        yield MISSING.at(_place(variant), variant.metadata_error or "missing", line=variant.metadata_error_line)
        return
    for key, known in KEYS.items():
        if key not in document:
            if known.required:
                yield INCOMPLETE.at(_place(variant), f"{key!r} is missing", symbol=key)
        elif not isinstance(document[key], known.kinds) or isinstance(document[key], bool):
            said = f"{key!r} is not {known.expected}"
            yield INCOMPLETE.at(_place(variant), said, symbol=key, line=_line_of(variant, key))
    backend = document.get("backend")
    if isinstance(backend, dict) and not isinstance(backend.get("type"), str):
        said = "'backend' has no 'type', or it is not a string"
        yield INCOMPLETE.at(_place(variant), said, symbol="backend.type", line=_line_of(variant, "backend"))
    for key in sorted(document.keys() - KEYS.keys()):
        yield UNKNOWN_KEY.at(_place(variant), f"unknown key {printable(key)!r}", symbol=key)


@checks(VariantDir, MALFORMED, ARCHS)
def values(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """What the values must look like."""
    document = variant.metadata or {}

    def wrong(key: str, said: str, hint: str | None = None) -> Finding:
        return MALFORMED.at(_place(variant), said, symbol=key, line=_line_of(variant, key), hint=hint)

    name = document.get("name")
    if isinstance(name, str) and NAME.fullmatch(name) is None:
        yield wrong("name", f"{printable(name)!r} is not a valid kernel name: {NAME_RULE}")
    identifier = document.get("id")
    if isinstance(identifier, str) and not (identifier.isidentifier() and identifier.isascii()):
        yield wrong("id", f"{printable(identifier)!r} is not a Python identifier")
    version = document.get("version")
    if isinstance(version, int) and not 0 <= version <= MAX_UINT:
        yield wrong("version", f"{_shown(version)} is not an integer from 0 to {MAX_UINT}")
    if document.get("license") == "":
        yield wrong("license", "it is empty", "set license in build.toml")
    yield from _dependencies(variant, document, wrong)
    yield from _backend(variant, document, wrong)


def _dependencies(
    variant: VariantDir, document: Mapping[str, object], wrong: Callable[[str, str], Finding]
) -> Iterator[Finding]:
    depends = document.get("python-depends")
    known = dependencies()
    try:
        backend = Backend(variant.backend or "")
    except ValueError:
        backend = None
    allowed = set(known.python_table(None)) | set(known.python_table(backend))
    for entry in depends if isinstance(depends, list) else ():
        if not isinstance(entry, str):
            yield wrong("python-depends", "contains something that is not a string")
        elif entry not in allowed:
            may = ", ".join(sorted(allowed))
            yield wrong(
                "python-depends", f"{printable(entry)!r} is not an allowed dependency; the client allows: {may}"
            )
    kernels = document.get("kernel-depends")
    for entry in kernels if isinstance(kernels, list) else ():
        problem = _kernel_problem(entry)
        if problem is not None:
            yield wrong("kernel-depends", problem)


def _kernel_problem(entry: object) -> str | None:
    """What is wrong with an entry of ``kernel-depends``. The client downloads what it names, and runs it."""
    keys = {"repo-id", "version", "revision"}
    if not isinstance(entry, dict) or entry.keys() - keys:
        return "an entry is not a repo-id with either a version or a revision"
    name, version, revision = entry.get("repo-id"), entry.get("version"), entry.get("revision")
    if (version is None) == (revision is None):
        return "an entry is not a repo-id with either a version or a revision"
    if not isinstance(name, str) or not is_repo_id(name):
        return f"{_shown(name)} is not the name of a repository on the Hub"
    if version is not None and (type(version) is not int or not 0 <= version <= MAX_UINT):
        return f"{_shown(version)} is not a version of {name}: not an integer from 0 to {MAX_UINT}"
    if revision is not None and (not isinstance(revision, str) or not is_git_name(revision)):
        return f"{_shown(revision)} is not the name of a branch, tag or commit of {name}"
    return None


def _shown(value: object) -> str:
    return shortened(printable(repr(value)))


def _backend(
    variant: VariantDir, document: Mapping[str, object], wrong: Callable[[str, str], Finding]
) -> Iterator[Finding]:
    backend = document.get("backend")
    if not isinstance(backend, dict) or not isinstance(backend.get("type"), str):
        return
    kind = backend["type"]
    if kind not in set(Backend):
        yield wrong("backend", f"unknown backend {printable(kind)!r}; known: {', '.join(Backend)}")
    archs = backend.get("archs")
    if archs is None:
        return
    line = _line_of(variant, "archs")
    if not isinstance(archs, list) or not all(isinstance(arch, str) for arch in archs):
        yield ARCHS.at(_place(variant), "archs is not a list of strings", symbol="backend.archs", line=line)
        return
    known = next((one for one in Backend if one == kind and one.architectures is not None), None)
    if known is None:
        said = f"{printable(kind)} has no architectures to list"
        yield ARCHS.at(_place(variant), said, symbol="backend.archs", line=line)
        return
    for arch in archs:
        if not is_architecture(known, arch):
            shown = printable(arch)
            yield ARCHS.at(
                _place(variant), f"{shown!r} is not a {kind} architecture", symbol="backend.archs", line=line
            )
    if len(set(archs)) != len(archs):
        yield ARCHS.at(_place(variant), "an architecture is listed twice", symbol="backend.archs", line=line)


@checks(VariantDir, ID_MISMATCH, DISAGREES)
def agreement(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """The metadata against the library's name, ``_ops.py``, the directory's name and ``build.toml``."""
    document = variant.metadata or {}
    identifier = variant.id
    if identifier is not None:
        yield from _library(variant, identifier)
        yield from _ops(variant, identifier)
    named = variant.variant
    backend = document.get("backend")
    kind = backend.get("type") if isinstance(backend, dict) else None
    if named is not None and isinstance(kind, str) and kind != named.backend.value:
        said = f"backend.type is {printable(kind)!r}, but the directory is for {named.backend.value}"
        yield DISAGREES.at(_place(variant), said, symbol="backend.type", line=_line_of(variant, "type"))
    for said in _other_tools(variant):
        yield DISAGREES.at(_place(variant), said, symbol="provenance.tools", line=_line_of(variant, "tools"))
    project = variant.source.project if variant.source is not None else None
    if project is None:
        return
    for key, expected in (("name", project.name), ("version", project.version), ("license", project.license)):
        if key in document and expected is not None and document[key] != expected:
            said = f"{key} is {document[key]!r} here, but {expected!r} in build.toml"
            yield DISAGREES.at(_place(variant), said, symbol=key, line=_line_of(variant, key))
    if named is not None and named.backend not in project.backends:
        said = f"backend {named.backend.value} is not in build.toml"
        yield DISAGREES.at(variant, said, symbol="backend.type")


def _other_tools(variant: VariantDir) -> Iterator[str]:
    """What the provenance was built with, where the directory is named for another release of it."""
    named, entry = variant.variant, (variant.metadata or {}).get("provenance")
    tools = entry.get("tools") if isinstance(entry, dict) else None
    if not isinstance(named, ArchVariant) or not isinstance(tools, list):
        return
    expected = {named.backend.label: named.compute.version}
    if isinstance(named.tag, TorchTag):
        expected["torch"] = named.tag.version
    elif isinstance(named.tag, TvmFfiTag):
        expected["tvm-ffi"] = named.tag.version
    for tool in tools:
        name, version = (tool.get("name"), tool.get("version")) if isinstance(tool, dict) else (None, None)
        release = re.match(r"(\d+)\.(\d+)", version) if isinstance(version, str) else None
        wanted = expected.get(name) if isinstance(name, str) else None
        if release is not None and wanted is not None and wanted != (int(release[1]), int(release[2])):
            told = f"{wanted[0]}.{wanted[1]}"
            yield f"it was built with {name} {printable(str(version))}, but the directory is for {name} {told}"


def _library(variant: VariantDir, identifier: str) -> Iterator[Finding]:
    if not isinstance(variant.variant, ArchVariant):
        return
    stems = {
        library.name.split(".", 1)[0] for library in variant.libraries if "/" not in _below(variant, library.shown)
    }
    if not stems:
        yield ID_MISMATCH.at(variant, "its name implies a library, but there is none", symbol=identifier)
    elif identifier not in stems:
        found = ", ".join(sorted(stems))
        said = f"no library is named after the id {identifier}; found {printable(found)}"
        yield ID_MISMATCH.at(variant, said, symbol=identifier)


def _below(variant: VariantDir, shown: str) -> str:
    """The path of a file of the variant below the package's directory."""
    prefix = variant.shown if variant.package == variant.path else join(variant.shown, variant.package.name)
    return shown.removeprefix(prefix.rstrip("/") + "/")


_OPS = re.compile(r"^ops\s*=\s*torch\.ops\.([A-Za-z_]\w*)\s*$", re.MULTILINE)


def _ops(variant: VariantDir, identifier: str) -> Iterator[Finding]:
    below = variant.package.relative_to(variant.path).as_posix()
    file = variant.python.by_path.get("_ops.py" if below == "." else f"{below}/_ops.py")
    if file is None:
        return
    match = _OPS.search(file.text)
    if match is not None and match[1] != identifier:
        line = file.text.count("\n", 0, match.start()) + 1
        yield ID_MISMATCH.at(
            file, f"its ops belong to {match[1]}, but the id is {identifier}", line=line, symbol=match[1]
        )


# --- digest ---

_ALGORITHMS = {"sha256": 32, "sha512": 64}
_NOT_HASHED = frozenset({METADATA, f"{METADATA}.sigstore"})
_THREADS = 4


@checks(VariantDir, NO_DIGEST, DIGEST_MALFORMED, DIGEST_MISMATCH)
def digest(variant: VariantDir, settings: Settings) -> Iterator[Finding]:
    """The digest, file by file."""
    document = variant.metadata
    if document is None:
        return
    entry = document.get("digest")
    if entry is None:
        yield NO_DIGEST.at(_place(variant), "the digest is missing", symbol="digest")
        return
    line = _line_of(variant, "digest")
    problem = _digest_problem(entry)
    if problem is not None or not isinstance(entry, dict):
        yield DIGEST_MALFORMED.at(_place(variant), problem or "it is not an object", symbol="digest", line=line)
        return
    expected: dict[str, str] = entry["files"]
    present = [file.relative for file in variant.listing.files if _is_hashed(file.relative)]
    for path in sorted(expected.keys() - set(present)):
        yield DIGEST_MISMATCH.at(join(variant.shown, path), "listed in the digest, but missing", symbol=path)
    for path in sorted(set(present) - expected.keys()):
        yield DIGEST_MISMATCH.at(join(variant.shown, path), "not in the digest", symbol=path)
    if not settings.hash_files:
        return
    # Those that the Hub does not take have a finding of their own, and hashing them would take minutes.
    small = {file.relative for file in variant.listing.files if file.size <= LARGEST_FILE}
    both = [path for path in present if path in expected and path in small]

    def differs(path: str) -> bool:
        with (variant.path / path).open("rb") as file:
            found = hashlib.file_digest(file, entry["algorithm"]).digest()
        return base64.b64encode(found).decode("ascii") != expected[path]

    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="hash") as pool:
        for path, wrong in zip(both, pool.map(differs, both), strict=True):
            if wrong:
                yield DIGEST_MISMATCH.at(join(variant.shown, path), "does not match the digest", symbol=path)


def _is_hashed(relative: str) -> bool:
    return relative not in _NOT_HASHED and not relative.endswith(".pyc") and "__pycache__" not in relative.split("/")


def _digest_problem(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return "it is not an object"
    algorithm, files = entry.get("algorithm"), entry.get("files")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        return f"its algorithm is not one of {', '.join(_ALGORITHMS)}"
    if not isinstance(files, dict):
        return "it has no 'files'"
    for path, value in files.items():
        if not isinstance(value, str) or not _is_hash(value, _ALGORITHMS[algorithm]):
            return f"the hash of {printable(path)!r} is not a base64 {algorithm}"
    return None


def _is_hash(text: str, length: int) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == length
    except (binascii.Error, ValueError):
        return False


# --- provenance ---

_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")


@checks(VariantDir, PROVENANCE, DIRTY, NO_PROVENANCE)
def provenance(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Who built the variant and from what."""
    document = variant.metadata
    if document is None:
        return
    entry = document.get("provenance")
    line = _line_of(variant, "provenance")
    if entry is None:
        yield NO_PROVENANCE.at(_place(variant), "the provenance is missing", symbol="provenance")
        return
    if not isinstance(entry, dict):
        return  # a matter of types
    problem = _provenance_problem(entry)
    if problem is not None:
        yield PROVENANCE.at(_place(variant), problem, symbol="provenance", line=line)
        return
    kernel = entry.get("kernel")
    if kernel is None:
        yield NO_PROVENANCE.at(_place(variant), "the commit is missing", symbol="provenance.kernel")
    elif kernel["dirty"]:
        yield DIRTY.at(_place(variant), "its sources had uncommitted changes", symbol="provenance.kernel")
    if entry["kernel-builder"].get("dirty"):
        said = "the kernel-builder that built it had uncommitted changes"
        yield DIRTY.at(_place(variant), said, symbol="provenance.kernel-builder")


@checks(VariantDir, PARTIAL)
def whole(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Whether architectures were left out."""
    left_out = variant.built.left_out
    if left_out:
        yield PARTIAL.at(
            _place(variant),
            f"built without {printable(', '.join(left_out))}",
            symbol="provenance.partial",
            line=_line_of(variant, "partial"),
            hint=f"build it for all architectures: kernel-builder build --variant {variant.name}",
        )


@checks(VariantDir, TRIAL)
def tried(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Whether it was built to be tried alone."""
    reason = variant.built.trial
    if reason:
        said = f"built for trying out, not for publishing: {printable(reason)}"
        yield TRIAL.at(_place(variant), said, symbol="provenance.trial", line=_line_of(variant, "trial"))


@checks(VariantDir, NO_RELEASE)
def for_users(variant: VariantDir, _settings: Settings) -> Iterator[Finding]:
    """Whether it was built for something else."""
    build_type = variant.build_type
    if not build_type.is_release:
        yield NO_RELEASE.at(
            _place(variant),
            f"built with {build_type.options}",
            symbol="provenance.build-type",
            line=_line_of(variant, "build-type"),
            hint=f"build it for users with: kernel-builder build --variant {variant.name}",
        )


@checks(BuildFolder, STALE)
def stale_folder(folder: BuildFolder, settings: Settings) -> Iterator[Finding]:
    """The variants of a folder against the sources beside it."""
    yield from _stale(folder.source, folder.path, folder.variants, settings)


@checks(VariantDir, STALE)
def stale_variant(variant: VariantDir, settings: Settings) -> Iterator[Finding]:
    """A variant that is looked at alone."""
    if variant.folder is None:
        yield from _stale(variant.source, variant.path.parent, (variant,), settings)


def _stale(
    source: SourceTree | None, folder: Path, variants: Sequence[VariantDir], settings: Settings
) -> Iterator[Finding]:
    project = source.project if source is not None else None
    built = {variant: variant.built for variant in variants}
    if project is None or settings.sources_of is None or not any(one.sources for one in built.values()):
        return
    now = settings.sources_of(project, folder)
    for variant, one in built.items() if now is not None else ():
        if now is not None and one.is_stale(now):
            said = "built from other sources than those beside it"
            yield STALE.at(_place(variant), said, symbol="provenance.sources", line=_line_of(variant, "sources"))


def _provenance_problem(entry: Mapping[str, object]) -> str | None:
    builder, kernel = entry.get("kernel-builder"), entry.get("kernel")
    if not isinstance(builder, dict) or not isinstance(builder.get("version"), str):
        return "'kernel-builder' with its 'version' is missing"
    keys = {"commit" if key == "sha" else key for key in builder}
    if ("commit" in keys) != ("dirty" in keys):
        return "'kernel-builder' has only one of 'commit' and 'dirty'"
    if "commit" in keys:
        problem = _commit_problem(builder, "kernel-builder")
        if problem is not None:
            return problem
    if kernel is None:
        return None
    if not isinstance(kernel, dict):
        return "'kernel' is not an object"
    return _commit_problem(kernel, "kernel")


def _commit_problem(entry: Mapping[str, object], which: str) -> str | None:
    commit = entry.get("commit", entry.get("sha"))
    if not isinstance(commit, str) or _COMMIT.fullmatch(commit) is None:
        return f"{which}.commit is not 40 or 64 hexadecimal digits"
    if not isinstance(entry.get("dirty"), bool):
        return f"{which}.dirty is neither true nor false"
    return None


def commit_of(variant: VariantDir) -> tuple[str, bool] | None:
    """``(commit, dirty)`` of the sources, where the metadata say so."""
    entry = (variant.metadata or {}).get("provenance")
    kernel = entry.get("kernel") if isinstance(entry, dict) else None
    if not isinstance(kernel, dict) or _commit_problem(kernel, "kernel") is not None:
        return None
    return str(kernel.get("commit", kernel.get("sha"))).lower(), bool(kernel["dirty"])


@checks(BuildFolder, SHARED_ID, DISAGREES)
def variants_together(folder: BuildFolder, _settings: Settings) -> Iterator[Finding]:
    """What must be equal, and what must differ, among the variants of one kernel."""
    first: dict[str, VariantDir] = {}
    for variant in folder.variants:
        commit = commit_of(variant)
        if variant.id is None or commit is None:
            continue
        known = first.setdefault(variant.id, variant)
        before = commit_of(known)
        if before is not None and before[0] != commit[0]:
            said = (
                f"its id is also that of {known.name}, which was built from commit {before[0][:12]}, not"
                f" {commit[0][:12]}"
            )
            yield SHARED_ID.at(_place(variant), said, symbol=variant.id, line=_line_of(variant, "id"))
    for key in ("name", "version", "license"):
        said_by: dict[object, VariantDir] = {}
        for variant in folder.variants:
            value = (variant.metadata or {}).get(key)
            if isinstance(value, str | int):
                said_by.setdefault(value, variant)
        if len(said_by) > 1 and folder.source is None:
            told = " and ".join(f"{value!r} ({variant.name})" for value, variant in list(said_by.items())[:4])
            yield DISAGREES.at(folder.shown, f"its variants have different values of {key!r}: {told}", symbol=key)
