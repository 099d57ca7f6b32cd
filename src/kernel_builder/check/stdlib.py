"""Python's standard library over the releases that kernels must run on. Facts from its documentation."""

from __future__ import annotations

import sys

ADDED: dict[str, tuple[int, int]] = {
    "graphlib": (3, 9),
    "zoneinfo": (3, 9),
    "tomllib": (3, 11),
    "annotationlib": (3, 14),
    "compression": (3, 14),
}
"""Modules that are newer than Python 3.8 -> the first release that has them."""

REMOVED: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("formatter", "parser", "symbol"), (3, 10)),
    **dict.fromkeys(("binhex",), (3, 11)),
    **dict.fromkeys(("asynchat", "asyncore", "distutils", "imp", "smtpd"), (3, 12)),
    **dict.fromkeys(
        (
            *("aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "msilib", "nis"),
            *("nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
        ),
        (3, 13),
    ),
}
"""Modules of Python 3.9 that later releases dropped -> the first release without them (PEP 594, PEP 632)."""

MODULES = frozenset(sys.stdlib_module_names) | ADDED.keys() | REMOVED.keys() | {"__future__", "__main__"}
"""Every top-level module of any release from 3.9 on."""
