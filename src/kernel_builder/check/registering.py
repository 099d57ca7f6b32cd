"""The lines that register ops as Hub kernels do: with the macros of ``registration.h``, schemas, and a device for each
implementation. They are shown where sources register them in another way.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_builder.check.native_schemas import BoundOp, schema_of
from kernel_builder.config.backends import HOST
from kernel_builder.config.model import Project
from kernel_builder.interface.native import ReadFile

_ANY_SCHEMA = "(Tensor x) -> Tensor"


def registration(
    project: Project, files: Sequence[ReadFile], bound: Sequence[BoundOp], *, is_first: bool = True
) -> list[str]:
    """The lines that register ``bound``, whose functions are in ``files``; ``is_first``: in the one file that has the
    module, too.
    """
    keys = dict.fromkeys((section.backend.torch.dispatch_key, section.backend.value) for section in project.sections)
    stable = "STABLE_" if project.framework.stable_abi else ""
    definitions, implementations, recording, narrow = [], [], [], False
    for one in bound:
        schema = schema_of(one, files)
        function = f"&{one.function or one.name}"
        written = f'  ops.def("{one.name}{schema.text if schema else _ANY_SCHEMA}"'
        if schema is not None and not schema.takes_tensors:  # by which torch would choose a device
            definitions.append(f"{written}, {function});" + (f"  // {schema.remark}" if schema.remark else ""))
            continue
        remark = "write its own schema" if schema is None else schema.remark
        definitions.append(f"{written});  // {remark}" if remark else f"{written});")
        narrow |= schema is not None and schema.narrow
        implementations.append(f'  ops.impl("{one.name}", {f"TORCH_BOX({function})" if stable else function});')
        recording += implementations[-1:] if schema is not None and schema.records else []
    block = "TORCH_LIBRARY_EXPAND" if is_first else "TORCH_LIBRARY_FRAGMENT_EXPAND"
    lines = ['#include "registration.h"', "", f"{stable}{block}(TORCH_EXTENSION_NAME, ops) {{", *definitions, "}"]
    if implementations:
        opened = _opened(list(keys) or [(HOST.torch.dispatch_key, HOST.value)], f"{stable}TORCH_LIBRARY_IMPL_EXPAND")
        lines += ["", *opened, *implementations, "}"]
    if recording:
        lines += ["", f"{stable}TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {{", *recording]
        lines += ["}  // torch::autograd::Function records gradients only there; without it they are lost"]
        lines += ["// (torch.compile takes gradients in Python instead: torch.library.register_autograd, with a fake)"]
    if is_first:
        lines += ["", "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)"]
    if narrow:
        lines.append("(and int64_t and double in the functions, where they have int and float)")
    return lines


def _opened(keys: Sequence[tuple[str, str]], macro: str) -> list[str]:
    """The beginning of the block with implementations, for the device that is compiled for."""
    if len(keys) == 1:
        return [f"{macro}(TORCH_EXTENSION_NAME, {keys[0][0]}, ops) {{"]
    lines = []
    for number, (key, backend) in enumerate(keys):
        lines.append(f"#{'elif' if number else 'if'} defined({backend.upper()}_KERNEL)")
        lines.append(f"{macro}(TORCH_EXTENSION_NAME, {key}, ops) {{")
    return [*lines, "#endif"]
