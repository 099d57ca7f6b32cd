"""When a variant is loaded to prove that it works, and when an earlier proof answers: decided here, for builds, checks
and uploads alike.

1. The very same was loaded before: a proof in the store says what that showed, whatever made or holds these files.
2. Nothing else would run than what ran before (:mod:`kernel_builder.load.carried`): so while Python is edited.
3. Otherwise it is loaded, in a process of its own, and what that shows is kept for both.

Where it is not known what an answer would rest on, nothing is kept and nothing recalled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.files import parse_json
from kernel_builder.load.carried import carried, keep
from kernel_builder.load.client import Environment, Loadable, NoEnvironment, load_variant
from kernel_builder.load.evidence import LoadResult
from kernel_builder.load.proofs import Proofs

_METADATA = "metadata.json"
_NOT_READ = ("digest", "provenance")
"""What metadata say that makes no difference to whoever loads the kernel."""


@dataclass(frozen=True, kw_only=True)
class Former:
    """The last proof of a project's variant, kept in ``folder``; ``native`` is a digest of all that is not Python in
    the variant at hand, but for its name.
    """

    folder: Path
    native: str


def prove(
    kernel: Loadable,
    environment: Environment | NoEnvironment,
    proofs: Proofs,
    files: Mapping[str, str],
    *,
    former: Former | None = None,
    log: Path | None = None,
) -> LoadResult:
    """What loading ``kernel`` shows, or showed before. ``files`` are the digests of its files, which must be right.

    With ``former``, the proof of another state of the same kernel may be carried over, which the result then says.
    What is said about a failure is kept in the file ``log``.
    """
    key = None
    if isinstance(environment, Environment) and environment.seen is not None:
        key = environment.proof_key(fingerprint(kernel, files))
    known = proofs.recall(key) if key is not None else None
    if known is None and former is not None:
        found = carried(kernel, former.native, environment, former.folder)
        if found is not None:
            return found
    result = known or load_variant(kernel, environment, log=log)
    if key is not None and known is None:
        proofs.keep(key, result)
    if former is not None:
        keep(kernel, former.native, environment, result, former.folder)
    return result


def fingerprint(kernel: Loadable, files: Mapping[str, str]) -> str:
    """A digest over all of ``kernel`` that loading it can tell apart: the digests of its ``files``, and its metadata
    but for where it comes from.
    """
    document = parse_json((kernel.directory / _METADATA).read_text(encoding="utf-8"))
    told = {name: value for name, value in document.items() if name not in _NOT_READ}
    facts = json.dumps([sorted(files.items()), told], sort_keys=True)
    return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()
