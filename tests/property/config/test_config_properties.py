"""Properties of reading and migrating build.toml, over generated projects and documents."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import select_capabilities
from kernel_builder.config.document import Value, document_of
from kernel_builder.config.known import dependencies
from kernel_builder.config.migrate import update
from kernel_builder.config.model import (
    Architecture,
    BackendOptions,
    Capability,
    Framework,
    FrameworkKind,
    Hub,
    KernelDependency,
    Project,
    Section,
    Suffix,
)
from kernel_builder.config.reader import read_project
from kernel_builder.config.schema import BACKEND_TABLES, COMPILED
from kernel_builder.errors import ConfigError
from kernel_builder.toml.scan import Source
from kernel_builder.versions import Version

FILE, ROOT = Path("build.toml"), Path.cwd()

WORD = st.text("abcdefghij0123456789", min_size=1, max_size=8)
NAME = st.builds(lambda first, rest: first + rest, st.sampled_from("abc"), WORD)
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12).filter(
    lambda text: text.strip()
)
FLAGS = st.lists(st.builds(lambda name: f"-D{name}", NAME), max_size=3).map(tuple)
PATHS = st.lists(st.builds(lambda stem: f"{stem}.x", NAME), max_size=4).map(tuple)
VERSION = st.sampled_from(["2.10", "2.9", "2.12.1", "12.8", "13.0", "3", "10.0.0"]).map(Version.parse)
REPO = st.builds(lambda owner, name: f"{owner}/{name}", NAME, NAME)
URL = st.builds(lambda path: f"https://example.com/{path}", NAME)
CAPABILITY = st.builds(Capability, st.integers(5, 13), st.integers(0, 9), st.sampled_from(Suffix), st.booleans())
CAPABILITIES = st.lists(CAPABILITY, min_size=1, max_size=5, unique=True).map(tuple)
ROCM = st.lists(st.sampled_from(["gfx90a", "gfx942", "gfx1100"]), unique=True, max_size=3).map(tuple)
KERNEL_DEPENDS = st.lists(
    st.one_of(
        st.builds(KernelDependency, repo_id=REPO, version=st.integers(0, 2**32 - 1)),
        st.builds(KernelDependency, repo_id=REPO, revision=NAME),
    ),
    max_size=3,
    unique_by=lambda one: one.repo_id,
).map(tuple)


def python_depends(backend: Backend | None) -> st.SearchStrategy[tuple[str, ...]]:
    names = sorted(dependencies().python_table(backend))
    return st.lists(st.sampled_from(names), unique=True).map(tuple) if names else st.just(())


@st.composite
def sections(draw: st.DrawFn, backends: tuple[Backend, ...]) -> Section:
    backend = draw(st.sampled_from(backends))
    depends = [name for name, owners in dependencies().depends.items() if not owners or backend in owners]
    cuda, rocm = backend is Backend("cuda"), backend is Backend("rocm")
    architectures: st.SearchStrategy[tuple[Architecture, ...]] = CAPABILITIES if cuda else ROCM
    return Section(
        id=draw(TEXT),
        backend=backend,
        src=draw(PATHS),
        depends=tuple(draw(st.lists(st.sampled_from(depends), unique=True, max_size=3))),
        include=draw(PATHS),
        cxx_flags=draw(FLAGS),
        flags=draw(FLAGS) if cuda or rocm or backend is Backend("xpu") else (),
        architectures=draw(st.none() | architectures) if cuda or rocm else None,
        toolkit_minver=draw(st.none() | VERSION) if cuda else None,
    )


@st.composite
def frameworks(draw: st.DrawFn, backends: tuple[Backend, ...]) -> Framework:
    kind = draw(st.sampled_from(FrameworkKind))
    pyext = draw(st.none() | st.lists(WORD, unique=True, max_size=2).map(tuple))
    if kind is FrameworkKind.TORCH_NOARCH:
        listed: dict[Backend, tuple[Architecture, ...]] = {
            Backend("cuda"): draw(CAPABILITIES | st.just(())),
            Backend("rocm"): draw(ROCM),
        }
        given = {backend: architectures for backend, architectures in listed.items() if architectures}
        return Framework(kind=kind, pyext=pyext, architectures=MappingProxyType(given))
    made = Framework(kind=kind, pyext=pyext, src=draw(PATHS), include=draw(PATHS), cxx_flags=draw(FLAGS))
    if kind is FrameworkKind.TVM_FFI:
        return made
    stable = draw(st.dictionaries(st.sampled_from(backends), st.just(Version.parse("2.9"))))
    minver = draw(st.none() | VERSION)
    maxver = draw(st.none() | VERSION.filter(lambda one: one.is_at_least(Version.parse("2.9"))))
    if minver is not None and maxver is not None and not minver.is_at_most(maxver):
        minver = None
    return replace(made, stable_abi=MappingProxyType(stable), minver=minver, maxver=maxver)


@st.composite
def projects(draw: st.DrawFn) -> Project:
    backends = tuple(draw(st.lists(st.sampled_from(tuple(Backend)), unique=True, min_size=1)))
    framework = draw(frameworks(backends))
    compiled = tuple(backend for backend in backends if backend in COMPILED)
    made: list[Section] = []
    if compiled and framework.kind is not FrameworkKind.TORCH_NOARCH:
        made = draw(st.lists(sections(compiled), max_size=3, unique_by=lambda one: one.id))
    options: dict[Backend, BackendOptions] = {}
    for backend in draw(st.lists(st.sampled_from(sorted(BACKEND_TABLES)), unique=True)):
        table = BACKEND_TABLES[backend]
        option = BackendOptions(
            minver=draw(st.none() | VERSION) if table.find("minver") else None,
            kernel_depends=draw(KERNEL_DEPENDS) if table.find("kernel-depends") else (),
            python_depends=draw(python_depends(backend)),
        )
        if option != BackendOptions():
            options[backend] = option
    return Project(
        root=ROOT,
        edition=5,
        name=draw(NAME),
        version=draw(st.integers(0, 2**32 - 1)),
        license=draw(TEXT),
        backends=backends,
        framework=framework,
        sections=tuple(made),
        upstream=draw(st.none() | URL),
        source=draw(st.none() | URL),
        hub=Hub(repo_id=draw(st.none() | REPO), branch=draw(st.none() | NAME)),
        kernel_depends=draw(KERNEL_DEPENDS),
        python_depends=draw(python_depends(None)),
        backend_options=MappingProxyType(options),
    )


@given(projects())
@settings(max_examples=80, deadline=None)
def test_a_project_written_and_read_is_the_same(project: Project) -> None:
    document = document_of(project)
    read, _ = read_project(tomlkit.dumps(document).encode(), file=FILE, root=ROOT, tree=False)
    assert read == project
    assert document_of(read) == document


# Older editions, in any layout.


def key(name: str) -> str:
    return tomlkit.key(name).as_string() if name.isidentifier() else tomlkit.item(name).as_string()


def value(of: Value) -> str:
    if isinstance(of, Mapping):
        return "{ " + ", ".join(f"{key(name)} = {value(inner)}" for name, inner in of.items()) + " }"
    if isinstance(of, str | int):
        return tomlkit.item(of).as_string()
    return "[" + ", ".join(value(inner) for inner in of) + "]"


@st.composite
def written(draw: st.DrawFn, document: Mapping[str, Value]) -> str:
    """A document as somebody might have written it: headers, dotted keys or inline tables; comments; CRLF."""
    number = 0

    def comment() -> str:
        nonlocal number
        number += 1
        return draw(st.sampled_from(["", "", f"  # note {number}"]))

    lines: list[str] = []
    for name, table in document.items():
        assert isinstance(table, Mapping)
        inner = {
            one: entry for one, entry in table.items() if isinstance(entry, Mapping) and name in {"general", "kernel"}
        }
        own = {one: entry for one, entry in table.items() if one not in inner}
        if name != "kernel":
            lines.append(f"[{name}]{comment()}")
        for one, entry in draw(st.permutations(list(own.items()))):
            indent = draw(st.sampled_from(["", "  "]))
            lines.append(f"{indent}{key(one)} = {value(entry)}{comment()}")
        for one, entry in inner.items():
            entries = entry
            if name == "general" and draw(st.booleans()):
                if draw(st.booleans()):
                    lines += [f"{one}.{key(two)} = {value(three)}{comment()}" for two, three in entries.items()]
                else:
                    lines.append(f"{one} = {value(entries)}{comment()}")
        for one, entry in inner.items():
            entries = entry
            if any(line.startswith((f"{one} = ", f"{one}.")) for line in lines):
                continue
            lines += ["", draw(st.sampled_from(["# about what follows", ""])), f"[{name}.{key(one)}]{comment()}"]
            lines += [f"{key(two)} = {value(three)}{comment()}" for two, three in entries.items()]
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return newline.join(lines) + draw(st.sampled_from(["", newline]))


def older(document: dict[str, Value], edition: int) -> dict[str, Value]:
    """What an older edition could say of a project: newer keys are left out."""
    general = dict(cast("Mapping[str, Value]", document["general"]))
    made = dict(document)
    gone = {"edition"}
    if edition < 4:
        gone |= {"license", "source", "kernel-depends", "tpu"}
        for framework in ("torch", "tvm-ffi"):
            if framework in made:
                table = dict(cast("Mapping[str, Value]", made[framework]))
                made[framework] = {
                    name: entry for name, entry in table.items() if name not in {"stable-abi", "cxx-flags"}
                }
        made.pop("torch-noarch", None)
    if edition < 3:
        gone |= {"version", "backends", "cuda", "xpu", "neuron", "python-depends", "upstream"}
    made["general"] = {name: entry for name, entry in general.items() if name not in gone}
    if edition < 3 and "kernel" not in made:
        # Without sections, such a file can only be one of Python code alone.
        where = "general" if edition == 2 else "torch"
        made = {"general": made["general"], "torch": {"pyext": ["py"]}}
        made[where] = {**cast("Mapping[str, Value]", made[where]), "universal": True}
    if edition == 1 and "kernel" in made:
        kernels: dict[str, Value] = {}
        for name, section in cast("Mapping[str, Mapping[str, Value]]", made["kernel"]).items():
            kept = {one: section[one] for one in ("depends", "src", "include") if one in section}
            language = {"cuda": "cuda-hipify", "metal": "metal"}.get(str(section["backend"]))
            kernels[name] = {**kept, **({"language": language} if language else {})}
        made["kernel"] = kernels
    return made


@given(st.data(), projects(), st.sampled_from([1, 2, 3, 4]))
@settings(max_examples=120, deadline=None)
def test_an_older_file_is_carried_over_as_it_was_read_once_and_for_all(
    data: st.DataObject, project: Project, edition: int
) -> None:
    text = data.draw(written(older(document_of(project), edition)))
    try:
        before, _ = read_project(text.encode(), file=FILE, root=ROOT, tree=False)
    except ConfigError:
        return  # what is left of some projects says too little to be one
    refusal: ConfigError | None = None
    try:
        change = update(text.encode(), file=FILE, root=ROOT, license_=before.license or "mit")
    except ConfigError as error:
        refusal = error
    if refusal is not None:
        assert f"cannot update {FILE} in place; it was left unchanged" in refusal.message
        assert "header" in (refusal.hint or "")
        return
    assert change.is_due
    after, _ = read_project(change.after, file=FILE, root=ROOT, tree=False)
    assert after == replace(before, edition=5, license=before.license or "mit")
    assert not update(change.after, file=FILE, root=ROOT).is_due
    outcome = change.after.decode()
    assert all(line in outcome for line in text.splitlines() if line.startswith("#"))
    assert ("\r\n" in text) == ("\r\n" in outcome)
    assert outcome.count("\n") == outcome.count("\r\n") or "\r\n" not in text


@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_input_gives_anything_but_a_config_error(data: bytes) -> None:
    try:
        read_project(data, file=FILE, root=ROOT, tree=False)
    except ConfigError as error:
        places = [(one.line or 0, one.column or 0) for one in error.diagnostics]
    else:
        return
    assert places == sorted(places)
    assert places
    assert all(1 <= line <= data.count(b"\n") + 1 and column >= 1 for line, column in places)


@given(st.text("[]{}=,.\"'#\\ \n\tab1", max_size=60))
@settings(max_examples=500, deadline=None)
def test_what_is_toml_has_the_values_that_tomllib_gives_and_what_is_not_has_problems(text: str) -> None:
    try:
        expected: dict[str, object] | None = tomllib.loads(text)
    except ValueError:
        expected = None
    found, problems = Source(text).parse()
    assert (expected is None) == bool(problems)
    if expected is not None:
        assert found == expected


# Selecting capabilities.


def loose_intersection(requested: list[Capability], supported: list[Capability]) -> set[tuple[int, int, str]]:
    """The rule of the interoperability contract 2.7, word for word."""
    targets = {(one.major, one.minor) for one in supported}
    plain = {(one.major, one.minor): one.ptx for one in requested if not one.suffix}
    for one in requested:
        if not one.suffix and one.ptx:
            plain[one.major, one.minor] = True
    emitted: set[tuple[int, int, str]] = set()
    for one in requested:
        if one.suffix and (one.major, one.minor) in {(two.major, two.minor) for two in supported}:
            emitted.add((one.major, one.minor, one.suffix.value))
            targets.discard((one.major, one.minor))
    for target in targets:
        fitting = [number for number, ptx in plain.items() if number <= target and (number[0] == target[0] or ptx)]
        if fitting:
            emitted.add((*max(fitting), ""))
    return emitted


@given(
    st.lists(CAPABILITY, max_size=6),
    st.lists(st.builds(Capability, st.integers(5, 13), st.integers(0, 9)), min_size=1, max_size=6),
)
@settings(max_examples=500, deadline=None)
def test_everything_is_selected_that_the_reference_selects_and_nvcc_compiles(
    requested: list[Capability], supported: list[Capability]
) -> None:
    selection = select_capabilities(tuple(requested), tuple(supported))
    chosen = {(one.major, one.minor, one.suffix.value) for one in selection.effective}
    compilable = {(one.major, one.minor) for one in supported}
    assert {one for one in loose_intersection(requested, supported) if one[:2] in compilable} <= chosen
    assert {one[:2] for one in chosen} <= compilable
    wanted = {(one.major, one.minor, one.suffix.value) for one in requested}
    assert chosen <= wanted
    assert {(one.major, one.minor, one.suffix.value) for one in selection.dropped} == wanted - chosen
    assert list(selection.effective) == sorted(selection.effective)
