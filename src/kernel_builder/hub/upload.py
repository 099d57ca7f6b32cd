"""An upload from end to end: what is here is checked, compared with the Hub, and what differs is published.

    UploadSource -> Checked -> UploadPlan -> large files -> commits -> Outcome

Nobody sees half of an upload: large files are sent before any commit; a new version that takes several commits grows on
a branch of its own, and its version branch is made when the last of them is there; on a branch that exists, every
commit holds whole variants. Running the same upload again resumes where the last run stopped.
Reference: interoperability contract 6.4, sharp edges 33 to 38.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from kernel_builder.artifact.built import BuiltVariant
from kernel_builder.artifact.digest import METADATA
from kernel_builder.errors import KernelBuilderError, NetworkError, UsageError
from kernel_builder.events import Notice, Reporter, UploadFinished, UploadStarted, Waiting
from kernel_builder.files import parse_json
from kernel_builder.hub.gate import Checked, Proving, check_source, missing_variants
from kernel_builder.hub.local import UploadSource, benchmark_files, card_text, find_source, has_card, text_file
from kernel_builder.hub.plan import (
    BUILD,
    COMMIT_OPERATIONS,
    MAIN,
    README,
    BranchPlan,
    FileChange,
    LocalFile,
    Snapshot,
    UploadPlan,
    is_same,
    plan_branch,
    staging_branch,
    stale_files,
)
from kernel_builder.hub.remote import (
    ConflictError,
    LostAnswerError,
    MissingRepositoryError,
    Remote,
    SendingProgress,
    no_token,
)
from kernel_builder.interface.diff import Published, compare
from kernel_builder.interface.read import read_interface

MESSAGE = "Uploaded using `kernel-builder`."
_LOST_ANSWERS = 3


@dataclass(frozen=True, kw_only=True)
class UploadRequest:
    """What ``kernel-builder upload`` was asked for; ``None`` stands for what build.toml or the variants say.

    ``readme`` says whether the card goes to main: ``None`` means unless a newer version is published. ``ignore`` names
    conformance rules to pass over. ``commit_operations`` is the most files in one commit. ``only`` names the variants
    to publish, where that is not all of them. ``allow_stale`` publishes also what was built from other sources than
    those beside it. ``proving`` says how variants are loaded before (``None``: they are not).
    """

    directory: Path
    repo_id: str | None = None
    branch: str | None = None
    private: bool = False
    repo_type: str = "kernel"
    create_pr: bool = False
    readme: bool | None = None
    ignore: tuple[str, ...] = ()
    commit_operations: int = COMMIT_OPERATIONS
    only: tuple[str, ...] | None = None
    allow_stale: bool = False
    proving: Proving | None = None


class UploadStatus(StrEnum):
    """How an upload ended; the values are the contract's."""

    NO_CHANGES = "no_changes"
    UPLOADED = "uploaded"
    PULL_REQUEST_CREATED = "pull_request_created"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an upload did. ``url`` is the branch's page; ``pull_requests`` are ``(branch, page)`` of those opened."""

    status: UploadStatus
    repo_id: str
    branch: str
    url: str | None
    pull_requests: tuple[tuple[str, str], ...]
    sent: int

    def to_json(self) -> dict[str, object]:
        """The result as ``--output-json`` writes it (contract 6.4, step 8)."""
        return {
            "status": self.status.value,
            "repo_id": self.repo_id,
            "branch": self.branch,
            "url": self.url,
            "pull_requests": [{"branch": branch, "url": url} for branch, url in self.pull_requests],
        }


@dataclass(frozen=True, kw_only=True)
class PreparedUpload:
    """Everything that is known before the Hub is asked."""

    request: UploadRequest
    source: UploadSource
    checked: Checked
    repo_id: str
    branch: str
    version: int
    benchmarks: tuple[LocalFile, ...] | None


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The plan of an upload, and where it would go."""

    plan: UploadPlan
    url: str


def prepare(request: UploadRequest, reporter: Reporter) -> PreparedUpload:
    """Find what is to be published, judge it and read it. Nothing is asked of the Hub.

    Raises what :func:`find_source` and :func:`check_source` raise, and :class:`UsageError` when no repository is named.
    """
    source = find_source(request.directory, request.only)
    hub = source.project.hub if source.project is not None else None
    repo_id = request.repo_id or (hub.repo_id if hub else None)
    if repo_id is None:
        raise UsageError(
            "no repository to upload to",
            hint="run kernel-builder upload --repo-id owner/name, or set repo-id in [general.hub] of build.toml",
        )
    if repo_id.count("/") != 1 or not all(repo_id.split("/")):
        raise UsageError(f"{repo_id!r} is not a valid repository name", hint="use the form owner/name")
    version = source.version
    checked = check_source(
        source, reporter, ignore=request.ignore, allow_stale=request.allow_stale, proving=request.proving
    )
    if request.readme is not False and not has_card(source):
        reporter.emit(Notice(message="no card (CARD.md), so README.md on the Hub stays unchanged", warning=True))
    return PreparedUpload(
        request=request,
        source=source,
        checked=checked,
        repo_id=repo_id,
        branch=request.branch or (hub.branch if hub and hub.branch else f"v{version}"),
        version=version,
        benchmarks=benchmark_files(source.directory),
    )


def dry_run(request: UploadRequest, reporter: Reporter) -> DryRun:
    """The whole plan of an upload. The Hub is read, and nothing on it changes."""
    prepared = prepare(request, reporter)
    remote = Remote(prepared.repo_id, request.repo_type, reporter)
    try:
        branches = remote.branches()
    except MissingRepositoryError:
        if request.create_pr:
            raise
        branches = None
    plan = _Planner(prepared, remote, reporter).plan(branches)
    return DryRun(plan=plan, url=remote.branch_url(prepared.branch))


def upload(request: UploadRequest, reporter: Reporter, *, stop: threading.Event | None = None) -> Outcome:
    """Publish. When somebody else changes a branch meanwhile, the plan is made again, once.

    ``stop`` ends sending when it is set. Raises :class:`NetworkError` and its kin for everything between here and the
    Hub; its hint says what is published by then, if anything is.
    """
    prepared = prepare(request, reporter)
    remote = Remote(prepared.repo_id, request.repo_type, reporter)
    if not remote.has_token:
        raise no_token(remote.endpoint)
    run = _Run(remote, reporter, as_pull_request=request.create_pr, stop=stop)
    planner = _Planner(prepared, remote, reporter)
    conflicts = lost = 0
    while True:
        try:
            plan = planner.plan(_branches(remote, request, reporter))
            run.carry_out(plan)
            return run.outcome(plan, prepared.branch)
        except ConflictError as error:
            conflicts += 1
            if conflicts > 1:
                raise run.explained(
                    error, "it changed again while this upload was being re-planned; try again later"
                ) from error
            reporter.emit(Notice(message=f"{error.message}; planning again", warning=True))
        except LostAnswerError as error:
            lost += 1
            run.is_uncertain = True
            if request.create_pr or lost > _LOST_ANSWERS:
                where = (
                    f"check {remote.url}/discussions first: the pull request may already exist"
                    if request.create_pr
                    else ""
                )
                raise run.explained(error, where) from error
            reporter.emit(Waiting(reason=f"{error.message}; checking again in {2**lost} s"))
            time.sleep(2**lost)
        except KernelBuilderError as error:
            raise run.explained(error) from error


def _branches(remote: Remote, request: UploadRequest, reporter: Reporter) -> dict[str, str]:
    """The branches of the repository, which is made if it is missing."""
    try:
        branches = remote.branches()
    except MissingRepositoryError:
        if request.create_pr:
            raise
        remote.create(private=request.private)
        kind = "private" if request.private else "public"
        reporter.emit(Notice(message=f"created the {kind} repository {remote.repo_id}: {remote.url}"))
        return remote.branches()
    if request.private and not remote.is_private():
        raise UsageError(
            f"{remote.repo_id} already exists and is public, so the upload would be public despite --private",
            hint="run kernel-builder upload without --private, or change the repository's visibility first:"
            f" {remote.url}/settings",
        )
    return branches


class _Planner:
    """Makes plans of one upload; what is to be told about them is told once."""

    def __init__(self, prepared: PreparedUpload, remote: Remote, reporter: Reporter) -> None:
        self._prepared = prepared
        self._remote = remote
        self._reporter = reporter
        self._told: set[str] = set()
        self._read: dict[str, dict[str, object]] = {}

    def _tell(self, message: str, *, warning: bool = False) -> None:
        if message not in self._told:
            self._told.add(message)
            self._reporter.emit(Notice(message=message, warning=warning))

    def plan(self, branches: Mapping[str, str] | None) -> UploadPlan:
        """The plan on ``branches`` (``None``: there is no repository yet)."""
        prepared, request = self._prepared, self._prepared.request
        if branches is not None and MAIN not in branches:
            raise NetworkError(f"{prepared.repo_id} has no branch {MAIN}, from which version branches are created")
        there = self._there(branches)
        is_new = branches is None or prepared.branch not in branches
        card = self._card(branches or {}, None if is_new else there)
        plans = [self._version(branches, there, card if prepared.branch == MAIN else None)]
        if card is not None and prepared.branch != MAIN:
            old = self._remote.files(branches[MAIN], [README]) if branches is not None else None
            plans.append(plan_branch(MAIN, [card], old))
        return UploadPlan(
            repo_id=prepared.repo_id,
            repo_type=request.repo_type,
            creates_repository=branches is None,
            private=request.private,
            branches=tuple(plans),
        )

    def _there(self, branches: Mapping[str, str] | None) -> Snapshot | None:
        """What the branch for the variants holds, or what it starts from; ``None`` when there is no repository."""
        if branches is None:
            return None
        name = self._prepared.branch
        start = name if name in branches else staging_branch(name) if self._is_staged(branches) else MAIN
        return self._remote.snapshot(branches[start])

    def _is_staged(self, branches: Mapping[str, str] | None) -> bool:
        """Whether an upload to a new branch was cut off between its commits."""
        prepared = self._prepared
        return (
            branches is not None
            and prepared.branch not in branches
            and staging_branch(prepared.branch) in branches
            and not prepared.request.create_pr
        )

    def _card(self, branches: Mapping[str, str], there: Snapshot | None) -> LocalFile | None:
        """The card, when it is to go to main: not over that of a newer version."""
        prepared, request = self._prepared, self._prepared.request
        if request.readme is False or not has_card(prepared.source):
            return None
        newer = max((int(name[1:]) for name in branches if re.fullmatch(r"v[0-9]+", name)), default=0)
        if newer > prepared.version and not request.readme:
            dirty = "; it will not mention that these builds are dirty" if prepared.checked.dirty else ""
            self._tell(
                f"README.md on {MAIN} stays unchanged, because it describes version {newer}"
                f" and this is version {prepared.version}; 'kernel-builder upload --readme' replaces it{dirty}"
            )
            return None
        text = card_text(prepared.source, prepared.repo_id, self._others(there))
        return text_file(README, text) if text is not None else None

    def _others(self, there: Snapshot | None) -> tuple[BuiltVariant, ...]:
        """The variants that are on the branch, are not uploaded now, and stay."""
        if there is None:
            return ()
        uploaded = {variant.name for variant in self._prepared.source.variants}
        found: list[BuiltVariant] = []
        for path in sorted(there.files):
            parts = path.split("/")
            if len(parts) == 3 and parts[0] == BUILD and parts[2] == METADATA and parts[1] not in uploaded:
                found.append(self._other(path, there))
        return tuple(found)

    def _other(self, path: str, there: Snapshot) -> BuiltVariant:
        blob = there.files[path].blob
        if blob not in self._read:
            with TemporaryDirectory(prefix="kernel-builder-") as scratch:
                text = self._remote.download(path, there.commit, Path(scratch)).read_bytes()
            try:
                document = parse_json(text)
            except ValueError:
                document = None
            self._read[blob] = document if isinstance(document, dict) else {}
        return BuiltVariant(path=Path(path).parent, metadata=self._read[blob])

    def _version(
        self, branches: Mapping[str, str] | None, there: Snapshot | None, card: LocalFile | None
    ) -> BranchPlan:
        """The plan of the branch that the variants go to."""
        prepared, request = self._prepared, self._prepared.request
        is_new = branches is None or prepared.branch not in branches
        local = [*prepared.checked.files, *(prepared.benchmarks or ()), *([card] if card else [])]
        uploaded = [variant.name for variant in prepared.source.variants]
        stale: set[str] = set()
        if there is not None:
            stale, void = stale_files(
                there,
                variants=uploaded,
                local=local,
                is_new=is_new,
                has_benchmarks=prepared.benchmarks is not None,
            )
            if not is_new:
                self._tell_void(void)
                self._tell_interface(there)
        self._tell_missing(uploaded, there if not is_new else None)
        return plan_branch(
            prepared.branch,
            local,
            there,
            stale=stale,
            made_from=MAIN if is_new else None,
            staged=self._is_staged(branches),
            may_stage=not request.create_pr,
            commit_operations=request.commit_operations,
        )

    def _tell_void(self, void: set[str]) -> None:
        for path in sorted(void):
            self._tell(
                f"{path} will be deleted: it signs a {METADATA} that is being replaced; sign the new one", warning=True
            )

    def _tell_interface(self, there: Snapshot) -> None:
        """Warn when users of what is published would notice this upload, although its version is the same.

        All variants have the same Python files, so the first that is here and there decides, and only Python is read.
        """
        prepared = self._prepared
        ours = {file.path: file for file in prepared.checked.files}
        for variant in prepared.source.variants:
            inside = f"{BUILD}/{variant.name}/"
            paths = [path for path in there.files if path.startswith(inside) and path.endswith(".py")]
            if not paths:
                continue
            if all(path in ours and is_same(ours[path], there.files[path]) for path in paths):
                return
            with TemporaryDirectory(prefix="kernel-builder-") as scratch:
                for path in paths:
                    self._remote.download(path, there.commit, Path(scratch))
                old = read_interface(Path(scratch, inside))
            verdict = compare(
                Published(interface=old, version=prepared.version),
                Published(interface=read_interface(variant.path), version=prepared.version),
            )
            if not verdict.is_satisfied:
                listed = "".join(f"\n  {change}" for change in verdict.breaking)
                self._tell(
                    f"this would break users of version {prepared.version}:{listed}\n"
                    f"  set version = {prepared.version + 1} in build.toml and build again,"
                    " or keep what they rely on",
                    warning=True,
                )
            return

    def _tell_missing(self, uploaded: Sequence[str], there: Snapshot | None) -> None:
        project = self._prepared.source.project
        if project is None:
            return
        published = {path.split("/")[1] for path in (there.files if there else ()) if path.startswith(f"{BUILD}/")}
        missing = missing_variants(project, {*uploaded, *published})
        if missing:
            listed = "".join(f"\n  {platform}: {', '.join(names)}" for platform, names in missing.items())
            self._tell(
                f"required variants are missing both here and on {self._prepared.branch}:{listed}",
                warning=True,
            )


class _Run:
    """Carries out plans, and knows what is published by now.

    ``is_uncertain`` says that the answer to a commit was lost: if nothing is left to do then, that commit was made.
    """

    def __init__(
        self, remote: Remote, reporter: Reporter, *, as_pull_request: bool, stop: threading.Event | None
    ) -> None:
        self._remote = remote
        self._reporter = reporter
        self._as_pull_request = as_pull_request
        self._stop = stop
        self.is_uncertain = False
        self._sent = 0
        self._done: list[str] = []
        self._current: str | None = None
        self._pull_requests: list[tuple[str, str]] = []

    def carry_out(self, plan: UploadPlan) -> None:
        """All branches of ``plan``, in order."""
        for branch in plan.branches:
            if branch.is_empty:
                continue
            what = f"{branch.name} of {plan.repo_id}"
            self._reporter.emit(UploadStarted(what=what, total=branch.sent))
            progress = SendingProgress(what, self._reporter, self._stop)
            if self._as_pull_request:
                self._propose(branch, progress)
            else:
                self._publish(branch, progress)
            self._sent += branch.sent
            self._reporter.emit(UploadFinished(what=what, sent=branch.sent))

    def _publish(self, branch: BranchPlan, progress: SendingProgress) -> None:
        assert branch.base is not None  # noqa: S101  (the repository exists by now)
        remote = self._remote
        target = branch.staging or branch.name
        start = branch.made_from if branch.is_new and not branch.continues else target
        operations = remote.prepare(branch.changes, revision=start or target, as_pull_request=False, progress=progress)
        if branch.is_new and not branch.continues:
            remote.create_branch(target, branch.base)
        head = branch.base
        try:
            for number, batch in enumerate(branch.batches, start=1):
                head = remote.commit(
                    batch,
                    operations,
                    branch=target,
                    parent=head,
                    message=_message(number, len(branch.batches)),
                    as_pull_request=False,
                ).commit
                _count(batch, progress)
                if branch.staging is None and number < len(branch.batches):
                    self._current = f"{number} of {len(branch.batches)} commits are on {branch.name}"
        except BaseException:
            if branch.is_new and branch.staging is None and head == branch.base:
                self._take_back(branch)
            raise
        if branch.staging is not None:
            remote.create_branch(branch.name, head, exist_ok=False)
            remote.delete_branch(branch.staging)
        self._current = None
        self._done.append(branch.name)

    def _take_back(self, branch: BranchPlan) -> None:
        """Remove a branch that was just made and holds nothing of its own, if that is still so."""
        try:
            if self._remote.branches().get(branch.name) == branch.base:
                self._remote.delete_branch(branch.name)
        except KernelBuilderError:
            self._current = f"the branch {branch.name} was created and contains no variant yet"

    def _propose(self, branch: BranchPlan, progress: SendingProgress) -> None:
        """One pull request for the branch: the first commit opens it, the others go to it."""
        assert branch.base is not None  # noqa: S101  (the repository exists by now)
        remote = self._remote
        if branch.is_new:
            try:
                remote.create_branch(branch.name, branch.base)
            except NetworkError as error:
                raise NetworkError(
                    f"{error.message}; a pull request needs its target branch",
                    hint=f"ask the owners of {remote.repo_id} to create the branch {branch.name}, then run this again",
                ) from error
        if not branch.batches:
            return
        operations = remote.prepare(branch.changes, revision=branch.name, as_pull_request=True, progress=progress)
        head, number = branch.base, None
        for position, batch in enumerate(branch.batches, start=1):
            made = remote.commit(
                batch,
                operations,
                branch=branch.name if number is None else f"refs/pr/{number}",
                parent=head,
                message=_message(position, len(branch.batches)),
                as_pull_request=number is None,
            )
            head, number = made.commit, number if made.pull_request is None else made.pull_request
            assert number is not None  # noqa: S101  (the first commit opens it)
            _count(batch, progress)
            self._current = f"{position} of {len(branch.batches)} commits are in {remote.pull_request_url(number)}"
        assert number is not None  # noqa: S101
        self._pull_requests.append((branch.name, remote.pull_request_url(number)))
        self._current = None

    def explained(self, error: KernelBuilderError, advice: str = "") -> KernelBuilderError:
        """``error``, its hint completed with what is published by now."""
        parts = [advice or error.hint or ""]
        if self._done:
            parts.append(f"{' and '.join(self._done)} {'is' if len(self._done) == 1 else 'are'} published")
        parts += [f"pull request for {branch}: {url}" for branch, url in self._pull_requests]
        if self._current:
            parts.append(f"{self._current}; run the same command again to do the rest")
        error.hint = "; ".join(part for part in parts if part) or None
        return error

    def outcome(self, plan: UploadPlan, branch: str) -> Outcome:
        """The result, when everything is done."""
        if self._pull_requests:
            status = UploadStatus.PULL_REQUEST_CREATED
        elif self._done or self.is_uncertain:
            status = UploadStatus.UPLOADED
        else:
            status = UploadStatus.NO_CHANGES
        return Outcome(
            status=status,
            repo_id=plan.repo_id,
            branch=branch,
            url=None if self._pull_requests else self._remote.branch_url(branch),
            pull_requests=tuple(self._pull_requests),
            sent=self._sent,
        )


def _message(number: int, count: int) -> str:
    return MESSAGE if count == 1 else f"{MESSAGE} (batch {number}/{count})"


def _count(batch: Sequence[FileChange], progress: SendingProgress) -> None:
    """What was part of a commit's request counts as sent when the commit is there."""
    for change in batch:
        progress.reach(change.path, change.sent)
