"""The support table: what is required, and what was (interoperability contract 2.2 to 2.4)."""

from __future__ import annotations

from datetime import date

import pytest
from kernels.variants import parse_variant as client_parses

from kernel_builder.config.backends import Backend
from kernel_builder.variants.names import parse_variant
from kernel_builder.variants.support import SupportRow, VariantSet, load_support, parse_support
from kernel_builder.versions import Version

TABLE = load_support()


def names(which: VariantSet) -> set[str]:
    return {row.name for row in TABLE.rows if TABLE.contains(which, row)}


def test_the_required_set_is_the_published_bundle() -> None:
    expected = {f"torch{release}-{backend}-aarch64-darwin" for release in (212, 213) for backend in ("cpu", "metal")}
    for release in (212, 213):
        computes = ["cpu", "cu126", "cu130", "cu132"]
        expected |= {f"torch{release}-cxx11-{compute}-aarch64-linux" for compute in computes}
        computes += ["rocm71", "rocm72", "xpu20253" if release == 212 else "xpu20260"]
        expected |= {f"torch{release}-cxx11-{compute}-x86_64-linux" for compute in computes}
    assert names(VariantSet.REQUIRED) == expected


def test_the_legacy_set_is_the_first_list_that_was_published() -> None:
    computes = {25: ("cu118", "cu121", "cu124"), 26: ("cu118", "cu124", "cu126")}
    assert names(VariantSet.LEGACY) == {
        f"torch{release}-{abi}-{compute}-x86_64-linux"
        for release, toolkits in computes.items()
        for abi in ("cxx11", "cxx98")
        for compute in toolkits
    }


def test_the_latest_set_is_the_required_one_and_every_newer_release() -> None:
    newer = names(VariantSet.LATEST) - names(VariantSet.REQUIRED)
    assert {name.split("-")[0] for name in newer} == {"torch214", "torch215"}
    assert {"torch214-cxx11-cu130-x86_64-linux", "torch215-cxx11-cu132-x86_64-linux"} <= newer
    assert names(VariantSet.REQUIRED) < names(VariantSet.LATEST) < names(VariantSet.ALL)


@pytest.mark.parametrize(
    ("day", "releases", "some"),
    [
        ("2025-04-16", {25, 26, 27}, "torch25-cxx98-cu121-x86_64-linux"),
        ("2025-05-01", {26, 27}, "torch26-cxx98-cu126-aarch64-linux"),
        ("2025-09-12", {27, 28}, "torch27-cxx11-xpu20250-x86_64-linux"),
        ("2025-11-01", {28, 29}, "torch28-cpu-aarch64-darwin"),
        ("2026-02-01", {29, 210}, "torch210-cxx11-rocm70-x86_64-linux"),
        ("2026-04-01", {29, 210, 211}, "torch29-cxx11-cu129-x86_64-linux"),
        ("2026-06-01", {211, 212}, "torch212-cxx11-xpu20253-x86_64-linux"),
        ("2026-09-01", {212, 213}, "torch213-cxx11-cu132-aarch64-linux"),
    ],
)
def test_the_table_knows_what_was_required_when(day: str, releases: set[int], some: str) -> None:
    def then(row: SupportRow) -> bool:
        return row.since is not None and row.since <= day and (row.until is None or row.until > day)

    required = {row.name for row in TABLE.rows if then(row)}
    assert {int(name.removeprefix("torch").split("-")[0]) for name in required} == releases
    assert some in required


def test_rows_are_distinct_and_the_client_reads_their_names() -> None:
    assert len({row.name for row in TABLE.rows}) == len(TABLE.rows)
    for row in TABLE.rows:
        assert parse_variant(row.name) == row.variant
        assert client_parses(row.name).variant_str == row.name


def test_every_row_has_sound_facts() -> None:
    for row in TABLE.rows:
        assert row.cxx_standard == (20 if row.torch >= Version.parse("2.12") else 17)
        for day in filter(None, (row.since, row.until)):
            date.fromisoformat(day)
        if row.until is not None:
            assert row.since is not None
            assert row.since < row.until
        assert (row.variant.compute.version is None) == (row.toolkit is None)


@pytest.mark.parametrize(
    ("cuda", "first", "last"),
    [("11.8", "7.0", "9.0+PTX"), ("12.6", "7.0", "9.0+PTX"), ("12.8", "7.0", "12.0+PTX"), ("13.2", "7.5", "12.1+PTX")],
)
def test_default_capabilities_follow_the_toolkit(cuda: str, first: str, last: str) -> None:
    capabilities = TABLE.default_architectures(Backend("cuda"), Version.parse(cuda))
    assert (str(capabilities[0]), str(capabilities[-1])) == (first, last)


def test_a_toolkit_older_than_every_list_has_no_default() -> None:
    with pytest.raises(LookupError, match=r"CUDA 11\.7"):
        TABLE.default_architectures(Backend("cuda"), Version.parse("11.7"))


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        ('{ backend = "cuda", versions = ["13.0"], platforms = "x86_64-linux" }', "platforms must be a list"),
        ('{ backend = "cuda", versions = ["13.0"], platforms = ["linux"] }', "not a platform"),
        ('{ backend = "cuda", platforms = ["x86_64-linux"] }', "needs a toolkit version"),
        ('{ backend = "cpu", platforms = ["x86_64-linux"], since = 1 }', "since must be a string"),
    ],
)
def test_a_table_with_a_mistake_is_not_read(build: str, complaint: str) -> None:
    text = f'[sets]\nlegacy = []\n[[torch]]\nversion = "2.13"\ncxx-standard = 20\npython = "3.10"\nbuilds = [{build}]\n'
    with pytest.raises((TypeError, ValueError), match=complaint):
        parse_support(f"{text}[[cuda-capabilities]]\nminver = '13.0'\ndefault = ['9.0']\n")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch28-cxx11-cpu-x86_64-linux", ("torch 2.8", (3, 9))),
        ("torch29-cxx11-cpu-x86_64-linux", ("torch 2.9", (3, 10))),
        ("torch215-cxx11-cu132-x86_64-linux", ("torch 2.15", (3, 11))),
        ("torch-stable-abi28-cpu-x86_64-linux", ("torch 2.8", (3, 9))),
        ("tvm-ffi01-cpu-x86_64-linux", ("torch 2.12", (3, 10))),
        ("torch-cpu", None),
        ("torch99-cxx11-cpu-x86_64-linux", None),
    ],
)
def test_the_oldest_python_that_can_load_a_variant(name: str, expected: object) -> None:
    assert TABLE.oldest_python(parse_variant(name)) == expected
