"""Keys of older editions, and near misses of present ones, with the edit that each one needs."""

from __future__ import annotations

RETIRED = {
    ("general", "universal"): "write a [torch-noarch] table instead",
    ("torch", "universal"): "write a [torch-noarch] table instead of [torch]",
    ("general", "cuda-minver"): "write 'minver' in a [general.cuda] table",
    ("general", "cuda-maxver"): "write 'maxver' in a [general.cuda] table",
    ("general", "capabilities"): "write 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("general", "cuda-capabilities"): "write it in every [kernel.<id>] section for cuda",
    ("torch", "name"): "write 'name' in the [general] table",
    ("torch", "capabilities"): "write 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("torch", "cuda-capabilities"): "write it in every [kernel.<id>] section for cuda",
    ("kernel.<id>", "language"): "write 'backend' instead: backend = \"cuda\"",
    ("kernel.<id>", "capabilities"): "write 'cuda-capabilities'",
    ("kernel.<id>", "name"): "the name stands in the header: [kernel.<name>]",
    ("", "capabilities"): "write 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("", "cuda-capabilities"): "write 'cuda-capabilities' in every [kernel.<id>] section for cuda",
}
"""By table (``""``: outside of any) and key."""
