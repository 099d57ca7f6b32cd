"""Choosing toolchains as the project's lock says, as far as it is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_builder.errors import NetworkError, ToolchainError
from kernel_builder.events import Notice, Reporter
from kernel_builder.store.artefact import ArtefactKind
from kernel_builder.toolchain.choice import ToolchainRequest
from kernel_builder.toolchain.dependencies import ResolvedLibrary
from kernel_builder.toolchain.lock import LOCK_NAME, LockedVariant, LockError, read_lock
from kernel_builder.toolchain.lock_use import LockUse
from kernel_builder.toolchain.provide import Toolchains
from kernel_builder.toolchain.resolved import ResolvedToolchain


class LockGuide:
    """Chooses toolchains as the lock of the project in ``root`` says. ``recall``: see :meth:`Toolchains.resolve`."""

    def __init__(self, root: Path, use: LockUse, reporter: Reporter, *, recall: bool) -> None:
        self._use = use
        self._recall = recall
        self._reporter = reporter
        self._lock = None if use is LockUse.UPGRADE else read_lock(root)
        self._locked: dict[str, LockedVariant] = {}
        self._problems: list[str] = []
        if use is LockUse.REQUIRE and self._lock is None:
            raise LockError([f"{LOCK_NAME} does not exist in {root}"])

    def resolve(
        self, name: str, wanted: ToolchainRequest, provider: Toolchains, libraries: tuple[ResolvedLibrary, ...]
    ) -> ResolvedToolchain:
        """The toolchain of the variant ``name``. Raises what resolving raises; what the lock forbids is collected."""
        locked = self._lock.get(name) if self._lock is not None else None
        if locked is None:
            if self._use is LockUse.REQUIRE:
                provider.resolve(wanted)  # what cannot be built here could not be locked either: then that is why
                raise self._refusal(name, "the lock does not list it")
            return provider.resolve(wanted, fresh=self._use is LockUse.UPGRADE, recall=self._recall)
        own = [artefact for artefact in locked.artefacts if artefact.kind is not ArtefactKind.TREE]
        try:
            answer = provider.resolve_locked(wanted, own)
        except NetworkError:
            raise
        except ToolchainError as error:
            if self._use is LockUse.REQUIRE:
                raise self._refusal(name, error.message) from error
            self._differs(name, error.message)
            return provider.resolve(wanted, recall=self._recall)
        trees = {artefact for artefact in locked.artefacts if artefact.kind is ArtefactKind.TREE}
        if trees != {artefact for library in libraries for artefact in library.artefacts}:
            self._differs(name, "the libraries that its sections depend on differ from those in the lock")
        if not locked.accepts(answer.host):
            compiler = f"{answer.host.cxx} ({answer.host})"
            self._differs(name, f"the lock accepts {locked.accepted}, but {compiler} would be used")
        self._locked[name] = locked
        return answer

    def _refusal(self, name: str, what: str) -> LockError:
        """Said at once where there is one variant only; otherwise :meth:`finish` tells all of them."""
        self._problems.append(f"{name}: {what}")
        return LockError(self._problems)

    def _differs(self, name: str, what: str) -> None:
        if self._use is LockUse.REQUIRE:
            self._refusal(name, what)
        else:
            self._reporter.emit(Notice(message=f"{LOCK_NAME}: {name}: {what}", warning=True))

    def finish(self, total: int) -> Mapping[str, LockedVariant]:
        """The variants that are compiled with what the lock names. Raises :class:`LockError` for what it forbids."""
        if self._problems:
            raise LockError(self._problems)
        if self._lock is not None and len(self._locked) < total and self._use is LockUse.PREFER:
            message = f"{LOCK_NAME} has {len(self._locked)} of the {total} variants; toolchains for the others"
            self._reporter.emit(Notice(message=f"{message} were chosen now ('kernel-builder lock' adds them)"))
        elif self._locked:
            self._reporter.emit(Notice(message=f"compiled with what {LOCK_NAME} lists"))
        return self._locked
