"""``python -m hub``: the test Hub in a process of its own, for trials by hand. Prints what to set, then serves.

It ends by itself: with the process that started it, or when its time is up.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from hub.server import serve
from hub.state import Account, State


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m hub", description=__doc__)
    parser.add_argument("--root", type=Path, help="where the state lies; default: a directory that is removed")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="the longest it runs")
    parser.add_argument("--user", default="me", help="its token is hf_<user>; it writes to the organisation 'trusted'")
    arguments = parser.parse_args()
    root = arguments.root or Path(tempfile.mkdtemp(prefix="hub-"))
    account = Account(name=arguments.user, token=f"hf_{arguments.user}", organisations={"trusted": "write"})
    parent, end = os.getppid(), time.monotonic() + arguments.seconds
    with serve(
        State(root, accounts=[account], trusted=["trusted"]), port=arguments.port, keep=bool(arguments.root)
    ) as hub:
        for name, value in hub.environment(account.token, root / "home").items():
            print(f"export {name}={value}", flush=True)
        try:
            while os.getppid() == parent and time.monotonic() < end:
                time.sleep(0.5)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
