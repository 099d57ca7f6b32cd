"""What is known of a variant one source of which is compiled with slim headers."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.actions.context import Context, Layout
from kernel_builder.actions.model import Tree
from kernel_builder.actions.places import Places
from kernel_builder.toolchain.model import FrameworkSdk, HostCompiler, Sysroot, Toolchain, ToolkitSdk

STORE = Path("/store")
DEFINITIONS = ("AT_PER_OPERATOR_HEADERS", "KERNEL_BUILDER_OP_sum")


def slim_context(
    folder: Path, source: str, cxx: Path, toolkit: ToolkitSdk | None = None, *, slim: bool = True, verify: bool = False
) -> Context:
    """Of the project in ``folder``, for the compiler ``cxx``; with ``slim``, ``source`` has slim headers."""
    work = folder / "work"
    torch = FrameworkSdk(
        version="2.13.0",
        include=(STORE / "store" / "torch",),
        libraries=STORE / "stubs",
        exports=(),
        identity="torch-2.13.0-1",
        slim=STORE / "store" / "torch-2.13.0-slim-1" if slim else None,
    )
    return Context(
        variant="v",
        places=Places(root=folder, work=work, output=folder / "build", store=STORE),
        layout=Layout(
            root=folder,
            work=work,
            variant=work / "v",
            registration=work,
            refused=work,
            exports_map=work / "map",
            csrc=None,
        ),
        toolchain=Toolchain(
            host=HostCompiler(cxx=cxx, version="12.2.0", target="x86_64-linux-gnu", library=12),
            sysroot=Sysroot(libraries=STORE / "lib", shim=STORE / "shim", floor="2.27"),
            framework=torch,
            toolkit=toolkit,
        ),
        cxx_standard=20,
        cxx11_abi=True,
        define=lambda _: (),
        heavy=frozenset(),
        precompiled={},
        sources=Tree(name="project", identity="1"),
        slim={source: DEFINITIONS} if slim else {},
        verify=verify,
    )
