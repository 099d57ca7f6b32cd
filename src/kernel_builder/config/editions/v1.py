"""Edition 1 (until May 2025): ``universal`` in ``[torch]``, kernel sections with a ``language``, no
``backends``.
"""

from __future__ import annotations

from kernel_builder.config.backends import Backend
from kernel_builder.config.editions.v2 import derived_backends, noarch
from kernel_builder.toml.nodes import Leaf, Node, TableNode, describe
from kernel_builder.toml.report import Report

LANGUAGES = {
    "cuda": (Backend("cuda"),),
    "cuda-hipify": (Backend("cuda"), Backend("rocm")),
    "metal": (Backend("metal"),),
}
"""What a ``language`` stands for."""

DEFAULT_LANGUAGE = "cuda"

ARCHS = {"cuda-capabilities": Backend("cuda"), "rocm-archs": Backend("rocm")}


def upgrade(top: TableNode, report: Report) -> TableNode:
    """Turn a document of edition 1 into one of edition 3."""
    general, torch = top.table("general"), top.table("torch")
    kernels: dict[str, Node] = {}
    sections = top.table("kernel")
    for name, section in sections.items.items():
        if not isinstance(section, TableNode):
            kernels[name] = section
            continue
        for new_name, new_section in _split(name, section, report):
            if new_name != name and new_name in sections.items:
                report.error(
                    section.path,
                    f"'cuda-hipify' turns this section into '{new_name}', but a section with that name already exists",
                    hint="rename one of the two",
                    at_key=True,
                )
            kernels[new_name] = new_section
    if kernels:
        top = top.but({"kernel": TableNode(sections.path, kernels)})
    universal = torch.get("universal")
    if universal is not None:
        top = top.but({"torch": torch.but({}, without=("universal",))})
        if not isinstance(universal, Leaf) or not isinstance(universal.value, bool):
            report.error(universal.path, f"must be true or false, not {describe(universal)}")
        elif universal.value:
            return noarch(top, universal, report)
    return top.but({"general": derived_backends(general, TableNode(sections.path, kernels))})


def _likely(language: object) -> tuple[Backend, ...]:
    """What an unknown language was meant to be, so that what else is wrong can be told, and nothing that follows."""
    from difflib import get_close_matches  # noqa: PLC0415  (start-up time)

    written = str(language.value) if isinstance(language, Leaf) else ""
    return LANGUAGES[next(iter(get_close_matches(written, LANGUAGES, n=1)), DEFAULT_LANGUAGE)]


def _split(name: str, section: TableNode, report: Report) -> list[tuple[str, TableNode]]:
    """The sections that one section of edition 1 stands for: two for ``cuda-hipify``, else one."""
    language = section.get("language")
    if language is None:
        backends: tuple[Backend, ...] = () if "backend" in section.items else LANGUAGES[DEFAULT_LANGUAGE]
        origin = section.path
    elif isinstance(language, Leaf) and isinstance(language.value, str) and language.value in LANGUAGES:
        backends, origin = LANGUAGES[language.value], language.path
    else:
        report.error(
            language.path,
            f"unknown language: {describe(language)}",
            hint=f"languages: {', '.join(LANGUAGES)}",
        )
        backends, origin = _likely(language), language.path
    if not backends:
        return [(name, section)]
    if language is not None and "backend" in section.items:
        report.error(language.path, "cannot be combined with 'backend'", hint="keep 'backend'", at_key=True)
    for key, owner in ARCHS.items():
        if key in section.items and owner not in backends:
            report.warning(
                section.items[key].path,
                f"has no effect: the section is not compiled for {owner.value}",
                hint="remove it",
                at_key=True,
            )
    made = []
    for backend in backends:
        foreign = tuple(key for key, owner in ARCHS.items() if owner is not backend)
        new = section.but({"backend": Leaf(origin, backend.value)}, without=("language", *foreign))
        made.append((f"{name}_rocm" if len(backends) > 1 and backend is Backend("rocm") else name, new))
    return made
