"""A lock may name sources that whoever builds with it has not configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.model import FrameworkKind
from kernel_builder.errors import ToolchainError
from kernel_builder.events import Silent
from kernel_builder.store.cache import Store
from kernel_builder.toolchain.settings import load_settings
from kernel_builder.toolchain.sources import open_sources


def test_a_source_that_is_not_configured_is_named_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "kernel-builder.toml").write_text(
        'sources = ["mirror"]\n[[index]]\nname = "mirror"\npath = "wheels"\n', encoding="utf-8"
    )
    environ = {"HOME": str(tmp_path)}
    store = Store(tmp_path / "store")
    sources = open_sources(load_settings(tmp_path, environ), store, Silent(), toolkit_kinds(), environ=environ)
    assert sources.framework_named(FrameworkKind.TORCH, "mirror").label == "mirror"
    with pytest.raises(
        ToolchainError, match=r"source 'index', which is not configured here \(configured: mirror\)"
    ) as error:
        sources.framework_named(FrameworkKind.TORCH, "index")
    assert error.value.hint is not None
    assert "kernel-builder lock --upgrade" in error.value.hint
