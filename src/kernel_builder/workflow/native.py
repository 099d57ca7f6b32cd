"""What of a variant is native code, whatever the variant is called: an edit of Python changes nothing of it."""

from __future__ import annotations

import hashlib
import json

from kernel_builder.actions.host import MODULE_SOURCE
from kernel_builder.actions.model import Action, ActionKind
from kernel_builder.actions.places import Places
from kernel_builder.plan.model import VariantPlan

_NAME, _UNIQUE = "{ops-id}", "{unique}"


def native_digest(variant: VariantPlan, places: Places) -> str | None:
    """A digest over what the library of ``variant`` is made of, with its name taken out: equal for libraries that do
    the same under other names, be these as long or not. Everything that it is linked from is there.

    ``None`` where the name may be anywhere in the code. Raises ``OSError``.
    """
    if variant.library is None:
        return "no library"
    if variant.linked_as == variant.ops_id:
        return None
    names = {variant.linked_as: _NAME, variant.linked_as.rpartition("_")[2]: _UNIQUE}

    def without_names(text: str) -> str:
        for name, word in names.items():
            text = text.replace(name, word)
        return text

    def told(action: Action) -> list[object]:
        return [[[without_names(word) for word in step.command] for step in action.steps], action.identity]

    module = [action for action in variant.actions if action.source == MODULE_SOURCE]
    # The generated module is what has the name: its source stands for what was compiled of it.
    texts = {file.path: without_names(file.content) for file in variant.generated}
    facts: list[object] = [[*told(action), [texts[word] for word in action.inputs]] for action in module]
    named = {word for action in module for word in action.outputs}
    for action in variant.actions:
        if action.kind is ActionKind.LINK:
            facts.append(told(action))
            facts += [[word, _digest(word, places, action)] for word in action.takes if word not in named]
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()


def _digest(word: str, places: Places, action: Action) -> str:
    with places.path(word, action).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
