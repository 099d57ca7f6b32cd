"""Keys that tests sign repositories of packages with."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Signer:
    """A key of the test's own. ``keyring`` is what gpgv is given."""

    home: Path
    keyring: Path

    def gpg(self, *arguments: str, data: bytes = b"") -> bytes:
        """Run gpg with this key's home."""
        command = [
            "gpg",
            "--homedir",
            str(self.home),
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
        ]
        return subprocess.run([*command, *arguments], input=data, capture_output=True, check=True).stdout

    def sign(self, text: str, *options: str) -> bytes:
        """``text`` with a clear signature."""
        return self.gpg(*options, "--clearsign", data=text.encode())


@contextmanager
def new_signer(expires: str = "never", *options: str) -> Iterator[Signer]:
    """A signer with a new key. It is gone at the end."""
    home = Path(tempfile.mkdtemp(prefix="kb-gpg-"))  # short: the agent's socket lies in it
    home.chmod(0o700)
    signer = Signer(home=home, keyring=home / "keys.gpg")
    try:
        signer.gpg(*options, "--quick-gen-key", "Test <test@example.invalid>", "ed25519", "sign", expires)
        signer.keyring.write_bytes(signer.gpg("--export"))
        yield signer
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def publish_packages(
    root: Path, signer: Signer, packages: Mapping[str, tuple[str, bytes]], *, suite: str = "all"
) -> None:
    """A repository of packages: its name, version and contents each, in the component ``main`` of one suite."""
    stanzas = []
    for name, (version, deb) in packages.items():
        file = f"pool/main/{name}_{version}_amd64.deb"
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(deb)
        stanzas.append(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nInstalled-Size: 400\nFilename: {file}\n"
            f"Size: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
        )
    text = "\n".join(stanzas).encode()
    index = root / "dists" / suite / "main" / "binary-amd64" / "Packages"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_bytes(text)
    listed = f" {hashlib.sha256(text).hexdigest()} {len(text)} main/binary-amd64/Packages"
    (root / "dists" / suite / "InRelease").write_bytes(signer.sign(f"Suite: {suite}\nSHA256:\n{listed}\n"))
