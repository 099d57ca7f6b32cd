"""Wheels and source distributions: archives whose bytes follow from what they hold.

Reference: the packaging specifications "Binary distribution format", "Source distribution format", "Core metadata".
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_builder import __version__

_TIME = (1980, 1, 1, 0, 0, 0)  # the first that zip archives can say


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A project as package managers know it. ``requires`` are requirements, ``fields`` further headers of its
    metadata, ``description`` its text in Markdown, ``licenses`` the files with its licences. ``is_open``: a wheel
    decides on its requirements.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    description: str = ""
    licenses: Mapping[str, bytes] = field(default_factory=dict)
    is_open: bool = False

    @property
    def stem(self) -> str:
        """How the names of its archives begin."""
        return f"{self.name.replace('-', '_').lower()}-{self.version}"

    @property
    def metadata(self) -> str:
        """Its ``METADATA`` or ``PKG-INFO``."""
        lines = ["Metadata-Version: 2.4", f"Name: {self.name}", f"Version: {self.version}"]
        lines += [f"{key}: {value}" for key, value in self.fields]
        lines += [f"License-File: {path}" for path in sorted(self.licenses)]
        lines += ["Dynamic: Requires-Dist"] if self.is_open else [f"Requires-Dist: {one}" for one in self.requires]
        if self.description:
            lines += ["Description-Content-Type: text/markdown", "", self.description]
        return "\n".join(lines) + "\n"


def write_wheel(directory: Path, of: Distribution, tag: str, files: Mapping[str, bytes]) -> str:
    """Write the wheel of ``files`` (POSIX path in ``site-packages`` -> content) into ``directory``; return its name.
    ``tag`` is such as ``py3-none-any``.
    """
    about = f"{of.stem}.dist-info"
    pure = str(tag.endswith("-none-any")).lower()
    wheel = f"Wheel-Version: 1.0\nGenerator: kernel-builder {__version__}\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    contents = {
        **dict(sorted(files.items())),
        f"{about}/METADATA": of.metadata.encode(),
        f"{about}/WHEEL": wheel.encode(),
        **{f"{about}/licenses/{path}": text for path, text in sorted(of.licenses.items())},
    }
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in contents.items()]
    contents[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""]).encode()
    name = f"{of.stem}-{tag}.whl"
    with zipfile.ZipFile(directory / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return name


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_source_distribution(directory: Path, of: Distribution, files: Mapping[str, bytes]) -> str:
    """Write the archive of ``files`` (POSIX path in the project -> content) into ``directory``; return its name."""
    name = f"{of.stem}.tar.gz"
    with (
        (directory / name).open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in sorted({**files, "PKG-INFO": of.metadata.encode()}.items()):
            entry = tarfile.TarInfo(f"{of.stem}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return name
