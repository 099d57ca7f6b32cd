"""A Hub on 127.0.0.1, for tests: repositories with revisions, uploads and downloads as the public clients do them.

Written after what the public ``huggingface_hub`` and ``kernels`` packages send and expect; not shipped. State lies on
disk (:mod:`hub.state`), two small servers answer (:mod:`hub.server`): the Hub itself, and the storage that large
files are sent to and fetched from, which has an origin of its own as in the real one. ``python -m hub`` runs it alone.
"""

from __future__ import annotations

from hub.faults import Fault, Faults
from hub.server import Hub, serve
from hub.state import Account, State
from hub.traffic import Entry, Traffic

__all__ = ["Account", "Entry", "Fault", "Faults", "Hub", "State", "Traffic", "serve"]
