"""What ``metadata.json`` says of a variant, all but the digest, which is made of the finished files.

Reference: interoperability contract 4.1: keys, order and when a key is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from kernel_builder import __version__
from kernel_builder.actions.headers import Headers
from kernel_builder.config.backends import Backend
from kernel_builder.config.model import KernelDependency, Project
from kernel_builder.config.settings import FILE_NAME
from kernel_builder.project.digests import by_folder
from kernel_builder.project.identity import Identity
from kernel_builder.project.inputs import source_record
from kernel_builder.toolchain.model import Toolchain
from kernel_builder.variants.build_type import RELEASE, BuildType


def _dependency(dependency: KernelDependency) -> dict[str, object]:
    if dependency.version is not None:
        return {"repo-id": dependency.repo_id, "version": dependency.version}
    return {"repo-id": dependency.repo_id, "revision": dependency.revision}


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def provenance(
    identity: Identity,
    slim: Headers | None = None,
    left_out: tuple[str, ...] = (),
    toolchain: Toolchain | None = None,
    build_type: BuildType = RELEASE,
    flags: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Who built it and from which commit; without a commit there is no ``kernel`` entry (contract 4.3).

    ``sources`` tell whether a build is one of the sources beside it, and which file is another. What it was compiled
    with comes from the builder's own sources, but for the parts of ``toolchain`` whose source the project named;
    ``tools`` says what it is, ``flags`` what the project's sections add for each source. ``slim`` is that of
    :func:`describe`. ``partial`` is there where the architectures ``left_out`` are not, ``trial`` where what
    ``toolchain`` compiles must not be published, ``framework-headers`` where these were made of those of another build,
    ``build-type`` where ``build_type`` is no release. Readers pass over keys that they do not know (contract 4.1).
    """
    document: dict[str, object] = {"kernel-builder": {"version": __version__}}
    if identity.commit is not None:
        document["kernel"] = {"commit": identity.commit, "dirty": identity.dirty}
    document["sources"] = source_record(identity.sources) | (
        {"files": by_folder(identity.files)} if identity.files else {}
    )
    if toolchain is not None and toolchain.by_project:
        document["toolchain"] = [{**asdict(part), "named-by": FILE_NAME} for part in toolchain.by_project]
    if toolchain is not None:
        document["tools"] = _tools(toolchain)
    if flags:
        document["flags"] = dict(sorted(flags.items()))
    if slim is not None:
        document["headers"] = slim.value
    if left_out:
        document["partial"] = {"left-out": sorted(left_out)}
    if toolchain is not None and toolchain.framework.made:
        document["framework-headers"] = "made of those of a build for another backend"
    if toolchain is not None and toolchain.toolkit is not None and toolchain.toolkit.unfit is not None:
        document["trial"] = {"reason": toolchain.toolkit.unfit}
    if not build_type.is_release:
        document["build-type"] = build_type.to_json()
    return document


def _tools(toolchain: Toolchain) -> list[dict[str, object]]:
    """Whatever decides the bytes of a library: the compilers, the headers, and what is linked into it.

    ``id`` is the key of an entry of the store, which is made of the digests of what was fetched, or was measured on
    the machine that has it.
    """
    host = toolchain.host
    told: dict[str, object] = {"name": host.family.program, "version": host.version, "target": host.target}
    if host.packages:
        told["packages"] = [part.name for part in host.packages]
    if host.parts:
        told["sha256"] = dict(host.parts)
    framework, toolkit = toolchain.framework, toolchain.toolkit
    found: list[dict[str, object]] = [
        told,
        {"name": framework.kind.value, "version": framework.version, "id": framework.identity},
    ]
    if toolkit is not None:
        found.append(
            {"name": toolkit.toolkit.backend.label, "version": toolkit.toolkit.version, "id": toolkit.identity}
        )
    found += [{"name": one.library, "version": one.version} for one in toolchain.libraries]
    if toolchain.sysroot is not None:
        found.append({"name": "glibc floor", "version": toolchain.sysroot.floor})
    if toolchain.sdk is not None:
        found.append({"name": "macOS SDK", "version": toolchain.sdk.version})
    return found


def describe(
    project: Project,
    backend: Backend,
    identity: Identity,
    *,
    archs: tuple[str, ...] = (),
    slim: Headers | None = None,
    left_out: tuple[str, ...] = (),
    toolchain: Toolchain | None = None,
    build_type: BuildType = RELEASE,
    flags: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The document for ``backend``, in the contract's key order, without its digest.

    ``archs`` are what the variant has device code for; none means 'unknown'. ``slim`` says how slim headers were used,
    if they were, ``left_out`` what sections are compiled for in a whole build, but not in this one. ``toolchain`` is
    what it was compiled with, ``build_type`` what it is built for, ``flags`` those of the project for each source.
    """
    options = project.backend_options.get(backend)
    dependencies = [*project.kernel_depends, *(options.kernel_depends if options else ())]
    names = sorted(set(archs))
    document: dict[str, object] = {
        "name": project.name,
        "id": identity.ops_id(project, backend),
        "version": project.version,
        "license": project.license or "",
    }
    if project.upstream is not None:
        document["upstream"] = project.upstream
    if project.source is not None:
        document["source"] = project.source
    document["python-depends"] = _unique([*project.python_depends, *(options.python_depends if options else ())])
    document["kernel-depends"] = [_dependency(dependency) for dependency in dict.fromkeys(dependencies)]
    document["backend"] = {"type": backend.value, **({"archs": names} if names else {})}
    document["provenance"] = provenance(identity, slim, left_out, toolchain, build_type, flags)
    return document
