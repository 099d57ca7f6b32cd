"""The Hub on loopback is what the others rely on: its names are git's, its answers are what the client expects."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub import Account, Hub, State, serve
from hub.state import tree_names

FILES = {"a.txt": b"1\n", "a/b.txt": b"2\n", "a/c/d.txt": b"", "a.d/e": b"3", "z": b"4" * 5000}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    accounts = [Account(name="me", token="hf_" + "me")]
    with serve(State(tmp_path / "hub", accounts=accounts), keep=False) as running:
        yield running


def git(directory: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip()


def test_blobs_and_trees_have_the_names_that_git_gives_them(hub: Hub, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q")
    for path, data in FILES.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    git(work, "add", "-A")
    blobs = {path: hub.state.put_blob(data) for path, data in FILES.items()}
    names = tree_names(blobs)
    assert names[""] == git(work, "write-tree")
    assert names["a"] == git(work, "write-tree", "--prefix=a/")
    for path, blob in blobs.items():
        assert blob.oid == git(work, "hash-object", path)


def fetch(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  (the Hub of this test)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), dict(error.headers)


def test_files_are_served_by_revision_and_in_parts(hub: Hub) -> None:
    first = hub.write("me/k", "v1", {"x": b"0123456789"})
    hub.write("me/k", "v1", {"x": b"new"})
    url = f"{hub.url}/kernels/me/k/resolve"
    assert fetch(f"{url}/v1/x")[1] == b"new"
    status, body, headers = fetch(f"{url}/{first}/x", Range="bytes=3-5")
    assert (status, body, headers["Content-Range"]) == (206, b"345", "bytes 3-5/10")
    assert headers["X-Repo-Commit"] == first
    assert headers["ETag"].strip('"') == hub.state.put_blob(b"0123456789").oid
    assert fetch(f"{url}/{first}/x", Range="bytes=20-")[0] == 416
    assert fetch(f"{url}/{first}/x", Range="bytes=-2")[1] == b"89"
    assert fetch(f"{url}/v1/nothing")[2]["X-Error-Code"] == "EntryNotFound"
    assert fetch(f"{url}/v9/x")[2]["X-Error-Code"] == "RevisionNotFound"


def test_private_repositories_are_hidden_from_strangers(hub: Hub) -> None:
    hub.state.create("kernel", "me/secret", private=True)
    url = f"{hub.url}/api/kernels/me/secret/refs"
    assert fetch(url)[0] == 401
    assert fetch(url)[2]["X-Error-Code"] == "RepoNotFound"
    assert fetch(url, Authorization="Bearer hf_me")[0] == 200
    assert fetch(url, Authorization="Bearer wrong")[0] == 401


def test_its_state_outlives_it(tmp_path: Path) -> None:
    with serve(State(tmp_path)) as first:
        head = first.write("me/k", "v1", FILES)
    with serve(State(tmp_path)) as second:
        assert second.heads("me/k")["v1"] == head
        assert {path: data for path, data in second.files("me/k", "v1").items() if path in FILES} == FILES
