"""Print the pins of ``data/dependencies.toml`` for a git repository of a library, and say where the table differs.

    python scripts/pin_dependencies.py PATH_OF_A_CLONE [NAME_OF_THE_LIBRARY]

Nothing is fetched: the clone must have the tags. Exit code 1 when a pin of the table is another.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from kernel_builder.toolchain.dependencies import headers_digest, releases


def main(clone: str, library: str = "cutlass") -> int:
    """Compare every release of ``library`` with its tag in ``clone``."""
    wrong = 0
    known = [one for release in releases().values() for one in (release, *release.also)]
    for release in known:
        if release.library.name != library or not release.headers:
            continue
        tag = f"v{release.version}"
        within = ["git", "-C", clone]
        commit = subprocess.run(
            [*within, "rev-parse", f"{tag}^{{commit}}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        tar = subprocess.run(
            [*within, "archive", commit, *release.library.include], stdout=subprocess.PIPE, check=True
        ).stdout
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
                archive.extractall(scratch, filter="data")
            digest = headers_digest(Path(scratch), release.library.include)
        same = (commit, digest) == (release.commit, release.headers)
        wrong += not same
        print(f'{release.name}: {"as pinned" if same else "DIFFERS"}\ncommit = "{commit}"\nheaders = "{digest}"')
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
