from __future__ import annotations

import shutil

import pytest

from kernel_libraries import Workshop


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    if shutil.which("g++") is None:
        pytest.skip("this machine has no g++")
    return Workshop(tmp_path_factory.mktemp("libraries"))
