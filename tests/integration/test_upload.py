"""Uploads to the Hub on loopback with the real client: what changes there, what crosses the wire, what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Result, Tool
from hub import Account, Hub, State, serve
from hub.kernels import write_project, write_variant
from kernel_builder.errors import BuildError, KernelBuilderError, NetworkError, UsageError
from kernel_builder.events import Notice, Recorder, UploadFinished, UploadProgress, UploadStarted, Waiting
from kernel_builder.hub import upload as uploading
from kernel_builder.hub.plan import staging_branch
from kernel_builder.hub.upload import Outcome, UploadRequest, UploadStatus, dry_run, upload

ME, OTHER, READER, NOVICE = "hf_me", "hf_other", "hf_reader", "hf_novice"
CPU, CUDA = "torch-cpu", "torch-cuda"
REPO = "me/scale"
MEBI = 1 << 20


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with four accounts, which the client in this process uses as ``me``."""
    from huggingface_hub import constants

    accounts = [
        Account(name="me", token=ME, organisations={"org": "write"}),
        Account(name="other", token=OTHER),
        Account(name="reader", token=READER, organisations={"org": "read"}),
        Account(name="novice", token=NOVICE, publisher=False),
    ]
    with serve(State(tmp_path / "hub", accounts=accounts, trusted=["org"]), keep=False) as running:
        for name, value in running.environment(ME, tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        template = running.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "home" / "token"))
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with two variants of Python alone."""
    root = write_project(tmp_path / "scale")
    write_variant(root / "build", CPU)
    write_variant(root / "build", CUDA)
    return root


def run(directory: Path, recorder: Recorder | None = None, /, **options: object) -> Outcome:
    """Upload; conformance is the subject of other tests."""
    options.setdefault("ignore", ("KB",))
    return upload(UploadRequest(directory=directory, **options), recorder or Recorder())  # type: ignore[arg-type]


def test_required_variants_that_are_absent_are_named(hub: Hub, project: Path) -> None:
    shutil.rmtree(project / "build" / CUDA)
    recorder = Recorder()
    run(project, recorder)
    assert f"required variants are missing both here and on v1:\n  any platform: {CUDA}" in notices(recorder)
    write_variant(project / "build", CUDA)
    later = Recorder()
    run(project, later)
    assert "missing" not in notices(later)


def refusal(directory: Path, kind: type[KernelBuilderError] = NetworkError, **options: object) -> str:
    """What an upload that fails says."""
    with pytest.raises(kind) as caught:
        run(directory, None, **options)
    return f"{caught.value.message}\n{caught.value.hint or ''}"


def notices(recorder: Recorder) -> str:
    return "\n".join(event.message for event in recorder.events if isinstance(event, Notice))


def waits(recorder: Recorder) -> list[str]:
    return [event.reason for event in recorder.events if isinstance(event, Waiting)]


def published(hub: Hub, branch: str = "v1", repo: str = REPO) -> set[str]:
    """Paths on a branch, but the one that every repository has."""
    return set(hub.files(repo, branch)) - {".gitattributes"}


def writes(hub: Hub, mark: int = 0) -> list[str]:
    """Requests that change something, but those that only ask how to."""
    return [
        f"{entry.method} {entry.path}"
        for entry in hub.traffic.since(mark)
        if entry.method in {"POST", "PUT", "DELETE"}
        and not any(part in entry.path for part in ("paths-info", "validate-yaml", "preupload"))
    ]


BOTH = {f"build/{variant}/{name}" for variant in (CPU, CUDA) for name in ("__init__.py", "metadata.json")}


# What is published


def test_the_first_upload_makes_the_repository_the_branch_and_the_readme(hub: Hub, project: Path) -> None:
    recorder = Recorder()
    outcome = run(project, recorder)
    assert outcome.status is UploadStatus.UPLOADED
    assert outcome.url == f"{hub.url}/kernels/{REPO}/tree/v1"
    assert published(hub) == BOTH
    assert published(hub, "main") == {"README.md"}
    assert hub.files(REPO, "v1")[f"build/{CPU}/__init__.py"] == (project / "build" / CPU / "__init__.py").read_bytes()
    assert "get_kernel" in hub.files(REPO, "main")["README.md"].decode()
    assert f"created the public repository {REPO}" in notices(recorder)
    total = sum((project / path).stat().st_size for path in BOTH)
    started = next(event for event in recorder.events if isinstance(event, UploadStarted))
    finished = next(event for event in recorder.events if isinstance(event, UploadFinished))
    assert (started.total, finished.sent) == (total, total)


def test_a_second_upload_sends_nothing(hub: Hub, project: Path) -> None:
    run(project)
    heads, mark = hub.heads(REPO), hub.traffic.mark()
    outcome = run(project)
    assert outcome.status is UploadStatus.NO_CHANGES
    assert writes(hub, mark) == []
    assert hub.heads(REPO) == heads


def test_a_dry_run_tells_everything_and_changes_nothing(
    hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(project)
    (project / "build" / CPU / "old.py").touch()
    write_variant(project / "build", CPU, {"more.py": b"12", "old.py": b""})
    run(project)
    (project / "build" / CPU / "old.py").unlink()
    write_variant(project / "build", CPU, {"more.py": b"345"})
    heads, mark = hub.heads(REPO), hub.traffic.mark()
    monkeypatch.delenv("HF_TOKEN")
    plan = dry_run(UploadRequest(directory=project, ignore=("KB",)), Recorder()).plan
    (branch,) = [branch for branch in plan.branches if branch.name == "v1"]
    told = {change.path.rsplit("/", 1)[-1]: change.action.value for change in branch.changes}
    assert told == {"metadata.json": "replace", "more.py": "replace", "old.py": "delete"}
    assert branch.sent == 3 + (project / "build" / CPU / "metadata.json").stat().st_size
    assert branch.unchanged == 3
    assert writes(hub, mark) == []
    assert hub.heads(REPO) == heads


def test_a_dry_run_of_a_repository_that_is_not_there_makes_none(hub: Hub, project: Path) -> None:
    plan = dry_run(UploadRequest(directory=project, ignore=("KB",), private=True), Recorder()).plan
    assert plan.creates_repository
    assert {change.path for change in plan.branches[0].changes} == BOTH
    assert hub.heads(REPO) == {}


def test_stale_files_of_uploaded_variants_go_and_other_variants_stay(hub: Hub, project: Path) -> None:
    write_variant(project / "build", CPU, {"a.py": b"1", "sub/b.py": b"2"})
    run(project)
    for name in ("a.py", "sub/b.py"):
        (project / "build" / CPU / name).unlink()
    write_variant(project / "build", CPU, {"c.py": b"3"})
    shutil.rmtree(project / "build" / CUDA)
    run(project)
    assert published(hub) == BOTH | {f"build/{CPU}/c.py"}


def test_only_the_variant_that_changed_is_sent(hub: Hub, project: Path) -> None:
    write_variant(project / "build", CUDA, {"kernel.so": os.urandom(MEBI)})
    run(project)
    new = os.urandom(MEBI)
    write_variant(project / "build", CPU, {"kernel.so": new})
    mark = hub.traffic.mark()
    run(project)
    sent = hub.traffic.content_sent(mark)
    assert sent.pop(hashlib.sha256(new).hexdigest()) == MEBI
    assert set(sent) == {f"build/{CPU}/metadata.json"}


def test_a_new_version_takes_nothing_over_and_leaves_the_old_one(hub: Hub, project: Path) -> None:
    hub.write(REPO, "main", {"build/torch-universal/__init__.py": b"", "benchmarks/old.py": b"", "LICENSE": b"l"})
    run(project)
    first = hub.heads(REPO)["v1"]
    write_project(project, version=2)
    shutil.rmtree(project / "build")
    write_variant(project / "build", CPU, version=2)
    (project / "benchmarks").mkdir()
    (project / "benchmarks" / "benchmark_scale.py").write_text("1\n")
    (project / "benchmarks" / "notes.txt").write_text("2\n")
    run(project)
    assert published(hub, "v2") == {
        "LICENSE",
        "README.md",
        "benchmarks/benchmark_scale.py",
        f"build/{CPU}/__init__.py",
        f"build/{CPU}/metadata.json",
    }
    assert hub.heads(REPO)["v1"] == first
    assert "version=2" in hub.files(REPO, "main")["README.md"].decode()


def test_benchmarks_go_to_the_version_branch(hub: Hub, project: Path) -> None:
    folder = project / "benchmarks"
    folder.mkdir()
    (folder / "benchmark_a.py").write_text("1\n")
    run(project)
    hub.write(REPO, "v1", {"benchmarks/data.csv": b"kept"})
    (folder / "benchmark_a.py").rename(folder / "benchmark.py")
    run(project)
    assert published(hub) - BOTH == {"benchmarks/benchmark.py", "benchmarks/data.csv"}
    assert published(hub, "main") == {"README.md"}


def test_the_branch_can_be_chosen(hub: Hub, project: Path) -> None:
    text = (project / "build.toml").read_text()
    (project / "build.toml").write_text(text.replace("[torch-noarch]", 'branch = "next"\n\n[torch-noarch]'))
    assert run(project).branch == "next"
    assert run(project, branch="mine").branch == "mine"
    assert run(project, branch="main").branch == "main"
    assert published(hub, "main") == BOTH | {"README.md"}
    assert set(hub.heads(REPO)) == {"main", "mine", "next"}


def test_another_repository_of_another_type(hub: Hub, project: Path) -> None:
    outcome = run(project, repo_id="org/other-name", repo_type="model")
    assert outcome.url == f"{hub.url}/org/other-name/tree/v1"
    assert set(hub.files("org/other-name", "v1", kind="model")) - {".gitattributes"} == BOTH
    assert hub.heads(REPO) == {}


def test_private_is_meant_as_private(hub: Hub, project: Path) -> None:
    run(project, private=True)
    repository = hub.state.repository("kernel", REPO)
    assert repository is not None
    assert repository.private
    run(project, private=True)
    run(project, repo_id="org/open")
    heads = hub.heads("org/open")
    assert "exists and is public" in refusal(project, UsageError, repo_id="org/open", private=True)
    assert hub.heads("org/open") == heads


def test_an_older_version_leaves_the_readme_alone(hub: Hub, project: Path) -> None:
    run(project)
    write_project(project, version=2)
    shutil.rmtree(project / "build")
    write_variant(project / "build", CPU, version=2)
    run(project)
    readme = hub.files(REPO, "main")["README.md"]
    write_project(project, version=1)
    write_variant(project / "build", CPU, {"fix.py": b""}, version=1)
    recorder = Recorder()
    run(project, recorder)
    assert f"build/{CPU}/fix.py" in published(hub)
    assert hub.files(REPO, "main")["README.md"] == readme
    assert "because it describes version 2" in notices(recorder)
    run(project, readme=True)
    assert "version=1" in hub.files(REPO, "main")["README.md"].decode()


def test_no_readme_means_none(hub: Hub, project: Path) -> None:
    run(project, readme=False)
    assert published(hub, "main") == set()


def test_dirty_builds_are_warned_about_in_the_readme(hub: Hub, project: Path) -> None:
    write_variant(project / "build", CUDA, dirty=True)
    recorder = Recorder()
    run(project, recorder)
    assert f"nobody can reproduce this build: {CUDA}" in notices(recorder)
    readme = hub.files(REPO, "main")["README.md"].decode()
    assert "[!WARNING]" in readme
    # The build of the other variant alone does not make the first one clean.
    shutil.rmtree(project / "build" / CUDA)
    write_variant(project / "build", CPU, {"more.py": b""})
    run(project)
    assert "[!WARNING]" in hub.files(REPO, "main")["README.md"].decode()
    write_variant(project / "build", CUDA)
    run(project)
    assert "[!WARNING]" not in hub.files(REPO, "main")["README.md"].decode()


def test_the_readme_tells_of_variants_that_other_machines_uploaded(hub: Hub, project: Path) -> None:
    run(project)
    shutil.rmtree(project / "build" / CUDA)
    write_variant(project / "build", CPU, {"more.py": b""})
    readme = hub.files(REPO, "main")["README.md"]
    run(project)
    assert hub.files(REPO, "main")["README.md"] == readme
    assert CUDA in readme.decode()


def test_missing_variants_are_named(hub: Hub, project: Path) -> None:
    shutil.rmtree(project / "build" / CUDA)
    recorder = Recorder()
    run(project, recorder)
    assert f"any platform: {CUDA}" in notices(recorder)
    write_variant(project / "build", CUDA)
    recorder = Recorder()
    run(project, recorder)
    assert "required variants" not in notices(recorder)


def test_an_interface_that_breaks_users_is_warned_about(hub: Hub, project: Path) -> None:
    run(project)
    recorder = Recorder()
    write_variant(
        project / "build", CPU, {"__init__.py": b'__all__ = ["scale"]\n\n\ndef scale(x, by):\n    return x\n'}
    )
    run(project, recorder)
    assert "this would break users of version 1:\n  scale: " in notices(recorder)
    assert "set version = 2" in notices(recorder)
    recorder = Recorder()
    text = b'__all__ = ["scale"]\n\n\ndef scale(x, by, more=None):\n    return x\n'
    write_variant(project / "build", CPU, {"__init__.py": text})
    run(project, recorder)
    assert "this would break users of version" not in notices(recorder)


def test_a_signature_goes_with_what_it_signs(hub: Hub, project: Path) -> None:
    run(project)
    signature = f"build/{CPU}/metadata.json.sigstore"
    hub.write(REPO, "v1", {signature: b"{}"})
    assert run(project).status is UploadStatus.NO_CHANGES
    write_variant(project / "build", CPU, {"more.py": b""})
    recorder = Recorder()
    run(project, recorder)
    assert signature not in published(hub)
    assert f"{signature} will be deleted" in notices(recorder)


# Pull requests


def test_changes_can_be_proposed_by_anybody(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(project)
    heads = hub.heads(REPO)
    write_variant(project / "build", CPU, {"more.py": b""})
    (project / "CARD.md").write_text("# Another card\n")
    monkeypatch.setenv("HF_TOKEN", OTHER)
    outcome = run(project, create_pr=True, commit_operations=1)
    assert outcome.status is UploadStatus.PULL_REQUEST_CREATED
    assert outcome.pull_requests == (
        ("v1", f"{hub.url}/kernels/{REPO}/discussions/1"),
        ("main", f"{hub.url}/kernels/{REPO}/discussions/2"),
    )
    assert outcome.url is None
    assert hub.heads(REPO) == heads
    assert published(hub, "refs/pr/1") == BOTH | {f"build/{CPU}/more.py"}
    assert b"Another card" in hub.files(REPO, "refs/pr/2")["README.md"]


def test_a_pull_request_needs_a_repository_and_a_branch(
    hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no kernel repository" in refusal(project, create_pr=True)
    run(project)
    monkeypatch.setenv("HF_TOKEN", OTHER)
    text = refusal(project, create_pr=True, branch="v7")
    assert "needs its target branch" in text
    assert "ask the owners" in text
    assert set(hub.heads(REPO)) == {"main", "v1"}


# Who may do what


def test_without_a_token_nothing_is_tried(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    text = refusal(project)
    assert "needs a token" in text
    assert "hf auth login" in text
    assert hub.traffic.entries == []


def test_a_token_that_the_hub_does_not_know(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    text = refusal(project)
    assert "does not accept the token" in text
    assert "hf auth login" in text


@pytest.mark.parametrize(
    ("token", "repo", "words"),
    [
        (NOVICE, "novice/scale", "the account novice may not publish kernels under novice"),
        (READER, "org/new", "the account reader may not publish kernels under org"),
        (OTHER, REPO, "other may not write to me/scale"),
        (READER, "org/scale", "reader may not write to org/scale"),
    ],
)
def test_without_permission_the_way_to_get_it_is_said(
    hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch, token: str, repo: str, words: str
) -> None:
    run(project)
    run(project, repo_id="org/scale")
    heads = hub.heads(repo)
    write_variant(project / "build", CPU, {"more.py": b""})
    monkeypatch.setenv("HF_TOKEN", token)
    text = refusal(project, repo_id=repo)
    assert words in text
    assert ("publishing access" if "publish" in words else "--create-pr") in text
    assert hub.heads(repo) == heads


# Faults


def test_a_listing_that_fails_is_an_error_and_not_an_empty_one(hub: Hub, project: Path) -> None:
    run(project)
    heads = hub.heads(REPO)
    write_variant(project / "build", CPU, {"more.py": b""})
    hub.page_size = 2
    hub.fault(r"GET .*/tree/", status=403, message="no listing today", skip=1)
    text = refusal(project)
    assert "list the files" in text
    assert "no listing today" in text
    assert hub.heads(REPO) == heads


def test_long_listings_are_read_to_their_end(hub: Hub, project: Path) -> None:
    write_variant(project / "build", CPU, {f"part{number}.py": b"" for number in range(25)})
    run(project)
    hub.page_size = 4
    for number in range(25):
        (project / "build" / CPU / f"part{number}.py").unlink()
    write_variant(project / "build", CPU)
    run(project)
    assert published(hub) == BOTH


@pytest.mark.parametrize("request_", [r"GET .*/refs", r"POST .*/preupload/", r"POST .*/commit/v1", r"POST .*/branch/"])
def test_a_rate_limit_is_waited_for_as_long_as_the_hub_asks(hub: Hub, project: Path, request_: str) -> None:
    hub.state.create("kernel", REPO)
    hub.fault(request_, status=429, headers={"Retry-After": "1"})
    recorder = Recorder()
    started = time.monotonic()
    run(project, recorder)
    assert time.monotonic() - started >= 1
    assert published(hub) == BOTH
    assert any("retrying in" in wait for wait in waits(recorder))


def test_a_rate_limit_that_does_not_end_is_said(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fault(r"GET .*/refs", status=429, headers={"Retry-After": "0"}, times=99)
    text = refusal(project)
    assert "still limits requests" in text
    assert len(hub.traffic.entries) == 5


def test_a_connection_that_is_cut_in_a_large_file_costs_one_part(hub: Hub, project: Path) -> None:
    hub.part_size = MEBI
    data = os.urandom(6 * MEBI + 5)
    write_variant(project / "build", CPU, {"kernel.so": data})
    hub.fault(r"PUT /incoming/.*/3$", cut_after=MEBI // 2)
    recorder = Recorder()
    run(project, recorder)
    assert hub.files(REPO, "v1")[f"build/{CPU}/kernel.so"] == data[:MEBI]
    sent = sum(entry.received for entry in hub.traffic.entries if entry.method == "PUT")
    assert sent == len(data) + MEBI // 2
    assert waits(recorder)
    told = [event.sent for event in recorder.events if isinstance(event, UploadProgress)]
    assert told == sorted(told)
    assert told[-1] >= len(data)


def test_an_upload_that_fails_in_the_files_publishes_nothing_and_goes_on_later(hub: Hub, project: Path) -> None:
    small, large = os.urandom(MEBI), os.urandom(3 * MEBI)
    write_variant(project / "build", CPU, {"a.so": small})
    write_variant(project / "build", CUDA, {"b.so": large})
    name = hashlib.sha256(large).hexdigest()
    hub.fault(rf"PUT /incoming/{name}", status=403, message="the address has expired", times=9)
    text = refusal(project)
    assert 'the Hub\'s storage rejected a file (403): "the address has expired"' in text
    assert set(hub.heads(REPO)) == {"main"}
    assert published(hub, "main") == set()
    hub.faults.clear()
    mark = hub.traffic.mark()
    assert run(project).status is UploadStatus.UPLOADED
    assert [entry.received for entry in hub.traffic.since(mark) if entry.method == "PUT"] == [len(large)]


def test_a_commit_whose_answer_is_lost_is_not_made_twice(hub: Hub, project: Path) -> None:
    run(project)
    write_variant(project / "build", CPU, {"more.py": b""})
    before = len(hub.state.history(hub.heads(REPO)["v1"]))
    hub.fault(r"POST .*/commit/v1", cut_answer=True)
    recorder = Recorder()
    assert run(project, recorder).status is UploadStatus.UPLOADED
    assert len(hub.state.history(hub.heads(REPO)["v1"])) == before + 1
    assert f"build/{CPU}/more.py" in published(hub)
    assert any("is unknown" in wait for wait in waits(recorder))


def test_a_commit_of_somebody_else_is_taken_into_account(hub: Hub, project: Path) -> None:
    run(project)
    write_variant(project / "build", CPU, {"more.py": b""})
    theirs = {"build/torch-xpu/__init__.py": b"theirs", f"build/{CPU}/theirs.py": b""}

    def meanwhile() -> None:
        hub.write(REPO, "v1", theirs)

    hub.before_commit = meanwhile
    recorder = Recorder()
    run(project, recorder)
    assert published(hub) == BOTH | {f"build/{CPU}/more.py", "build/torch-xpu/__init__.py"}
    assert "planning again" in notices(recorder)


def test_a_branch_that_does_not_stand_still_is_given_up(hub: Hub, project: Path) -> None:
    run(project)
    write_variant(project / "build", CPU, {"more.py": b""})

    def again() -> None:
        hub.write(REPO, "v1", {"x": os.urandom(8)})
        hub.before_commit = again

    hub.before_commit = again
    text = refusal(project)
    assert "somebody else changed it" in text
    assert "try again later" in text
    assert f"build/{CPU}/more.py" not in published(hub)


def test_a_new_branch_is_not_left_behind_without_its_variants(hub: Hub, project: Path) -> None:
    hub.state.create("kernel", REPO)
    hub.fault(r"POST .*/commit/v1", status=400, message="no commits today")
    assert "no commits today" in refusal(project)
    assert set(hub.heads(REPO)) == {"main"}


def test_a_new_version_in_several_commits_is_seen_when_it_is_whole(hub: Hub, project: Path) -> None:
    hub.fault(r"POST .*/commit/", status=400, message="no commits today", skip=1)
    text = refusal(project, commit_operations=2)
    assert "no commits today" in text
    assert set(hub.heads(REPO)) == {"main", staging_branch("v1")}
    mark = hub.traffic.mark()
    run(project, commit_operations=2)
    assert set(hub.heads(REPO)) == {"main", "v1"}
    assert published(hub) == BOTH
    assert not any(CPU in path for path in hub.traffic.content_sent(mark))
    titles = [commit.title for commit in hub.state.history(hub.heads(REPO)["v1"])]
    assert "Uploaded using `kernel-builder`. (batch 1/2)" in titles


def test_commits_that_are_there_are_named_when_the_next_fails(hub: Hub, project: Path) -> None:
    run(project)
    for variant in (CPU, CUDA):
        write_variant(project / "build", variant, {"more.py": b""})
    hub.fault(r"POST .*/commit/", status=400, message="no commits today", skip=1)
    text = refusal(project, commit_operations=2)
    assert "1 of 2 commits are on v1; run the same command again to do the rest" in text
    # Each commit holds a whole variant.
    assert f"build/{CPU}/more.py" in published(hub)
    assert f"build/{CUDA}/more.py" not in published(hub)
    run(project, commit_operations=2)
    assert f"build/{CUDA}/more.py" in published(hub)


def test_a_readme_that_cannot_be_written_does_not_hide_what_is_published(hub: Hub, project: Path) -> None:
    hub.state.create("kernel", REPO)
    hub.fault(r"POST .*/commit/main", status=400, message="not this one")
    text = refusal(project)
    assert "commit to main" in text
    assert "v1 is published" in text
    assert published(hub) == BOTH
    run(project)
    assert published(hub, "main") == {"README.md"}


def test_a_gitignore_on_the_hub_drops_nothing_in_silence(hub: Hub, project: Path) -> None:
    hub.write(REPO, "main", {".gitignore": b"build/\n"})
    text = refusal(project, BuildError)
    assert "the .gitignore of me/scale excludes 4 files" in text
    assert set(hub.heads(REPO)) == {"main"}


def test_a_hub_that_is_not_there_is_said_at_once(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    started = time.monotonic()
    text = refusal(project)
    assert time.monotonic() - started < 5
    assert "no connection" in text
    assert address in text


def test_offline_is_offline(hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal(project)


def test_a_file_that_changes_meanwhile_is_not_published(
    hub: Hub, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = uploading.prepare

    def prepare_and_change(*arguments: object, **more: object) -> object:
        done = prepared(*arguments, **more)  # type: ignore[arg-type]
        (project / "build" / CPU / "__init__.py").write_text("something else\n")
        return done

    monkeypatch.setattr(uploading, "prepare", prepare_and_change)
    assert "changed during the upload" in refusal(project, BuildError)
    assert set(hub.heads(REPO)) <= {"main"}


# Sizes


def test_five_thousand_files(hub: Hub, project: Path) -> None:
    files = {f"data/{number // 100}/{number}.txt": b"%d" % number for number in range(5000)}
    write_variant(project / "build", CPU, files)
    run(project)
    assert len(published(hub)) == len(BOTH) + 5000
    assert set(hub.heads(REPO)) == {"main", "v1"}
    commits = [entry for entry in hub.traffic.entries if "/commit/kernel-builder" in entry.path]
    assert len(commits) == 6
    mark = hub.traffic.mark()
    assert run(project).status is UploadStatus.NO_CHANGES
    assert writes(hub, mark) == []


def test_five_hundred_files_in_a_dry_run(hub: Hub, project: Path) -> None:
    """Case T20 (d): several commits, and what is deleted are files."""
    files = {f"data/{number}.txt": b"%d" % number for number in range(500)}
    write_variant(project / "build", CPU, files)
    hub.write(REPO, "v1", {f"build/{CPU}/gone/{number}.txt": b"" for number in range(30)})
    request = UploadRequest(directory=project, ignore=("KB",), commit_operations=200)
    branch = dry_run(request, Recorder()).plan.branches[0]
    assert [len(batch) for batch in branch.batches] == [200, 200, 134]
    deleted = {change.path for change in branch.changes if change.action.value == "delete"}
    assert deleted == {f"build/{CPU}/gone/{number}.txt" for number in range(30)}


@pytest.mark.slow
@pytest.mark.long
def test_a_file_of_two_gibibytes(hub: Hub, project: Path) -> None:
    """Sparse here and there; every byte of it crosses the wire, in parts, once."""
    directory = project / "build" / CPU
    with (directory / "huge.bin").open("wb") as file:
        file.truncate(2 << 30)
    from hub.kernels import seal

    seal(directory)
    hub.part_size = 256 * MEBI
    run(project)
    blob = hub.state.resolve(hub.state.repository("kernel", REPO), "v1").files[f"build/{CPU}/huge.bin"]  # type: ignore[arg-type]
    assert blob.size == 2 << 30
    assert sum(entry.received for entry in hub.traffic.entries if entry.method == "PUT") == 2 << 30
    mark = hub.traffic.mark()
    assert run(project).status is UploadStatus.NO_CHANGES
    assert writes(hub, mark) == []


# The command


Command = Callable[..., Result]


@pytest.fixture
def command(hub: Hub, tool: Tool, tmp_path: Path) -> Command:
    """``kernel-builder`` in a process of its own, which uses the Hub."""

    def run_command(*arguments: str | Path, token: str | None = ME) -> Result:
        environment = hub.environment(token, tmp_path / "home")
        return tool(*arguments, env={**environment, "HF_TOKEN": token or ""})

    return run_command


def test_what_the_command_prints_follows_the_endpoint(
    hub: Hub, project: Path, command: Command, tmp_path: Path
) -> None:
    result = command("upload", project, "--ignore", "KB", "--output-json", tmp_path / "out" / "result.json")
    assert result.code == 0, result.stderr
    assert result.stdout == f"{hub.url}/kernels/{REPO}/tree/v1\n"
    assert "huggingface.co" not in result.stderr
    assert "hf.co" not in result.stderr
    text = (tmp_path / "out" / "result.json").read_text()
    assert text.endswith("\n")
    assert json.loads(text) == {
        "status": "uploaded",
        "repo_id": REPO,
        "branch": "v1",
        "url": f"{hub.url}/kernels/{REPO}/tree/v1",
        "pull_requests": [],
    }
    quiet = command("upload", project, "--ignore", "KB", "-q", "--json")
    assert quiet.stderr == ""
    assert quiet.json["status"] == "no_changes"


def test_the_plan_is_printed_and_is_plain_data(hub: Hub, project: Path, command: Command) -> None:
    result = command("upload", project, "--ignore", "KB", "--dry-run")
    assert result.code == 0
    assert f"upload to {hub.url}/kernels/{REPO}/tree/v1" in result.stdout
    assert "branch v1 (new, from main): 4 to add" in result.stdout
    assert f"build/{CPU}/__init__.py" in result.stdout
    data = command("upload", project, "--ignore", "KB", "--dry-run", "--json").json
    assert data["creates_repository"] is True
    assert hub.heads(REPO) == {}


def test_builds_that_do_not_conform_are_not_uploaded(hub: Hub, project: Path, command: Command) -> None:
    write_variant(project / "build", CPU, {"kernel.so": b"no library"})
    result = command("upload", project)
    assert result.code == 1
    assert "breaks the rules for Hub kernels, so nothing was uploaded" in result.stderr
    assert "KB101" in result.stderr
    assert hub.traffic.entries == []
    wrong = command("upload", project, "--ignore", "KB999")
    assert wrong.code == 2
    assert "KB999" in wrong.stderr


def test_an_upload_that_was_killed_goes_on(hub: Hub, project: Path, tool: Tool, tmp_path: Path) -> None:
    first, second = os.urandom(MEBI), os.urandom(2 * MEBI)
    write_variant(project / "build", CPU, {"a.so": first})
    write_variant(project / "build", CUDA, {"b.so": second})
    hub.fault(rf"PUT /incoming/{hashlib.sha256(second).hexdigest()}", delay=30)
    process = _start(hub, tool, tmp_path, "upload", project, "--ignore", "KB")
    try:
        _wait_for(lambda: hub.state.large_path(hashlib.sha256(first).hexdigest()).exists())
        process.kill()
    finally:
        process.communicate()
    assert set(hub.heads(REPO)) == {"main"}
    hub.faults.clear()
    mark = hub.traffic.mark()
    run(project)
    sent = [entry.received for entry in hub.traffic.since(mark) if entry.method == "PUT" and entry.status == 200]
    assert sent == [len(second)]
    assert published(hub) == BOTH | {f"build/{CPU}/a.so", f"build/{CUDA}/b.so"}


def test_ctrl_c_ends_it_at_once_and_clean(hub: Hub, project: Path, tool: Tool, tmp_path: Path) -> None:
    for variant in (CPU, CUDA):
        write_variant(project / "build", variant, {"kernel.so": os.urandom(24 * MEBI)})
    hub.slow = 2  # seconds for a MiB: the rest would take a minute and more
    process = _start(hub, tool, tmp_path, "upload", project, "--ignore", "KB")
    try:
        _wait_for(lambda: any((hub.state.root / "incoming").iterdir()))
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, errors = process.communicate(timeout=60)
        assert time.monotonic() - started < 20
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert errors.rstrip().endswith("interrupted")
    assert set(hub.heads(REPO)) == {"main"}


def _start(hub: Hub, tool: Tool, tmp_path: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    running = Tool({**tool.environment, **hub.environment(ME, tmp_path / "home")})
    return running.start(*arguments)


def _wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
