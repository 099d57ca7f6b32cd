"""ROCm out of AMD's own repository of Debian packages, of which only what compiling needs is unpacked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kernel_builder.toolchain.choice import Refused, Taken
from kernel_builder.toolchain.packages import PackageComponents
from kernel_builder.toolchain.recipe import Component
from kernel_builder.variants.names import Machine

_RELEASE = re.compile(r"\.(?P<major>\d{1,2})(?P<minor>\d\d)(?P<patch>\d\d)-\d")
"""How AMD ends the versions of its packages, whatever they begin with: ``7.1.25424.70100-20~24.04``."""


def release_of(version: str) -> str | None:
    """The release of ROCm that a package of this version belongs to: ``7.1``; ``None`` where that cannot be told."""
    found = _RELEASE.search(version)
    return None if found is None else f"{int(found['major'])}.{int(found['minor'])}"


class RocmPackages(PackageComponents):
    """See :class:`~kernel_builder.toolchain.packages.PackageComponents`. A repository of AMD's has one release, and the
    names of its packages do not say which.
    """

    def offers(self, components: Sequence[Component], version: str, machine: Machine) -> Mapping[str, Taken | Refused]:
        """See :class:`~kernel_builder.toolchain.choice.ComponentSource`."""
        answers = super().offers(components, version, machine)
        return {name: self._of_release(answer, version) for name, answer in answers.items()}

    def _of_release(self, answer: Taken | Refused, version: str) -> Taken | Refused:
        if isinstance(answer, Refused):
            return answer
        artefact = answer.artefact
        found = release_of(artefact.version)
        if found == version:
            return answer
        reason = (
            f"it is of ROCm {found}" if found else f"its version, {artefact.version}, does not name a release of ROCm"
        )
        return Refused(part=answer.part, source=self.label, candidate=artefact.filename, reason=reason)
