"""Vendors' repositories of packages that are damaged, change while they are read, or that nobody vouches for.

The packages are made up, the keys real, and the server is on loopback.
"""

from __future__ import annotations

import lzma
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from kernel_builder.backends import rules_for
from kernel_builder.config.backends import Backend
from kernel_builder.errors import BuildError, IntegrityError, KernelBuilderError
from kernel_builder.events import Silent
from kernel_builder.store.progress import Fetch
from kernel_builder.store.settings import IndexSettings
from kernel_builder.store.transport import Transport
from kernel_builder.toolchain.choice import ComponentSource, Refused, Taken, ToolkitTree
from kernel_builder.toolchain.kinds import Opening, ToolkitKind
from kernel_builder.toolchain.recipe import Component
from kernel_builder.toolchain.settings import FurtherRepository, Place, ToolchainSettings
from kernel_builder.variants.names import Machine
from published import make_deb, make_tar, serve_folder
from signing import Signer, new_signer, publish_packages

pytestmark = pytest.mark.skipif(
    shutil.which("gpg") is None or shutil.which("gpgv") is None, reason="needs gpg and gpgv (apt-get install gpg gpgv)"
)


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """Whose toolkit of ``release`` comes out of packages of ``version``."""

    backend: str
    release: str
    version: str

    @property
    def kind(self) -> ToolkitKind:
        found = rules_for(Backend(self.backend)).toolkit
        assert found is not None
        return found

    @property
    def components(self) -> list[Component]:
        return [one for one in self.kind.recipe.components(self.release) if one.package is not None]

    def publish(self, root: Path, signer: Signer) -> None:
        deb = make_deb(lzma.compress(make_tar({"./opt/words": os.urandom(4000)})))
        publish_packages(root, signer, {str(one.package): (self.version, deb) for one in self.components})

    def pool(self, root: Path) -> Path:
        return root / f"pool/main/{self.components[0].package}_{self.version}_amd64.deb"

    def open(self, place: Place, keyring: Path) -> ComponentSource:
        settings = IndexSettings(url=None, origin="test", place="kernel-builder.toml")
        repository = FurtherRepository(name="vendor", place=place, suite="all", component="main", keyring=keyring)
        opened = self.kind.open(
            Opening(
                name="vendor",
                settings=ToolchainSettings(),
                environ=os.environ,
                transport=lambda *_: Transport(settings),
                downloads=keyring.parent / "downloads",
                repository=repository,
            )
        )
        assert opened is not None
        return opened.source


VENDORS = [
    pytest.param(Vendor(backend="rocm", release="7.1", version="7.1.25424.70100-20~24.04"), id="AMD"),
    pytest.param(Vendor(backend="xpu", release="2026.0", version="2026.0.1-77"), id="Intel"),
]


@pytest.fixture(scope="module")
def signer() -> Iterator[Signer]:
    with new_signer() as made:
        yield made


@pytest.fixture(scope="module")
def other() -> Iterator[Signer]:
    with new_signer() as made:
        yield made


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (lambda pool: pool.unlink(), "404"),
    "replaced": (lambda pool: pool.write_bytes(make_deb(lzma.compress(b"newer" * 9000))), "the file has changed"),
    "altered": (lambda pool: pool.write_bytes(bytes(reversed(pool.read_bytes()))), "SHA-256"),
    "cut short": (lambda pool: pool.write_bytes(pool.read_bytes()[:-100]), "the file has changed"),
}


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_repository_that_changes_between_index_and_package_is_told(
    vendor: Vendor, fault: str, signer: Signer, tmp_path: Path
) -> None:
    root, into = tmp_path / "site", tmp_path / "into"
    vendor.publish(root, signer)
    into.mkdir()
    damage, said = FAULTS[fault]
    with serve_folder(root) as site:
        source = vendor.open(Place(url=site.url), signer.keyring)
        answers = source.offers(vendor.components, vendor.release, Machine.X86_64)
        taken = [(one, found) for one in vendor.components if isinstance(found := answers[one.name], Taken)]
        assert len(taken) == len(vendor.components)
        damage(vendor.pool(root))
        tree = ToolkitTree(version=vendor.release, into=into, scratch=tmp_path, progress=Fetch("it", Silent()))
        with pytest.raises(KernelBuilderError) as caught:
            source.fill(taken, tree)
    assert not isinstance(caught.value, BuildError)
    assert said in caught.value.message, caught.value.message
    assert vendor.pool(root).name in caught.value.message


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unsigned", "signed"),
        ("another key", "keyring"),
        ("no suite", "has no suite all"),
        ("past its date", "was valid until"),
        ("another index", "SHA-256"),
    ],
)
def test_a_repository_whose_index_nobody_vouches_for_is_refused(
    vendor: Vendor, fault: str, said: str, signer: Signer, other: Signer, tmp_path: Path
) -> None:
    vendor.publish(tmp_path, other if fault == "another key" else signer)
    suite = tmp_path / "dists" / "all"
    text = (suite / "InRelease").read_text(encoding="utf-8")
    plain = text.partition("\n\n")[2].partition("-----BEGIN PGP SIGNATURE")[0]
    if fault == "unsigned":
        (suite / "InRelease").write_text(plain, encoding="utf-8")
    elif fault == "no suite":
        shutil.rmtree(tmp_path / "dists")
    elif fault == "past its date":
        past = formatdate(time.time() - 86400, usegmt=True).replace("GMT", "UTC")
        (suite / "InRelease").write_bytes(signer.sign(f"Valid-Until: {past}\n{plain.rstrip()}\n"))
    elif fault == "another index":
        index = suite / "main" / "binary-amd64" / "Packages"
        index.write_bytes(index.read_bytes().replace(b"400", b"401"))
    source = vendor.open(Place(path=tmp_path), signer.keyring)
    try:
        answer = source.offers(vendor.components, vendor.release, Machine.X86_64)[vendor.components[0].name]
        told = answer.reason if isinstance(answer, Refused) else "taken"
    except IntegrityError as error:
        told = error.message
    assert said in told
