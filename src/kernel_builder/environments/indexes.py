"""Where pip and uv look for packages, as variables: what they are configured with, and what ``kernel-builder.toml``
adds.

pip reads its own files and variables. uv does not read pip's, so it is told of them: a machine that is configured for
one of the two is configured for both.
Reference: pip user guide, "Configuration"; uv documentation, "Environment variables".
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_builder.store.settings import find_certificates, find_index, pip_values
from kernel_builder.toolchain.settings import ToolchainSettings

_UV_INDEXES = ("UV_INDEX", "UV_EXTRA_INDEX_URL")


def installer_variables(
    settings: ToolchainSettings, environ: Mapping[str, str], *, uv: bool, offline: bool
) -> dict[str, str]:
    """The variables for pip, or ``uv``, on top of ``environ``: an index that is named for kernel-builder, the further
    indexes of ``settings``, and for uv what pip is configured with. Raises :class:`NetworkError` for an address that
    is none.
    """
    named = environ.get("KERNEL_BUILDER_INDEX_URL")
    urls = [index.place.url for index in settings.indexes if index.place.url]
    folders = [str(index.place.path) for index in settings.indexes if index.place.path]
    if not uv:
        found = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
        if named:
            found["PIP_INDEX_URL"] = named
        if urls:
            found["PIP_EXTRA_INDEX_URL"] = " ".join([*urls, *pip_values("extra-index-url", environ)])
        if folders:
            found["PIP_FIND_LINKS"] = " ".join([*folders, *pip_values("find-links", environ)])
        if offline:
            found["PIP_NO_INDEX"] = "1"
        return found
    found = {}
    index = find_index(environ)
    if index.url is not None and not environ.get("UV_DEFAULT_INDEX"):
        found["UV_DEFAULT_INDEX"] = index.with_credentials
    extra = [*urls, *([] if any(map(environ.get, _UV_INDEXES)) else pip_values("extra-index-url", environ))]
    if extra:
        found["UV_INDEX"] = " ".join([*extra, *filter(None, [environ.get("UV_INDEX")])])
        # As pip does: the best of all indexes, not of the first that has the package at all.
        found.setdefault("UV_INDEX_STRATEGY", environ.get("UV_INDEX_STRATEGY", "unsafe-best-match"))
    links = [
        *folders,
        *([environ["UV_FIND_LINKS"]] if environ.get("UV_FIND_LINKS") else pip_values("find-links", environ)),
    ]
    if links:
        found["UV_FIND_LINKS"] = ",".join(links)
    certificates = find_certificates(environ)
    if certificates is not None and certificates.is_file() and not environ.get("SSL_CERT_FILE"):
        found["SSL_CERT_FILE"] = str(certificates)
    if offline:
        found["UV_OFFLINE"] = "1"
    return found
