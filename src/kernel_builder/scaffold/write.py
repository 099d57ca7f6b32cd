"""Put a rendered project on disk: all of it or nothing, and never over a file that is not ours to replace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from kernel_builder.errors import UsageError
from kernel_builder.files import replacing


def write_project(root: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    """Write ``files`` (POSIX path -> text) below ``root``, which is made if it is not there.

    Every file is first written beside its place and then renamed, so that a full disk leaves what was there.
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


def _refuse_clashes(root: Path, files: Mapping[str, str], *, overwrite: bool) -> None:
    existing = [path for path in files if os.path.lexists(root / path)]
    blocked = [path for path in existing if (root / path).is_dir()]
    parents = dict.fromkeys(parent for path in files for parent in (root / path).parents)
    blocked += [str(parent) for parent in parents if os.path.lexists(parent) and not parent.is_dir()]
    if blocked:
        raise UsageError(
            f"no project can be written to {root}, since these are in the way: {', '.join(blocked)}",
            hint="move them away or choose another directory; nothing was written",
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
