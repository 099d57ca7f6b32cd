"""What a process said before it died, without the noise: the words of the exception, whole, and no native frames."""

from __future__ import annotations

import re

# A C++ exception that nobody caught, as libstdc++ and libc++ tell of it.
_UNCAUGHT = re.compile(
    r"^(?:libc\+\+abi: )?termina(?:te called after throwing an instance of|ting(?: due to|with)? uncaught exception of"
    r" type) '?(?P<type>[^':\n]+(?:::[^':\n]+)*)'?(?::|\n +what\(\):)? *(?P<words>.*)",
    re.MULTILINE | re.DOTALL,
)
_PYTHON = re.compile(r"^Traceback \(most recent call last\):\n(?: [^\n]*\n)*(?P<words>\S.*)", re.MULTILINE | re.DOTALL)
_NATIVE = re.compile(
    r"^\s*(?:frame #\d+: .*|#\d+:? .* (?:from|at|in) \S.*|<omitting python frames>"
    r"|Exception raised from .* \(most recent call first\):|C\+\+ CapturedTraceback:)$"
)
_MOST = 40


def without_native_frames(words: str) -> str:
    """``words`` without the addresses of machine code that torch adds to its errors."""
    kept = [line for line in words.splitlines() if not _NATIVE.match(line)]
    return "\n".join(kept).strip()


def cause_of(written: str) -> str:
    """What ended a process that wrote this: its exception's type and words, else the end of what it wrote."""
    uncaught = list(_UNCAUGHT.finditer(written))
    if uncaught:
        found = uncaught[-1]
        words = without_native_frames(found["words"])
        return f"{found['type'].strip()}: {words}" if words else found["type"].strip()
    python = list(_PYTHON.finditer(written))
    if python:
        return without_native_frames(python[-1]["words"])
    fatal = written.rfind("Fatal Python error: ")
    lines = without_native_frames(written[max(fatal, 0) :]).splitlines()
    return "\n".join(lines[:_MOST] if fatal >= 0 else lines[-_MOST:])
