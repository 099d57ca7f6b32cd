"""``python -m kernel_builder`` is ``kernel-builder``."""

import os
import sys

if __name__ == "__main__":
    # Python puts the current directory first, which often is a project: its json.py is not to be run.
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  (pathlib would be imported from there)
        del sys.path[0]
    from kernel_builder.cli import main

    main()
