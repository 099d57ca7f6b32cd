"""The one door to git. Whatever a repository's own configuration says, no program of its choice is started.

A repository comes with a configuration (``.git/config``, what that includes, submodules', bare repositories somewhere
inside), and git starts many programs that it names: a file system monitor, hooks, filters of file contents, transports
of a partial clone. Whoever looks at a project has not agreed to run them. Programs that the user's own configuration
names, such as a credential helper, serve transfers that the user asked for.
Reference: git-config(1), gitattributes(5), githooks(5); "SECURITY" in git(1).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_SECONDS = 60
_KEPT = ("CONFIG", "CEILING_", "EXEC_PATH", "SSH", "SSL_", "ASKPASS", "PROXY_", "HTTP_")
"""Beginnings of git's own variables that say how it works, not which repository it works on: in a hook, those name
another one than the kernel's."""
_QUIET = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    # Folders that merely look like a repository (HEAD, objects, refs) may come with any project.
    "safe.bareRepository=explicit",
    "protocol.ext.allow=never",
    "status.renames=false",
)
_FILTER_KEYS = ("clean=", "smudge=", "process=", "required=false")
_PROTOCOLS = "https:http:git:ssh:file"


class GitError(Exception):
    """git cannot answer; the text says why, for people. ``silent``: it ended with code 1 and not a word."""

    silent = False


class GitMissingError(GitError):
    """There is no git on PATH."""


class GitTooSlowError(GitError):
    """git took too long."""


def run_git(
    root: Path,
    environ: Mapping[str, str],
    *arguments: str,
    without: Iterable[str] = (),
    transfers: bool = False,
    seconds: float = _SECONDS,
) -> bytes:
    """What ``git <arguments>`` prints, run in ``root`` with the variables ``environ``.

    ``without`` are filters of contents to switch off: see :func:`filters_of`, and pass its answer wherever git may read
    files of the tree. Nothing is fetched unless ``transfers``. Raises :class:`GitError`.
    """
    settings = [*_QUIET, *(f"filter.{name}.{key}" for name in without for key in _FILTER_KEYS)]
    words = [word for setting in settings for word in ("-c", setting)]
    try:
        completed = subprocess.run(
            ["git", "--no-pager", *words, "-C", str(root), *arguments],
            capture_output=True,
            check=False,
            env=_environment(environ, transfers=transfers),
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise GitMissingError("git is not on PATH") from error
    except OSError as error:
        raise GitError(f"git does not run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise GitTooSlowError(f"git did not respond within {seconds:g} s") from error
    if completed.returncode != 0:
        failure = GitError(_reason(completed.stderr))
        failure.silent = completed.returncode == 1 and not completed.stderr
        raise failure
    return completed.stdout


def _environment(environ: Mapping[str, str], *, transfers: bool) -> dict[str, str]:
    def counts(name: str) -> bool:
        return not name.startswith("GIT_") or name.removeprefix("GIT_").startswith(_KEPT)

    return {
        **{name: value for name, value in environ.items() if counts(name)},
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",  # looking at a tree changes nothing in it
        "GIT_TERMINAL_PROMPT": "0",
        # An object that a partial clone lacks would be fetched, with programs that its configuration names.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": _PROTOCOLS if transfers else "none",
    }


def _reason(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    # Advice follows the reason, and other programs' words may stand before it.
    reason = next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "it failed")
    return reason.removeprefix("fatal: ")


def filters_of(root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The filters of file contents that any configuration defines for the repository of ``root``, sorted.

    A file's attributes, which come with a project, choose among them. The user's own are among them also: such as
    git-lfs, they read settings of the repository. Raises :class:`GitError`.
    """
    try:
        keys = run_git(root, environ, "config", "-z", "--name-only", "--get-regexp", r"^filter\.")
    except GitError as error:
        if error.silent:  # its answer when nothing matches
            return ()
        raise
    parts = [key.removeprefix("filter.").rpartition(".") for key in paths_in(keys)]
    found = {name for name, dot, _ in parts if dot}
    if any("=" in name for name in found):
        raise GitError("its git configuration has a filter that cannot be switched off")
    return tuple(sorted(found))


def deciding_files(root: Path, environ: Mapping[str, str]) -> tuple[Path, ...] | None:
    """The files, whether they exist or not, that decide what git says of the tree in ``root``, besides the files of the
    tree itself. ``None`` where that cannot be told: a configuration includes other files.

    Reference: gitrepository-layout(5), git-config(1) "FILES".
    """
    found: list[Path] = []
    folder = common = None
    for place in (root, *root.parents):
        found.append(place / ".git")
        folder = _repository_at(place / ".git")
        if folder is not None:
            break
    configurations = _users_configurations(environ)
    if folder is not None:
        found += [folder / "commondir", folder / "HEAD", folder / "index"]
        pointed = _content(folder / "commondir").strip()
        common = Path(os.path.join(folder, pointed)) if pointed else folder  # noqa: PTH118
        branch = _content(folder / "HEAD").strip().removeprefix("ref: ")
        found += [common / branch] if branch.startswith("refs/") else []
        found += [common / "packed-refs", common / "reftable" / "tables.list", common / "info" / "attributes"]
        configurations += [common / "config", folder / "config.worktree"]
    if any("[include" in _content(file).lower() for file in configurations):
        return None
    return (*found, *configurations)


def _repository_at(path: Path) -> Path | None:
    """The repository that ``.git`` is, or names."""
    if path.is_dir():
        return path
    kind, _, named = _content(path).strip().partition(": ")
    return Path(os.path.join(path.parent, named)) if kind == "gitdir" else None  # noqa: PTH118


def _users_configurations(environ: Mapping[str, str]) -> list[Path]:
    program = shutil.which("git", path=environ.get("PATH"))
    home = environ.get("HOME", "")
    own = Path(environ.get("XDG_CONFIG_HOME") or f"{home}/.config") / "git"
    found = [Path("/etc/gitconfig"), Path(home, ".gitconfig"), own / "config", own / "attributes"]
    found += [Path(environ[name]) for name in ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL") if environ.get(name)]
    return found + ([Path(program).resolve().parents[1] / "etc" / "gitconfig"] if program else [])


def _content(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def paths_in(output: bytes) -> tuple[str, ...]:
    """The paths of output that git was asked for with ``-z``."""
    return tuple(_text(path) for path in output.split(b"\0") if path)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
