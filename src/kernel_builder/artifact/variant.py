"""Makes variant directories: complete beside their place, then renamed into it, or not at all.

Reference: interoperability contract 3.5 (install layout) and 4.1 (metadata).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernel_builder.actions.places import Places
from kernel_builder.artifact.digest import METADATA, hash_variant
from kernel_builder.binary.elf import ElfError, mapped
from kernel_builder.binary.renaming import renamed
from kernel_builder.errors import BuildError, MachineError
from kernel_builder.plan.model import VariantPlan

_FILE_MODE = 0o644
_LIBRARY_MODE = 0o755
_NEW, _OLD = ".new", ".old"


def metadata_text(plan: VariantPlan, digest: dict[str, str]) -> str:
    """``metadata.json`` of a finished variant: the plan's document with the digest before the provenance."""
    document: dict[str, object] = {}
    for key, value in plan.metadata.items():
        if key == "provenance":
            document["digest"] = {"algorithm": "sha256", "files": digest}
        document[key] = value
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def check_space(output: Path, needed: int) -> None:
    """Raise :class:`MachineError` before any work when ``output`` cannot take ``needed`` bytes.

    Permissions do not tell whether a directory can be made in a place (``/proc``), so one is made there.
    """
    existing = next(path for path in (output, *output.parents) if path.exists())
    try:
        Path(tempfile.mkdtemp(prefix=".kernel-builder-", dir=existing)).rmdir()
    except OSError as error:
        raise MachineError(
            f"cannot write to {output}: {existing} takes no new directory ({os.strerror(error.errno or errno.EIO)})",
            hint="pass a directory that you can write to: kernel-builder build --output DIR; other commands need a copy"
            " of the project",
        ) from error
    usage = shutil.disk_usage(existing)
    free = usage.free
    if usage.total and free < needed:
        raise MachineError(
            f"not enough disk space for {output}: about {needed / 2**20:.0f} MiB needed, {free / 2**20:.0f} MiB free",
            hint="free some space, or choose another directory: kernel-builder build --output DIR",
        )


@contextmanager
def stage_for(name: str, output: Path) -> Iterator[Path]:
    """An empty directory in ``output``, for the variant ``name`` to be made in.

    Use :func:`publish` inside the block to put it in place; otherwise nothing is left of it. Raises
    :class:`MachineError` when the disk is full or cannot be written.
    """
    with _disk_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{name}-{os.getpid()}-", suffix=_NEW, dir=output))
    try:
        stage.chmod(0o755)
        yield stage
    finally:
        if stage.exists():
            shutil.rmtree(stage, ignore_errors=True)


def fill(stage: Path, plan: VariantPlan, places: Places) -> None:
    """Put the whole variant into ``stage``, an empty directory of :func:`stage_for`: metadata included. Raises what
    that does, and :class:`BuildError` where something to install is gone.
    """
    with _disk_errors(places.output):
        _fill(stage, plan, places)


@contextmanager
def copied(name: str, files: Mapping[str, Path], output: Path) -> Iterator[Path]:
    """A directory in ``output`` with copies of the finished variant ``name``, whose ``files`` are given by their paths
    in it; see :func:`stage_for`. Links become the files that they lead to.
    """
    with stage_for(name, output) as stage:
        with _disk_errors(output):
            for relative, origin in files.items():
                target = stage / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(origin, target)
                target.chmod(_LIBRARY_MODE if target.suffix == ".so" else _FILE_MODE)
            _open_directories(stage)
        yield stage


def publish(stage: Path, output: Path, name: str) -> bool:
    """Rename a staged variant to ``output / name`` and remove what was there. False when that was the same already."""
    final = output / name
    with _disk_errors(output):
        if _same(stage, final):
            return False
        if final.is_symlink():
            final.unlink()
        if not final.exists():
            stage.rename(final)
        elif _exchange(stage, final):
            shutil.rmtree(stage)
        else:
            _replace(stage, final, output / f".{name}{_OLD}")
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step, so that there is no moment without a variant. False where that is impossible.

    ``renameat2`` with ``RENAME_EXCHANGE``: Linux 3.15, glibc 2.28, and most file systems.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # there is none on macOS; Windows has no library without a name
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _replace(stage: Path, final: Path, old: Path) -> None:
    """Put ``stage`` in the place of ``final`` by way of ``old``, which :func:`recover` brings back after a crash."""
    if old.exists():
        shutil.rmtree(old)
    final.rename(old)
    try:
        stage.rename(final)
    except BaseException:
        old.rename(final)
        raise
    shutil.rmtree(old)


def _same(stage: Path, final: Path) -> bool:
    """Whether ``final`` already holds exactly what ``stage`` does."""
    if final.is_symlink() or not (final / METADATA).is_file():
        return False
    if (stage / METADATA).read_bytes() != (final / METADATA).read_bytes():
        return False
    try:
        return hash_variant(final) == hash_variant(stage)
    except OSError:
        return False


def recover(output: Path, names: tuple[str, ...]) -> None:
    """Clean up after processes that were killed: bring back variants without successor, drop what is half done.

    What a running process is making is left alone.
    """
    if not output.is_dir():
        return
    with _disk_errors(output):
        for name in names:
            old, final = output / f".{name}{_OLD}", output / name
            if old.exists() and final.exists():
                shutil.rmtree(old)
            elif old.exists():
                old.rename(final)
            for stage in output.glob(f".{name}-*-*{_NEW}"):
                owner = stage.name.removeprefix(f".{name}-").split("-")[0]
                if owner.isdigit() and not _is_running(int(owner)):
                    shutil.rmtree(stage, ignore_errors=True)


def _is_running(process: int) -> bool:
    """Whether there is a process of that number; where that cannot be told, there is."""
    if os.name == "nt":  # where os.kill would end it
        return _is_running_on_windows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def _is_running_on_windows(process: int) -> bool:
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  (mypy reads this for Linux)
    handle = kernel.OpenProcess(0x1000, False, process)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not handle:
        return bool(kernel.GetLastError() == 5)  # ERROR_ACCESS_DENIED: there is one
    code = ctypes.c_ulong()
    answered = kernel.GetExitCodeProcess(handle, ctypes.byref(code))
    kernel.CloseHandle(handle)
    return not answered or code.value == 259  # STILL_ACTIVE


def _fill(stage: Path, plan: VariantPlan, places: Places) -> None:
    for file in plan.installed:
        target = stage / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.content is not None:
            target.write_text(file.content, encoding="utf-8")
        elif file.origin is not None:
            origin = places.path(file.origin)
            try:
                shutil.copyfile(origin, target)
            except FileNotFoundError as error:
                raise BuildError(f"{origin} disappeared while the variant was being installed") from error
        target.chmod(_FILE_MODE)
    if plan.library is not None:
        target = stage / plan.library_name
        _install_library(places.path(plan.library), plan, target)
        target.chmod(_LIBRARY_MODE)
    text = metadata_text(plan, hash_variant(stage))
    (stage / METADATA).write_text(text, encoding="utf-8")
    (stage / METADATA).chmod(_FILE_MODE)
    _open_directories(stage)


def _open_directories(stage: Path) -> None:
    for directory in (path for path in stage.rglob("*") if path.is_dir()):
        directory.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)


def _install_library(library: Path, plan: VariantPlan, target: Path) -> None:
    """Copy a library under the ops id of its variant, which need not be the one that it was linked as."""
    if plan.linked_as == plan.ops_id:
        shutil.copyfile(library, target)
        return
    try:
        with mapped(library) as data:
            target.write_bytes(renamed(data, plan.linked_as, plan.ops_id))
    except ElfError as error:
        raise BuildError(
            f"cannot install {library} as {plan.ops_id}: {error}", hint="delete it and build again"
        ) from error


@contextmanager
def _disk_errors(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise MachineError(
                f"the disk of {output} is full; the variant was not installed", hint="free some space and build again"
            ) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise MachineError(f"cannot write {error.filename or output}: {os.strerror(error.errno)}") from error
        raise
