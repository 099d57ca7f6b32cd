"""Add the op namespaces of the installed torch to data/torch_namespaces.txt.

Usage: python scripts/generate_torch_namespaces.py

Nothing is removed: the list serves every release. Some modules of torch register ops when they are imported, so these
are imported first; ``torch.ops`` itself lists what is no namespace of the dispatcher.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import torch

TABLE = Path(__file__).parent.parent / "src" / "kernel_builder" / "data" / "torch_namespaces.txt"
REGISTERING = (
    "torch._dynamo",
    "torch._higher_order_ops",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.lowering",
    "torch._prims.debug_prims",
    "torch._prims.rng_prims",
    "torch.ao.quantization.fx._decomposed",
    "torch.distributed._symmetric_memory",
    "torch.distributed.fsdp._fully_shard",
    "torch.distributed.tensor",
    "torch.export",
    "torch.nn.attention.flex_attention",
)


def namespaces() -> set[str]:
    """All that this torch has."""
    for name in REGISTERING:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    ops = torch._C._dispatch_get_all_op_names()  # noqa: SLF001  (nothing public lists them)
    found = {op.partition("::")[0] for op in ops}
    return found | {name for name in dir(torch.ops) if not name.startswith("__")} | {"load_library", "import_module"}


def page() -> str:
    """The table with the namespaces of this torch added."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    head = [line for line in lines if line.startswith("#")]
    known = {line for line in lines if line and not line.startswith("#")}
    return "\n".join([*head, *sorted(known | namespaces())]) + "\n"


if __name__ == "__main__":
    TABLE.write_text(page(), encoding="utf-8")
