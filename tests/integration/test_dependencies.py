"""C++ libraries that sections depend on: every place they come from, what is refused, and a kernel that uses one."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loopback_index import LoopbackIndex, make_wheel, serve

from conftest import PROJECTS, Tool, assert_proven
from kernel_builder.config.known import dependencies
from kernel_builder.errors import IntegrityError, NetworkError, ToolchainError
from kernel_builder.events import Notice, Recorder
from kernel_builder.store.cache import Store
from kernel_builder.store.index import SimpleIndex
from kernel_builder.toolchain.dependencies import Libraries, Release, headers_digest, releases

pytestmark = pytest.mark.usefixtures("unloaded")

FILES = {
    "include/cutlass/version.h": b"#define CUTLASS_MAJOR 3\n#define CUTLASS_MINOR 8\n#define CUTLASS_PATCH 0 \n",
    "include/cute/tensor.hpp": b"// tensors\n",
    "tools/util/include/cutlass/util/host.h": b"// host\n",
}


def write_tree(root: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def archive_of(files: dict[str, bytes], top: str = "cutlass-3.8.0") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, data in {**files, "README.md": b"read me"}.items():
            member = tarfile.TarInfo(f"{top}/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def wheel_of(files: dict[str, bytes]) -> bytes:
    packed = {f"cutlass_library/source/{path}": data for path, data in files.items()}
    return make_wheel("nvidia-cutlass", "3.8.0.0", {**packed, "cutlass_library/__init__.py": b""})


class Bench:
    """A store of its own, a server, and a table in which ``cutlass_3_8`` is a release of three small files."""

    def __init__(self, root: Path, server: LoopbackIndex) -> None:
        self.store = Store(root / "store")
        self.server = server
        self.reporter = Recorder()
        self.environ: dict[str, str] = {}
        self.offline = False
        digest = headers_digest(write_tree(root / "pinned"), ("include", "tools/util/include"))
        real = releases()["cutlass_3_8"]
        library = replace(real.library, archive=f"{server.url.rsplit('/simple', 1)[0]}/archives/v{{version}}.tar.gz")
        self.release = replace(real, headers=digest, library=library)

    def libraries(self, **changes: object) -> Libraries:
        release = replace(self.release, **changes) if changes else self.release  # type: ignore[arg-type]
        index = SimpleIndex(self.server.settings(), self.reporter, offline=self.offline)
        table: dict[str, Release] = {release.name: release}
        return Libraries(self.store, index, self.reporter, index.transport_without_credentials(), self.environ, table)

    def provide(self, **changes: object) -> dict[str, bytes]:
        """Provide it; the files that are then in its include directories, by path in the store's entry."""
        libraries = self.libraries(**changes)
        resolved = libraries.resolve("cutlass_3_8")
        libraries.provide(resolved)
        entry = self.store.path(resolved.key)
        assert [path.relative_to(entry).as_posix() for path in resolved.headers.include] == [
            "include",
            "tools/util/include",
        ]
        assert self.store.verify(resolved.key) == []
        return {
            path.relative_to(entry).as_posix(): path.read_bytes()
            for folder in resolved.headers.include
            for path in folder.rglob("*")
            if path.is_file()
        }

    def warnings(self) -> list[str]:
        return [event.message for event in self.reporter.events if isinstance(event, Notice) and event.warning]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serve() as server:
        yield Bench(tmp_path, server)


def test_every_dependency_that_build_toml_admits_has_a_source_or_a_refusal() -> None:
    table = releases()
    assert table.keys() == dependencies().depends.keys() - {"torch"}
    assert all(
        release.refusal or (len(release.headers) == 64 and len(release.commit) == 40) for release in table.values()
    )
    assert [(one.version, one.toolkit) for one in (table["sycl_tla"], *table["sycl_tla"].also)] == [
        ("0.9.2", "2026.0"),
        ("0.8", "2025.3"),
    ]
    assert {name for name, release in table.items() if release.wheel} == {"cutlass_3_5", "cutlass_3_6", "cutlass_3_8"}


def test_headers_come_out_of_the_wheel_where_the_index_has_one(bench: Bench) -> None:
    bench.server.add("nvidia_cutlass-3.8.0.0-py3-none-any.whl", wheel_of(FILES))
    assert bench.provide() == FILES
    before = len(bench.server.requests)
    assert bench.provide() == FILES
    assert len(bench.server.requests) == before, "what is in the store is not asked for again"


def test_what_lies_in_the_store_serves_offline(bench: Bench) -> None:
    bench.server.add("nvidia_cutlass-3.8.0.0-py3-none-any.whl", wheel_of(FILES))
    bench.offline = True
    with pytest.raises(NetworkError, match="--offline"):
        bench.provide()
    assert bench.server.requests == []
    bench.offline = False
    bench.provide()
    bench.offline = True
    assert bench.provide() == FILES


def test_without_a_wheel_the_archive_is_taken_and_only_its_headers_are_kept(bench: Bench) -> None:
    bench.server.add("v3.8.0.tar.gz", archive_of(FILES))
    assert bench.provide() == FILES
    resolved = bench.libraries().resolve("cutlass_3_8")
    (source,) = bench.store.artefacts(resolved.key)
    assert (source.kind, source.filename, source.source) == ("archive", "cutlass-3.8.0.tar.gz", "archive")


@pytest.mark.parametrize("form", ["{folder}/v{{version}}.tar.gz", "file://{folder}/v{{version}}.tar.gz"])
def test_a_mirror_may_be_a_file(bench: Bench, tmp_path: Path, form: str) -> None:
    (tmp_path / "v3.8.0.tar.gz").write_bytes(archive_of(FILES, "anything"))
    bench.environ["KERNEL_BUILDER_CUTLASS_URL"] = form.format(folder=tmp_path)
    assert bench.provide(wheel=False) == FILES
    assert bench.server.requests == []


def repository(root: Path, files: dict[str, bytes]) -> str:
    """A repository with a tag ``v3.8.0``; returns the tag's commit."""
    write_tree(root, files)
    person = {"NAME": "t", "EMAIL": "t@example.invalid"}
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in person.items()},
    }
    for arguments in (
        ("init", "-q"),
        ("add", "-A"),
        ("commit", "-q", "-m", "release"),
        ("tag", "-a", "-m", "release", "v3.8.0"),
    ):
        subprocess.run(["git", *arguments], cwd=root, env=environment, check=True)
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_mirror_may_be_a_git_repository_whose_tag_is_the_known_commit(bench: Bench, tmp_path: Path) -> None:
    commit = repository(tmp_path / "mirror", FILES)
    bench.environ["KERNEL_BUILDER_CUTLASS_URL"] = f"git+file://{tmp_path / 'mirror'}"
    with pytest.raises(IntegrityError, match=f"is commit {commit}, not "):
        bench.provide(wheel=False)
    assert bench.provide(wheel=False, commit=commit) == FILES


@pytest.mark.parametrize("place", ["wheel", "archive"])
def test_headers_that_are_not_those_of_the_release_are_refused(bench: Bench, place: str) -> None:
    altered = {**FILES, "include/cute/tensor.hpp": b"// tensors, and something else\n"}
    if place == "wheel":
        bench.server.add("nvidia_cutlass-3.8.0.0-py3-none-any.whl", wheel_of(altered))
    else:
        bench.server.add("v3.8.0.tar.gz", archive_of(altered))
    with pytest.raises(IntegrityError, match=r"CUTLASS 3.8.0 .* do not match the release"):
        bench.provide()
    assert not bench.store.has(bench.libraries().resolve("cutlass_3_8").key)


def test_where_nothing_has_it_every_remedy_is_named(bench: Bench) -> None:
    with pytest.raises(NetworkError) as caught:
        bench.provide()
    assert "no project 'nvidia-cutlass'" in caught.value.message
    assert "v3.8.0.tar.gz" in caught.value.message
    hint = caught.value.hint or ""
    assert all(word in hint for word in ("nvidia-cutlass 3.8.0", "KERNEL_BUILDER_CUTLASS_URL", "CUTLASS_SRC_DIR"))


@pytest.mark.parametrize("place", ["nothing", "wheel", "archive", "file", "git", "gone", "gone git", "offline"])
def test_whether_a_place_has_it_is_asked_without_fetching_it(bench: Bench, tmp_path: Path, place: str) -> None:
    if place == "wheel":
        bench.server.add("nvidia_cutlass-3.8.0.0-py3-none-any.whl", wheel_of(FILES))
    elif place == "archive":
        bench.server.add("v3.8.0.tar.gz", archive_of(FILES))
    elif place in {"file", "gone"}:
        bench.environ["KERNEL_BUILDER_CUTLASS_URL"] = str(tmp_path / "cutlass-{version}.tar.gz")
    elif "git" in place:
        repository(tmp_path / "mirror", FILES)
        bench.environ["KERNEL_BUILDER_CUTLASS_URL"] = f"git+file://{tmp_path / place.replace('git', 'mirror')}"
    if place == "file":
        (tmp_path / "cutlass-3.8.0.tar.gz").write_bytes(archive_of(FILES))
    bench.offline = place == "offline"
    libraries = bench.libraries()
    resolved = libraries.resolve("cutlass_3_8")
    if place in {"wheel", "archive", "file", "git"}:
        libraries.require(resolved)
        assert not bench.store.has(resolved.key)
    else:
        with pytest.raises(NetworkError, match=r"cutlass_3_8 \(CUTLASS 3.8.0\) is not available: ") as caught:
            libraries.require(resolved)
        assert "CUTLASS_SRC_DIR = a directory" in str(caught.value.hint)


@pytest.mark.parametrize("command", [("build", "--dry-run"), ("build",)])
def test_a_library_that_no_place_has_stops_a_build_before_anything_is_fetched(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    root = shutil.copytree(PROJECTS / "cutlass-copy", tmp_path / "kernel")
    monkeypatch.setenv("KERNEL_BUILDER_CACHE", str(tmp_path / "store"))
    monkeypatch.setenv("KERNEL_BUILDER_CUTLASS_URL", str(tmp_path / "gone.tar.gz"))
    text = (root / "build.toml").read_text(encoding="utf-8")
    (root / "build.toml").write_text(re.sub(r"cutlass_[0-9_]+", "cutlass_4_5", text), encoding="utf-8")
    told = tool.apart(*command, root, env={**os.environ})
    assert told.code != 0
    assert "cutlass_4_5 (CUTLASS 4.5.2) is not available" in told.stderr
    assert "fetching" not in told.stderr


def test_a_directory_that_the_user_names_comes_before_every_server(bench: Bench, tmp_path: Path) -> None:
    bench.server.add("nvidia_cutlass-3.8.0.0-py3-none-any.whl", wheel_of(FILES))
    changed = {**FILES, "include/cute/tensor.hpp": b"// tensors, patched\n"}
    bench.environ["CUTLASS_SRC_DIR"] = str(write_tree(tmp_path / "mine", changed))
    assert bench.provide() == changed
    assert bench.server.requests == []
    assert any("differs from the release CUTLASS 3.8.0" in text for text in bench.warnings())


def test_a_directory_that_equals_the_release_is_the_release(bench: Bench, tmp_path: Path) -> None:
    published = bench.libraries().resolve("cutlass_3_8")
    bench.environ["CUTLASS_SRC_DIR"] = str(write_tree(tmp_path / "mine"))
    assert bench.libraries().resolve("cutlass_3_8").key == published.key
    assert bench.warnings() == []


def test_a_directory_of_another_version_is_refused_with_both_versions(bench: Bench, tmp_path: Path) -> None:
    older = {"include/cutlass/cutlass.h": b"", "CMakeLists.txt": b"project(CUTLASS VERSION 2.10.0 LANGUAGES CXX)\n"}
    old, empty = write_tree(tmp_path / "old", older), tmp_path / "empty"
    bench.environ["CUTLASS_SRC_DIR"] = f"{old}{os.pathsep}{empty}"
    with pytest.raises(ToolchainError) as caught:
        bench.libraries().resolve("cutlass_3_8")
    assert (
        f"needs CUTLASS 3.8.0, but CUTLASS_SRC_DIR has something else: {old} is CUTLASS 2.10.0" in caught.value.message
    )
    assert f"{empty} is not CUTLASS" in caught.value.message
    bench.environ["CUTLASS_SRC_DIR"] += f"{os.pathsep}{write_tree(tmp_path / 'right')}"
    assert bench.libraries().resolve("cutlass_3_8").local == tmp_path / "right"


@pytest.mark.parametrize(("name", "variable"), [("sycl_tla", "SYCL_TLA_SRC_DIR"), ("metal-cpp", "METAL_CPP_SRC_DIR")])
def test_what_nothing_is_pinned_of_comes_from_the_users_directory(
    bench: Bench, tmp_path: Path, name: str, variable: str
) -> None:
    def libraries(**environ: str) -> Libraries:
        return Libraries(
            bench.store, SimpleIndex(bench.server.settings(), bench.reporter), bench.reporter, None, environ
        )

    toolkit = "2026.0" if name == "sycl_tla" else ""
    with pytest.raises(ToolchainError, match=f"{name} cannot be provided") as caught:
        libraries().resolve(name, toolkit)
    assert variable in (caught.value.hint or "")
    mine = tmp_path / "mine"
    for folder in ("include", "tools/util/include"):
        (mine / folder).mkdir(parents=True)
        (mine / folder / "a.h").touch()
    found = libraries(**{variable: str(mine)})
    resolved = found.resolve(name, toolkit)
    assert resolved.local == mine
    found.provide(resolved)
    assert all((folder / "a.h").is_file() for folder in resolved.headers.include if name == "sycl_tla")


def test_a_release_goes_with_its_toolkit(bench: Bench) -> None:
    libraries = Libraries(bench.store, SimpleIndex(bench.server.settings(), bench.reporter), bench.reporter, None, {})
    resolved = libraries.resolve("sycl_tla", "2025.3")
    assert (resolved.headers.name, resolved.headers.version) == ("sycl_tla", "0.8")
    assert libraries.resolve("sycl_tla", "2025.3") is resolved
    with pytest.raises(ToolchainError, match=r"its releases go with 2026\.0 and 2025\.3, not with 2025\.1"):
        libraries.resolve("sycl_tla", "2025.1")


VARIANT = "torch213-cxx11-cu130-x86_64-linux"


def test_the_build_command_refuses_a_directory_of_another_version(tool: Tool, tmp_path: Path) -> None:
    root = shutil.copytree(PROJECTS / "cutlass-copy", tmp_path / "cutlass-copy")
    mine = write_tree(tmp_path / "mine")
    result = tool("build", root, "--variant", VARIANT, "--dry-run", env={"CUTLASS_SRC_DIR": str(mine)})
    assert result.code == 4
    assert (
        f"cutlass_3_6 needs CUTLASS 3.6.0, but CUTLASS_SRC_DIR has something else: {mine} is CUTLASS 3.8.0"
        in result.stderr
    )


@pytest.mark.network
def test_two_releases_of_a_library_in_one_project_stay_apart(tool: Tool, tmp_path: Path) -> None:
    root = shutil.copytree(PROJECTS / "cutlass-copy", tmp_path / "cutlass-copy")
    result = tool("build", root, "--variant", VARIANT, "--dry-run", "--json")
    assert result.code == 0, result.stderr
    found = {}
    for step in result.variant(VARIANT)["steps"]:  # type: ignore[attr-defined]
        command = " ".join(step["command"])
        found[step["source"]] = [name for name in ("cutlass-3.6.0", "cutlass-3.8.0") if f"/{name}-" in command]
    assert found["copy/copy.cu"] == ["cutlass-3.8.0"]
    assert found["copy/elder.cu"] == ["cutlass-3.6.0"]
    assert found["torch-ext/torch_binding.cpp"] == [], (
        "bindings get a library where all sections mean one release of it"
    )

    text = (root / "build.toml").read_text(encoding="utf-8")
    one = text.replace('"cutlass_3_6"', '"cutlass_3_8"')
    (root / "build.toml").write_text(one, encoding="utf-8")
    result = tool("build", root, "--variant", VARIANT, "--dry-run", "-v")
    assert result.stdout.count("/cutlass-3.8.0-") == 2 * 3, "two include directories for each of three sources"

    both = text.replace('src = ["copy/elder.cu"', 'src = ["copy/copy.cu", "copy/elder.cu"')
    (root / "build.toml").write_text(both, encoding="utf-8")
    result = tool("build", root, "--variant", VARIANT, "--dry-run")
    assert result.code == 3
    assert (
        "'copy/copy.cu' is in [kernel.copy] and [kernel.elder], which depend on cutlass_3_8 and cutlass_3_6"
        in result.stderr
    )


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.loaded
def test_a_kernel_that_uses_cute_compiles_for_sm_90a(tool: Tool, tmp_path: Path) -> None:
    root = shutil.copytree(PROJECTS / "cutlass-copy", tmp_path / "cutlass-copy")
    result = tool("build", root, "--variant", VARIANT, "--json")
    assert result.code == 0, result.stderr
    assert result.compiled(VARIANT) == ["copy/copy.cu", "copy/elder.cu", "torch-ext/torch_binding.cpp"]
    assert_proven(result.variant(VARIANT)["load"])
    built = root / "build" / VARIANT
    assert json.loads((built / "metadata.json").read_text(encoding="utf-8"))["backend"]["archs"] == ["9.0a"]
    (library,) = built.glob("*.so")
    assert b"sm_90a" in library.read_bytes(), "the device code says what it was compiled for"
