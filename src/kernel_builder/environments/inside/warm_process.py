# Runs in an environment, as a program of its own. Python 3.9 syntax.
"""Usage: ``python warm_process.py MODULES...``: imports the modules, which takes seconds, once; then runs pytest in a
fork for each line of standard input, a JSON object with ``arguments`` and ``output``, a file for what pytest writes.

Each answer is a line of JSON on standard output: ``ready``, then for each run ``pid`` and at its end ``code``, negative
for a signal. What a run imported of torch, and of what comes with it, is imported here too before the next one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import sys
import warnings
from typing import Any

LEARNED = {"torch", "functorch", "numpy", "sympy", "mpmath", "networkx", "jinja2", "_pytest", "kernels"}
"""Packages whose modules are imported ahead, besides pytest's plugins: that starts no device and no process."""
NOT_LEARNED = ("torch._inductor", "torch.utils.cpp_extension")
"""But for these, which start compilers."""


def answer(**facts: object) -> None:
    """Tell whoever started this."""
    os.write(1, (json.dumps(facts) + "\n").encode())


def run(request: dict[str, Any]) -> int:
    """In the fork: pytest, as ``python -m pytest`` has it."""
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    # Whoever gives up on the tests kills this group, and with it what they started.
    os.setpgid(0, 0)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 (pathlib takes its time)
    # The variant may not have been there when this program looked last, or had other files.
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    # Plugins that are here already cannot be rewritten; pytest would warn of that.
    arguments = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning", *request["arguments"]]
    sys.argv = ["pytest", *arguments]
    import pytest  # noqa: PLC0415

    return int(pytest.main(arguments))


def worth_learning() -> list[str]:
    """What this fork imported and the next need not, in the order of imports."""
    return [
        name
        for name in list(sys.modules)
        if name.partition(".")[0] in LEARNED
        and not any(name == other or name.startswith(other + ".") for other in NOT_LEARNED)
    ]


def import_all(names: list[str]) -> None:
    """Import what there is of ``names``; what cannot be imported here, the tests will say."""
    for name in names:
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def fork(request: dict[str, Any]) -> None:
    """Run one request in a fork, and learn from it."""
    notes = request["output"] + ".learned"  # not a pipe: what the tests leave running might hold it open
    child = os.fork()
    if child == 0:
        code = 70
        try:
            warnings.resetwarnings()
            code = run(request)
            with open(notes, "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write("\n".join(worth_learning()))
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(code)
    answer(pid=child)
    _, status = os.waitpid(child, 0)
    answer(code=os.waitstatus_to_exitcode(status))
    with contextlib.suppress(OSError), open(notes, encoding="utf-8") as file:  # noqa: PTH123
        import_all(file.read().split())


def import_plugins() -> None:
    """Import the plugins of pytest that are installed: each fork would, and rewrite their assertions each time."""
    found: Any = importlib.metadata.entry_points()
    plugins = found.select(group="pytest11") if hasattr(found, "select") else found.get("pytest11", ())
    for plugin in plugins:
        with contextlib.suppress(Exception):
            plugin.load()
            # Some import the rest of their package at the end of the tests.
            LEARNED.update(path.parts[0].partition(".")[0] for path in plugin.dist.files if path.suffix == ".py")


def main(modules: list[str]) -> None:
    """Serve until standard input ends."""
    import_all(modules)
    import_plugins()
    gc.collect()
    gc.freeze()  # what is there now is shared by all forks
    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which libraries start
    answer(ready=True)
    for line in iter(sys.stdin.buffer.readline, b""):
        fork(json.loads(line))
        gc.freeze()


if __name__ == "__main__":
    main(sys.argv[1:])
