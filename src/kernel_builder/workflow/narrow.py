"""What ``--arch`` and ``--fast`` mean for the variants of a build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernel_builder.backends import toolkit_kinds
from kernel_builder.config.backends import Backend
from kernel_builder.config.capabilities import is_architecture, parse_architecture
from kernel_builder.config.model import Architecture
from kernel_builder.errors import UsageError
from kernel_builder.plan.narrowing import NOT_NARROWED, Narrowing
from kernel_builder.variants.matrix import Matrix


def narrowing_of(
    matrix: Matrix, architectures: Sequence[str], environ: Mapping[str, str], *, fast: bool = False
) -> Narrowing:
    """The architectures, of those that the variants of ``matrix`` have, that are built for: those that are listed in
    ``architectures``, or, with ``fast``, those of this machine's devices.

    Raises :class:`UsageError` for what is no architecture of a backend among these variants; for all of them at once.
    """
    compiled = dict.fromkeys(kept.backend for kept in matrix.kept if kept.row is not None)
    backends = [backend for backend in compiled if backend.architectures is not None]
    if fast:
        return Narrowing(fast=True, devices=_devices(backends, environ))
    if not architectures:
        return NOT_NARROWED
    problems = [problem for text in architectures if (problem := _problem(text, backends)) is not None]
    if problems:
        raise UsageError(
            "\n".join(f"--arch {problem}" for problem in problems),
            hint="write architectures as build.toml does; kernel-builder build without --arch builds all of them",
        )
    named: dict[Backend, tuple[Architecture, ...]] = {}
    for backend in backends:
        fitting = [text for text in dict.fromkeys(architectures) if is_architecture(backend, text)]
        if fitting:
            named[backend] = tuple(parse_architecture(backend, text) for text in fitting)
    return Narrowing(named=named)


def _problem(text: str, backends: Sequence[Backend]) -> str | None:
    """Why no variant can be built for ``text``."""
    if any(is_architecture(backend, text) for backend in backends):
        return None
    for backend in Backend:
        if backend.architectures is not None and is_architecture(backend, text):
            noun, label = backend.architectures.noun, backend.label
            return f"{text}: that is a {noun}, but no variant of this build is for {label}"
    if not backends:
        return f"{text}: no variant of this build has architectures to choose from"
    said = []
    for backend in backends:
        try:
            parse_architecture(backend, text)
        except ValueError as error:
            said.append(str(error))
    return f"{text}: {'; '.join(said)}"


def _devices(backends: Sequence[Backend], environ: Mapping[str, str]) -> dict[Backend, tuple[Architecture, ...]]:
    kinds = toolkit_kinds()
    found: dict[Backend, tuple[Architecture, ...]] = {}
    for backend in backends:
        devices = kinds[backend].devices(environ) if backend in kinds else ()
        runs = dict.fromkeys(device.architecture for device in devices if device.architecture is not None)
        if runs:
            found[backend] = tuple(runs)
    return found
