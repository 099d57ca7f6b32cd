"""Which source a part comes from, and what is said when none has it."""

from __future__ import annotations

import copyreg
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tblib.pickling_support import pickle_exception

from kernel_builder.backends.cuda.archives import CudaArchives
from kernel_builder.backends.cuda.debian import CudaDebian
from kernel_builder.backends.cuda.kind import CudaToolkit
from kernel_builder.backends.cuda.local import LocalCuda
from kernel_builder.backends.cuda.redistrib import Redistrib
from kernel_builder.config.backends import Backend
from kernel_builder.errors import KernelBuilderError, NetworkError, ToolchainError
from kernel_builder.store.artefact import Artefact, ArtefactKind
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import (
    ComponentSource,
    FrameworkSource,
    Refused,
    Taken,
    ToolchainRequest,
)
from kernel_builder.toolchain.deciding import NoSourceError, choose_components, choose_framework, settle
from kernel_builder.toolchain.local_frameworks import LocalFramework
from kernel_builder.toolchain.model import Toolkit
from kernel_builder.toolchain.recipe import Component, default_recipe
from kernel_builder.toolchain.settings import Place, ToolchainSettings
from kernel_builder.variants.names import Abi, Machine

KIND = CudaToolkit()
COMPONENTS = KIND.recipe.components("12.6")


def transport(first_seconds: float | None = None) -> Transport:
    settings = IndexSettings(url=None, origin="test", place="kernel-builder.toml")
    return Transport(settings, first_seconds=first_seconds)


def archives(base: str | Path) -> CudaArchives:
    return CudaArchives(Redistrib(base, transport()), transport())


@pytest.fixture
def local(tmp_path: Path) -> LocalCuda:
    """This machine. CUDA 12.7, which was never published, is not on it."""
    return LocalCuda({"PATH": str(tmp_path)}, (tmp_path / "cuda",))


@pytest.fixture
def debian(tmp_path: Path) -> CudaDebian:
    return CudaDebian(
        ToolchainSettings(debian_mirror=Place(path=tmp_path)), transport(), tmp_path / "downloads", os.environ
    )


def choose(*sources: ComponentSource) -> None:
    toolkit = Toolkit(backend=Backend("cuda"), version="12.7")
    settle([choose_components(COMPONENTS, toolkit, Machine.X86_64, sources, KIND.where_else)], str(toolkit))


def test_a_part_that_nobody_has_is_an_error_with_all_reasons(local: LocalCuda, debian: CudaDebian) -> None:
    with pytest.raises(ToolchainError) as caught:
        choose(debian, local)
    message, *reasons = caught.value.message.splitlines()
    assert message == "no source has CUDA 12.7 for Linux on x86_64:"
    assert [line.split(":")[0].strip() for line in reasons] == ["debian", "debian", "local"]
    assert str(caught.value.hint).startswith(
        "set KERNEL_BUILDER_SOURCES=debian,redistrib,local to use NVIDIA's archives"
    )


def test_nvidias_archives_are_not_named_to_somebody_who_asked_them(local: LocalCuda, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        choose(archives(tmp_path), local)
    assert "has no archives of CUDA 12.7" in caught.value.message
    assert "KERNEL_BUILDER_SOURCES" not in str(caught.value.hint)


def test_a_source_that_does_not_answer_does_not_hide_what_the_others_say(local: LocalCuda, debian: CudaDebian) -> None:
    with pytest.raises(NetworkError) as caught:
        choose(debian, archives("http://127.0.0.1:1/redist"), local)
    first, second, *reasons = caught.value.message.splitlines()
    assert first.startswith("http://127.0.0.1:1/redist/")
    assert second == "no other source has CUDA 12.7:"
    assert [line.split(":")[0].strip() for line in reasons] == ["debian", "debian", "local"]
    assert caught.value.hint == "check your network connection, or set a mirror in kernel-builder.toml"


@contextmanager
def server_that(answer: bytes | None) -> Iterator[tuple[str, list[float]]]:
    """A server on loopback and the times at which it was asked: it sends ``answer``, then nothing more."""
    asked: list[float] = []
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                    asked.append(time.monotonic())
                    held.append(connection)
                    if answer is not None:
                        connection.sendall(answer)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/redist", asked
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    "answer",
    [None, b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"],
    ids=["nothing", "half a head", "no body"],
)
def test_a_server_that_nobody_asked_for_and_that_hangs_is_given_up_once_and_soon(
    local: LocalCuda, answer: bytes | None
) -> None:
    with server_that(answer) as (url, asked):
        source = CudaArchives(Redistrib(url, transport(0.3)), transport(), by_default=True)
        began = time.monotonic()
        errors: list[ToolchainError] = []

        def ask() -> None:
            with pytest.raises(ToolchainError) as caught:
                choose(source, local)
            errors.append(caught.value)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - began < 5
        assert len(asked) == 1
    for error in errors:
        assert not isinstance(error, NetworkError)  # it has nothing, as a source without the part
        assert "redistrib: CUDA 12.7: NVIDIA's archives cannot be reached from here: no " in error.message
        assert "http://" not in error.message
        assert "local: CUDA 12.7" in error.message
        assert error.hint == "set KERNEL_BUILDER_REDISTRIB to a mirror of NVIDIA's archives, a URL or a directory"
    assert len(errors) == 6


def test_a_name_that_is_looked_up_forever_is_given_up_too(local: LocalCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []

    def hang(host: object, *_: object, **__: object) -> None:
        looked_up.append(host)
        time.sleep(5)

    monkeypatch.setattr("socket.getaddrinfo", hang)
    source = CudaArchives(Redistrib("http://no.example/redist", transport(0.3)), transport(), by_default=True)
    began = time.monotonic()
    with pytest.raises(ToolchainError, match="cannot be reached from here: no connection within 0 s"):
        choose(source, local)
    assert time.monotonic() - began < 3
    assert looked_up == ["no.example"]


def test_a_server_that_answered_once_is_trusted_with_the_usual_patience() -> None:
    manifest = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with server_that(manifest) as (url, asked):
        patient = transport(0.3)
        for _ in range(2):
            with pytest.raises(NetworkError, match="does not exist"):
                patient.get(f"{url}/a", {})
        assert len(asked) == 2


def test_archives_that_nobody_asked_for_leave_it_to_the_next_source(local: LocalCuda) -> None:
    refusing = CudaArchives(Redistrib("http://127.0.0.1:1/redist", transport(0.3)), transport(), by_default=True)
    offered = refusing.offers(COMPONENTS, "12.6", Machine.X86_64)
    assert offered.keys() == {component.name for component in COMPONENTS}
    assert all(isinstance(answer, Refused) and answer.unreachable for answer in offered.values())


def test_the_error_of_a_source_is_told_alike_each_time(debian: CudaDebian, monkeypatch: pytest.MonkeyPatch) -> None:
    # What importing dask.distributed does: copies of an error share what it holds.
    monkeypatch.setitem(copyreg.dispatch_table, NetworkError, pickle_exception)
    source = archives("http://127.0.0.1:1/redist")
    messages = set()
    for _ in range(2):
        with pytest.raises(NetworkError) as caught:
            choose(debian, source)
        messages.add(caught.value.message)
    assert len(messages) == 1, "\n\n".join(sorted(messages))


def choose_torch(request: ToolchainRequest, *sources: FrameworkSource) -> None:
    settle([choose_framework(request, sources)], str(request))


def test_without_any_source_of_torch_that_is_said(tmp_path: Path) -> None:
    request = ToolchainRequest(release="2.13", machine=Machine.X86_64)
    with pytest.raises(ToolchainError, match="the configured sources have no candidates"):
        choose_torch(request)
    with pytest.raises(ToolchainError, match=r"local: torch 2\.13: no environment here has torch"):
        choose_torch(request, LocalFramework((tmp_path,), default_recipe().torch))


class Shelf:
    """A source that has some parts of every toolkit, and says of the others why not."""

    whole = False

    def __init__(self, label: str, has: Iterable[str] = (), lacks: Mapping[str, str] | None = None) -> None:
        self.label = label
        self._has, self._lacks = set(has), lacks or {}

    def offers(self, components: Sequence[Component], *_: object) -> Mapping[str, Taken | Refused]:
        return {one.name: self._answer(one.name) for one in components}

    def _answer(self, part: str) -> Taken | Refused:
        if part in self._has:
            artefact = Artefact(name=part, version="1", kind=ArtefactKind.LOCAL, filename=part, source=self.label)
            return Taken(part=part, source=self.label, artefact=artefact)
        reason = self._lacks.get(part, "it is out of stock")
        return Refused(part=part, source=self.label, candidate=f"{part}.whl", reason=reason)

    def weigh(self, *_: object) -> Mapping[str, int]:
        raise NotImplementedError

    def fill(self, *_: object) -> Sequence[Artefact]:
        raise NotImplementedError


class Unplugged(Shelf):
    """A source that does not answer."""

    def offers(self, *_: object) -> Mapping[str, Taken | Refused]:
        raise NetworkError(f"{self.label} does not answer", hint=f"plug {self.label} in")


REQUEST = ToolchainRequest(
    release="2.13", machine=Machine.X86_64, abi=Abi.CXX11, toolkit=Toolkit(backend=Backend("cuda"), version="12.7")
)
NAMES = [component.name for component in COMPONENTS]


def everything_lacking(sources: Sequence[ComponentSource], torch: Sequence[FrameworkSource] = ()) -> KernelBuilderError:
    """The error for a toolchain whose framework nobody has, and of whose toolkit ``sources`` have what they have."""
    assert REQUEST.toolkit is not None
    toolkit = choose_components(COMPONENTS, REQUEST.toolkit, Machine.X86_64, sources, lambda *_: "buy a toolkit")
    with pytest.raises((NoSourceError, NetworkError)) as caught:
        settle([choose_framework(REQUEST, torch), toolkit], str(REQUEST))
    return caught.value


def test_everything_that_a_toolchain_lacks_is_told_at_once(tmp_path: Path) -> None:
    compiler = [component.name for component in COMPONENTS if component.compiler]
    first, second = [name for name in NAMES if name not in compiler][:2]
    here = Shelf("here", has={*NAMES} - {first, second}, lacks={second: "it is broken"})
    error = everything_lacking([here], [LocalFramework((tmp_path,), default_recipe().torch)])
    assert error.message.splitlines() == [
        "no source has these parts of torch 2.13 (cxx11) with CUDA 12.7 for Linux on x86_64:",
        "    torch 2.13 (cxx11) with CUDA 12.7",
        "        local: torch 2.13: no environment here has torch",
        f"    the {first} of CUDA 12.7",
        f"        here: {first}.whl: it is out of stock",
        f"    the {second} of CUDA 12.7",
        f"        here: {second}.whl: it is broken",
    ]
    assert isinstance(error, NoSourceError)
    assert error.parts == ("torch", first, second)
    assert error.hint is not None
    assert error.hint.split("; ")[0].startswith("name an index that has torch 2.13 in kernel-builder.toml")
    assert error.hint.endswith("; buy a toolkit")


def test_parts_that_are_lacking_for_one_reason_are_told_together() -> None:
    some = NAMES[-3:]
    here, there = (Shelf(label, has={*NAMES} - {*some}) for label in ("here", "there"))
    error = everything_lacking([here, there])
    assert error.message.splitlines()[-3:] == [
        f"    the {some[0]}, {some[1]} and {some[2]} of CUDA 12.7",
        f"        here: {some[0]}.whl and 2 more: it is out of stock",
        f"        there: {some[0]}.whl and 2 more: it is out of stock",
    ]
    nothing = everything_lacking([Shelf("here")]).message.splitlines()[-2:]
    assert nothing == [
        "    CUDA 12.7",
        f"        here: {NAMES[0]}.whl and {len(NAMES) - 1} more: it is out of stock",
    ]


def test_all_sources_that_do_not_answer_are_named() -> None:
    error = everything_lacking([Unplugged("one"), Shelf("here"), Unplugged("two")])
    assert isinstance(error, NetworkError)
    first, second, head, *_ = error.message.splitlines()
    assert (first, second) == ("one does not answer", "two does not answer")
    assert head == "no other source has CUDA 12.7:"
    assert str(error.hint).startswith("plug one in; plug two in; name an index that has torch 2.13")
    alone = everything_lacking([Unplugged("one")])
    assert alone.message == "one does not answer"


def test_half_a_compiler_is_no_compiler() -> None:
    """Of its parts, those are named that a source lacks, and not those that it has and that would not fit others."""
    compiler = [component.name for component in COMPONENTS if component.compiler]
    here = Shelf("here", has={*NAMES} - {compiler[0]})
    error = everything_lacking([here])
    assert isinstance(error, NoSourceError)
    assert error.parts == ("torch", compiler[0])
