# Runs in the interpreter that kernels are loaded with, not in kernel-builder's own. Python 3.9 syntax.
"""The program that asks an interpreter what it has, and loads kernels in it.

    __main__.py   the tasks, each a function of a request
    answers.py    what is written to stdout, and how an error is told
    facts.py      describe: what this interpreter has
    registry.py   what is registered with torch, and where
    registrations.py  which of it a kernel registered
    kernel.py     getting ready and importing a kernel with the client
    loading.py    load, together
    standins.py   what stands in for libraries that are not here; stub_library.py writes them
    device_code.py  whether Python failed for want of a device, or because it is wrong
    behaviour.py  whether ops do what their schemas say: they are called with arguments of made_up.py, which search.py
                  looks for; gradients.py: whether layers have them
    calls.py      call: ops with made-up arguments

Only the standard library is there for sure; torch and ``kernels`` are imported where they are needed. What differs
between backends comes in the request.
"""
