"""What the stand-ins for Apple's compilers share: they judge command lines as the real ones would, and record them.

Nothing is compiled. What is made says what it was made from, so that the next program can judge its input.
"""

import hashlib
import json
import re
import shlex
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "MacOSX.sdk"


def fail(program, message):
    sys.exit(f"{program}: error: {message}")


def expanded(program, words):
    """The words of response files in their places, as clang's driver reads them."""
    for word in words:
        if not word.startswith("@"):
            yield word
            continue
        try:
            text = Path(word[1:]).read_text(encoding="utf-8")
        except OSError:
            fail(program, f"no such file or directory: '{word}'")
        yield from expanded(program, shlex.split(text))


def read(program, known, takes_one):
    """Flags with their arguments in order, and inputs."""
    words = list(expanded(program, sys.argv[1:]))
    with (ROOT / "record.jsonl").open("a", encoding="utf-8") as record:
        record.write(json.dumps([program, *words]) + "\n")
    flags, inputs, linker = [], [], []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in takes_one:
            if not rest:
                fail(program, f"argument to '{word}' is missing")
            argument = rest.pop(0)
            if word == "-Xlinker":
                linker.append(argument)
            elif word == "-o" and value(flags, "-o") is not None:
                fail(program, "cannot specify '-o' twice")
            else:
                flags.append((word, argument))
        elif not word.startswith("-"):
            inputs.append(Path(word))
        elif re.fullmatch(known, word):
            flags.append((word, None))
        else:
            fail(program, f"unknown argument: '{word}'")
    refuse_missing(program, flags, inputs)
    return flags, inputs, linker


def refuse_missing(program, flags, inputs):
    if not inputs:
        fail(program, "no input files")
    if value(flags, "-o") is None:
        fail(program, "no output is named")
    for path in inputs:
        if not path.is_file():
            fail(program, f"no such file or directory: '{path}'")


def value(flags, name):
    return next((argument for flag, argument in reversed(flags) if flag == name), None)


def write_depfile(flags, source, target):
    """The source and what it includes between quotes, as -MMD lists them. Returns a digest over all of it."""
    folders = [source.parent, *(Path(word[2:]) for word, _ in flags if word.startswith("-I"))]
    found = [source]
    for name in re.findall(r'^#\s*(?:include|import)\s+"([^"]+)"', source.read_text(encoding="utf-8"), re.MULTILINE):
        found += [folder / name for folder in folders if (folder / name).is_file()][:1]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()
    if value(flags, "-MF") is not None:
        Path(value(flags, "-MF")).write_text(f"{target}: {' '.join(map(str, found))}\n", encoding="utf-8")
    return digest


def bundle(macos, export):
    """A Mach-O bundle for arm64 of a few bytes, which needs that macOS and exports a function."""
    major, minor = (int(part) for part in macos.split("."))
    version = (major << 16) | (minor << 8)
    build = struct.pack("<6I", 0x32, 24, 1, version, version, 0)
    symbols = struct.pack("<IBBHQ", 1, 0x0F, 1, 0, 0)
    names = b"\0_" + export.encode() + b"\0"
    at = 32 + len(build) + 24
    table = struct.pack("<6I", 2, 24, at, 1, at + len(symbols), len(names))
    head = struct.pack("<4s7I", b"\xcf\xfa\xed\xfe", 0x0100000C, 0, 8, 2, len(build) + len(table), 0, 0)
    return head + build + table + symbols + names
