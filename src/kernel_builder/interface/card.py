"""The card: ``CARD.md`` of a project, a template, filled in from the sources and from what was built.

An author's text is kept as it is. What a card for the Hub must tell and the template does not ask for (front matter,
the table of variants, provenance) is put in between markers, so that filling in a filled card changes nothing else.
Reference: interoperability contract 6.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import jinja2
import jinja2.meta
import jinja2.sandbox

from kernel_builder.artifact.built import CARD, BuiltVariant
from kernel_builder.config.backends import device_expression
from kernel_builder.config.known import licenses
from kernel_builder.config.model import Project
from kernel_builder.errors import ConfigError, Diagnostic, Level
from kernel_builder.interface.dtypes import demanded_dtypes, tested_dtypes
from kernel_builder.interface.example import example_call, guessed_dtypes
from kernel_builder.interface.native import compiled_files
from kernel_builder.interface.read import Interface, ops_of_project, read_interface
from kernel_builder.variants.names import ArchVariant, TorchTag, parse_variant

VARIABLES = (
    "repo_id",
    "version",
    "functions",
    "layers",
    "has_benchmark",
    "upstream",
    "source",
    "license",
    "name",
    "signatures",
    "backends",
    "variants",
    "commit",
    "dirty",
    "provenance",
    "device",
    "example",
    "guessed",
)
"""What a card's template can use: the first eight are the contract's, the others our own."""

_BEGIN, _END = "<!-- kernel-builder: begin -->", "<!-- kernel-builder: end -->"
_GENERATED = re.compile(rf"\n*{re.escape(_BEGIN)}.*?{re.escape(_END)}\n*", re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\r?\n(?P<body>.*?)^---\r?$\n?", re.DOTALL | re.MULTILINE)
_TEMPLATES = Path(__file__).parent.parent / "templates"


def fill_card(project: Project, variants: Sequence[BuiltVariant], *, repo_id: str | None = None) -> str:
    """The card of ``project`` for the repository ``repo_id`` (default: ``general.hub.repo-id``).

    ``variants`` are those that it describes. A project without ``CARD.md`` gets the built-in one. Raises
    :class:`ConfigError` when no repository is named, or with the line of the template that cannot be filled in.
    """
    repo_id = repo_id or project.hub.repo_id
    if repo_id is None:
        raise ConfigError(
            "the card needs the kernel's repository on the Hub, but none is set",
            hint='set repo-id = "owner/name" in [general.hub] of build.toml, or run:'
            " kernel-builder card --repo-id owner/name",
        )
    path = project.root / CARD
    has_own = path.is_file()
    text = path.read_text(encoding="utf-8") if has_own else _own_template("card.md.j2")
    text = _GENERATED.sub("\n\n", text)
    context = card_context(project, variants, repo_id)
    template, used = _parse(text, path if has_own else None)
    try:
        body = template.render(context)
    except jinja2.TemplateError as error:
        raise _wrong(str(error), _line_of(error, text), path) from error
    sections = (
        _environment()
        .from_string(_own_template("card-sections.md.j2"))
        .render(
            context,
            wants_variants="variants" not in used,
            wants_provenance=not {"provenance", "commit"} & used,
        )
    )
    card = _with_front_matter(body.strip("\n") + "\n", context)
    if any(variant.is_dirty or variant.is_uncommitted for variant in variants):
        card = _after_front_matter(card, _marked(_dirty_banner(variants)) + "\n")
    return card + (f"\n{_marked(sections.strip())}" if sections.strip() else "")


def card_context(project: Project, variants: Sequence[BuiltVariant], repo_id: str) -> dict[str, object]:
    """The values of :data:`VARIABLES`."""
    interface = read_interface(project.package, ops=ops_of_project(project))
    functions = interface.functions if interface.declared else ()
    dtypes = {**tested_dtypes(project.root), **demanded_dtypes(compiled_files(project))} if functions else {}
    return {
        "repo_id": repo_id,
        "version": project.version,
        "functions": [function.name for function in functions],
        "layers": [layer.name for layer in interface.layers],
        "has_benchmark": any((project.root / "benchmarks").glob("benchmark*.py")),
        "upstream": None if project.upstream is None else _normalised(project.upstream),
        "source": None if project.source is None else _normalised(project.source),
        "license": _license(project.license),
        "name": project.name,
        "signatures": _signatures(interface),
        "backends": _backends(project, variants),
        "variants": [_variant(variant.name) for variant in variants],
        "commit": next((variant.commit for variant in variants if variant.commit), None),
        "dirty": any(variant.is_dirty for variant in variants),
        "provenance": _provenance(variants),
        "device": device_expression(project.backends),
        "example": example_call(functions[0], interface.ops, dtypes) if functions else None,
        "guessed": list(guessed_dtypes(functions[0], interface.ops, dtypes)) if functions else [],
    }


def _normalised(url: str) -> str:
    """A git URL as a URL: ``git@host:owner/name`` stands for ``ssh://git@host/owner/name`` (contract 1.2)."""
    if "://" in url:
        return url
    host, _, path = url.partition(":")
    return f"ssh://{host}/{path}"


def _license(text: str | None) -> str:
    """The Hub's own spelling of a licence that it knows, else what the project says."""
    if text is None:
        return "other"
    return text.lower() if text.lower() in licenses() else text


def _signatures(interface: Interface) -> list[dict[str, object]]:
    return [
        {"name": function.name, "signature": function.signature or "(...)", "summary": function.summary}
        for function in interface.functions
    ]


def _backends(project: Project, variants: Sequence[BuiltVariant]) -> list[dict[str, object]]:
    names = {variant.backend for variant in variants} or {backend.value for backend in project.backends}
    return [
        {
            "name": name,
            "archs": sorted(
                {arch for variant in variants if variant.backend == name for arch in variant.archs}, key=_natural
            ),
        }
        for name in sorted(names)
    ]


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


def _variant(name: str) -> dict[str, str]:
    try:
        variant = parse_variant(name)
    except ValueError:
        return {"name": name, "framework": "", "compute": "", "platform": ""}
    if not isinstance(variant, ArchVariant):
        return {"name": name, "framework": "PyTorch", "compute": variant.backend.value, "platform": "any"}
    major, minor = variant.tag.version
    if isinstance(variant.tag, TorchTag):
        abi = f", {variant.tag.abi.value}" if variant.tag.abi else ""
        framework = f"PyTorch {major}.{minor}{abi}"
    else:
        kind = str(variant.tag)
        framework = f"PyTorch {major}.{minor} or later" if kind.startswith("torch") else f"tvm-ffi {major}.{minor}"
    compute = variant.compute.label if not variant.backend.is_host else variant.backend.label
    return {
        "name": name,
        "framework": framework,
        "compute": compute,
        "platform": f"{variant.system.value} {variant.machine.value}",
    }


def _provenance(variants: Sequence[BuiltVariant]) -> str | None:
    """Sentences about what the variants were built from and by; ``None`` when nothing was built."""
    if not variants:
        return None
    commits = sorted({variant.commit for variant in variants if variant.commit})
    builders = sorted({variant.builder_version for variant in variants if variant.builder_version})
    by = f" by kernel-builder {', '.join(builders)}" if builders else ""
    if not commits:
        return f"Built{by} from sources that were not committed to git."
    what = "commit" if len(commits) == 1 else "commits"
    return f"Built{by} from {what} {', '.join(f'`{commit}`' for commit in commits)}."


def _dirty_banner(variants: Sequence[BuiltVariant]) -> str:
    kinds = {
        "with uncommitted changes": [variant.name for variant in variants if variant.is_dirty],
        "that were in no git commit": [variant.name for variant in variants if variant.is_uncommitted],
    }
    lines = [
        f"> Built from sources {what}, so these builds cannot be reproduced: "
        + ", ".join(f"`{name}`" for name in names)
        + "."
        for what, names in kinds.items()
        if names
    ]
    return "> [!WARNING]\n" + "\n".join(lines)


def _marked(text: str) -> str:
    return f"{_BEGIN}\n\n{text}\n\n{_END}\n"


def _with_front_matter(card: str, context: Mapping[str, object]) -> str:
    """``card`` with what the Hub reads from its front matter; keys that the author wrote stay as they are."""
    wanted = {"library_name": "kernels", "license": context["license"]}
    match = _FRONT_MATTER.match(card)
    body = match["body"] if match else ""
    missing = [
        f"{key}: {value}\n" for key, value in wanted.items() if not re.search(rf"^{key}\s*:", body, re.MULTILINE)
    ]
    rest = card[match.end() :] if match else f"\n{card}"
    return f"---\n{body}{''.join(missing)}---\n{rest}"


def _after_front_matter(card: str, text: str) -> str:
    match = _FRONT_MATTER.match(card)
    place = match.end() if match else 0
    return f"{card[:place]}\n{text}{card[place:]}"


@cache
def _environment() -> jinja2.Environment:
    # Block tags swallow the line break behind them, as the reference's templates expect.
    return jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
    )


def _own_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _parse(text: str, path: Path | None) -> tuple[jinja2.Template, set[str]]:
    environment = _environment()
    try:
        used = jinja2.meta.find_undeclared_variables(environment.parse(text))
        return environment.from_string(text), used
    except jinja2.TemplateSyntaxError as error:
        raise _wrong(error.message or "it is not a valid template", error.lineno, path) from error


def _line_of(error: jinja2.TemplateError, text: str) -> int | None:
    """The first line that uses the variable which the error says is undefined."""
    name = re.search(r"'([^']+)' is undefined", str(error))
    if name is None:
        return None
    pattern = re.compile(rf"\{{[{{%].*\b{re.escape(name[1])}\b")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)), None)


def _wrong(message: str, line: int | None, path: Path | None) -> ConfigError:
    hint = f"available variables: {', '.join(VARIABLES)}; {{% raw %}} keeps braces literal"
    return ConfigError(
        f"cannot render {CARD}",
        diagnostics=(Diagnostic(severity=Level.ERROR, message=message, file=path, line=line, hint=hint),),
    )
