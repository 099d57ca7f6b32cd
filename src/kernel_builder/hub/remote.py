"""The Hub, as an upload needs it: every call goes through ``huggingface_hub``, every failure comes out as one sentence.

Listings that fail are errors and never 'nothing there'. Requests that the Hub puts off (429, 503 with ``Retry-After``)
are made again after the wait that it asks for, which is told. ``huggingface_hub`` is imported when the first call is
made: it takes a second.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kernel_builder import __version__
from kernel_builder.errors import BuildError, MachineError, NetworkError, UsageError
from kernel_builder.events import Notice, Reporter, UploadProgress, Waiting
from kernel_builder.hub.plan import SMALL, FileChange, LocalFile, RemoteFile, Snapshot

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.errors import HfHubHTTPError

_LIBRARY = "huggingface_hub"
_SILENCE = 300.0  # seconds without a byte until a connection counts as dead
_ATTEMPTS = 5
_FIRST_WAIT = 1.0
_LATER = frozenset({429, 502, 503, 504})
_GROUP_FILES, _GROUP_BYTES = 256, 512 << 20

Answer = TypeVar("Answer")


class ConflictError(NetworkError):
    """Somebody else changed the branch meanwhile."""


class LostAnswerError(NetworkError):
    """The connection ended before the answer, so that nobody knows whether the Hub did what it was asked for."""


class MissingRepositoryError(NetworkError):
    """There is no such repository, or the account may not see it: the Hub does not say which."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A commit that was made. ``pull_request`` is its number, when it opened one."""

    commit: str
    pull_request: int | None = None


class Remote:
    """One repository on the Hub that ``HF_ENDPOINT`` names, used as ``HF_TOKEN`` or ``hf auth login`` say."""

    def __init__(self, repo_id: str, repo_type: str, reporter: Reporter) -> None:
        from huggingface_hub import HfApi, constants, get_token  # noqa: PLC0415  (import time)

        if repo_type not in getattr(constants, "REPO_TYPES_WITH_KERNEL", constants.REPO_TYPES):
            raise MachineError(
                f"the installed {_LIBRARY} does not support repositories of type {repo_type}",
                hint="run: pip install --upgrade huggingface-hub",
            )
        self.repo_id = repo_id
        self.repo_type = repo_type
        self._reporter = reporter
        self._api: HfApi = HfApi(library_name="kernel-builder", library_version=__version__)
        self.endpoint: str = self._api.endpoint.rstrip("/")
        self.has_token = get_token() is not None

    # Addresses

    @property
    def url(self) -> str:
        """The repository's page."""
        prefix = "kernels/" if self.repo_type == "kernel" else ""
        return f"{self.endpoint}/{prefix}{self.repo_id}"

    def branch_url(self, branch: str) -> str:
        """The page of a branch."""
        return f"{self.url}/tree/{branch}"

    def pull_request_url(self, number: int) -> str:
        """The page of a pull request."""
        return f"{self.url}/discussions/{number}"

    # Reading

    def branches(self) -> dict[str, str]:
        """Branch -> commit. Raises :class:`MissingRepositoryError`."""

        def ask() -> dict[str, str]:
            refs = self._api.list_repo_refs(self.repo_id, repo_type=self.repo_type)
            return {ref.name: ref.target_commit for ref in refs.branches}

        return self._call(f"list the branches of {self.repo_id}", ask)

    def is_private(self) -> bool:
        """Whether the repository is private."""

        def ask() -> bool:
            return bool(self._api.repo_info(self.repo_id, repo_type=self.repo_type).private)

        return self._call(f"read {self.repo_id}", ask)

    def snapshot(self, commit: str) -> Snapshot:
        """All files of a revision."""

        def ask() -> dict[str, RemoteFile]:
            entries = self._api.list_repo_tree(self.repo_id, recursive=True, revision=commit, repo_type=self.repo_type)
            return {entry.path: _remote_file(entry) for entry in entries if hasattr(entry, "blob_id")}

        return Snapshot(commit=commit, files=self._call(f"list the files of {self.repo_id} at {commit[:12]}", ask))

    def files(self, commit: str, paths: Sequence[str]) -> Snapshot:
        """Those of ``paths`` that are in a revision."""

        def ask() -> dict[str, RemoteFile]:
            found = self._api.get_paths_info(self.repo_id, list(paths), revision=commit, repo_type=self.repo_type)
            return {entry.path: _remote_file(entry) for entry in found if hasattr(entry, "blob_id")}

        return Snapshot(commit=commit, files=self._call(f"read {', '.join(paths)} of {self.repo_id}", ask))

    def download(self, path: str, commit: str, into: Path) -> Path:
        """Fetch one file of a revision to ``into / path``."""
        return Path(
            self._call(
                f"fetch {path} of {self.repo_id}",
                lambda: self._api.hf_hub_download(
                    self.repo_id, path, revision=commit, repo_type=self.repo_type, local_dir=into
                ),
            )
        )

    def account(self) -> str | None:
        """Who is logged in; ``None`` when the Hub does not say."""
        if not self.has_token:
            return None
        try:
            return str(self._api.whoami()["name"])
        except (OSError, ValueError, RuntimeError, KeyError):
            return None

    # Writing

    def create(self, *, private: bool) -> None:
        """Make the repository, unless it is there."""
        self._call(
            f"create {self.repo_id}",
            lambda: self._api.create_repo(
                self.repo_id, repo_type=self.repo_type, private=private or None, exist_ok=True
            ),
            creating=True,
        )

    def create_branch(self, branch: str, commit: str, *, exist_ok: bool = True) -> None:
        """Make a branch at ``commit``. One that is there is a :class:`ConflictError`, unless that is ``exist_ok``."""
        self._call(
            f"create the branch {branch}",
            lambda: self._api.create_branch(
                self.repo_id, branch=branch, revision=commit, repo_type=self.repo_type, exist_ok=exist_ok
            ),
        )

    def delete_branch(self, branch: str) -> None:
        """Remove a branch."""
        self._call(
            f"delete the branch {branch}",
            lambda: self._api.delete_branch(self.repo_id, branch=branch, repo_type=self.repo_type),
        )

    def prepare(
        self, changes: Sequence[FileChange], *, revision: str, as_pull_request: bool, progress: SendingProgress
    ) -> dict[str, CommitOperationAdd]:
        """Send the large files among ``changes``, which is no commit yet: nobody sees them until :meth:`commit`.

        Objects that the Hub has are not sent again, so that an upload that was cut off goes on. Returns the operations
        by path. Raises :class:`BuildError` for a file that changed since it was checked.
        """
        operations: dict[str, CommitOperationAdd] = {}
        for group in _groups([change.file for change in changes if change.file is not None]):
            made = {file.path: _operation(file, progress) for file in group}
            self._call(
                f"send files to {self.repo_id}",
                lambda made=made: self._api.preupload_lfs_files(  # type: ignore[misc]
                    self.repo_id,
                    list(made.values()),
                    repo_type=self.repo_type,
                    revision=revision,
                    create_pr=as_pull_request,
                ),
            )
            self._refuse_ignored(made.values(), revision)
            for file in group:
                if _is_large(made[file.path]):
                    progress.reach(file.path, file.size)
            operations |= made
        return operations

    def _refuse_ignored(self, operations: Iterable[CommitOperationAdd], revision: str) -> None:
        """Files that the repository's ``.gitignore`` keeps out would be dropped without a word."""
        ignored = sorted(made.path_in_repo for made in operations if getattr(made, "_should_ignore", False))
        if ignored:
            raise BuildError(
                f"the .gitignore of {self.repo_id} excludes {len(ignored)} file{'s' if len(ignored) > 1 else ''},"
                f" including {ignored[0]}; nothing was published",
                hint=f"remove the matching line from .gitignore on the repository's branch {revision}",
            )

    def commit(
        self,
        batch: Sequence[FileChange],
        operations: dict[str, CommitOperationAdd],
        *,
        branch: str,
        parent: str,
        message: str,
        as_pull_request: bool,
    ) -> Committed:
        """Make one commit on top of ``parent``.

        Raises :class:`ConflictError` when the branch is elsewhere, :class:`LostAnswerError` when it is not known
        whether the commit was made.
        """
        from huggingface_hub import CommitOperationDelete  # noqa: PLC0415  (import time)

        wanted: list[CommitOperationAdd | CommitOperationDelete] = [
            operations[change.path]
            if change.file is not None
            else CommitOperationDelete(path_in_repo=change.path, is_folder=False)
            for change in batch
        ]
        info = self._call(
            f"commit to {branch} of {self.repo_id}",
            lambda: self._api.create_commit(
                self.repo_id,
                wanted,
                commit_message=message,
                repo_type=self.repo_type,
                revision=branch,
                parent_commit=parent,
                create_pr=as_pull_request,
            ),
            changes_something=True,
        )
        return Committed(commit=info.oid, pull_request=info.pr_num if as_pull_request else None)

    # Calls

    def _call(
        self, doing: str, ask: Callable[[], Answer], *, changes_something: bool = False, creating: bool = False
    ) -> Answer:
        """``ask()``, again when the Hub says 'later'. Raises the errors of this module, and their kin."""
        from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415  (import time)

        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._quiet():
                    return ask()
            except _expected_errors() as raised:
                error = _root_cause(raised)
                status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
                lost = status is None and _is_lost(error)
                if changes_something and (lost or (status is not None and status >= 500)):
                    raise LostAnswerError(
                        f"cannot {doing}: {_reason(error)}, so whether the Hub did it is unknown",
                        hint="run the same command again: files that already arrived are not sent again",
                    ) from raised
                if attempt == _ATTEMPTS or not (status in _LATER or lost):
                    raise self._translated(error, doing, creating=creating) from raised
                asked = _retry_after(error)
                self._wait(asked if asked is not None else wait, _reason(error))
                wait *= 2
        raise AssertionError  # the last attempt returns or raises

    def _wait(self, seconds: float, reason: str) -> None:
        self._reporter.emit(Waiting(reason=f"{reason}; retrying in {seconds:.0f} s"))
        time.sleep(seconds)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """The library's own progress bars off, its warnings told as ours, and no connection that hangs for ever."""
        from huggingface_hub import get_session  # noqa: PLC0415  (import time)
        from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
            are_progress_bars_disabled,
            disable_progress_bars,
            enable_progress_bars,
        )

        get_session().timeout = _SILENCE
        shown = not are_progress_bars_disabled()
        if shown:
            disable_progress_bars()
        logger = logging.getLogger(_LIBRARY)
        handlers, propagates = list(logger.handlers), logger.propagate
        logger.handlers, logger.propagate = [_Forward(self._reporter)], False
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield
        finally:
            logger.handlers, logger.propagate = handlers, propagates
            if shown:
                enable_progress_bars()
        for text in dict.fromkeys(str(entry.message) for entry in caught if entry.category is UserWarning):
            self._reporter.emit(Notice(message=f"the Hub: {text}", warning=True))

    def _translated(self, error: BaseException, doing: str, *, creating: bool) -> Exception:
        """``error`` as one sentence with what to do."""
        from huggingface_hub.errors import (  # noqa: PLC0415  (import time)
            HfHubHTTPError,
            HFValidationError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
        )

        if isinstance(error, HFValidationError):
            return UsageError(f"{self.repo_id!r} is not a valid repository name", hint="use the form owner/name")
        if isinstance(error, OfflineModeIsEnabled):
            return NetworkError(f"cannot {doing}: HF_HUB_OFFLINE is set", hint="unset it to upload")
        if isinstance(error, RepositoryNotFoundError):
            return self._missing(doing)
        if isinstance(error, HfHubHTTPError):
            return self._refused(error, doing, creating=creating)
        if isinstance(error, OSError) and error.filename is not None:
            return MachineError(f"cannot read {error.filename}: {error.strerror}")
        if isinstance(error, (*_transport_errors(), OSError)):
            return NetworkError(
                f"cannot {doing}: {_reason(error)}",
                hint=f"check that {self.endpoint} is reachable (HF_ENDPOINT sets the Hub, HTTPS_PROXY a proxy); running"
                " the same command again resumes where this one stopped",
            )
        return NetworkError(f"cannot {doing}: {_first_line(error)}", hint="running the same command again is safe")

    def _missing(self, doing: str) -> Exception:
        who = self.account()
        seen = f"the account {who} cannot see it" if who else "it is visible only when logged in"
        return MissingRepositoryError(
            f"cannot {doing}: there is no {self.repo_type} repository {self.repo_id} on {self.endpoint}, or {seen}",
            hint=_LOGIN
            if who is None
            else "check the name and the type: kernel-builder upload --repo-id OWNER/NAME --repo-type TYPE",
        )

    def _refused(self, error: HfHubHTTPError, doing: str, *, creating: bool) -> Exception:
        status = error.response.status_code
        said = _said(error)
        if status == 401 and error.response.headers.get("X-Error-Code") == "RepoNotFound":
            return self._missing(doing)
        if status == 401:
            return NetworkError(f"cannot {doing}: {self.endpoint} does not accept the token{said}", hint=_LOGIN)
        if status in {400, 403} and not str(error.response.url).startswith(self.endpoint):
            return NetworkError(
                f"cannot {doing}: the Hub's storage rejected a file ({status}){said}",
                hint="its upload URLs expire; run the same command again to resume where this one stopped",
            )
        if status == 403:
            return self._forbidden(doing, said, creating=creating)
        if status in {409, 412}:
            return ConflictError(f"cannot {doing}: somebody else changed it in the meantime{said}")
        if status == 413:
            return NetworkError(
                f"cannot {doing}: the Hub says it is too large{said}",
                hint="make commits smaller: kernel-builder upload --commit-size N",
            )
        if status == 429:
            return NetworkError(
                f"cannot {doing}: the Hub still limits requests after {_ATTEMPTS} attempts{said}",
                hint="wait a few minutes and run the same command again: it resumes where this one stopped",
            )
        if status >= 500:
            return NetworkError(
                f"cannot {doing}: the Hub had an internal error ({status}){said}",
                hint="run the same command again later: it resumes where this one stopped",
            )
        return NetworkError(f"cannot {doing}: the Hub rejected it ({status}){said}")

    def _forbidden(self, doing: str, said: str, *, creating: bool) -> Exception:
        name = self.account()
        who = f"the account {name}" if name else "this account"
        if "create_pr=1" in said:  # advice for programs; ours is in the hint
            said = ""
        owner = self.repo_id.split("/", maxsplit=1)[0]
        if creating and self.repo_type == "kernel":
            return NetworkError(
                f"cannot {doing}: {who} may not publish kernels under {owner}{said}",
                hint="publishing kernels needs two things: write access to the owner (a token with the scope 'write',"
                f" and membership in {owner}), and publishing access for kernels, which the Hub grants on request: see"
                f" 'request access' on {self.endpoint}/kernels. To use another owner, run"
                " kernel-builder upload --repo-id OWNER/NAME; kernel-builder upload --repo-type model needs no"
                " publishing access, but get_kernel does not load from such a repository",
            )
        return NetworkError(
            f"cannot {doing}: {who} may not write to {self.repo_id}{said}",
            hint="use a token with the scope 'write' from an account that may, "
            "or propose the change: kernel-builder upload --create-pr",
        )


_LOGIN = "log in with 'hf auth login', or set HF_TOKEN to a token with the scope 'write'"


def no_token(endpoint: str) -> NetworkError:
    """The error of an upload without a token."""
    return NetworkError(f"uploading to {endpoint} needs a token, but none was found", hint=_LOGIN)


class _Forward(logging.Handler):
    """Tells what the library logs: its waits as waits, other warnings as warnings, the failures before a wait not."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(level=logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        text = (record.getMessage().splitlines() or [""])[0]
        if wait := re.match(r"Rate limited\. Waiting ([0-9.]+)s", text):
            self._reporter.emit(Waiting(reason=f"the Hub asks to wait; retrying in {float(wait[1]):.0f} s"))
        elif wait := re.match(r"Retrying in ([0-9.]+)s", text):
            self._reporter.emit(Waiting(reason=f"the connection failed; retrying in {float(wait[1]):.0f} s"))
        elif "thrown while requesting" not in text and "empty commit" not in text:
            self._reporter.emit(Notice(message=f"the Hub: {text}", warning=True))


class StoppedError(Exception):
    """Sending was stopped from outside (Ctrl-C): it ends the threads that send, and nobody else sees it."""


class SendingProgress:
    """Counts bytes of content on their way, per path, and tells now and then. Every path has one thread that sends it.

    When ``stop`` is set, whoever sends hears it as :class:`StoppedError`.
    """

    _EVERY = 1 << 20

    def __init__(self, what: str, reporter: Reporter, stop: threading.Event | None = None) -> None:
        self._what = what
        self._reporter = reporter
        self._stop = stop
        self._reached: dict[str, int] = {}
        self._told = 0

    @property
    def sent(self) -> int:
        """Bytes so far, in all; what is sent again after a failure counts once."""
        return sum(list(self._reached.values()))

    def reach(self, path: str, position: int) -> None:
        """``position`` bytes of ``path`` are sent. Raises :class:`StoppedError`."""
        if self._stop is not None and self._stop.is_set():
            raise StoppedError
        if position <= self._reached.get(path, 0):
            return
        self._reached[path] = position
        sent = self.sent
        if sent - self._told >= self._EVERY:
            self._told = sent
            self._reporter.emit(UploadProgress(what=self._what, sent=sent))


def _groups(files: Sequence[LocalFile]) -> Iterator[list[LocalFile]]:
    """Files that are sent side by side: not too many, so that a cut loses little."""
    group: list[LocalFile] = []
    weight = 0
    for file in files:
        if group and (len(group) >= _GROUP_FILES or weight + file.size > _GROUP_BYTES):
            yield group
            group, weight = [], 0
        group.append(file)
        weight += file.size
    if group:
        yield group


def _operation(file: LocalFile, progress: SendingProgress) -> CommitOperationAdd:
    """The library's operation for a file, sure to send what was checked."""
    from kernel_builder.hub.sending import CountedFile  # noqa: PLC0415  (imports huggingface_hub)

    if file.content is not None:
        return CountedFile.of_bytes(file.path, file.content)
    source = file.source
    assert source is not None  # noqa: S101  (a file has a source or content)
    status = source.stat()
    if file.stamp != (status.st_size, status.st_mtime_ns):
        raise changed(file)
    if file.size <= SMALL:
        data = source.read_bytes()
        made = CountedFile.of_bytes(file.path, data)
        if made.upload_info.sha256.hex() != file.sha256:
            raise changed(file)
        return made
    return CountedFile.of_path(file.path, source, file.sha256, lambda position: progress.reach(file.path, position))


def changed(file: LocalFile) -> BuildError:
    """The error of a file that no longer is what was checked."""
    return BuildError(
        f"{file.source} changed during the upload", hint="wait for the build to finish, then upload again"
    )


def _is_large(operation: CommitOperationAdd) -> bool:
    return getattr(operation, "_upload_mode", None) == "lfs"


def _remote_file(entry: object) -> RemoteFile:
    lfs = getattr(entry, "lfs", None)
    return RemoteFile(
        path=str(getattr(entry, "path")),  # noqa: B009  (two types of the library, one shape)
        size=int(getattr(entry, "size")),  # noqa: B009
        blob=str(getattr(entry, "blob_id")),  # noqa: B009
        sha256=str(lfs.sha256) if lfs is not None else None,
    )


def _transport_errors() -> tuple[type[Exception], ...]:
    """The base of all errors of the HTTP library that ``huggingface_hub`` uses, whichever it is."""
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415  (import time)

    return tuple(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")


def _expected_errors() -> tuple[type[Exception], ...]:
    """Everything that the library raises when something between here and the Hub goes wrong."""
    return (OSError, ValueError, RuntimeError, *_transport_errors())


def _root_cause(error: BaseException) -> BaseException:
    """The failure itself, where the library wrapped it ('Error while uploading ...')."""
    while type(error) is RuntimeError and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_lost(error: BaseException) -> bool:
    """Whether a connection that was there ended, so that trying again may help at once."""
    return type(error).__name__ in {
        "ReadError",
        "WriteError",
        "CloseError",
        "RemoteProtocolError",
        "ReadTimeout",
        "WriteTimeout",
        "PoolTimeout",
    }


def _reason(error: BaseException) -> str:
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415  (import time)

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status == 429:
            return "the Hub limits requests (429)"
        return f"the Hub responded with {status}{_said(error)}"
    name = type(error).__name__
    if name in {"ReadError", "WriteError", "CloseError", "RemoteProtocolError"}:
        return "the connection was lost"
    if name in {"ReadTimeout", "WriteTimeout", "PoolTimeout", "ConnectTimeout"}:
        return "the Hub does not respond"
    return f"no connection ({_first_line(error)})" if name in {"ConnectError", "ProxyError"} else _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines else type(error).__name__


def _said(error: HfHubHTTPError) -> str:
    """What the Hub itself wrote, as the end of a sentence."""
    text = (error.server_message or "").strip().splitlines()
    return f': "{text[0]}"' if text else ""


def _retry_after(error: BaseException) -> float | None:
    """Seconds that the Hub asks to wait, by ``Retry-After`` (a number or a date)."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    value = str(headers.get("Retry-After", "")).strip()
    if value.isdigit():
        return float(value)
    if value:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415  (rarely needed)

        try:
            return max(parsedate_to_datetime(value).timestamp() - time.time(), 1.0)
        except ValueError:
            return None
    return None
