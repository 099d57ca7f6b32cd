"""What is here to publish: the variants of a project or a build folder, their files, benchmarks and the card.

Reference: interoperability contract 6.1 and 6.4. Unlike the reference, two folders with different variants are a
question and not silently the first (sharp edge 33), and exactly the files that the digest covers are published, links
included (sharp edge 32).
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.artifact.built import CARD, BuiltVariant, variants_in
from kernel_builder.artifact.digest import METADATA, SIGNATURE
from kernel_builder.config.model import Project
from kernel_builder.config.reader import FILE_NAME, load_project
from kernel_builder.errors import BuildError, ConfigError, UsageError
from kernel_builder.files import open_to_hash
from kernel_builder.hub.plan import BENCHMARK_FILES, BENCHMARKS, BUILD, SMALL, LocalFile
from kernel_builder.variants.names import parse_variant

_CANDIDATES = ("result", BUILD)


@dataclass(frozen=True, kw_only=True)
class UploadSource:
    """What is published: ``variants`` of ``folder``, made from ``project`` (``None``: there is no build.toml).

    ``is_whole`` says whether these are all variants of the folder; ``notes`` are for people: what was skipped.
    """

    directory: Path
    project: Project | None
    folder: Path
    variants: tuple[BuiltVariant, ...]
    is_whole: bool = True
    notes: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The version that all variants agree on. Raises :class:`BuildError` when they do not."""
        versions = {variant.version for variant in self.variants}
        if len(versions) == 1 and (version := versions.pop()) is not None:
            return version
        listed = "\n  ".join(f"{variant.name}: version {variant.version}" for variant in self.variants)
        raise BuildError(
            f"the variants in {self.folder} have different versions:\n  {listed}",
            hint="rebuild those with the wrong version, or remove them",
        )


def find_source(directory: Path, only: Collection[str] | None = None) -> UploadSource:
    """The built variants that ``directory`` means to a command: in its ``result``, its ``build`` or itself.

    ``only`` narrows them down to those names.
    Raises :class:`UsageError` when there are none, or different ones in several places; :class:`ConfigError` when
    build.toml or a ``metadata.json`` has mistakes.
    """
    if not directory.is_dir():
        raise UsageError(
            f"{directory} is not a directory", hint="pass the project, or the directory that contains variants"
        )
    directory = Path(os.path.abspath(directory))  # noqa: PTH100  (a link named result is kept as it was named)
    notes: list[str] = []
    found: dict[Path, tuple[BuiltVariant, ...]] = {}
    for folder in (*(directory / name for name in _CANDIDATES), directory):
        if folder.is_symlink() and not folder.exists():
            notes.append(f"{folder} is a broken link ({folder.readlink()}); skipped")
            continue
        variants = variants_in(folder)
        if variants and folder.resolve() not in {other.resolve() for other in found}:
            found[folder] = variants
    if not found:
        looked = ", ".join(str(directory / name) for name in _CANDIDATES)
        raise UsageError(
            f"no built variant (a directory with {METADATA}) in {looked} or in {directory} itself"
            + "".join(f"\n  {note}" for note in notes),
            hint=_what_to_name(directory),
        )
    folder = next(iter(found)) if len(found) == 1 else _the_same(found)
    _refuse_incomplete(folder)
    root = next((place for place in (directory, directory.parent) if (place / FILE_NAME).is_file()), None)
    project = load_project(root)[0] if root is not None else None
    variants = tuple(variant for variant in found[folder] if only is None or variant.name in only)
    return UploadSource(
        directory=root or directory,
        project=project,
        folder=folder,
        variants=variants,
        is_whole=len(variants) == len(found[folder]),
        notes=tuple(notes),
    )


def _what_to_name(directory: Path) -> str:
    for place in directory.parents:
        if (place / FILE_NAME).is_file():
            return f"builds are needed, not sources; pass the project: {place}"
    if (directory / FILE_NAME).is_file():
        return f"build it first: kernel-builder build {shlex.quote(str(directory))}"
    return "pass the project (the directory that contains build.toml), or the directory with the variants"


def _the_same(found: Mapping[Path, Sequence[BuiltVariant]]) -> Path:
    """The one to take of several folders with variants: any, when they hold the same ones."""
    contents = [
        {variant.name: (variant.path / METADATA).read_bytes() for variant in variants} for variants in found.values()
    ]
    if all(content == contents[0] for content in contents):
        return list(found)[-1]

    def age(folder: Path) -> float:
        return max((variant.path / METADATA).stat().st_mtime for variant in found[folder])

    newest = max(found, key=age)
    listed = "".join(
        f"\n  {folder} ({len(variants)} variant{'s' if len(variants) > 1 else ''}"
        f"{', the newest' if folder == newest else ''})"
        for folder, variants in found.items()
    )
    raise UsageError(
        f"found different variants in several places:{listed}",
        hint=f"pass the one to upload, for example: kernel-builder upload {newest}",
    )


def _refuse_incomplete(folder: Path) -> None:
    """Directories that are named like variants and have no metadata are halves of something."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_dir() or (path / METADATA).is_file():
            continue
        try:
            parse_variant(path.name)
        except ValueError:
            continue
        raise BuildError(f"{path} is incomplete: it has no {METADATA}", hint="build it again, or remove it")


def variant_files(variant: BuiltVariant, folder: Path) -> tuple[LocalFile, ...]:
    """The files of a variant as they are published: what its digest covers, ``metadata.json`` and its signature.

    Every one is read and compared with the digest in ``metadata.json``. Raises :class:`BuildError` that names what is
    not as the digest says, a link that leads out of ``folder``, and a link to a directory, which neither the digest
    nor an upload follows.
    """
    inside = (folder.resolve(), variant.path.resolve())  # a variant's directory may itself be a link
    found = {
        relative: read_file(path, f"{BUILD}/{variant.name}/{relative}") for relative, path in _walk(variant, inside)
    }
    problems = _digest_problems(variant, found)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems[:20])
        more = f"\n  and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise BuildError(f"{variant.path} does not match its digest:{listed}{more}", hint="build it again")
    return tuple(found.values())


def places_in(variant: BuiltVariant) -> dict[str, Path]:
    """The files of :func:`variant_files` by their paths in the variant, and where they lie. Raises as that does."""
    files = variant_files(variant, variant.path.parent)
    return {
        file.path.removeprefix(f"{BUILD}/{variant.name}/"): file.source for file in files if file.source is not None
    }


def _walk(variant: BuiltVariant, inside: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    """``(relative path, file)`` as the digest walks (contract 4.2), and the files that it leaves out on purpose."""
    for parent, directories, files in os.walk(variant.path):
        directories[:] = sorted(name for name in directories if name != "__pycache__")
        for name in directories:
            path = Path(parent) / name
            if path.is_symlink():
                raise BuildError(
                    f"{path} is a link to a directory, which no digest covers and the Hub would not have",
                    hint="replace the link with the directory itself",
                )
        for name in sorted(files):
            path = Path(parent) / name
            if path.suffix == ".pyc":
                continue
            if path.is_symlink():
                _follow(path, inside)
            if not path.is_file():
                raise BuildError(f"{path} is not a regular file, so it cannot be published", hint="remove it")
            yield path.relative_to(variant.path).as_posix(), path


def _follow(path: Path, inside: tuple[Path, ...]) -> None:
    try:
        target = path.resolve(strict=True)
    except OSError as error:
        raise BuildError(f"{path} is a broken link ({path.readlink()})", hint="rebuild the variant") from error
    if not any(target.is_relative_to(place) for place in inside):
        raise BuildError(
            f"{path} is a link out of {inside[0]}, to {target}, which is not part of the build",
            hint="replace the link with the file itself",
        )


def _digest_problems(variant: BuiltVariant, found: Mapping[str, LocalFile]) -> list[str]:
    """What the digest in ``metadata.json`` and the files disagree about, in the order of contract 4.2."""
    digest = variant.metadata.get("digest")
    expected = digest.get("files") if isinstance(digest, dict) else None
    if not isinstance(digest, dict) or not isinstance(expected, dict):
        return [f"{METADATA} has no digest"]
    algorithm = digest.get("algorithm")
    if algorithm not in {"sha256", "sha512"}:
        return [f"{METADATA}: unknown digest algorithm {algorithm!r}"]
    hashed = {path: file for path, file in found.items() if path not in {METADATA, SIGNATURE}}
    problems: list[str] = []
    for path in sorted(expected):
        if path not in hashed:
            problems.append(f"{path} is missing")
        elif _digest_of(hashed[path], algorithm) != expected[path]:
            problems.append(f"{path} was changed after the build")
    problems += [f"{path} is not in the digest" for path in sorted(set(hashed) - set(expected))]
    return problems


def _digest_of(file: LocalFile, algorithm: str) -> str:
    raw = bytes.fromhex(file.sha256)
    if algorithm == "sha512":
        assert file.source is not None  # noqa: S101  (variants' files lie on disk)
        with file.source.open("rb") as stream:
            raw = hashlib.file_digest(stream, "sha512").digest()
    return base64.b64encode(raw).decode("ascii")


def read_file(source: Path, path: str) -> LocalFile:
    """A file on disk, hashed, to be published as ``path``. Raises ``OSError``."""
    with open_to_hash(source) as stream:
        status = os.fstat(stream.fileno())
        blob = None
        if status.st_size <= SMALL:
            data = stream.read()
            sha256 = hashlib.sha256(data).hexdigest()
            blob = git_blob(data)
        else:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return LocalFile(
        path=path,
        size=status.st_size,
        sha256=sha256,
        blob=blob,
        source=source,
        stamp=(status.st_size, status.st_mtime_ns),
    )


def text_file(path: str, text: str) -> LocalFile:
    """A file that is made here, to be published as ``path``."""
    data = text.encode("utf-8")
    return LocalFile(
        path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), blob=git_blob(data), content=data
    )


def git_blob(data: bytes) -> str:
    """git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def benchmark_files(directory: Path) -> tuple[LocalFile, ...] | None:
    """``benchmarks/benchmark*.py`` of a project; ``None`` when it has no such folder (contract 6.4, step 6a)."""
    folder = directory / BENCHMARKS
    if not folder.is_dir():
        return None
    return tuple(
        read_file(path, f"{BENCHMARKS}/{path.name}") for path in sorted(folder.glob(BENCHMARK_FILES)) if path.is_file()
    )


def has_card(source: UploadSource) -> bool:
    """Whether :func:`card_text` finds a text."""
    return source.project is not None or (source.folder / CARD).is_file()


def card_text(source: UploadSource, repo_id: str, others: Sequence[BuiltVariant] = ()) -> str | None:
    """The text for README.md: the project's card filled in, else the ``CARD.md`` beside the variants, else none.

    ``others`` are variants that are published already and stay: the card tells of them, too.
    """
    from kernel_builder.interface.card import fill_card  # noqa: PLC0415  (jinja2 takes its time)

    if source.project is not None:
        variants = sorted((*source.variants, *others), key=lambda variant: variant.name)
        return fill_card(source.project, variants, repo_id=repo_id)
    card = source.folder / CARD
    if not card.is_file():
        return None
    try:
        return card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{card} is not UTF-8: {error.reason} at byte {error.start}") from error
