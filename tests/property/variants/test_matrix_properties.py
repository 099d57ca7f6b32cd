"""Laws of the matrix, whatever the project's bounds and backends."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.variants import parse_variant as client_parses

from kernel_builder.config.backends import Backend
from kernel_builder.config.model import BackendOptions, Framework, FrameworkKind, Project, Section
from kernel_builder.variants.matrix import all_variants, choose
from kernel_builder.variants.names import (
    Abi,
    ArchVariant,
    Compute,
    Machine,
    NoarchVariant,
    Platform,
    StableAbiTag,
    System,
    Tag,
    TorchTag,
    TvmFfiTag,
    Variant,
    parse_variant,
)
from kernel_builder.variants.support import VariantSet, load_support
from kernel_builder.versions import Version

TABLE = load_support()
RELEASES = sorted({row.torch for row in TABLE.rows})
PLATFORMS = [None, *sorted({row.platform for row in TABLE.rows})]
lawful = settings(max_examples=50)
toolkits = st.sampled_from([None, *(Version.parse(text) for text in ("11.8", "12.6", "13", "13.0", "13.2"))])


@st.composite
def projects(draw: st.DrawFn) -> Project:
    backends = tuple(draw(st.lists(st.sampled_from(tuple(Backend)), min_size=1, unique=True)))
    compiled = [backend for backend in backends if draw(st.booleans())]
    kind = draw(st.sampled_from([FrameworkKind.TORCH, FrameworkKind.TORCH, FrameworkKind.TVM_FFI]))
    stable = {backend: draw(st.sampled_from(RELEASES)) for backend in compiled if draw(st.booleans())}
    releases = st.sampled_from([None, *RELEASES])
    return Project(
        root=Path("/nowhere"),
        edition=5,
        name="kernel",
        version=1,
        license=None,
        backends=backends,
        framework=Framework(kind=kind, minver=draw(releases), maxver=draw(releases), stable_abi=stable),
        sections=tuple(Section(id=backend.value, backend=backend, src=()) for backend in compiled),
        backend_options={Backend("cuda"): BackendOptions(minver=draw(toolkits), maxver=draw(toolkits))},
    )


@lawful
@given(projects(), st.sampled_from(PLATFORMS), st.sampled_from(VariantSet))
def test_every_build_is_accounted_for_and_no_variant_twice(
    project: Project, platform: Platform | None, which: VariantSet
) -> None:
    matrix = all_variants(project, TABLE, platform)
    names = [entry.name for entry in matrix.kept]
    assert len(set(names)) == len(names)
    told = {row.name for entry in matrix.kept for row in entry.stands_for} | {entry.name for entry in matrix.dropped}
    wanted = {backend for backend in project.backends if project.is_compiled_for(backend)}
    assert told >= {row.name for row in TABLE.rows if row.variant.backend in wanted}
    for entry in matrix.kept:
        assert client_parses(entry.name) is not None
        assert parse_variant(entry.name) == entry.variant
        if entry.row is not None:
            assert entry.row is entry.stands_for[-1]
            assert entry.row.torch == max(row.torch for row in entry.stands_for)
            assert platform in {None, entry.row.platform}
    chosen = choose(matrix, within=which)
    assert {entry.name for entry in chosen.kept} <= set(names)
    assert len(chosen.kept) + len(chosen.dropped) == len(matrix.kept) + len(matrix.dropped)


@lawful
@given(projects(), st.sampled_from(PLATFORMS))
def test_stable_variants_are_built_with_a_torch_that_has_their_abi(project: Project, platform: Platform | None) -> None:
    for entry in all_variants(project, TABLE, platform).kept:
        if isinstance(entry.variant, ArchVariant) and isinstance(entry.variant.tag, StableAbiTag):
            assert entry.row is not None
            major, minor = entry.variant.tag.version
            assert entry.row.torch >= Version.parse(f"{major}.{minor}")


@st.composite
def variants(draw: st.DrawFn) -> Variant:
    """Variants whose names the client can read: a toolkit's minor has one digit there, and so has tvm-ffi's major."""
    backend = draw(st.sampled_from(tuple(Backend)))
    if draw(st.booleans()):
        return NoarchVariant(backend=backend)
    version = draw(st.tuples(st.integers(1, 2030), st.integers(0, 9))) if backend.prefix else None
    release = draw(st.tuples(st.integers(1, 9), st.integers(0, 30)))
    tags: list[Tag] = [
        *(TorchTag(version=release, abi=abi) for abi in (*Abi, None)),
        StableAbiTag(version=release),
        TvmFfiTag(version=release),
    ]
    return ArchVariant(
        tag=draw(st.sampled_from(tags)),
        compute=Compute(backend=backend, version=version),
        machine=draw(st.sampled_from(Machine)),
        system=draw(st.sampled_from(System)),
    )


@lawful
@given(variants())
def test_the_client_reads_every_name_back(variant: Variant) -> None:
    assert client_parses(str(variant)).variant_str == str(variant)
