"""Conformance of kernels: facts about a directory or a library go in, findings come out.

``check_paths`` in :mod:`kernel_builder.check.engine` is the entry. Nothing here knows how a kernel was built; any
kernel is judged, ours or not. Nothing is executed either, except by the rules of ``load``, which start a process.
"""
