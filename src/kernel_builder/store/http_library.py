"""Imports the HTTP library without the socket that it opens to see whether this machine has IPv6.

``--offline`` never opens a socket, and nobody knows yet that it was given when modules are imported. Without that look,
IPv6 addresses are tried where Python can use them, and where they lead nowhere the next address is tried.
"""

from __future__ import annotations

import socket

_can_use = socket.has_ipv6
socket.has_ipv6 = False
try:
    import urllib3.util.connection
finally:
    socket.has_ipv6 = _can_use
urllib3.util.connection.HAS_IPV6 = _can_use
