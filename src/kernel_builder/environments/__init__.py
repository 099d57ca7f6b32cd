"""Pythons with the torch that a variant is for: made, kept and shared; and what is run in them.

wanted.py      a variant, and what tests need -> what is installed
mentions.py     do tests, benchmarks and the kernel itself need torch?
indexes.py     where pip and uv look for it
install.py     pip or uv, run
kept.py        the environments in the store's folder: made once, listed, bounded, removed
adopt.py       an environment that is there already: has it all that is needed?
variables.py   what a shell, or tests, in an environment see; pure
report.py      what pytest told of its tests
running.py     programs in the foreground: tests, shells
warm.py        a process that has torch loaded, which tests are forked from
inside/        what runs there: of the standard library, and of pytest
"""
