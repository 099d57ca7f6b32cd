"""Put a rendered project on disk: all of it or nothing, and never over a file that is not ours to replace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from kernel_builder.config.reader import load_project
from kernel_builder.errors import KernelBuilderError, UsageError
from kernel_builder.files import replacing
from kernel_builder.scaffold.names import ProjectName, parse_repo_id
from kernel_builder.scaffold.render import renderings


def former_files(root: Path, names: ProjectName, files: Mapping[str, str]) -> Mapping[str, frozenset[str]]:
    """Files in ``root`` that an earlier ``init`` can have written and that are not among ``files``, by POSIX path,
    with the texts that it would have written.

    The earlier project is one of ``names`` with other backends, or that which ``build.toml`` names.
    """
    former: dict[str, frozenset[str]] = {}
    for earlier in dict.fromkeys((names, *_named_in(root))):
        for path, texts in renderings(earlier).items():
            if path not in files and os.path.lexists(root / path):
                former[path] = former.get(path, frozenset()) | texts
    return former


def _named_in(root: Path) -> tuple[ProjectName, ...]:
    """The names of the project that is in ``root``, if one can be read."""
    try:
        project, _ = load_project(root)
        return (parse_repo_id(project.hub.repo_id or project.name)[0],)
    except (KernelBuilderError, OSError):
        return ()


def write_project(
    root: Path,
    files: Mapping[str, str],
    *,
    overwrite: bool,
    former: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Write ``files`` (POSIX path -> text) below ``root``, which is made if it is not there.

    Every file is first written beside its place and then renamed, so that a full disk leaves what was there. Then the
    files of ``former`` (POSIX path -> texts) that still have one of these texts are removed; the others are returned.
    Raises :class:`UsageError` that names everything in the way: files that exist (without ``overwrite``), and
    what can never be replaced (a directory where a file goes, a file where a directory goes). Raises
    :class:`OSError` where the system refuses.
    """
    _refuse_clashes(root, files, overwrite=overwrite)
    made: list[Path] = []
    try:
        with ExitStack() as stack:
            for path, text in files.items():
                target = root / path
                made += _make_directories(target.parent)
                # A link in a project may lead to a file of another one.
                file = stack.enter_context(replacing(target, follow_links=False))
                file.write(text.encode("utf-8"))
                file.flush()
    except BaseException:
        for directory in reversed(made):
            if not any(directory.iterdir()):
                directory.rmdir()
        raise
    return tuple(path for path, texts in former.items() if not _remove_unchanged(root, path, texts))


def _remove_unchanged(root: Path, path: str, texts: frozenset[str]) -> bool:
    """Remove the file if it has one of ``texts``, with the directories that are empty then; whether it was."""
    file = root / path
    if file.is_symlink() or not file.is_file() or file.read_bytes() not in {text.encode("utf-8") for text in texts}:
        return False
    file.unlink()
    for directory in file.parents:
        if directory == root or any(directory.iterdir()):
            break
        directory.rmdir()
    return True


def _refuse_clashes(root: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    existing = [path for path in files if os.path.lexists(root / path)]
    blocked = [path for path in existing if (root / path).is_dir()]
    parents = dict.fromkeys(parent for path in files for parent in (root / path).parents)
    blocked += [str(parent) for parent in parents if os.path.lexists(parent) and not parent.is_dir()]
    if blocked:
        raise UsageError(
            f"cannot create a project in {root}, because these are in the way: {', '.join(blocked)}",
            hint="move them or choose another directory; nothing was written",
        )
    if existing and not overwrite:
        raise UsageError(
            f"{root} already has {', '.join(existing)}",
            hint="run kernel-builder init --overwrite to replace these files, or choose another directory; nothing was"
            " written",
        )


def _make_directories(directory: Path) -> list[Path]:
    """Make ``directory`` and its parents; return those that were missing, outermost first."""
    missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    missing.reverse()
    directory.mkdir(parents=True, exist_ok=True)
    return missing
