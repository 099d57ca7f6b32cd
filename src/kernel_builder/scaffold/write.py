"""Put a rendered project on disk: all of it or nothing, and never over a file that is not ours to replace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kernel_builder.errors import UsageError


def write_project(root: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    """Write ``files`` (POSIX path -> text) below ``root``, which is made if it is not there.

    Every file is first written beside its place and then renamed, so that a full disk leaves what was there.
    Raises :class:`UsageError` that names everything in the way: files that exist (without ``overwrite``), and
    what can never be replaced (a directory where a file goes, a file where a directory goes). Raises
    :class:`OSError` where the system refuses.
    """
    _refuse_clashes(root, files, overwrite=overwrite)
    made: list[Path] = []
    written: list[tuple[Path, Path]] = []
    try:
        for path, text in files.items():
            target = root / path
            made += _make_directories(target.parent)
            written.append((_write_beside(target, text), target))
        for temporary, target in written:
            temporary.replace(target)
    except BaseException:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)
        for directory in reversed(made):
            if not any(directory.iterdir()):
                directory.rmdir()
        raise


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
            hint="pass --overwrite to replace these files, or choose another directory; nothing was written",
        )


def _make_directories(directory: Path) -> list[Path]:
    """Make ``directory`` and its parents; return those that were missing, outermost first."""
    missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    missing.reverse()
    directory.mkdir(parents=True, exist_ok=True)
    return missing


def _write_beside(target: Path, text: str) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        # mkstemp makes private files; these are ordinary ones, as the user's umask has them.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
