"""The project as it was in a commit, checked out beside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_builder.errors import UsageError
from kernel_builder.events import Notice
from kernel_builder.git import GitError, filters_of, run_git
from kernel_builder.workflow.run import Run


def commit_of(text: str, root: Path, run: Run) -> str:
    """The commit that ``text`` names in the repository of ``root``, as git writes names.

    Raises :class:`GitError`, a silent one where there is no such commit.
    """
    told = run_git(root, run.environ, "rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
    return told.decode().strip()


@contextmanager
def checked_out(commit: str, root: Path, place: Path, run: Run) -> Iterator[Path]:
    """The project of ``root`` as it was in ``commit``, in ``place``. Contents are those of git: no filter is run.

    Raises :class:`UsageError` where git cannot.
    """
    try:
        without = filters_of(root, run.environ)
        below = run_git(root, run.environ, "rev-parse", "--show-prefix").decode().strip()
        run_git(root, run.environ, "worktree", "add", "--quiet", "--detach", str(place), commit, without=without)
    except GitError as error:
        raise UsageError(f"cannot check out {commit[:12]}: {error}", hint="see 'git worktree list'") from error
    try:
        yield place / below
    finally:
        try:
            run_git(root, run.environ, "worktree", "remove", "--force", str(place), without=without)
        except GitError as error:
            message = f"the worktree {place} could not be removed: {error}; 'git worktree prune' forgets it"
            run.reporter.emit(Notice(message=message, warning=True))
