"""Keys of older editions, and near misses of present ones, with the edit that each one needs."""

from __future__ import annotations

RETIRED = {
    ("general", "universal"): "use a [torch-noarch] table instead",
    ("torch", "universal"): "use a [torch-noarch] table instead of [torch]",
    ("general", "cuda-minver"): "use 'minver' in a [general.cuda] table",
    ("general", "cuda-maxver"): "use 'maxver' in a [general.cuda] table",
    ("general", "capabilities"): "use 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("general", "cuda-capabilities"): "put it in every [kernel.<id>] section for cuda",
    ("torch", "name"): "put 'name' in the [general] table",
    ("torch", "capabilities"): "use 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("torch", "cuda-capabilities"): "put it in every [kernel.<id>] section for cuda",
    ("kernel.<id>", "language"): "use 'backend' instead: backend = \"cuda\"",
    ("kernel.<id>", "capabilities"): "use 'cuda-capabilities'",
    ("kernel.<id>", "name"): "the name belongs in the header: [kernel.<name>]",
    ("", "capabilities"): "use 'cuda-capabilities' in every [kernel.<id>] section for cuda",
    ("", "cuda-capabilities"): "use 'cuda-capabilities' in every [kernel.<id>] section for cuda",
}
"""By table (``""``: outside of any) and key."""
