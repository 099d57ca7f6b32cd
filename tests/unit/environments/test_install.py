"""What becomes of an environment whose packages cannot be installed: pip itself says so here."""

import os
import sys
from pathlib import Path

import pytest

from kernel_builder.environments.install import Installer, NothingFitsError

# Where pip of this Python does not look: what the machine configures, and the network.
_ALONE = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An environment as far as installing goes: its Python is this one, and nothing is ever installed."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path / "env"


def _installer(variables: dict[str, str]) -> Installer:
    environ = {**os.environ, **_ALONE, **variables}
    return Installer(python=Path(sys.executable), uv=None, environ=environ, heard=lambda _: None)


@pytest.mark.parametrize("constraint", ["", "no-such-package<=2.14.1\n", "something-else<2\n"])
def test_a_version_that_no_index_has_is_told_from_other_failures(place: Path, tmp_path: Path, constraint: str) -> None:
    """Then the next build of torch is tried, also where pip calls it a conflict with a constraint of the machine."""
    file = tmp_path / "constraints.txt"
    file.write_text(constraint)
    with pytest.raises(NothingFitsError) as raised:
        _installer({"PIP_CONSTRAINT": str(file)}).install(place, ("no-such-package==2.12.1+cpu",))
    assert raised.value.message.startswith("cannot install no-such-package==2.12.1+cpu:\n  ERROR:")
    assert "To fix this" not in raised.value.message
    assert "Looking in" not in raised.value.message
