"""Writes advice into a project's sources: all of it, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_builder.errors import BuildError, MachineError
from kernel_builder.files import write_bytes
from kernel_builder.git import GitError, filters_of, paths_in, run_git
from kernel_builder.workflow.advising import Advice


def apply_advice(
    root: Path, advice: Sequence[Advice], environ: Mapping[str, str], backup: Path, *, force: bool = False
) -> tuple[str, ...]:
    """Write what was proposed into the sources in ``root``; their names. What they were before is kept in ``backup``.

    Raises :class:`BuildError` where one of them is not what was tried any more or, unless ``force`` is given, has
    changes that git does not have; :class:`MachineError` where one cannot be written. Then none is changed.
    """
    texts = {one.source: _bytes(one.proposal.text) for one in advice if one.proposal is not None}
    before = {one.source: _bytes(one.text) for one in advice if one.source in texts}
    changed = [source for source, data in before.items() if _read(root / source) != data]
    if changed:
        raise BuildError(
            f"{_listed(changed)} changed since smaller includes were tried, so nothing was written",
            hint="run kernel-builder timing --advise --apply again",
        )
    dirty = [] if force else _uncommitted(root, tuple(texts), environ)
    if dirty:
        raise BuildError(
            f"{_listed(dirty)} has changes that are not committed, so nothing was written",
            hint="commit them, or run kernel-builder timing --advise --apply --force",
        )
    written: list[str] = []
    try:
        for source, data in before.items():
            (backup / source).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(backup / source, data)
        for source, data in texts.items():
            written.append(source)
            write_bytes(root / source, data)
    except BaseException as error:
        for source in written:
            if _read(root / source) != before[source]:
                write_bytes(root / source, before[source])
        if isinstance(error, OSError):
            raise MachineError(
                f"cannot write {error.filename or root}: {error.strerror}; no source was changed"
            ) from error
        raise
    return tuple(texts)


def _uncommitted(root: Path, sources: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Those of ``sources`` of which git has another text, or none; nothing outside of a repository."""
    if not sources:
        return []
    words = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching", "--no-renames")
    try:
        top = run_git(root, environ, "rev-parse", "--show-prefix").decode("utf-8", "surrogateescape").rstrip("\n")
        output = run_git(root, environ, *words, "--", *sources, without=filters_of(root, environ))
    except GitError:
        return []
    found = {entry[3:] for entry in paths_in(output)}
    return [source for source in sources if f"{top}{source}" in found]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
