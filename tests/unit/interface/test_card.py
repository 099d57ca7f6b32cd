"""The card: an author's text survives, and what the Hub must tell is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_builder.artifact.built import variants_in
from kernel_builder.config.reader import load_project
from kernel_builder.errors import ConfigError
from kernel_builder.interface.card import fill_card

BUILD = """[general]
name = "scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cuda"]
source = "git@example.org:me/scale.git"

[general.hub]
repo-id = "me/scale"

[torch]
src = []

[kernel.scale]
backend = "cuda"
depends = ["torch"]
src = ["scale.cu"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(BUILD)
    package = tmp_path / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (tmp_path / "scale.cu").touch()
    (package / "__init__.py").write_text('__all__ = ["scale"]\ndef scale(x, factor=2.0):\n    """Multiply."""\n')
    return tmp_path


def add_variant(root: Path, name: str, *, archs: tuple[str, ...] = ("9.0", "10.0"), dirty: bool = False) -> None:
    directory = root / "build" / name
    directory.mkdir(parents=True)
    metadata = {
        "version": 3,
        "backend": {"type": "cuda", "archs": sorted(archs)},
        "provenance": {"kernel-builder": {"version": "9.9"}, "kernel": {"commit": "a" * 40, "dirty": dirty}},
    }
    (directory / "metadata.json").write_text(json.dumps(metadata))


def fill(root: Path, **options: str) -> str:
    return fill_card(load_project(root)[0], variants_in(root / "build"), **options)


def test_what_the_sources_say_of_dtypes_is_no_guess(root: Path) -> None:
    (root / "scale.cu").write_text("void scale(at::Tensor x) { TORCH_CHECK(x.scalar_type() == at::kHalf); }\n")
    card = fill(root)
    assert "\nx = torch.randn(1024, 1024, dtype=torch.float16, device=device)\n" in card
    assert "guesses" not in card
    (root / "scale.cu").write_text("")
    (root / "tests").mkdir()
    test = root / "tests" / "test_scale.py"
    test.write_text("def test_it():\n    x = torch.zeros(3, dtype=torch.int32, device='cpu')\n")
    assert "\nx = torch.ones(1024, 1024, dtype=torch.int32, device=device)\n" in fill(root)
    test.write_text("def test_it(dtype):\n    x = torch.zeros(3, dtype=dtype)\n")
    assert "the dtype of x, are guesses" in fill(root)


def test_a_project_without_a_card_gets_the_built_in_one(root: Path) -> None:
    add_variant(root, "torch213-cxx11-cu130-x86_64-linux")
    card = fill(root)
    assert card.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n\n# me/scale\n")
    assert 'get_kernel("me/scale", version=3, backend=device, trust_remote_code=True)' in card
    assert 'device = "cuda"\n' in card
    assert "\nx = torch.randn(1024, 1024, device=device)\nresult = kernel.scale(x)\n" in card
    assert "The arguments are made up. The shapes, and the dtype of x, are guesses.\n" in card
    assert "- `scale(x, factor=2.0)`: Multiply.\n" in card
    assert "| cuda | 9.0, 10.0 |" in card
    assert "| `torch213-cxx11-cu130-x86_64-linux` | PyTorch 2.13, cxx11 | cuda 13.0 | linux x86_64 |" in card
    assert "Source: ssh://git@example.org/me/scale.git" in card
    assert f"Built by kernel-builder 9.9 from commit `{'a' * 40}`." in card


def test_the_authors_text_survives_and_filling_in_twice_changes_nothing(root: Path) -> None:
    own = "---\ntags:\n- mine\nlicense: mit\n---\n\nMy words, {% raw %}{{ braces }}{% endraw %} and all.\n\n    code\n"
    (root / "CARD.md").write_text(own)
    card = fill(root)
    assert (
        "tags:\n- mine\nlicense: mit\nlibrary_name: kernels\n---\n\nMy words, {{ braces }} and all.\n\n    code\n"
        in card
    )
    add_variant(root, "torch-cuda", dirty=True)
    once = fill(root)
    (root / "CARD.md").write_text(once.replace("{{ braces }}", "braces"))
    assert fill(root) == once.replace("{{ braces }}", "braces")


def test_dirty_builds_are_said_to_be_so_at_the_top(root: Path) -> None:
    add_variant(root, "torch213-cxx11-cu130-x86_64-linux", dirty=True)
    add_variant(root, "torch213-cxx11-cu132-x86_64-linux")
    card = fill(root)
    banner = card.index("> [!WARNING]")
    assert banner < card.index("# me/scale")
    assert "cu130-x86_64-linux`." in card[banner : banner + 300]
    assert "cu132" not in card[banner : banner + 300]


def test_a_template_that_asks_for_the_variants_gets_no_second_table(root: Path) -> None:
    (root / "CARD.md").write_text("{% for v in variants %}\n* {{ v.name }}\n{% endfor %}\n{{ provenance or '' }}\n")
    add_variant(root, "torch-cuda")
    card = fill(root)
    assert "* torch-cuda\n" in card
    assert "## Builds" not in card
    assert "## Provenance" not in card


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [("a\n{{ repo }}\n", 2, "'repo' is undefined"), ("{% if x %}\n", 1, "endif"), ("\n{{ 1 +\n", 2, "unexpected")],
)
def test_a_template_that_cannot_be_filled_in_is_refused_with_its_line(
    root: Path, text: str, line: int, message: str
) -> None:
    (root / "CARD.md").write_text(text)
    with pytest.raises(ConfigError) as caught:
        fill(root)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.line == line
    assert diagnostic.file == root / "CARD.md"


def test_a_card_needs_a_repository(root: Path) -> None:
    (root / "build.toml").write_text(BUILD.replace('[general.hub]\nrepo-id = "me/scale"\n', ""))
    with pytest.raises(ConfigError, match="repository"):
        fill(root)
    assert "# other/name" in fill(root, repo_id="other/name")
