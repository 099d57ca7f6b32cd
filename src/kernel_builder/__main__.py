"""The program: what ``kernel-builder`` and ``python -m kernel_builder`` run."""

import os
import sys


def main() -> None:
    """Run the command line of this process, and exit. Ctrl-C before it is ready shows no traceback."""
    import signal  # noqa: PLC0415  (after the path below was mended)

    # A shell that started this in the background may have it ignore Ctrl-C.
    waiting = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if waiting:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kernel_builder.cli import main as answer  # noqa: PLC0415

    if waiting:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    answer()


if __name__ == "__main__":
    # Python puts the current directory first, which often is a project: its json.py is not to be run.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  (pathlib would be imported from there)
        del sys.path[0]
    main()
