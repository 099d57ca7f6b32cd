"""Toolkits on this machine: what is one, and why something else is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.backends.cuda.local import find_toolkits

_NVCC = r"""#!/bin/sh
case "$*" in
*--dryrun*) printf '#$ TOP=%s\n' "$(dirname "$0")/.." >&2 ;;
*) printf 'Cuda compilation tools, release 12.6, V12.6.77 \351\n' ;;
esac
"""


def toolkit(root: Path, script: str = _NVCC, mode: int = 0o755) -> Path:
    nvcc = root / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(script)
    nvcc.chmod(mode)
    return root


@pytest.mark.parametrize(
    ("script", "mode", "reason"),
    [
        ("#!/bin/sh\nexit 3\n", 0o755, "it does not run: it ends with 3"),
        ("#!/bin/sh\nprintf '\\377\\376'\n", 0o755, "it does not answer like nvcc"),
        (_NVCC, 0o644, "it does not run: Permission denied"),
        ("", 0o755, "it does not run"),
    ],
)
def test_what_is_no_toolkit_is_passed_over_with_the_reason(tmp_path: Path, script: str, mode: int, reason: str) -> None:
    places = (toolkit(tmp_path / "wrong", script, mode), tmp_path / "absent", toolkit(tmp_path / "right"))
    found, refused = find_toolkits({"PATH": ""}, places, standard=tmp_path / "nothing")
    assert [(one.root, one.release, one.version) for one in found] == [(tmp_path / "right", "12.6", "12.6.77")]
    assert [entry.candidate for entry in refused] == [str(place / "bin" / "nvcc") for place in places[:2]]
    assert refused[0].reason.startswith(reason)
    assert refused[1].reason == "it is not there"


def test_of_two_toolkits_of_one_version_the_first_counts(tmp_path: Path) -> None:
    named, home = toolkit(tmp_path / "named"), toolkit(tmp_path / "home")
    found, refused = find_toolkits({"PATH": "", "CUDA_HOME": str(home)}, (named,), standard=tmp_path / "nothing")
    assert [one.root for one in found] == [named]
    assert [entry.reason for entry in refused] == [f"{named} has CUDA 12.6 too, and comes first"]


def test_of_two_toolkits_of_one_version_a_complete_one_goes_before_a_part(tmp_path: Path) -> None:
    part, complete = toolkit(tmp_path / "part"), toolkit(tmp_path / "complete")
    for name in ("cudafe++", "fatbinary", "ptxas", "cicc"):
        (complete / "bin" / name).touch()
    found, refused = find_toolkits({"PATH": ""}, (part, complete), standard=tmp_path / "nothing")
    assert [one.root for one in found] == [complete]
    assert [(entry.candidate, entry.reason) for entry in refused] == [
        (str(part / "bin" / "nvcc"), "it has no cudafe++, fatbinary, ptxas, cicc")
    ]
