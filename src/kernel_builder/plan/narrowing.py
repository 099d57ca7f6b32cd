"""Which of its architectures a build is for, where it is not for all of them: ``build --arch`` and ``build --fast``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import names, running_on
from kernel_builder.config.model import Architecture
from kernel_builder.plan.model import EffectiveSection


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """``named`` are the architectures that were asked for, by backend; a backend that is not in it is built whole. With
    ``fast`` these are ``devices`` of this machine; a backend without one gets the newest of its toolkit.
    """

    named: Mapping[Backend, tuple[Architecture, ...]] = field(default_factory=dict)
    fast: bool = False
    devices: Mapping[Backend, tuple[Architecture, ...]] = field(default_factory=dict)

    def applied(self, backend: Backend, section: EffectiveSection) -> EffectiveSection:
        """``section``, which is whole, with what was asked for alone. Where it has nothing of that, with its newest:
        others link with what it makes.
        """
        whole = section.effective
        if self.fast:
            chosen = running_on(self.devices.get(backend, ()), whole)
        elif backend in self.named:
            wanted = self.named[backend]
            chosen = tuple(one for one in whole if any(names(asked, one) for asked in wanted))
        else:
            return section
        chosen = chosen or whole[-1:]
        return replace(section, effective=chosen, left_out=tuple(one for one in whole if one not in chosen))

    def unmet(self, backend: Backend, sections: Iterable[EffectiveSection]) -> tuple[Architecture, ...]:
        """What was asked for by name, and none of ``sections`` is compiled for."""
        compiled = [one for section in sections for one in section.effective]
        wanted = () if self.fast else self.named.get(backend, ())
        return tuple(asked for asked in wanted if not any(names(asked, one) for one in compiled))


NOT_NARROWED = Narrowing()
"""Everything is built."""


def left_out(sections: Iterable[EffectiveSection]) -> tuple[str, ...]:
    """What one of ``sections`` at least would be compiled for in a whole build and is not, each once."""
    return tuple(dict.fromkeys(str(one) for section in sections for one in section.left_out))
